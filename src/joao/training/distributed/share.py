"""A process's share of a batch: which graphs it shows, and from which draws."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from joao.augmentations import Augmentation
from joao.core.graphs import GraphBatch, Store, concatenate
from joao.core.randomness import derive_seed
from joao.training.distributed.group import ALONE, ProcessGroup
from joao.training.model import View, draw_mixed_view, draw_view

SECTION = 1024


class BatchShard:
    """The graphs of a batch that one of several processes shows and encodes; alone, all of them.

    What is random is drawn for whole sections of a batch, of ``SECTION`` graphs from the first on, whoever shows them:
    batch and seed decide the views, the number of processes does not. A process draws the sections that its part lies
    in and leaves the others alone, so that its work does not grow with the number of processes. The one section of a
    batch up to that size is drawn from ``generator`` itself, several from generators that it seeds.

    Args:
        store: the graphs.
        graphs: ``(B,)`` numbers of all graphs of the batch, on the device of ``store``.
        ranks: the processes.
    """

    def __init__(self, store: Store, graphs: Tensor, ranks: ProcessGroup = ALONE) -> None:
        self.store, self.graphs, self.ranks = store, graphs, ranks
        self.count = graphs.numel()
        self.part = ranks.part(self.count)
        starts = range(0, self.count, SECTION)
        last = max(self.part.start, self.part.stop - 1)  # without a part, one section is there to show none of
        touched = [first for first in starts if first <= last and self.part.start < first + SECTION]
        self.alone = len(starts) == 1
        self.firsts = list(starts) if self.alone else touched

    @cached_property
    def sections(self) -> list[GraphBatch]:
        """The graphs of the sections that are drawn here."""
        return [self.store.batch(self.graphs[first : first + SECTION]) for first in self.firsts]

    def view(self, numbers: Tensor, pool: Sequence[Augmentation], generator: torch.Generator) -> View:
        """This process's part of the view of all graphs.

        Args:
            numbers: of the augmentation of all graphs, ``(1,)``, or of each, ``(B,)``, on the CPU.
            pool: the augmentations.
            generator: on the device of the graphs; afterwards it is in the same state in all processes.
        """
        generators = self._generators(generator)
        if numbers.numel() == 1:
            number = int(numbers)
            views = [
                draw_view(section, number, pool, own).batch
                for section, own in zip(self.sections, generators, strict=True)
            ]
            return View(self._own(views), number)
        numbers = numbers.to(self.graphs.device)
        views = [
            draw_mixed_view(self.store, self.graphs[places], numbers[places], pool, own).batch
            for places, own in zip((slice(first, first + SECTION) for first in self.firsts), generators, strict=True)
        ]
        # Inside a section they are in the order of their augmentations, whoever has drawn it.
        starts = range(0, self.count, SECTION)
        order = torch.cat([first + torch.argsort(numbers[first : first + SECTION], stable=True) for first in starts])
        return View(self._own(views), numbers[order][self.part], row=torch.argsort(order))

    def gather(self, projections: Tensor) -> Tensor:
        """``(B, d)`` rows of all processes, of which ``projections`` are those of this one's views."""
        return self.ranks.gather(projections, self.count)

    def is_unchanged(self, view: View) -> bool:
        """Whether ``view`` is known, in every process, to show the graphs as they are."""
        return self.ranks.size == 1 and self.alone and view.batch is self.sections[0]

    def _own(self, sections: Sequence[GraphBatch]) -> GraphBatch:
        """Of the graphs of the sections drawn, those that are this process's."""
        parts = []
        for first, section in zip(self.firsts, sections, strict=True):
            low, high = max(self.part.start - first, 0), min(self.part.stop - first, section.num_graphs)
            parts.append(section.between(low, high))
        return parts[0] if len(parts) == 1 else concatenate(parts)

    def _generators(self, generator: torch.Generator) -> list[torch.Generator]:
        if self.alone:
            return [generator]
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        return [
            torch.Generator(generator.device).manual_seed(derive_seed(seed, f"section {first // SECTION}"))
            for first in self.firsts
        ]
