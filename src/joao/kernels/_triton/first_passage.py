from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from joao.core.padded import PaddedBatch


def first_passage(batch: PaddedBatch, start: Tensor, waiting: Tensor) -> Tensor:
    """See :func:`joao.kernels.first_passage.first_passage`."""
    # Non-negative numbers of type float64 are in the order of their bits as int64, which atomics can compare.
    time = start.clone().view(torch.int64)
    edges = min(1024, max(64, triton.next_power_of_2(batch.most_edges)))
    graphs = batch.source, batch.target, batch.first_edge, batch.first_node
    _first_passage[(batch.num_graphs,)](*graphs, time, waiting, EDGES=edges, num_warps=max(2, edges // 128))
    return time.view(torch.float64)


@triton.jit
def _first_passage(source, target, first_edge, first_node, time, waiting, EDGES: tl.constexpr):
    """A program is a graph: sweeps over its edges until nothing changes."""
    graph = tl.program_id(0)
    begin = tl.load(first_edge + tl.load(first_node + graph))
    end = tl.load(first_edge + tl.load(first_node + graph + 1))
    changed = 1
    while changed > 0:
        changed = 0
        for edge in range(begin, end, EDGES):
            edges = edge + tl.arange(0, EDGES)
            is_edge = edges < end
            of = tl.load(source + edges, mask=is_edge, other=0)
            to = tl.load(target + edges, mask=is_edge, other=0)
            # What other threads of the program have written must be seen: past the first cache.
            known = tl.load(time + of, mask=is_edge, other=0, volatile=True).to(tl.float64, bitcast=True)
            arrival = known + tl.load(waiting + to, mask=is_edge, other=0.0)
            bits = arrival.to(tl.int64, bitcast=True)
            earlier = tl.atomic_min(time + to, bits, mask=is_edge)
            changed += tl.sum(((bits < earlier) & is_edge).to(tl.int32), 0)
        tl.debug_barrier()
