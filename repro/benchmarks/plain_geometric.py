"""GraphCL as a good engineer writes it with torch-geometric alone: a DataLoader, ``GINConv``, and nodes dropped from
whole batches at once. The network, loss and optimiser are those of our rows.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, final

import torch
from torch import Tensor, nn

from joao.core.graphs import GraphStore
from joao.objectives import PairObjective

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns about torch.jit when it is loaded
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader as DataLoader
    from torch_geometric.nn import GINConv, global_add_pool

STRENGTH = 0.2
Augmenter = Callable[[Any, torch.Generator], Any]


def data_list(store: GraphStore) -> list[Any]:
    """Convert the graphs of ``store`` to torch-geometric, on the CPU."""
    store = store.to("cpu")
    nodes, edges = store.first_node.tolist(), store.first_edge.tolist()
    return [
        Data(
            x=store.x[nodes[graph] : nodes[graph + 1]].float(),
            edge_index=torch.stack(
                [end[edges[graph] : edges[graph + 1]].long() for end in (store.source, store.target)]
            ),
        )
        for graph in range(len(store))
    ]


def node_drop(batch: Any, generator: torch.Generator) -> Any:
    """Drop each node of a batch with probability 0.2, for all graphs at once; their edges go with them."""
    keep = torch.rand(batch.num_nodes, generator=generator).to(batch.x.device) >= STRENGTH
    edges = batch.edge_index[:, keep[batch.edge_index].all(0)]
    number = keep.cumsum(0) - 1
    return SimpleNamespace(
        x=batch.x[keep], edge_index=number[edges], batch=batch.batch[keep], num_graphs=batch.num_graphs
    )


class GeometricGin(nn.Module):
    """The network of ``Gin`` with a shared head, built from torch-geometric layers."""

    def __init__(self, num_features: int, width: int, layers: int) -> None:
        super().__init__()
        inputs, dimensions = [num_features] + [width] * (layers - 1), width * layers
        self.convolutions = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(each, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()))
            for each in inputs
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in inputs)
        self.head = nn.Sequential(nn.Linear(dimensions, dimensions), nn.ReLU(), nn.Linear(dimensions, dimensions))

    def forward(self, batch: Any) -> Tensor:
        x, pooled = batch.x, []
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = norm(convolution(x, batch.edge_index))
            pooled.append(global_add_pool(x, batch.batch, batch.num_graphs))
        projected: Tensor = self.head(torch.cat(pooled, dim=1))
        return projected


class PlainLoop(ABC):
    """A plain training loop.

    Args:
        loader: of batches.
        model: as :class:`GeometricGin`.
        device: of the model.
    """

    def __init__(self, loader: Any, model: nn.Module, device: torch.device) -> None:
        self.loader, self.model, self.device = loader, model.to(device), device
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=True)

    @abstractmethod
    def loss(self, batch: Any) -> Tensor:
        """Compute the loss of a batch of the loader."""

    def epoch(self) -> float:
        """Train one epoch and return the mean loss over batches."""
        self.model.train()
        total = torch.zeros((), device=self.device)
        for batch in self.loader:
            self.optimiser.zero_grad()
            loss = self.loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            total += loss.detach()
        return float(total) / len(self.loader)


@final
class PlainTraining(PlainLoop):
    """GraphCL.

    Args:
        graphs: a list of ``Data``.
        augment: makes a view of a batch; None encodes the batch twice.
        model: as :class:`GeometricGin`.
        objective: the contrastive loss.
        batch_size: graphs in a batch.
        device: of the model, to which each batch is moved.
        generator: on the CPU.
    """

    def __init__(
        self,
        graphs: Sequence[Any],
        augment: Augmenter | None,
        model: nn.Module,
        objective: PairObjective,
        batch_size: int,
        device: torch.device,
        generator: torch.Generator,
    ) -> None:
        super().__init__(DataLoader(list(graphs), batch_size, shuffle=True, generator=generator), model, device)
        self.objective, self.augment, self.generator = objective, augment, generator

    def loss(self, batch: Any) -> Tensor:
        batch = batch.to(self.device)
        views = [batch if self.augment is None else self.augment(batch, self.generator) for _ in range(2)]
        return self.objective(*map(self.model, views))
