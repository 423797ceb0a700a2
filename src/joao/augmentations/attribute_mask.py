from dataclasses import dataclass, replace
from typing import final

import torch

from joao.augmentations.base import PaddedAugmentation, choose_nodes, choose_padded_nodes
from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, nonzero_indices
from joao.core.padded import PaddedBatch


@final
@dataclass(frozen=True)
class AttributeMask(PaddedAugmentation):
    r"""Replace the features of some nodes.

    All features of :math:`\lfloor s n \rfloor` uniformly chosen nodes of each graph become

    - ``fill="noise"``: independent draws from :math:`N(0.5, 0.5^2)`, as in the paper's unsupervised setting;
    - ``fill="mean"``: the mean over the nodes of the graph, as in its semi-supervised setting;
    - ``fill="token"``: -1, the mask token of encoders whose features are category numbers.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> batch = batch_of([networkx.path_graph(10)])
    >>> view = AttributeMask(0.2, fill="token")(batch, torch.Generator())
    >>> int((view.x == -1).all(dim=1).sum()), view.num_edges == batch.num_edges
    (2, True)
    """

    fill: str = "noise"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fill not in ("noise", "mean", "token"):
            raise UserError(f"AttributeMask: fill must be 'noise', 'mean' or 'token', got '{self.fill}'.")

    def __call__(self, batch: GraphBatch, generator: torch.Generator) -> GraphBatch:
        masked = nonzero_indices(choose_nodes(batch, self.strength, generator))
        x = batch.x.clone()
        if self.fill == "noise":
            fill = torch.empty(masked.numel(), x.shape[1], dtype=x.dtype, device=x.device)
            x.index_copy_(0, masked, fill.normal_(0.5, 0.5, generator=generator))
        elif self.fill == "token":
            x.index_fill_(0, masked, -1)
        else:
            total = x.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.graph_of_node, x)
            mean = total / batch.nodes_per_graph[:, None]
            x[masked] = mean[batch.graph_of_node[masked]]
        return replace(batch, x=x)

    def padded(self, batch: PaddedBatch, generator: torch.Generator) -> PaddedBatch:
        masked = choose_padded_nodes(batch, self.strength, generator)[:, None]
        x = batch.x
        if self.fill == "noise":
            fill = torch.empty_like(x).normal_(0.5, 0.5, generator=generator)
        elif self.fill == "token":
            fill = x.new_full((), -1)
        else:
            total = x.new_zeros(batch.num_graphs, x.shape[1])
            total.index_add_(0, batch.graph_of_node, x * batch.keep[:, None])
            fill = (total / batch.nodes_per_graph[:, None])[batch.graph_of_node]
        return replace(batch, x=torch.where(masked, fill, x))
