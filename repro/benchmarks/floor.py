"""The lower bound (floor) of a step: training on precomputed views.

Of a training step the floor keeps ``zero_grad``, the encoding of two views, the loss, ``backward`` and the optimiser's
step, as a plain torch loop, and leaves out everything else: drawing the pair, gathering the batch, augmenting, the
lower level, and Lightning.

It must encode as much as the step it is compared with. So its views are those of the same graphs, in batches of the
same size, and their pairs of augmentations are those that the training drew in the epoch timed just before, or a
systematic sample of them where there are many (:func:`sample_of`).

Offsets and the adjacency are worked out in the encoder's forward pass, in the floor as in the step: the model takes a
view's tensors and nothing that was cached beside them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from joao.config.builder import Method
from joao.core.graphs import GraphBatch, Store
from joao.encoders import Encoder
from joao.objectives import PairObjective
from joao.training.model import ContrastiveModel
from joao.training.pretrain import Pretraining
from joao.training.steps import View, project
from repro.benchmarks.timing import Task

Pairs = Sequence[tuple[View, View]]


def sample_of(drawn: Sequence[Sequence[int]], count: int) -> list[tuple[int, int]]:
    """``count`` pairs of augmentations in the proportions of the ``(K, K)`` table ``drawn``, each within one.

    >>> sample_of([[30, 0], [10, 0]], 4)
    [(0, 0), (0, 0), (0, 0), (1, 0)]
    """
    table = torch.as_tensor(drawn, dtype=torch.float64)
    ends = torch.cumsum(table.flatten(), 0)
    marks = (torch.arange(count, dtype=torch.float64) + 0.5) * ends[-1] / count
    chosen = torch.searchsorted(ends, marks)
    return [divmod(int(number), table.shape[1]) for number in chosen]


def prepared_views(
    store: Store, method: Method, pairs: Sequence[tuple[int, int]], batch_size: int, generator: torch.Generator
) -> list[tuple[View, View]]:
    """Two views of a batch for each of ``pairs``; the batches are cut, as an epoch's, from one random order."""
    pool = list(method.augmentations.values())
    order = torch.randperm(len(store), device=store.device, generator=generator)
    result = []
    for pair, graphs in zip(pairs, torch.split(order, batch_size), strict=False):
        batch = store.batch(graphs)
        first, second = (View(pool[number](batch, generator), number) for number in pair)
        result.append((first, second))
    return result


class Floor:
    """A model with its optimiser only.

    Args:
        method: whose encoder, head and objective it takes.
        learning_rate: of Adam.
        device: of everything.
    """

    def __init__(self, method: Method, learning_rate: float, device: torch.device) -> None:
        assert isinstance(method.objective, PairObjective)  # the workloads' methods are contrastive
        self.objective = method.objective
        self.model = ContrastiveModel(method.encoder, method.heads).to(device).train()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=learning_rate, fused=True)

    def step(self, first: View, second: View) -> Tensor:
        """Take one step on two views and return its loss."""
        loss = self.objective(project(self.model, first), project(self.model, second))
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return loss.detach()

    def task(self, views: Callable[[], Pairs]) -> Task:
        """Take a step on each of the pairs that ``views`` returns."""

        def prepare() -> Callable[[], object]:
            pairs = views()
            return lambda: [self.step(first, second) for first, second in pairs]

        return prepare


class PlainGin(Encoder):
    r"""The network of :class:`joao.encoders.Gin` in plain torch, without our kernels.

    The sum over neighbours gathers a row for every edge and scatters it to its target (``index_add``), and its
    gradient is left to autograd. Weights have the same names, so ``load_state_dict`` takes those of ``Gin``.
    """

    uses_edge_attr = False

    def __init__(self, num_features: int, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        inputs = [num_features] + [width] * (layers - 1)
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(each, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()) for each in inputs
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in inputs)
        self.num_dimensions = width * layers

    def forward(self, batch: GraphBatch) -> Tensor:
        x, pooled = batch.x, []
        for mlp, norm in zip(self.mlps, self.norms, strict=True):
            x = norm(mlp(x.index_add(0, batch.target, x.index_select(0, batch.source))))
            pooled.append(x.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.graph_of_node, x))
        return torch.cat(pooled, dim=1)


def scattered(method: Method) -> Method:
    """Return the same method, with the same weights, on :class:`PlainGin`."""
    gin: Any = method.encoder
    width, num_features = gin.mlps[0][0].weight.shape
    plain = PlainGin(num_features, width, len(gin.mlps))
    plain.load_state_dict(gin.state_dict())
    return replace(method, encoder=plain)


class ViewsOf:
    """Views for a floor, drawn again outside the timing from the pairs of augmentations that a training used last.

    Args:
        training: whose graphs, augmentations and batches they are.
        count: of pairs of views.
        generator: on the training's device.
    """

    def __init__(self, training: Pretraining, count: int, generator: torch.Generator) -> None:
        self.training, self.count, self.generator = training, count, generator
        self.drawn = (training.method.policy.probabilities * 10**6).round().long().tolist()
        self.views: Pairs = []

    def remake(self) -> Pairs:
        """Draw new views with the pairs used last."""
        training = self.training
        pairs = sample_of(self.drawn, self.count)
        batch_size = training.schedule.batch_size
        self.views = prepared_views(training.store, training.method, pairs, batch_size, self.generator)
        return self.views
