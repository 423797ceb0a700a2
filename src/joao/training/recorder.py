"""Replaying work on a GPU instead of sending it kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

import torch


class Recorder:
    """Runs functions; on a GPU each is recorded as a CUDA graph when it comes up again, and replayed from then on.

    A function that is run under a key does the same to the same tensors every time: it reads and writes tensors that
    stay, draws only from the registered generators or torch's own, and asks the device nothing. On a CPU it is simply
    called.

    Args:
        device: where the functions work.
        generators: those they draw from.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator]) -> None:
        self.records = device.type == "cuda"
        self.generators = generators
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._memory = torch.cuda.graph_pool_handle() if self.records else None

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Calls ``function``, or what was recorded of it under ``key``."""
        if key in self._graphs:
            self._graphs[key].replay()
        elif not self.records:
            function()
        elif key not in self._seen:
            # The first time nothing is recorded: kernels are compiled and the optimiser's state comes into being.
            with _side_stream():
                function()
            self._seen.add(key)
        else:
            self._graphs[key] = self._record(function)
            self._graphs[key].replay()

    def _record(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        # One pool of memory serves all recordings: nothing in it is needed once a replay is over.
        with torch.cuda.graph(graph, pool=self._memory):
            function()
        # Recording sets the generators' place to 0 on a stream of its own, which a replay must not overtake.
        torch.cuda.synchronize()
        return graph


@contextmanager
def _side_stream() -> Iterator[None]:
    """Where work must be warmed up that is to be recorded."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)
