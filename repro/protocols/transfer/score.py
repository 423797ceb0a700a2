"""The transfer protocol: fine-tuning on one split with several seeds; and parts for protein networks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch
from joao.core.randomness import derive_seed, numpy_generator
from joao.data.dataset import Dataset
from joao.evaluation.splits import Split
from joao.training.finetune import Finetuning
from repro.proteins import FILE, get_array, load_tensors
from repro.protocols.stacked_fits import Part, fit_all


@final
@dataclass(frozen=True)
class TransferScore:
    """The scores of one seed.

    Attributes:
        seed: seed of linear layer and batches; stacked fits draw the dropout of all seeds together.
        epoch: chosen by the validation graphs, from 1.
        validation, test: scores at that epoch; validation is None if it is undefined for its labels.
        last_test: test score of the last epoch, as in the published tables.
    """

    seed: int
    epoch: int
    validation: float | None
    test: float
    last_test: float


def parts_of(split: Split, starts: Mapping[int, Sequence[Tensor]]) -> list[Part]:
    """List one fit per seed, on the same graphs."""
    train, validation = torch.from_numpy(split.train), torch.from_numpy(split.validation)
    return [Part(train, validation, derive_seed(seed, "transfer"), start) for seed, start in starts.items()]


def score_seeds(finetuning: Finetuning, split: Split, starts: Mapping[int, Sequence[Tensor]]) -> list[TransferScore]:
    """Fine-tune with every seed. The test graphs are evaluated at the end and never used for selection.

    Args:
        finetuning: fine-tuning on all graphs.
        split: numbers of the graphs of each part.
        starts: initial weights by seed, see :meth:`Finetuning.initial_weights`.
    """
    scores = score_parts(finetuning, split, parts_of(split, starts))
    return [TransferScore(seed, **score) for seed, score in zip(starts, scores, strict=True)]


def score_parts(finetuning: Finetuning, split: Split, parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    """Fine-tune all parts; yield the fields of :class:`TransferScore` except the seed."""
    test = torch.from_numpy(split.test)
    for fit in fit_all(finetuning, parts):
        validation = fit.epochs[fit.chosen - 1].validation_score
        at_chosen = finetuning.score(test)
        finetuning.restore_last_epoch()
        yield {
            "epoch": fit.chosen,
            "validation": validation,
            "test": at_chosen,
            "last_test": finetuning.score(test),
        }


HUMAN = 9606

Indices = NDArray[np.int64]


class Proteins(NamedTuple):
    """NCBI taxonomy numbers of the species, such as 9606 for human, and central proteins of networks, ``(G,)`` each."""

    species: Indices
    centre: Indices


def read_proteins(folder: Path, graphs: Dataset) -> Proteins:
    """Read what the published folder ``supervised`` or ``unsupervised`` has besides its ``graphs``."""
    path, (values, _) = folder / FILE, load_tensors(folder)
    species, centre = (get_array(path, values, name, 1) for name in ("species_id", "center_node_idx"))
    for name, found in (("species_id", species), ("center_node_idx", centre)):
        if len(found) != len(graphs):
            raise UserError(f"{path}: is damaged: {len(found)} values of '{name}' for {len(graphs)} graphs.")
    if ((centre < 0) | (centre >= np.diff(graphs.first_node))).any():
        raise UserError(f"{path}: is damaged: a central protein is not in its graph.")
    return Proteins(species, centre)


class SpeciesSplit(NamedTuple):
    """The graphs of each part, ascending."""

    train: Indices
    validation: Indices
    test_easy: Indices
    test_hard: Indices


def species_split(species: Indices, seed: int = 42, validation_share: float = 0.15) -> SpeciesSplit:
    """Split by species: human proteins are the test part; a random share of the others is the validation part.

    As published, the test part is divided at random into halves called easy and hard, and the hard one is reported.
    The published draws come from another generator and cannot be reproduced.

    Args:
        species: ``(G,)`` species of each graph.
        seed: seed of both draws; 42 as published.
        validation_share: share of the graphs outside the test part.
    """
    if not 0 < validation_share < 1:
        raise UserError(f"species split: validation_share must be between 0 and 1, got {validation_share}.")
    is_human = np.asarray(species) == HUMAN
    if is_human.sum() < 2 or (~is_human).sum() < 2:
        raise UserError(
            f"species split: {is_human.sum()} human networks ({HUMAN}) and {(~is_human).sum()} others; "
            "expected at least two of each."
        )
    random = numpy_generator(seed, "species split")
    others, human = (random.permutation(np.flatnonzero(which)) for which in (~is_human, is_human))
    num_validation = min(max(round(validation_share * len(others)), 1), len(others) - 1)
    parts = (others[num_validation:], others[:num_validation], human[: len(human) // 2], human[len(human) // 2 :])
    return SpeciesSplit(*(np.sort(part) for part in parts))


def with_centre(nodes: Tensor, batch: GraphBatch, centre: Tensor) -> Tensor:
    r""":math:`\frac{1}{n} \sum_v x_v \,\|\, x_c`: the mean of all nodes concatenated with the vector of the centre.

    Args:
        nodes: ``(N, d)`` vectors of the nodes of ``batch``.
        batch: some graphs.
        centre: ``(G,)`` the number, inside its graph, of each one's centre.

    Returns:
        ``(G, 2 d)``
    """
    total = nodes.new_zeros(batch.num_graphs, nodes.shape[1]).index_add(0, batch.graph_of_node, nodes)
    mean = total / batch.nodes_per_graph.unsqueeze(1)
    return torch.cat([mean, nodes.index_select(0, batch.first_node[:-1] + centre)], dim=1)
