"""Readouts that are not part of the package, and criteria for embeddings that need no labels."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from joao.augmentations import Augmentation
from joao.core.graphs import GraphBatch, GraphStore
from joao.core.padded import PaddedViews
from joao.encoders.base import NodeEncoder, PaddedEncoder, sum_nodes
from joao.training.model import batches_by_size

READOUTS = ("sum", "input", "mean", "max")


def signed_log(x: Tensor) -> Tensor:
    r""":math:`\operatorname{sign}(x) \log(1 + |x|)`: grows much more slowly with the size of the graph than sums."""
    return x.sign() * x.abs().log1p()


@final
class Logged(PaddedEncoder):
    """An encoder followed by the signed logarithm, also in pre-training."""

    def __init__(self, inside: PaddedEncoder) -> None:
        super().__init__()
        self.inside = inside
        self.uses_edge_attr = inside.uses_edge_attr
        self.num_dimensions, self.num_node_dimensions = inside.num_dimensions, inside.num_node_dimensions

    def forward(self, batch: GraphBatch) -> Tensor:
        return signed_log(self.inside(batch))

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        return self.inside.encode_nodes(batch)

    def encode_padded(self, views: PaddedViews) -> Tensor:
        return signed_log(self.inside.encode_padded(views))


@final
class LoggedReadouts(NodeEncoder):
    """An encoder whose embeddings are the signed logarithms of several readouts, also in pre-training."""

    def __init__(self, inside: NodeEncoder, readouts: Sequence[str], num_features: int) -> None:
        super().__init__()
        self.inside, self.readouts = inside, readouts
        self.uses_edge_attr, self.num_node_dimensions = inside.uses_edge_attr, inside.num_node_dimensions
        widths = dict.fromkeys(READOUTS, inside.num_node_dimensions) | {"input": num_features}
        self.num_dimensions = sum(widths[name] for name in readouts)

    def forward(self, batch: GraphBatch) -> Tensor:
        return signed_log(torch.cat([_read(self.inside, batch, name) for name in self.readouts], dim=1))

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        return self.inside.encode_nodes(batch)


def with_log_degree(store: GraphStore) -> GraphStore:
    """Add a column of features: log(1 + degree)."""
    first_of_edge = store.first_node[:-1].repeat_interleave(store.first_edge.diff())
    degrees = torch.bincount(store.target.long() + first_of_edge, minlength=len(store.x))
    return replace(store, x=torch.cat([store.x.float(), degrees.float().log1p()[:, None]], dim=1))


@torch.no_grad()
def read_out(encoder: NodeEncoder, batches: Iterable[GraphBatch], readouts: Sequence[str]) -> Tensor:
    """Return embeddings ``(G, d)`` on the CPU: sum (the encoder's own), mean and maximum over nodes of every layer, and
    the sum of the input features, as named in ``readouts``."""
    encoder.eval()
    return torch.cat([torch.cat([_read(encoder, batch, name) for name in readouts], dim=1).cpu() for batch in batches])


def _read(encoder: NodeEncoder, batch: GraphBatch, readout: str) -> Tensor:
    if readout == "sum":
        embeddings: Tensor = encoder(batch)
        return embeddings
    if readout == "input":
        return sum_nodes(batch.x.float(), batch)
    x = encoder.encode_nodes(batch)
    if readout == "mean":
        return sum_nodes(x, batch) / batch.nodes_per_graph[:, None]
    assert readout == "max"
    row = batch.graph_of_node[:, None].expand_as(x)
    return x.new_zeros(batch.num_graphs, x.shape[1]).scatter_reduce(0, row, x, "amax", include_self=False)


def whole(store: GraphStore) -> list[GraphBatch]:
    """Return all graphs of ``store`` in order, in batches of bounded size."""
    return [store.batch(graphs) for graphs in batches_by_size(store, torch.arange(len(store), device=store.device))]


def augmented(store: GraphStore, augmentation: Augmentation, generator: torch.Generator) -> list[GraphBatch]:
    """Return all graphs after an augmentation."""
    return [augmentation(batch, generator) for batch in whole(store)]


def criteria(rows: Tensor, views: Sequence[Tensor]) -> dict[str, float]:
    r"""Describe embeddings without labels. Columns are standardised, as for the SVM.

    With rows :math:`u` scaled to length 1: alignment :math:`E \lVert u - u' \rVert^2` of a graph and its views, 0 at best,
    and uniformity :math:`\log E \exp(-2 \lVert u_n - u_m \rVert^2)` of two graphs, which is lower if they are spread more
    evenly (Wang and Isola 2020). The effective rank is the exponential of the entropy of the singular values as shares
    of their sum (Roy and Vetterli 2007).

    Args:
        rows: ``(G, d)``.
        views: embeddings of augmented views, ``(G, d)`` each.
    """
    rows = rows.double()
    shift, scale = rows.mean(0), rows.std(0, correction=0)
    scale = torch.where(scale > 0, scale, 1.0)
    scaled = (rows - shift) / scale
    unit = torch.nn.functional.normalize(scaled, dim=1)
    of_views = [torch.nn.functional.normalize((view.double() - shift) / scale, dim=1) for view in views]
    apart = [(unit - view).square().sum(1).mean() for view in of_views]
    exponents = -4 * (1 - unit @ unit.T)[*torch.triu_indices(len(unit), len(unit), 1)]
    singular = torch.linalg.svdvals(scaled)
    shares = singular / singular.sum()
    return {
        "alignment": float(torch.stack(apart).mean()),
        "uniformity": float(exponents.logsumexp(0) - torch.tensor(float(len(exponents))).log()),
        "effective rank": float(torch.special.entr(shares).sum().exp()),
    }
