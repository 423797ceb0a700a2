"""GraphCL with the packages PyGCL 0.1.2 and DIG (``dive-into-graphs`` 1.1.0), as their examples do it.

Both import compiled packages: dgl, torch-scatter and torch-sparse. GraphCL uses nothing of them, so empty modules take
their place while PyGCL and DIG are loaded. In an environment of their own:

    pip install torch==2.13.0 torch-geometric tqdm
    pip install --no-deps PyGCL==0.1.2 dive-into-graphs==1.1.0
    pip install -e .

Both views are by node dropping, the fastest augmentation of both. PyGCL drops the edges of these nodes in whole batches
and keeps the nodes themselves, which is less work than our ``graphcl`` row does. DIG goes through the graphs of a batch
one by one. DIG has its own network of the same layers and sizes; PyGCL leaves the network to the user, who gets ours.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, final

import torch
from torch import Tensor, nn

from repro.benchmarks.plain_geometric import STRENGTH, DataLoader, PlainLoop

TEMPERATURE = 0.2
_NOT_USED = ("dgl", "torch_scatter", "torch_sparse")


class _Empty(ModuleType):
    """A module in which every name stands for nothing that works."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def import_package(*names: str) -> list[Any]:
    """Import modules of PyGCL or DIG."""
    before = {name: sys.modules.get(name) for name in _NOT_USED}
    sys.modules.update({name: _Empty(name) for name, module in before.items() if module is None})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in their documentation
            return [importlib.import_module(name) for name in names]
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]  # torch-geometric would believe that it is there


@final
class PyGclTraining(PlainLoop):
    """PyGCL's example for graph classification, with our network.

    Args:
        graphs: a list of ``Data``.
        model: takes what has ``x``, ``edge_index``, ``batch`` and ``num_graphs``.
        batch_size: graphs in a batch.
        device: of the model, to which each batch is moved.
        generator: on the CPU.
    """

    def __init__(
        self, graphs: Sequence[Any], model: nn.Module, batch_size: int, device: torch.device, generator: torch.Generator
    ) -> None:
        super().__init__(DataLoader(list(graphs), batch_size, shuffle=True, generator=generator), model, device)
        augmentors, losses, models = import_package("GCL.augmentors", "GCL.losses", "GCL.models")
        self.augment = augmentors.NodeDropping(pn=STRENGTH)
        self.contrast = models.DualBranchContrast(loss=losses.InfoNCE(tau=TEMPERATURE), mode="G2G").to(device)

    def loss(self, batch: Any) -> Tensor:
        batch = batch.to(self.device)
        first, second = (self.model(self._view(batch)) for _ in range(2))
        loss: Tensor = self.contrast(g1=first, g2=second, batch=batch.batch)
        return loss

    def _view(self, batch: Any) -> Any:
        x, edge_index, _ = self.augment(batch.x, batch.edge_index)
        view = batch.clone()
        view.x, view.edge_index = x, edge_index
        return view


def dig_epoch(
    graphs: Sequence[Any], sizes: tuple[int, int, int], batch_size: int, device: torch.device, seed: torch.Generator
) -> Callable[[], object]:
    """Return one epoch of DIG's example of GraphCL with its GIN; ``sizes`` are features, width and layers."""
    training = "dig.sslgraph.method.contrastive.model.contrastive"
    method, utils, loop = import_package("dig.sslgraph.method", "dig.sslgraph.utils", training)
    loop.trange = partial(loop.trange, disable=True)  # no progress bar
    num_features, width, layers = sizes
    encoder = utils.Encoder(num_features, width, n_layers=layers, gnn="gin", bn=True)
    drop = {"aug_1": "dropN", "aug_2": "dropN", "aug_ratio": STRENGTH}
    graphcl = method.GraphCL(width * layers, **drop, tau=TEMPERATURE, device=device)
    loader = DataLoader(list(graphs), batch_size, shuffle=True, generator=seed)
    optimiser = torch.optim.Adam(encoder.parameters(), lr=0.01, fused=True)
    epochs = graphcl.train(encoder, loader, optimiser, epochs=1 << 30, per_epoch_out=True)
    return lambda: next(epochs)
