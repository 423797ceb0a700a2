"""What an objective is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Objective(ABC):
    """How badly two views of the same graphs agree."""

    @abstractmethod
    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        """The loss of views ``first`` and ``second``, both ``(..., B, d)``: row n of each shows the same graph.

        Leading dimensions are broadcast against each other, one loss each: ``(...)``.
        """
