"""GraphCL-style training with the package PyGCL, if it can be imported.

Its augmentors work on whole batches. It has no removal of nodes by connected growth without compiled extras, so both
views are by node dropping, which keeps the nodes and drops their edges: less work than our ``graphcl`` row does.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from repro.benchmarks.plain_geometric import STRENGTH, DataLoader, PlainLoop


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
        augmentors = importlib.import_module("GCL.augmentors")
        losses = importlib.import_module("GCL.losses")
        models = importlib.import_module("GCL.models")
        self.augment = augmentors.NodeDropping(pn=STRENGTH)
        self.contrast = models.DualBranchContrast(loss=losses.InfoNCE(tau=0.2), mode="G2G").to(device)

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
