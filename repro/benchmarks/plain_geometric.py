"""GraphCL written with torch-geometric only: a DataLoader, a transform for each graph, ``GINConv``.

It does the work of our ``graphcl`` row: each view by NodeDrop or Subgraph at strength 0.2, a coin deciding for each
graph; the same network, loss and optimiser.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
Transform = Callable[[Any, torch.Generator], Any]


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


def node_drop(data: Any, generator: torch.Generator) -> Any:
    """Drop a fifth of the nodes."""
    order = torch.randperm(data.num_nodes, generator=generator)
    return data.subgraph(order[int(STRENGTH * data.num_nodes) :])


def subgraph(data: Any, generator: torch.Generator) -> Any:
    """Keep four fifths of the nodes, grown from a random node by adding random neighbours."""
    num_nodes = data.num_nodes
    wanted = num_nodes - int(STRENGTH * num_nodes)
    neighbours: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, target in zip(*data.edge_index.tolist(), strict=True):
        neighbours[source].append(target)
    order = torch.randperm(num_nodes, generator=generator).tolist()
    chances = torch.rand(num_nodes, generator=generator).tolist()
    taken, seen = [False] * num_nodes, [False] * num_nodes
    kept: list[int] = []
    frontier: list[int] = []
    while len(kept) < wanted:
        if not frontier:
            frontier = [next(node for node in order if not taken[node])]
            seen[frontier[0]] = True
        place = int(chances[len(kept)] * len(frontier))
        frontier[place], frontier[-1] = frontier[-1], frontier[place]
        node = frontier.pop()
        taken[node] = True
        kept.append(node)
        for other in neighbours[node]:
            if not seen[other]:
                seen[other] = True
                frontier.append(other)
    return data.subgraph(torch.tensor(kept))


class TwoViews(torch.utils.data.Dataset[tuple[Any, Any]]):
    """Two views of each graph by randomly drawn transforms; without transforms, the graph twice."""

    def __init__(self, graphs: Sequence[Any], transforms: Sequence[Transform], generator: torch.Generator) -> None:
        self.graphs, self.transforms, self.generator = graphs, transforms, generator

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        return self._view(self.graphs[number]), self._view(self.graphs[number])

    def _view(self, data: Any) -> Any:
        if not self.transforms:
            return data
        drawn = int(torch.randint(len(self.transforms), (), generator=self.generator))
        return self.transforms[drawn](data, self.generator)


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
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.01)

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
        transforms: of the views.
        model: as :class:`GeometricGin`.
        objective: the contrastive loss.
        batch_size: graphs in a batch.
        device: of the model, to which each batch is moved.
        generator: on the CPU.
    """

    def __init__(
        self,
        graphs: Sequence[Any],
        transforms: Sequence[Transform],
        model: nn.Module,
        objective: PairObjective,
        batch_size: int,
        device: torch.device,
        generator: torch.Generator,
    ) -> None:
        views = TwoViews(graphs, transforms, generator)
        super().__init__(DataLoader(views, batch_size, shuffle=True, generator=generator), model, device)
        self.objective = objective

    def loss(self, batch: Any) -> Tensor:
        first, second = (self.model(view.to(self.device)) for view in batch)
        return self.objective(first, second)
