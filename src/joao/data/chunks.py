"""Long lists worked through a piece at a time, in one process or several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from joao.errors import UserError
from joao.workers import workers

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_chunks(
    compute: Callable[[Sequence[Item]], Result],
    items: Sequence[Item],
    *,
    jobs: int = 1,
    size: int = 512,
    on_chunk: Callable[[int], None] | None = None,
) -> Iterator[Result]:
    """Yields ``compute`` of every ``size`` items, in their order.

    Args:
        compute: a function that other processes can import.
        items: what is cut into chunks.
        jobs: processes. They change neither the chunks nor their order.
        size: items of a chunk; the last one has what is left.
        on_chunk: told how many items each finished chunk had, for a progress bar.
    """
    if jobs < 1:
        raise UserError(f"jobs must be at least 1, got {jobs}.")
    chunks = [items[first : first + size] for first in range(0, len(items), size)]
    if min(jobs, len(chunks)) <= 1:
        yield from _told(chunks, map(compute, chunks), on_chunk)
        return
    with workers(min(jobs, len(chunks))) as pool:
        # Not pool.map, which stumbles over a process that ends early while others wait.
        tasks = deque(pool.submit(compute, chunk) for chunk in chunks)
        yield from _told(chunks, (tasks.popleft().result() for _ in chunks), on_chunk)


def _told(
    chunks: Iterable[Sequence[Item]], results: Iterable[Result], on_chunk: Callable[[int], None] | None
) -> Iterator[Result]:
    for chunk, result in zip(chunks, results, strict=True):
        if on_chunk is not None:
            on_chunk(len(chunk))
        yield result
