"""A data set of OGB with all that its protocol needs: graphs, labels, official split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from joao.data import read_whole
from joao.data.base import Dataset
from joao.data.ogb_labels import OfficialSplit, official_split, words_of
from joao.data.sources import ogb_path
from joao.errors import UserError
from joao.evaluation.labels import Split
from joao.evaluation.official import labelled_part, strata_of
from joao.scoring import classes_of
from joao.training.sequences import Vocabulary
from joao.training.targets import BinaryTargets, ClassTargets, Targets


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
        return ClassTargets(torch.from_numpy(classes_of(self.graphs)), len(self.graphs.class_names))


@lru_cache(maxsize=1)
def benchmark_of(name: str, data_root: str | None) -> Benchmark:
    """Reads a data set by its name; the last one is kept."""
    path = ogb_path(name, data_root)
    if path is None:
        raise UserError(f"{name}: is not OGB's own archive or folder.")
    graphs = read_whole(name, data_root)
    names = words_of(path, len(graphs)) if graphs.kind == "syntax_trees" else None
    return Benchmark(graphs, official_split(path, len(graphs)), names)
