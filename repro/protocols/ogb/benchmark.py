"""OGB data sets: official splits with few labels, and the words of function names as targets (ogbg-code)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from joao.core.errors import UserError
from joao.core.randomness import derive_seed, numpy_generator
from joao.data import read_whole
from joao.data.dataset import Dataset
from joao.data.formats.ogb import LABELS, OfficialSplit, official_split, open_ogb
from joao.data.names import ogb_path
from joao.evaluation.splits import Split, sample_stratified
from joao.evaluation.targets import BinaryTargets, ClassTargets, Targets, weighted_mean
from joao.runs.scoring import require_classes
from joao.training.finetune import Finetuning


def read_words(path: Path, num_graphs: int) -> list[list[str]]:
    """Read the words that ogbg-code2 asks for: ``get name`` is two words."""
    with open_ogb(path) as files, files.stream(LABELS) as stream:
        lines = stream.read().splitlines()  # 8 MB for 450,000 names
        files.check_labels(lines, num_graphs)
        words = []
        for number, line in enumerate(lines, 1):
            try:
                words.append(line.decode("utf-8").strip().strip('"').split())
            except UnicodeDecodeError as error:
                raise UserError(f"{files.place(LABELS)} line {number}: not valid UTF-8.") from error
        return words


@final
@dataclass(frozen=True)
class Vocabulary:
    """Words that can be predicted, the most frequent first; behind them two more: any other word, and the end."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[Sequence[str]], most: int) -> Vocabulary:
        """The ``most`` most frequent words; of equally frequent ones, those that come first."""
        counts = Counter(word for name in names for word in name)
        return cls(tuple(word for word, _ in counts.most_common(most)))

    @property
    def unknown(self) -> int:
        return len(self.words)

    @property
    def end(self) -> int:
        return len(self.words) + 1

    def targets(self, names: Sequence[Sequence[str]], length: int) -> SequenceTargets:
        """Of graphs with these ``names``, of whose words the first ``length`` are learned."""
        number = {word: place for place, word in enumerate(self.words)}
        rows = []
        for name in names:
            learned = [number.get(word, self.unknown) for word in name[:length]]
            # A word that cannot be predicted has a number of its own, beyond those that can.
            distinct = [number.get(word, self.end + 1 + place) for place, word in enumerate(dict.fromkeys(name))]
            rows.append(learned + [self.end] * (length - len(learned)) + distinct)
        longest = max(map(len, rows), default=length)
        filled = [row + [SequenceTargets.missing] * (longest - len(row)) for row in rows]
        return SequenceTargets(torch.tensor(filled, dtype=torch.long).reshape(-1, longest), length, len(self.words) + 2)


@final
@dataclass(frozen=True, eq=False)
class SequenceTargets(Targets):
    r"""Words, each from a linear layer of its own: the mean cross-entropy, and the mean F1 of sets of words.

    Of a graph whose name has the set of words :math:`Y`, while :math:`P` are those predicted before the first end,

    .. math:: F_1 = \frac{2 |Y \cap P|}{|Y| + |P|} , \quad \text{0 where nothing is common.}

    :math:`Y` has all words of the name, also those that are too far behind or too rare to be predicted. A predicted
    "any other word" is one of :math:`P` and never of :math:`Y`. The training graphs determine no statistics.

    Args:
        values: ``(G, length + longest)`` the classes to learn, and then the different words of the name, -1 where
            there are fewer; use :meth:`Vocabulary.targets`.
        length: words that are learned.
        num_classes: words that can be predicted, any other word, and the end, which is the last.
    """

    length: int
    num_classes: int
    missing = -1
    metric = "F1"

    @property
    def num_outputs(self) -> int:
        return self.length * self.num_classes

    def training_statistics(self, train: Tensor, balanced: bool) -> Tensor:
        return torch.ones(1, device=self.values.device)

    def losses(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        classes = self.values[graphs][..., : self.length]
        logits = outputs.reshape(*graphs.shape, self.length, self.num_classes)
        costs = F.cross_entropy(logits.flatten(0, 2), classes.clamp(min=0).flatten(), reduction="none")
        weights = (classes >= 0).to(costs.dtype)
        return weighted_mean(weights.flatten(1), costs.view_as(classes).flatten(1))

    def scores(self, outputs: Tensor, graphs: Tensor, statistics: Tensor) -> Tensor:
        wanted = self.values[graphs]
        predicted = outputs.reshape(*graphs.shape, self.length, self.num_classes).argmax(-1)
        in_name = wanted[..., self.length :]
        # F1 compares sets: positions count that come before the first "end" and do not repeat an earlier word.
        # Comparing all pairs of positions keeps the shapes fixed, as a CUDA graph needs.
        is_before_end = (predicted == self.num_classes - 1).cumsum(-1) == 0
        earlier = torch.ones(self.length, self.length, dtype=torch.bool, device=outputs.device).tril(-1)
        is_repeat = ((predicted.unsqueeze(-1) == predicted.unsqueeze(-2)) & earlier).any(-1)
        is_word = is_before_end & ~is_repeat
        is_right = is_word & (predicted.unsqueeze(-1) == in_name.unsqueeze(-2)).any(-1)
        total = is_word.sum(-1) + (in_name >= 0).sum(-1)
        f1 = 2 * is_right.sum(-1).double() / total.clamp(min=1)
        return weighted_mean((wanted[..., 0] >= 0).double(), f1)


@final
@dataclass(frozen=True)
class OfficialScore:
    """What a seed showed.

    Attributes:
        seed: of the labelled graphs, the linear layer and the batches.
        epoch: that the validation graphs chose, from 1 on.
        validation, test: scores at that epoch; validation is None where its labels allow none.
    """

    seed: int
    epoch: int
    validation: float | None
    test: float


def labelled_part(
    split: OfficialSplit, label_rate: float, seed: int, classes: NDArray[np.int64] | None = None
) -> Split:
    r"""The official split with labels for :math:`\lfloor r n \rfloor` of the :math:`n` training graphs.

    They are drawn with every class having its share where there are ``classes`` ``(G,)`` of graphs, and at random where
    there are none. A function of its arguments alone, so that all methods learn from the same labels. The other parts
    stay whole.
    """
    if not 0 < label_rate <= 1:
        raise UserError(f"labels: the label rate must be above 0 and at most 1 (100 %), got {label_rate}.")
    number = int(np.floor(label_rate * len(split.train) + 1e-9))
    least = 2 if classes is None else max(2, len(np.unique(classes[split.train])))
    if number < least:
        raise UserError(
            f"labels: {100 * label_rate:.3g} % of {len(split.train)} training graphs are {number}; {least} are needed."
        )
    generator = numpy_generator(seed, f"labels of the training part at {label_rate}")
    if classes is None:
        places = np.sort(generator.choice(len(split.train), number, replace=False))
    else:
        places = sample_stratified(classes[split.train], number, generator)
    return Split(split.train[places], split.validation, split.test)


def score_seed(finetuning: Finetuning, split: Split, seed: int) -> OfficialScore:
    """Fine-tunes once; the test graphs are looked at once, when the epoch is chosen."""
    train, validation, test = map(torch.from_numpy, split)
    fit = finetuning.fit(train, validation, derive_seed(seed, "OGB"))
    kept = fit.epochs[fit.chosen - 1]
    return OfficialScore(seed, fit.chosen, kept.validation_score, finetuning.score(test))


def strata_of(targets: NDArray[np.float32]) -> NDArray[np.int64] | None:
    """Classes to draw by, where there is one task of 0 and 1 without gaps; None for others."""
    if targets.shape[1] != 1 or not np.isin(targets, (0, 1)).all():
        return None
    return targets[:, 0].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A data set of OGB.

    Attributes:
        graphs: with classes or tasks.
        split: the official one.
        names: the words to predict, of syntax trees.
    """

    graphs: Dataset
    split: OfficialSplit
    names: list[list[str]] | None = None

    def unlabelled(self) -> Dataset:
        """The graphs to pre-train on: those of the training part."""
        return self.graphs.subset(self.split.train)

    def labelled(self, label_rate: float, seed: int) -> Split:
        """The split, with labels for a share of the training part."""
        targets = self.graphs.targets
        strata = self.graphs.classes if targets is None else strata_of(targets)
        return labelled_part(self.split, label_rate, seed, strata)

    def targets(self, split: Split, settings: Mapping[str, Any]) -> Targets:
        """What is learned; words that can be predicted are those of the labelled graphs (deviation 43)."""
        if self.names is not None:
            vocabulary = Vocabulary.of((self.names[graph] for graph in split.train), settings["most"])
            return vocabulary.targets(self.names, settings["length"])
        if self.graphs.targets is not None:
            return BinaryTargets(torch.from_numpy(self.graphs.targets))
        return ClassTargets(torch.from_numpy(require_classes(self.graphs)), len(self.graphs.class_names))


@lru_cache(maxsize=1)
def benchmark_of(name: str, data_root: str | None) -> Benchmark:
    """Reads a data set by its name; the last one is kept."""
    path = ogb_path(name, data_root)
    if path is None:
        raise UserError(f"{name}: is not OGB's own archive or folder.")
    graphs = read_whole(name, data_root)
    names = read_words(path, len(graphs)) if graphs.kind == "syntax_trees" else None
    return Benchmark(graphs, official_split(path, len(graphs)), names)
