"""What objectives share that compare vectors.

What an objective is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from joao.core.graphs import GraphBatch


def full_precision(vectors: Tensor) -> Tensor:
    """Numbers of 16 bits as float32; others as they are."""
    return vectors.float() if vectors.dtype.itemsize < 4 else vectors


def infinite_to_nan(values: Tensor) -> Tensor:
    """The same, but nan where a value is infinite: what is divided by it shall not pass for 0."""
    return torch.add(values, values, alpha=0)  # infinity times 0 is nan


def unit_vectors(vectors: Tensor) -> Tensor:
    """``(..., d)`` vectors of length 1 in the same directions; 0 where a vector is 0.

    Vectors of float32 longer than about 1e19, whose squares have no sum, become nan.
    """
    norm = infinite_to_nan(vectors.norm(dim=-1, keepdim=True))
    made: Tensor = vectors / norm.masked_fill(norm == 0, 1)
    return made


def inner_products(first: Tensor, second: Tensor) -> Tensor:
    """``(P, d)`` and ``(P, d)`` to ``(P,)``."""
    return (first * second).sum(dim=1)


def group_sums(vectors: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """``(num_groups, d)`` sums of the ``vectors`` ``(n, d)`` of each of the ``groups`` ``(n,)``."""
    return vectors.new_zeros(num_groups, vectors.shape[1]).index_add(0, groups, vectors)


def group_means(vectors: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """``(num_groups, d)`` means of the ``vectors`` ``(n, d)`` of each of the ``groups`` ``(n,)``; 0 of an empty one.

    >>> group_means(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]), 2).tolist()
    [[2.0], [0.0]]
    """
    total = group_sums(vectors, groups, num_groups)
    return total / torch.bincount(groups, minlength=num_groups).clamp(min=1)[:, None]


def binary_loss(positive: Tensor, negative: Tensor) -> Tensor:
    r"""The cross-entropy of scores ``(P,)`` of true pairs and ``(Q,)`` of made-up ones.

    .. math:: - \frac{1}{P} \sum_p \log \sigma(a_p) - \frac{1}{Q} \sum_q \log (1 - \sigma(b_q))

    The mean of no pairs is 0.

    >>> round(binary_loss(torch.zeros(1), torch.zeros(0)).item(), 4)  # log 2 of one true pair
    0.6931
    """
    return mean_or_zero(softplus(-positive)) + mean_or_zero(softplus(negative))


def mean_or_zero(values: Tensor) -> Tensor:
    return values.sum() / max(values.numel(), 1)


EncodeNodes = Callable[[GraphBatch], Tensor]


@dataclass(frozen=True)
class Objective:
    """What pre-training descends: either a :class:`PairObjective` or a :class:`NodeObjective`."""


@dataclass(frozen=True)
class PairObjective(Objective, ABC):
    """How badly two views of the same graphs agree.

    Attributes:
        static: whether it neither branches on values nor makes tensors whose shapes depend on them, so that a GPU can
            replay it.

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
        """The loss of views ``first`` and ``second``, both ``(..., B, d)``: row n of each shows the same graph.

        Leading dimensions are broadcast against each other, one loss each: ``(...)``.
        """


@dataclass(frozen=True)
class MomentumObjective(PairObjective, ABC):
    """How badly one view predicts what a copy of the network, which follows it slowly, makes of the other.

    The network is encoder, head and predictor, the copy is of encoder and head and has no gradient. The views it is
    called with, ``(..., B, 2 d)``, are predictions ``(..., B, d)`` and, side by side with them, the copy's projections.

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
        """What turns ``(B, num_dimensions)`` projections into predictions; learned, and thrown away afterwards."""

    @abstractmethod
    def momentum_at(self, progress: float) -> float:
        r"""How much of itself the copy keeps after a step: :math:`\theta' \leftarrow m \theta' + (1 - m) \theta`.

        Args:
            progress: the share of the training's steps that came before, from 0 to below 1.
        """


@dataclass(frozen=True)
class NodeObjective(Objective, ABC):
    """How badly vectors of nodes tell what their graphs are like. It compares no views: no policy can learn from it.

    Attributes:
        needs_atoms: whether ``x`` must be atoms, as an encoder that ``takes_atoms`` has them.
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
        """What is learned beside the encoder, and thrown away after pre-training; an empty module for nothing.

        Args:
            encoder: has its first weights; it may be copied, not kept.
            num_node_dimensions: length of the nodes' vectors.
        """

    @abstractmethod
    def __call__(
        self, encode_nodes: EncodeNodes, parts: nn.Module, batch: GraphBatch, generator: torch.Generator
    ) -> Tensor:
        """The loss ``()`` of the graphs of ``batch``.

        Args:
            encode_nodes: turns a batch into ``(N, num_node_dimensions)`` vectors of its nodes.
            parts: as :meth:`parts` made them.
            batch: two graphs or more.
            generator: for all that is random, on the device of ``batch``.
        """
