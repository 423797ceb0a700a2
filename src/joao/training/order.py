r"""The order in which an epoch shows its graphs.

Graphs in memory are permuted uniformly. Those in shards are permuted in two stages, as a permutation of all of them
would be as long as the data and ask for every page of them again and again:

1. the store is cut into blocks of consecutive graphs, and the blocks are put into a uniformly random order;
2. :data:`WINDOW` graphs' worth of blocks at a time are taken together and permuted uniformly.

Every graph comes once in an epoch, at each place in it with equal probability (but for a last block that is shorter),
and a batch is a uniform choice of the graphs of its window. What is not random: graphs of one block come in the same
window, that is within one of :math:`n / w` parts of an epoch with :math:`n` graphs and windows of :math:`w`. A store of
one window or less, about a million graphs, is permuted uniformly, exactly as in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

WINDOW = 1 << 20


@dataclass(frozen=True)
class BatchSampler:
    """The batches of an epoch.

    Args:
        num_graphs: of the data.
        batch_size: graphs of a batch; a last batch of one graph joins its neighbour.
        block: graphs that stay together, see above; 0 permutes all uniformly.
        window: graphs that are permuted together, a multiple of ``block``.
    """

    num_graphs: int
    batch_size: int
    block: int = 0
    window: int = WINDOW

    def __len__(self) -> int:
        """How many batches."""
        whole, rest = divmod(self.num_graphs, self.batch_size)
        return max(1, whole + (rest > 1))

    def draw(self, generator: torch.Generator) -> Iterator[list[Tensor]]:
        """Lists of batches, the numbers of their graphs, that together are an epoch; drawn when they are asked for."""
        rest = torch.zeros(0, dtype=torch.long)
        seen = 0
        for numbers in self._windows(generator):
            seen += numbers.numel()
            waiting = torch.cat([rest, numbers]) if rest.numel() else numbers
            if seen == self.num_graphs:
                yield split_into_batches(waiting, self.batch_size)
                return
            # Two graphs at least are held back, so that a last batch of one has a neighbour to join.
            count = (waiting.numel() - 2) // self.batch_size * self.batch_size
            rest = waiting[count:].clone()
            if count:
                yield list(torch.split(waiting[:count], self.batch_size))

    def _windows(self, generator: torch.Generator) -> Iterator[Tensor]:
        if not self.block or self.num_graphs <= self.window:
            yield torch.randperm(self.num_graphs, generator=generator)
            return
        blocks = torch.randperm(math.ceil(self.num_graphs / self.block), generator=generator)
        for chosen in torch.split(blocks, max(1, self.window // self.block)):
            numbers = (chosen[:, None] * self.block + torch.arange(self.block)).flatten()
            numbers = numbers[numbers < self.num_graphs]
            yield numbers[torch.randperm(numbers.numel(), generator=generator)]


def split_into_batches(numbers: Tensor, batch_size: int) -> list[Tensor]:
    """``numbers`` in batches; a last batch of one graph joins its neighbour."""
    batches = list(torch.split(numbers, batch_size))
    if batches[-1].numel() == 1 and len(batches) > 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
