from collections.abc import Iterator, Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from joao.core.codes import OGB_ATOM_SIZES, OGB_BOND_SIZES
from joao.core.errors import UserError
from joao.core.graphs import GraphBatch
from joao.core.padded import PaddedViews
from joao.encoders.base import PaddedEncoder, check_layers
from joao.encoders.layers import (
    Moments,
    Readout,
    environments,
    fold_norm,
    normalise_views,
    sum_lists,
    update_running_statistics,
)
from joao.encoders.ogb import CodeEmbedding, bond_columns
from joao.kernels.layers import message_sum

_ROWS_IN_CACHE = 512


@final
class MoleculeGine(PaddedEncoder):
    r"""A graph isomorphism network on OGB's nine atom and three bond features, whose embedding counts neighbourhoods.

    An atom starts with the sum of the vectors of its features. With one-hot bond features :math:`c_{uv}` and a matrix
    :math:`W` for each layer,

    .. math::
        y_v = \mathrm{ReLU}\Big(\mathrm{BN}\big(\mathrm{MLP}\big(x_v +
        \textstyle\sum_{u \to v} \mathrm{ReLU}(x_u + W c_{uv})\big)\big)\Big), \qquad x_v \leftarrow x_v + y_v .

    The MLP has one hidden layer of double width. The outputs :math:`y` of layer k describe the neighbourhood of an atom
    up to k bonds and are never negative. The logarithm of their sum over the atoms therefore acts like the count of a
    fingerprint, which trees can split; ``readout`` (:class:`~joao.encoders.layers.Readout`) says which statistics of
    :math:`y` form the embedding. Pre-training and fine-tuning use the same embedding. Atoms with the features -1 get
    the vectors of the mask token.

    Args:
        readout: ``sum``, ``mean`` and ``max`` over the atoms, of all layers, joined by ``+``, optionally in ``log()``.

    >>> from joao.data import make_store, read
    >>> from joao.data.features import Features
    >>> store = make_store(read(["CCO", "c1ccccc1"]), Features("ogb_atoms"))
    >>> MoleculeGine(width=8, layers=2).eval()(store.batch(torch.arange(2))).shape
    torch.Size([2, 32])
    """

    codes = "ogb_atoms"
    cpu_budget = 50_000  # in larger batches more atoms share an environment, but vectors do not fit into the cache
    bonds: Tensor

    def __init__(
        self,
        num_features: int = len(OGB_ATOM_SIZES),
        num_edge_features: int = len(OGB_BOND_SIZES),
        width: int = 256,
        layers: int = 5,
        readout: str = "log(sum+max)",
    ) -> None:
        super().__init__()
        check_layers("MoleculeGine", width, layers)
        if (num_features, num_edge_features) != (len(OGB_ATOM_SIZES), len(OGB_BOND_SIZES)):
            raise UserError(
                f"MoleculeGine: requires {len(OGB_ATOM_SIZES)} columns of atoms and {len(OGB_BOND_SIZES)} of bonds, "
                f"got {num_features} and {num_edge_features}. Use it for molecules with SMILES, and gine for others."
            )
        self.readout = Readout(readout)
        if "input" in self.readout.names:
            raise UserError(f"MoleculeGine: atom codes cannot be summed; remove 'input' from readout '{readout}'.")
        self.atoms = CodeEmbedding(OGB_ATOM_SIZES, width)
        nn.init.normal_(self.atoms.weight, std=len(OGB_ATOM_SIZES) ** -0.5)
        every_bond = torch.cartesian_prod(*map(torch.arange, OGB_BOND_SIZES))
        self.register_buffer("bonds", bond_columns(every_bond, self.atoms.weight.dtype), persistent=False)
        self.edges = nn.ModuleList(nn.Linear(sum(OGB_BOND_SIZES), width, bias=False) for _ in range(layers))
        self.hidden = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        # No bias: normalisation would remove it.
        self.outer = nn.ModuleList(nn.Linear(2 * width, width, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.num_node_dimensions = width * layers
        self.num_dimensions = self.readout.width(0, [width] * layers)

    def encode_layers(self, batch: GraphBatch) -> Iterator[Tensor]:
        """Yield the outputs ``(N, width)`` of each layer."""
        assert batch.edge_attr is not None  # checked by the constructor: three columns
        x = self.atoms(batch.x)
        columns = bond_columns(batch.edge_attr, x.dtype)
        for edges, hidden, outer, norm in zip(self.edges, self.hidden, self.outer, self.norms, strict=True):
            messages = torch.relu(x.index_select(0, batch.source) + edges(columns))
            total = x.to(messages.dtype).index_add(0, batch.target, messages)
            y = torch.relu(norm(outer(torch.relu(hidden(total)))))
            x = x + y
            yield y

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        return torch.cat([*self.encode_layers(batch)], dim=1)

    def forward(self, batch: GraphBatch) -> Tensor:
        return self.readout(
            [y.to(torch.promote_types(y.dtype, torch.float32)) for y in self.encode_layers(batch)], batch
        )

    def embed(self, batch: GraphBatch) -> Tensor:
        """Compute what :meth:`forward` does in evaluation mode, faster on a CPU.

        Each environment of an atom is computed once, and normalisation is part of the linear maps.
        """
        if self.training or torch.is_grad_enabled() or batch.device.type != "cpu":
            return cast(Tensor, self(batch))
        assert batch.edge_attr is not None
        stages, kind = environments(batch, len(self.norms)), _kind_numbers(batch.edge_attr)
        x, layers = self.atoms(batch.x[next(stages).nodes]), list[tuple[Tensor, Tensor]]()
        parts = (cast(Sequence[nn.Linear], each) for each in (self.edges, self.hidden, self.outer))
        for stage, edges, hidden, outer, norm in zip(stages, *parts, self.norms, strict=True):
            weight, bias = fold_norm(outer, cast(nn.BatchNorm1d, norm))
            vectors, kinds = edges(self.bonds), kind[stage.edges]
            y, next_x = x.new_empty(2, len(stage.nodes), x.shape[1])
            # A few rows pass through all operations at once: their intermediate results stay in the processor's cache,
            # and operations in place (``_``) write to memory that is already there.
            for begin in range(0, len(y), _ROWS_IN_CACHE):
                rows = slice(begin, begin + _ROWS_IN_CACHE)
                first = stage.first_edge[begin : begin + _ROWS_IN_CACHE + 1]
                bonds = slice(int(first[0]), int(first[-1]))  # those to the atoms of ``rows``
                messages = x.index_select(0, stage.source[bonds]).add_(vectors.index_select(0, kinds[bonds])).relu_()
                own = x.index_select(0, stage.own[rows])
                total = sum_lists(messages, torch.arange(len(messages)), first - first[0]).add_(own)
                torch.addmm(bias, hidden(total).relu_(), weight.t(), out=y[rows]).relu_()
                torch.add(own, y[rows], out=next_x[rows])
            x = next_x
            layers.append((y, stage.of_node))
        return self.readout.pool_environments(layers, batch)

    def encode_padded(self, views: PaddedViews) -> Tensor:
        x, layers = self.atoms.embed_padded(views.x, views.keep), list[Tensor]()
        dtype = torch.promote_types(x.dtype, torch.float32)
        kind, norms, moments = _kinds_of_bonds(views), cast(Sequence[nn.BatchNorm1d], self.norms), list[Moments]()
        for edges, hidden, outer, norm in zip(self.edges, self.hidden, self.outer, norms, strict=True):
            hidden_output = torch.relu(hidden(message_sum(x, views, edges(self.bonds), kind)))
            layers.append(torch.relu(normalise_views(outer(hidden_output), views.keep, norm, moments)).to(dtype))
            x = x + layers[-1]
        if self.training:
            update_running_statistics(norms, views.keep, moments)
        return self.readout.pool_padded(layers, views)


def _kinds_of_bonds(views: PaddedViews) -> Tensor:
    """Number the bonds ``(V, E)`` by all their features; -1 for padding and for bonds of atoms that are not kept."""
    assert views.edge_attr is not None
    kind = _kind_numbers(views.edge_attr)
    # Padding and removed bonds start at a node that is not kept.
    is_bond = views.keep.gather(1, views.source) & views.keep.gather(1, views.target)
    return torch.where(is_bond, kind, -1)


def _kind_numbers(edge_attr: Tensor) -> Tensor:
    """Number the features ``(..., 3)`` of bonds: the rows of :attr:`MoleculeGine.bonds`."""
    kind = torch.zeros_like(edge_attr[..., 0], dtype=torch.long)
    for column, size in zip(edge_attr.long().unbind(-1), OGB_BOND_SIZES, strict=True):
        kind = kind * size + column.clamp(max=size - 1)
    return kind
