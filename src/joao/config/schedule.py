"""How long and in which steps to train."""

from __future__ import annotations

from dataclasses import dataclass

from joao.core.errors import UserError


@dataclass(frozen=True)
class Schedule:
    """How long and in which steps to train.

    Args:
        epochs: passes over all graphs.
        batch_size: graphs in a batch.
        learning_rate: of Adam.
        pair_per: ``batch``: one pair of augmentations for all graphs of a batch, as the pair losses have it;
            ``graph``: one for each graph, as in the published code.
        update_every: training steps from one update of the policy to the next; 0 is once per epoch.
        update_batches: batches the pair losses are measured on; 0 is about a tenth of an epoch's, one at least.
        seed: of everything random.

    >>> Schedule(epochs=100).batch_size
    128
    >>> Schedule(batch_size=1)
    Traceback (most recent call last):
        ...
    joao.core.errors.UserError: training: batch_size must be at least 2, got 1.
    """

    epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 0.01
    pair_per: str = "batch"
    update_every: int = 0
    update_batches: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.pair_per not in ("batch", "graph"):
            raise UserError(f"training: pair_per must be 'batch' or 'graph', got '{self.pair_per}'.")
        least = {"epochs": 1, "batch_size": 2, "update_every": 0, "update_batches": 0, "seed": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise UserError(f"training: {name} must be at least {bound}, got {getattr(self, name)}.")
        if not self.learning_rate > 0:
            raise UserError(f"training: learning_rate must be above 0, got {self.learning_rate}.")
