"""Keeping a training while it goes on, so that little is lost wherever it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from joao.errors import Interrupted, NotWritten, ProcessLost, UserError, is_out_of_memory
from joao.run import Run
from joao.training.checkpoint import state_of
from joao.training.pretrain import EpochMetrics, Pretraining

ASKED_EVERY = 16  # steps; in several processes, whether it is time for a checkpoint takes a message


class Keeper:
    """Trains, and writes the run's epochs and checkpoints on the way; of several processes the first one does.

    Whoever interrupts or kills it loses what came after the last checkpoint. Where a training itself fails before its
    first one, nothing was gained, and no folder is left.

    Args:
        training: in any state.
        run: its folder; None writes nothing.
        every: epochs from one checkpoint to the next.
        minutes: after which there is one in any case, also inside an epoch.
        should_stop: asked after each step whether to keep the state and stop; in one process only.
    """

    def __init__(
        self, training: Pretraining, run: Run | None, *, every: int, minutes: float, should_stop: Callable[[], bool]
    ) -> None:
        self.training, self.run, self.every, self.minutes = training, run, every, minutes
        self.should_stop = should_stop
        self.kept_step = training.step
        self.kept_at = time.monotonic()

    def train(self) -> Iterator[EpochMetrics]:
        """Trains the epochs that are left, and says after each what it showed."""
        training = self.training
        try:
            self._stop_if_asked()
            for epoch in training.run(self._after_step):
                if self.run is not None:
                    self.run.append(epoch)
                    is_last = training.epoch == training.schedule.epochs
                    if not is_last and (training.epoch % self.every == 0 or self._is_time()):
                        self._keep()
                yield epoch
                self._stop_if_asked()
            training.check()
        except Exception as error:
            self._tell(error)
            raise

    def finish(self, weights: Mapping[str, Tensor]) -> None:
        """Writes the final weights."""
        try:
            if self.run is not None:
                self.run.finish(weights)
        except Exception as error:
            self._tell(error)
            raise

    def _after_step(self) -> None:
        ranks = self.training.ranks
        if ranks.size > 1:
            if self.training.step % ASKED_EVERY == 0 and ranks.hand_out(self._is_time()):
                self._keep()
            return
        if self._is_time():
            self._keep()
        self._stop_if_asked()

    def _is_time(self) -> bool:
        return self.run is not None and time.monotonic() - self.kept_at >= 60 * self.minutes

    def _keep(self) -> None:
        self.training.check()
        state = state_of(self.training)
        if self.run is not None:
            self.run.write_checkpoint(state)
        self.kept_step, self.kept_at = self.training.step, time.monotonic()

    def _stop_if_asked(self) -> None:
        if not self.should_stop() or self.training.epoch == self.training.schedule.epochs:
            return
        if self.run is not None and self.kept_step < self.training.step:
            self._keep()
        raise Interrupted(f"interrupted after step {self.training.step}.{self._how_to_go_on()}")

    def _tell(self, error: Exception) -> None:
        """Raises what the reader of ``error`` needs to know beside it, if there is anything."""
        told = error
        if is_out_of_memory(error):
            size = self.training.schedule.batch_size
            told = UserError(
                f"training: out of memory in step {self.training.step + 1}, with batches of {size} graphs. Use smaller "
                f"ones (--set training.batch_size={max(2, size // 2)}) or a narrower encoder (--set encoder.width=...)."
            )
        if self.run is not None and not isinstance(error, Interrupted | ProcessLost):
            if self.kept_step == 0 and not isinstance(error, NotWritten):
                self.run.discard()
            elif isinstance(told, UserError):
                told = type(told)(f"{told} The state after step {self.kept_step} is kept.{self._how_to_go_on()}")
        if told is not error:
            raise told from error

    def _how_to_go_on(self) -> str:
        return "" if self.run is None else f" {self.run.how_to_go_on()}"
