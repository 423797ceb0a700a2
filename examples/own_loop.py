"""JOAO in a training loop of one's own: torch-geometric, any loss of two views, and a policy. No trainer of ours.

    python examples/own_loop.py

What JOAO adds is marked by (1) to (4); docs/custom-training-loop.md explains it.
"""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.utils import erdos_renyi_graph

from joao import GraphBatch, PairTable
from joao.augmentations import AttributeMask, EdgePerturb, Identity, NodeDrop
from joao.data.formats.geometric import graph_batch
from joao.policies import MinMax

# (1) A pool by name. Its members can be functions of your own just as well: the policy sees their names alone.
POOL = {
    "node_drop": NodeDrop(0.2),
    "edge_perturb": EdgePerturb(0.2),
    "attribute_mask": AttributeMask(0.2),
    "identity": Identity(),
}


class Encoder(nn.Module):
    """Your model, which knows nothing of JOAO."""

    def __init__(self, num_features: int, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width)))
            for size in (num_features, width)
        )

    def forward(self, x: Tensor, edge_index: Tensor, graph_of_node: Tensor, num_graphs: int) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        return global_add_pool(x, graph_of_node, num_graphs)


def loss_of(one: Tensor, two: Tensor) -> Tensor:
    """Your loss of two views: here, each graph must be recognised among all graphs of the batch."""
    cosines = nn.functional.normalize(one) @ nn.functional.normalize(two).T
    return nn.functional.cross_entropy(cosines / 0.2, torch.arange(len(one)))


def encoded(encoder: nn.Module, name: str, batch: GraphBatch, generator: torch.Generator) -> Tensor:
    view = POOL[name](batch, generator)
    return encoder(view.x, view.edge_index, view.graph_of_node, view.num_graphs)


@torch.no_grad()
def pair_losses(encoder: nn.Module, batch: GraphBatch, generator: torch.Generator) -> Tensor:
    """(4) The loss under every pair: each augmentation is drawn and encoded twice, which serves all pairs."""
    first, second = ([encoded(encoder, name, batch, generator) for name in POOL] for _ in range(2))
    return torch.tensor([[loss_of(one, two) for two in second] for one in first])


def train(graphs: list[Data], epochs: int = 10, seed: int = 0) -> tuple[nn.Module, MinMax]:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    encoder = Encoder(graphs[0].num_features)
    optimiser = torch.optim.Adam(encoder.parameters(), lr=0.01)
    policy = MinMax(POOL)
    for _ in range(epochs):
        for data in DataLoader(graphs, batch_size=32, shuffle=True):
            batch = graph_batch(data)
            one, two = policy.sample(generator=generator)  # (2) which pair shows this batch
            loss = loss_of(encoded(encoder, one, batch, generator), encoded(encoder, two, batch, generator))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        policy.update(pair_losses(encoder, batch, generator))  # (3) towards the pairs that are hard now
    return encoder, policy


def made_graphs(count: int = 128) -> list[Data]:
    """Random graphs, sparse and dense, with the nodes' degrees as features."""
    torch.manual_seed(0)
    edges = [erdos_renyi_graph(16, 0.3 if i % 2 else 0.15) for i in range(count)]
    degrees = [torch.bincount(each[0], minlength=16).clamp(max=7) for each in edges]
    return [
        Data(x=nn.functional.one_hot(degree, 8).float(), edge_index=each)
        for each, degree in zip(edges, degrees, strict=True)
    ]


if __name__ == "__main__":
    _, learned = train(made_graphs())
    print(PairTable.of(learned.augmentations, learned.probabilities))
