"""The network that fine-tuning moves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from joao.encoders import Encoder
from joao.graphs import GraphBatch


class Classifier(nn.Module):
    """Encoder, standardisation and a linear layer."""

    shift: Tensor
    scale: Tensor

    def __init__(self, encoder: Encoder, num_outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.linear = nn.Linear(encoder.num_dimensions, num_outputs)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.register_buffer("shift", torch.zeros(encoder.num_dimensions))
        self.register_buffer("scale", torch.ones(encoder.num_dimensions))

    def classify(self, embeddings: Tensor) -> Tensor:
        """``(G, d)`` embeddings to ``(G, C)`` logits; of stacked weights, ``(F, G, d)`` to ``(F, G, C)``."""
        standardised = (embeddings - self.shift.unsqueeze(-2)) / self.scale.unsqueeze(-2)
        return standardised @ self.linear.weight.mT + self.linear.bias.unsqueeze(-2)

    def forward(self, *fields: Any) -> Tensor:
        # Plain tensors, because what wraps the model for several devices or low precision knows no GraphBatch.
        return self.classify(self.encoder(GraphBatch(*fields)))
