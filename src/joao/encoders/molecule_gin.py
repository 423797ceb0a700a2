from collections.abc import Sequence
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from joao.core.codes import NUM_BOND_DIRECTIONS, NUM_BOND_TYPES, NUM_CHIRALITIES, NUM_ELEMENTS
from joao.core.errors import UserError
from joao.core.graphs import GraphBatch
from joao.core.padded import PaddedViews
from joao.encoders.base import MeanEncoder, StackableEncoder, check_layers
from joao.encoders.layers import (
    Moments,
    add_neighbours,
    adjacency,
    environments,
    fold_norm,
    normalise_views,
    sum_lists,
    update_running_statistics,
)
from joao.kernels.layers import graph_sum, neighbour_sum

_ROWS_IN_CACHE = 512


@final
class MoleculeGin(MeanEncoder, StackableEncoder):
    r"""The graph isomorphism network of the paper's transfer setting, for atoms and bonds.

    With learned vectors :math:`a` of elements and chiralities, and in every layer :math:`b` of bond types and
    directions,

    .. math::
        x_v = a_{\mathrm{element}(v)} + a_{\mathrm{chirality}(v)}, \qquad
        x_v \leftarrow \mathrm{ReLU}\Big(\mathrm{BN}\big(\mathrm{MLP}(\sum_{u = v, \, u \sim v} x_u + e_{uv})\big)\Big)
        \quad \text{with} \quad e_{uv} = b_{\mathrm{type}(uv)} + b_{\mathrm{direction}(uv)} ,

    where a self-loop :math:`vv` has its own bond type and no direction. The MLP has one hidden layer of double width.
    The last layer has no ReLU. The embedding of a graph is the mean over its atoms. Atoms with the numbers -1 get the
    vectors of the mask token.

    Bonds are counted by kind: :math:`\sum_u e_{uv} = \sum_k n_{vk} b_k`, with :math:`n_{vk}` bonds of kind k at v.

    Args:
        dropout: dropout probability after every layer.

    >>> from joao.core.graphs import GraphBatch
    >>> carbon_monoxide = GraphBatch(
    ...     x=torch.tensor([[5.0, 0.0], [7.0, 0.0]]),  # elements 6 and 8, less one
    ...     source=torch.tensor([1, 0]),
    ...     target=torch.tensor([0, 1]),
    ...     graph_of_node=torch.tensor([0, 0]),
    ...     num_graphs=1,
    ...     edge_attr=torch.tensor([[2.0, 0.0], [2.0, 0.0]]),  # a triple bond, both ways
    ... )
    >>> MoleculeGin(width=8).eval()(carbon_monoxide).shape
    torch.Size([1, 8])
    """

    codes = "atoms"
    takes_atoms = True
    cpu_budget = 400_000  # the larger the batch, the more atoms share an environment

    def __init__(
        self, num_features: int = 2, num_edge_features: int = 2, width: int = 300, layers: int = 5, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_layers("MoleculeGin", width, layers, dropout)
        if (num_features, num_edge_features) != (2, 2):
            raise UserError(
                f"MoleculeGin: requires atoms and bonds with two columns each, got {num_features} and "
                f"{num_edge_features}. Use it for molecules, and encoder gin for other graphs."
            )
        self.dropout = dropout
        self.atoms = _table(NUM_ELEMENTS + 1 + NUM_CHIRALITIES + 1, width)  # one more row each for the mask token
        self.bonds = nn.ParameterList(_table(NUM_BOND_TYPES + 1 + NUM_BOND_DIRECTIONS, width) for _ in range(layers))
        self.hidden = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        # No bias: normalisation would remove it.
        self.outer = nn.ModuleList(nn.Linear(2 * width, width, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.num_dimensions = self.num_node_dimensions = width

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        assert batch.edge_attr is not None  # checked by the constructor: two columns
        x = F.embedding(_rows_of_atoms(batch.x), self.atoms).sum(1)
        matrix = adjacency(batch, torch.promote_types(x.dtype, torch.float32))
        counts = _bond_counts(batch.target, batch.edge_attr, x.new_ones(batch.num_edges), batch.num_nodes)
        for number, (hidden, outer, norm) in enumerate(zip(self.hidden, self.outer, self.norms, strict=True)):
            total = add_neighbours(x, matrix) + counts @ self.bonds[number]
            x = self._activate(norm(outer(torch.relu(hidden(total)))), number)
        return x

    def embed(self, batch: GraphBatch) -> Tensor:
        """Compute what :meth:`forward` does in evaluation mode, several times as fast on a CPU.

        Each environment of an atom is computed once, normalisation is part of the linear maps, and the last of these
        maps, which has no ReLU, is applied to the means over atoms.
        """
        if self.training or torch.is_grad_enabled() or batch.device.type != "cpu":
            return cast(Tensor, self(batch))
        assert batch.edge_attr is not None
        stages = environments(batch, len(self.norms))
        x = F.embedding(_rows_of_atoms(batch.x[next(stages).nodes]), self.atoms).sum(1)
        for number, stage in enumerate(stages):
            hidden, outer = cast(nn.Linear, self.hidden[number]), cast(nn.Linear, self.outer[number])
            bonds = batch.edge_attr[stage.edges]
            counts = _bond_counts(stage.target, bonds, x.new_ones(len(bonds)), len(stage.nodes))
            lists = stage.lists()
            weight, bias = fold_norm(outer, cast(nn.BatchNorm1d, self.norms[number]))
            is_last = number == len(self.norms) - 1
            result = x.new_empty(len(stage.nodes), weight.shape[1] if is_last else len(weight))
            # A few rows pass through all operations at once: their intermediate results stay in the processor's cache.
            for begin in range(0, len(result), _ROWS_IN_CACHE):
                end = min(begin + _ROWS_IN_CACHE, len(result))
                total = sum_lists(x, *lists.between(begin, end)).addmm_(counts[begin:end], self.bonds[number])
                rows = result[begin:end]
                if is_last:
                    torch.addmm(hidden.bias, total, hidden.weight.T, out=rows).relu_()
                else:
                    torch.addmm(bias, hidden(total).relu_(), weight.T, out=rows).relu_()
            x = result
        means = sum_lists(x, stage.of_node, batch.first_node) / batch.nodes_per_graph.unsqueeze(1)
        return F.linear(means, weight, bias)

    def encode_padded(self, views: PaddedViews) -> Tensor:
        assert views.edge_attr is not None
        num_views, num_nodes, _ = views.x.shape
        mask = views.keep.unsqueeze(-1).to(self.atoms.dtype)
        is_atom = mask.new_zeros(num_views, num_nodes, self.atoms.shape[-2]).scatter_(2, _rows_of_atoms(views.x), 1)
        x = (is_atom * mask) @ self.atoms
        # From here on, nodes are numbered through all views, so that one index_add counts the bonds of all of them.
        every_view = num_nodes * torch.arange(num_views, device=x.device).unsqueeze(1)
        # Edges from nodes that are not kept do not count, and neither does padding, which starts at such a node.
        is_bond = views.keep.flatten().index_select(0, (views.source + every_view).flatten()).to(mask.dtype)
        targets = (views.target + every_view).flatten()
        counts = _bond_counts(targets, views.edge_attr.flatten(0, 1), is_bond, num_views * num_nodes).view(
            num_views, num_nodes, -1
        )
        norms, moments = cast(Sequence[nn.BatchNorm1d], self.norms), list[Moments]()
        linear = zip(cast(Sequence[nn.Linear], self.hidden), cast(Sequence[nn.Linear], self.outer), strict=True)
        for number, (hidden, outer) in enumerate(linear):
            total = neighbour_sum(x, views) + counts @ self.bonds[number]
            inside = torch.relu(total @ hidden.weight.mT + hidden.bias.unsqueeze(-2))
            output = normalise_views(inside @ outer.weight.mT, views.keep, norms[number], moments)
            x = self._activate(output, number)
        if self.training:
            update_running_statistics(norms, views.keep, moments)
        return graph_sum(x, views) / graph_sum(mask, views).clamp(min=1)

    def _activate(self, x: Tensor, number: int) -> Tensor:
        return F.dropout(x if number == len(self.norms) - 1 else torch.relu(x), self.dropout, self.training)


def _table(num_rows: int, width: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_rows, width)))


def _rows_of_atoms(x: Tensor) -> Tensor:
    """Map ``(..., 2)`` elements and chiralities to their rows in the table of atom vectors."""
    element, chirality = x.long().unbind(-1)
    element = torch.where(element < 0, NUM_ELEMENTS, element)
    chirality = torch.where(chirality < 0, NUM_CHIRALITIES, chirality)
    return torch.stack([element, chirality + NUM_ELEMENTS + 1], dim=-1)


def _bond_counts(target: Tensor, attr: Tensor, weight: Tensor, num_nodes: int) -> Tensor:
    """Count the bonds of each type and direction at every atom, with its self-loop: ``(N, types + 1 + directions)``.

    Args:
        target: ``(E,)`` the atoms.
        attr: ``(E, 2)`` types and directions of their bonds.
        weight: ``(E,)`` 1 for bonds, 0 for padding.
        num_nodes: N.
    """
    width = NUM_BOND_TYPES + 1 + NUM_BOND_DIRECTIONS
    counts = weight.new_zeros(num_nodes, width)
    counts[:, NUM_BOND_TYPES : NUM_BOND_TYPES + 2] = 1  # the self-loop: its own type, direction 0
    kind, direction = attr.long().unbind(1)
    cells = torch.stack([target * width + kind, target * width + NUM_BOND_TYPES + 1 + direction])
    return counts.flatten().index_add(0, cells.flatten(), weight.repeat(2)).view(num_nodes, width)
