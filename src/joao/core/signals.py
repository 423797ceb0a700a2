"""Ctrl-C and SIGTERM: delay them, or turn them into a request to stop."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; processes started inside ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopRequest:
    """Whether the user has asked the program to stop; true after the first signal.

    With ``at_once``, the first signal already raises KeyboardInterrupt.
    """

    def __init__(self, notify: Callable[[str], None], at_once: bool = False) -> None:
        self.signal = 0
        self._notify, self._at_once = notify, at_once

    def __bool__(self) -> bool:
        return self.signal != 0

    @property
    def code(self) -> int:
        """The exit code by the shell's convention: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record the first signal; a second Ctrl-C raises KeyboardInterrupt."""
        stop_now = self._at_once or (self.signal and number == signal.SIGINT)
        self.signal = self.signal or number
        if stop_now:
            raise KeyboardInterrupt
        self._notify(f"{signal.Signals(number).name}: stopping after this step. Press Ctrl-C to stop at once.")


@contextmanager
def catch_stop_signals(
    notify: Callable[[str], None],
    at_once: bool = False,
    enabled: bool = True,
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a :class:`StopRequest`; outside the main thread, signals are left alone."""
    stop = StopRequest(notify, at_once)
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.handle) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
