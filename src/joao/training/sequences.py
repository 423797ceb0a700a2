"""Words to predict, as ogbg-code asks for: the name of a function, one word after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from joao.training.targets import Targets, weighted_mean


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
        filled = [row + [SequenceTargets.not_measured] * (longest - len(row)) for row in rows]
        return SequenceTargets(torch.tensor(filled, dtype=torch.long).reshape(-1, longest), length, len(self.words) + 2)


@final
@dataclass(frozen=True, eq=False)
class SequenceTargets(Targets):
    r"""Words, each from a linear layer of its own: the mean cross-entropy, and the mean F1 of sets of words.

    Of a graph whose name has the set of words :math:`Y`, while :math:`P` are those predicted before the first end,

    .. math:: F_1 = \frac{2 |Y \cap P|}{|Y| + |P|} , \quad \text{0 where nothing is common.}

    :math:`Y` has all words of the name, also those that are too far behind or too rare to be predicted. A predicted
    "any other word" is one of :math:`P` and never of :math:`Y`. Nothing is settled by the training graphs.

    Args:
        values: ``(G, length + longest)`` the classes to learn, and then the different words of the name, -1 where
            there are fewer; use :meth:`Vocabulary.targets`.
        length: words that are learned.
        num_classes: words that can be predicted, any other word, and the end, which is the last.
    """

    length: int
    num_classes: int
    not_measured = -1
    measure = "F1"

    @property
    def num_outputs(self) -> int:
        return self.length * self.num_classes

    def settle(self, train: Tensor, balanced: bool) -> Tensor:
        return torch.ones(1, device=self.values.device)

    def losses(self, outputs: Tensor, graphs: Tensor, settled: Tensor) -> Tensor:
        classes = self.values[graphs][..., : self.length]
        logits = outputs.reshape(*graphs.shape, self.length, self.num_classes)
        costs = F.cross_entropy(logits.flatten(0, 2), classes.clamp(min=0).flatten(), reduction="none")
        weights = (classes >= 0).to(costs.dtype)
        return weighted_mean(weights.flatten(1), costs.view_as(classes).flatten(1))

    def scores(self, outputs: Tensor, graphs: Tensor, settled: Tensor) -> Tensor:
        wanted = self.values[graphs]
        predicted = outputs.reshape(*graphs.shape, self.length, self.num_classes).argmax(-1)
        in_name = wanted[..., self.length :]
        is_before_end = (predicted == self.num_classes - 1).cumsum(-1) == 0
        earlier = torch.ones(self.length, self.length, dtype=torch.bool, device=outputs.device).tril(-1)
        is_repeat = ((predicted.unsqueeze(-1) == predicted.unsqueeze(-2)) & earlier).any(-1)
        is_word = is_before_end & ~is_repeat
        is_right = is_word & (predicted.unsqueeze(-1) == in_name.unsqueeze(-2)).any(-1)
        total = is_word.sum(-1) + (in_name >= 0).sum(-1)
        f1 = 2 * is_right.sum(-1).double() / total.clamp(min=1)
        return weighted_mean((wanted[..., 0] >= 0).double(), f1)
