from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Wish:
    """Whether somebody has asked the program to stop, and by which signal.

    Args:
        tell: told of it.
        at_once: whether the first signal is an order already.
    """

    def __init__(self, tell: Callable[[str], None], at_once: bool = False) -> None:
        self.signal = 0
        self._tell, self._at_once = tell, at_once

    def __bool__(self) -> bool:
        return self.signal != 0

    @property
    def code(self) -> int:
        """What a program exits with after it, as shells have it."""
        return 128 + (self.signal or signal.SIGINT)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The first signal is a wish; a second Ctrl-C is an order."""
        is_order = self._at_once or (self.signal and number == signal.SIGINT)
        self.signal = self.signal or number
        if is_order:
            raise KeyboardInterrupt
        self._tell(f"{signal.Signals(number).name}: keeping the state after this step. Ctrl-C stops at once.")


@contextmanager
def stoppable(tell: Callable[[str], None], at_once: bool = False) -> Iterator[Wish]:
    """Ctrl-C and SIGTERM inside become a wish, which ``tell`` tells, or KeyboardInterrupt; in the main thread."""
    wish = Wish(tell, at_once)
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, wish.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
