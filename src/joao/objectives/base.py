"""The base classes of objectives, and helpers of several of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from joao.core.graphs import GraphBatch


def full_precision(vectors: Tensor) -> Tensor:
    """Convert 16-bit numbers to float32; leave others unchanged."""
    return vectors.float() if vectors.dtype.itemsize < 4 else vectors


def infinite_to_nan(values: Tensor) -> Tensor:
    """Replace infinite values by NaN, so that dividing by them does not silently give 0."""
    return torch.add(values, values, alpha=0)  # infinity times 0 is NaN


def unit_vectors(vectors: Tensor) -> Tensor:
    """Scale ``(..., d)`` vectors to length 1; zero vectors stay 0.

    Vectors of float32 longer than about 1e19, whose squares overflow, become NaN.
    """
    norm = infinite_to_nan(vectors.norm(dim=-1, keepdim=True))
    made: Tensor = vectors / norm.masked_fill(norm == 0, 1)
    return made


def inner_products(first: Tensor, second: Tensor) -> Tensor:
    """Row-wise inner products, ``(P, d)`` and ``(P, d)`` to ``(P,)``."""
    return (first * second).sum(dim=1)


def group_sums(vectors: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """Sum ``vectors`` ``(n, d)`` over each group, ``(num_groups, d)``; ``groups`` ``(n,)`` are group numbers."""
    return vectors.new_zeros(num_groups, vectors.shape[1]).index_add(0, groups, vectors)


def group_means(vectors: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """Average ``vectors`` ``(n, d)`` over each group, ``(num_groups, d)``; the mean of an empty group is 0.

    >>> group_means(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]), 2).tolist()
    [[2.0], [0.0]]
    """
    total = group_sums(vectors, groups, num_groups)
    return total / torch.bincount(groups, minlength=num_groups).clamp(min=1)[:, None]


def binary_loss(positive: Tensor, negative: Tensor) -> Tensor:
    r"""Binary cross-entropy of the scores ``(P,)`` of positive pairs and ``(Q,)`` of negative pairs.

    .. math:: - \frac{1}{P} \sum_p \log \sigma(a_p) - \frac{1}{Q} \sum_q \log (1 - \sigma(b_q))

    The mean over no pairs is 0.

    >>> round(binary_loss(torch.zeros(1), torch.zeros(0)).item(), 4)  # log 2 of one true pair
    0.6931
    """
    return mean_or_zero(softplus(-positive)) + mean_or_zero(softplus(negative))


def mean_or_zero(values: Tensor) -> Tensor:
    return values.sum() / max(values.numel(), 1)


EncodeNodes = Callable[[GraphBatch], Tensor]


@dataclass(frozen=True)
class Objective:
    """A pre-training loss: either a :class:`PairObjective` or a :class:`NodeObjective`."""


@dataclass(frozen=True)
class PairObjective(Objective, ABC):
    """A loss that compares two views of the same graphs.

    Attributes:
        title: display name in tables.
        static: whether the code neither branches on values nor creates tensors whose shapes depend on values, so that a
            GPU can replay it.

    >>> class Distance(PairObjective):
    ...     def __call__(self, first, second):
    ...         return (first - second).square().sum(-1).mean(-1)
    >>> Distance()(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [5.0]])).item()  # (0 + 9) / 2
    4.5
    """

    title: ClassVar[str]
    static: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        """Compute the loss of two views ``(..., B, d)`` whose rows n show the same graph.

        Leading dimensions are broadcast; the result ``(...)`` has one loss for each.
        """


@dataclass(frozen=True)
class MomentumObjective(PairObjective, ABC):
    """A loss in which one view predicts the projection of the other by a slowly moving copy of the network.

    The network consists of encoder, head and predictor. The copy, of encoder and head, gets no gradient. The views
    ``(..., B, 2 d)`` are predictions ``(..., B, d)`` concatenated with the projections by the copy.

    >>> class Follow(MomentumObjective):
    ...     def predictor(self, num_dimensions):
    ...         return nn.Identity()
    ...     def momentum_at(self, progress):
    ...         return 0.9
    ...     def __call__(self, first, second):
    ...         (predicted, _), (_, target) = first.chunk(2, dim=-1), second.chunk(2, dim=-1)
    ...         return (predicted - target).square().sum(-1).mean(-1)
    >>> Follow()(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]])).item()  # the prediction 1, the projection 3
    4.0
    """

    @abstractmethod
    def predictor(self, num_dimensions: int) -> nn.Module:
        """Build the module that maps ``(B, num_dimensions)`` projections to predictions; discarded after training."""

    @abstractmethod
    def momentum_at(self, progress: float) -> float:
        r"""The momentum m of the copy after a step: :math:`\theta' \leftarrow m \theta' + (1 - m) \theta`.

        Args:
            progress: the share of training steps already done, from 0 to below 1.
        """


@dataclass(frozen=True)
class NodeObjective(Objective, ABC):
    """A loss of node vectors. It compares no views, so a policy cannot learn from it.

    Attributes:
        methods: names of the methods that use this objective, with their display names in tables.
        needs_atoms: whether the encoder must be one that ``takes_atoms``.
        needs_diffusion: whether the encoder must be one that ``can_diffuse``.

    >>> import networkx
    >>> from joao.data import batch_of
    >>> class Degrees(NodeObjective):
    ...     def parts(self, encoder, num_node_dimensions):
    ...         return nn.Linear(num_node_dimensions, 1)
    ...     def __call__(self, encode_nodes, parts, batch, generator):
    ...         return (parts(encode_nodes(batch)).squeeze(1) - batch.first_edge.diff()).square().mean()
    >>> batch = batch_of([networkx.star_graph(3)])  # of degrees 3, 1, 1, 1
    >>> Degrees()(lambda batch: torch.ones(4, 1), nn.Identity(), batch, torch.Generator()).item()  # (4 + 0 + 0 + 0) / 4
    1.0
    """

    methods: ClassVar[Mapping[str, str]] = {}
    needs_atoms: ClassVar[bool] = False
    needs_diffusion: ClassVar[bool] = False

    @abstractmethod
    def parts(self, encoder: nn.Module, num_node_dimensions: int) -> nn.Module:
        """Build the modules that are learned besides the encoder and discarded after pre-training; may be empty.

        Args:
            encoder: with its initial weights; may be copied, must not be stored.
            num_node_dimensions: length of the node vectors.
        """

    @abstractmethod
    def __call__(self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: Generator) -> Tensor:
        """Compute the loss ``()`` of the graphs of ``batch``.

        Args:
            encode_nodes: turns a batch into ``(N, num_node_dimensions)`` node vectors.
            parts: what :meth:`parts` returned.
            batch: at least two graphs.
            generator: source of all randomness, on the device of ``batch``.
        """
