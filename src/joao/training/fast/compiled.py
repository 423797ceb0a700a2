"""Pre-training steps in the compiled core (:mod:`joao.kernels.native`), on a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast, final

import torch
from torch import Tensor, nn

from joao.augmentations import AttributeMask, Augmentation, EdgePerturb, Identity, NodeDrop, Subgraph
from joao.config.builder import Method
from joao.core.graphs import GraphStore, Store
from joao.encoders import Gin
from joao.heads import HeadPerAugmentation, NoHead, SharedHead
from joao.kernels.native import AugmentationSpec, CompiledCore, Network, load_library, native_level, pointers
from joao.objectives import NtXent
from joao.training.steps import PairSteps, Steps

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# In the order of joao.kernels.native.KINDS.
AUGMENTATIONS: tuple[type[Augmentation], ...] = (Identity, NodeDrop, Subgraph, AttributeMask, EdgePerturb)


def find_compiled_obstacle(
    store: Store, method: Method, pool: Sequence[Augmentation], pair_per: str, fabric: Fabric
) -> str:
    """Return why :class:`CompiledSteps` are impossible, or an empty string."""
    if load_library() is None:
        return f"the compiled core is {native_level()}"
    if fabric.device.type != "cpu":
        return "the compiled core trains on a CPU"
    if fabric.strategy.precision.precision != "32-true":
        return "the compiled core has 32-bit precision only"
    if not isinstance(store, GraphStore) or store.x.dtype not in (torch.uint8, torch.float32):
        return "the compiled core needs graphs in memory, with features of 8-bit integers or 32-bit floats"
    if pair_per == "graph":
        return "pair_per = 'graph' mixes augmentations in a batch"
    encoder = method.encoder
    if type(encoder) is not Gin or encoder.diffusion is not None:
        custom = getattr(encoder, "module", encoder)  # the user's module inside ModuleEncoder
        return f"the compiled core has no encoder {type(custom).__name__}"
    for each in pool:
        if type(each) not in AUGMENTATIONS or getattr(each, "fill", "") == "token":
            return f"the compiled core has no augmentation {each}"
    for part in (method.heads, method.objective):
        if type(part) not in (SharedHead, HeadPerAugmentation, NoHead, NtXent):
            return f"the compiled core has no {type(part).__name__}"
    if any(each.dtype != torch.float32 or not each.requires_grad for each in encoder.parameters()):
        return "the compiled core trains all weights, in 32 bits"
    return ""


@final
class CompiledSteps(Steps):
    """Steps in the compiled core: it computes losses and gradients, and torch's Adam updates the weights.

    Every step draws one number from the generator of views, which seeds the generators of the core. So checkpoints
    contain all of its state. Results do not depend on the number of threads, but on the level of instructions.
    """

    def __init__(self, eager: PairSteps, method: Method, optimiser: torch.optim.Optimizer) -> None:
        library, encoder, objective = load_library(), cast(Gin, method.encoder), cast(NtXent, method.objective)
        assert library is not None  # find_compiled_obstacle has checked all parts
        self.core = CompiledCore(library, cast(GraphStore, eager.store))
        self.loss_sum, self.finite_steps, self.optimiser = eager.loss_sum, eager.finite_steps, optimiser
        self.generators, self.exchange = eager.generators, eager.exchange
        self.pool = [describe_augmentation(each) for each in eager.pool]
        norms = cast(Sequence[nn.BatchNorm1d], encoder.norms)
        self.num_batches = [cast(Tensor, norm.num_batches_tracked) for norm in norms]
        layers: list[Tensor] = []
        weights: list[nn.Parameter] = []
        for mlp, norm in zip(encoder.mlps, norms, strict=True):
            weights += [*mlp.parameters(), *norm.parameters()]
            layers += [*weights[-6:], cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)]
        # The head of each augmentation: the same for all, one for each, or none.
        heads = method.heads.heads if isinstance(method.heads, HeadPerAugmentation) else [method.heads] * len(self.pool)
        self.heads: list[list[nn.Parameter]] = [list(head.parameters()) for head in heads]
        self.all_weights = [*weights, *method.heads.parameters()]
        self._gradients = {each: torch.zeros_like(each) for each in self.all_weights}
        self._encoder = pointers(layers)
        self._encoder_gradients = pointers([self._gradients[each] for each in weights])
        self._all_heads = pointers([each for head in self.heads for each in head])
        self._kept_alive = layers  # tensors whose addresses the core has
        self._network = Network(
            layers=len(norms),
            width=norms[0].num_features,
            encoder=ctypes.addressof(self._encoder),
            eps=norms[0].eps,
            momentum=norms[0].momentum,
            temperature=objective.temperature,
            positive_in_denominator=objective.positive_in_denominator,
            symmetric=objective.symmetric,
        )

    def load(self, batches: Sequence[Tensor]) -> list[Tensor]:
        return list(batches)

    def train(self, batch: Tensor, pairs: Tensor) -> None:
        first, second = pairs[0].tolist()
        used = self.heads[first] + self.heads[second]
        head_gradients = pointers([self._gradients[each] for each in used])
        heads = pointers(used)
        pair = [self.pool[first], self.pool[second]]
        loss = self.core.train(
            batch,
            pair,
            self._draw_seed("views"),
            self._with_heads(heads),
            self._encoder_gradients,
            head_gradients,
            torch.get_num_threads(),
        )
        # A head that was not used has no gradient, so that Adam does not move it.
        unused = {each for head in self.heads for each in head}.difference(used)
        for each in self.all_weights:
            each.grad = None if each in unused else self._gradients[each]
        if self.exchange is not None:
            self.exchange.average()
        # Threads of torch wait for one another by spinning, which takes many times as long next to a busy process.
        threads = torch.get_num_threads()
        if threads > 1:
            torch.set_num_threads(1)
        self.optimiser.step()
        if threads > 1:
            torch.set_num_threads(threads)
        for count in self.num_batches:
            count += 2
        self.loss_sum += loss * batch.numel()
        self.finite_steps += self.loss_sum.isfinite()

    def measure(self, batches: Iterable[Tensor]) -> Tensor:
        network, threads = self._with_heads(self._all_heads), torch.get_num_threads()
        tables = [
            self.core.measure(graphs, self.pool, self._draw_seed("evaluation views"), network, threads)
            for graphs in batches
        ]
        return torch.stack(tables).mean(0)

    def _draw_seed(self, purpose: str) -> int:
        return int(torch.randint(2**62, (), generator=self.generators[purpose]))

    def _with_heads(self, heads: Any) -> Network:
        self._network.heads = ctypes.addressof(heads) if len(heads) else None
        return self._network


def describe_augmentation(augmentation: Augmentation) -> AugmentationSpec:
    keep = getattr(augmentation, "keep", None)
    option = getattr(augmentation, "drop_only", False) or getattr(augmentation, "fill", "") == "mean"
    return AugmentationSpec(
        kind=AUGMENTATIONS.index(type(augmentation)),
        option=option,
        strength=augmentation.strength,
        keep=-1 if keep is None else keep,
    )
