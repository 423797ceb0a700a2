"""What an objective is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True)
class Objective(ABC):
    """How badly two views of the same graphs agree.

    Attributes:
        static: whether it neither branches on values nor makes tensors whose shapes depend on them, so that a GPU can
            replay it.
    """

    static: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        """The loss of views ``first`` and ``second``, both ``(..., B, d)``: row n of each shows the same graph.

        Leading dimensions are broadcast against each other, one loss each: ``(...)``.
        """
