"""Map a function over items on an engine: in worker processes of this machine, or on a Ray cluster."""

import os
import signal
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from joao.core import processes
from joao.core.errors import UserError, one_line, short_repr, suggest
from joao.core.processes import Item, Result, portable_error

ENGINES = ("local", "ray")
MOST_LOSSES = 10  # workers that may die while they compute the same item, before the item is to blame


def check_engine(engine: str) -> None:
    """Raise an error for an unknown engine, or if Ray is missing."""
    if engine not in ENGINES:
        raise UserError(f"engine: unknown engine '{engine}'. {suggest(engine, ENGINES)}")
    if engine == "ray":
        _import_ray()


def map_on(
    engine: str,
    compute: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int | None = None,
    *,
    on_gpu: bool = False,
) -> Iterator[tuple[int, Result]]:
    """Compute each item and yield the results as they are finished, with the item's index.

    Args:
        engine: ``local``, or ``ray``, see :func:`map_on_ray`.
        compute: other processes must be able to import it.
        items: read as workers become free.
        workers: number of processes. By default 1 with ``local``, and one per core or GPU of the cluster with ``ray``.
        on_gpu: whether each worker of Ray needs a GPU instead of a core.
    """
    check_engine(engine)
    if engine == "ray":
        return map_on_ray(compute, items, workers, on_gpu=on_gpu)
    if workers is not None and workers > 1:
        return processes.map_in_processes(compute, items, workers)
    return enumerate(map(compute, items))


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray reports its use to its makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # otherwise it warns about a future default
    try:
        import ray
    except ImportError:
        raise UserError("engine: ray is not installed: pip install 'joao[ray]'") from None
    return ray


def _check_listening(address: str) -> None:
    """Raise an error if nothing listens at ``address``, which Ray would try to reach for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """Connect to the Ray cluster of this process, of ``RAY_ADDRESS`` or of ``ray start`` on this machine.

    Without any, one is started on this machine. A connection of the user stays open. Yields the package.
    """
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        _check_listening(address)
        on_term = signal.getsignal(signal.SIGTERM)
        ray.init(logging_level="ERROR", log_to_driver=False)
        with suppress(TypeError, ValueError):  # not set by Python, or not the main thread
            signal.signal(signal.SIGTERM, on_term)  # that of Ray prints addresses and aborts
    except (OSError, OverflowError, ValueError) as error:
        fix = "Start it, correct RAY_ADDRESS, or unset it to start Ray on this machine."
        raise UserError(
            f"engine: cannot connect to the Ray cluster {address or 'of this machine'} ({one_line(error)}). {fix}"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def map_on_ray(
    compute: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int | None = None,
    begin: Callable[[], None] | None = None,
    *,
    on_gpu: bool = False,
) -> Iterator[tuple[int, Result]]:
    """Like :func:`joao.core.processes.map_in_processes`, in actors on a Ray cluster (:func:`ray_cluster`) that may die.

    Each actor has one core or GPU and restarts when its process or machine dies. Its item then goes to the next free
    actor, so that a cluster that has lost machines finishes with the others.
    """
    kind = "GPU" if on_gpu else "CPU"
    waiting = enumerate(items)
    lost: deque[tuple[int, Item]] = deque()
    losses: Counter[int] = Counter()
    actors: list[Any] = []
    pending: dict[Any, tuple[Any, tuple[int, Item] | None]] = {}
    with ray_cluster() as ray:
        count = workers or int(ray.cluster_resources().get(kind, 0))
        if count < 1:
            fix = "Use --device cpu, or pass" if on_gpu else "Pass"
            raise UserError(f"engine: the Ray cluster has no {kind}. {fix} --workers N to wait until it has N of them.")
        options = {"num_cpus": int(not on_gpu), "num_gpus": int(on_gpu), "max_restarts": -1}
        call = ray.put((compute, begin))

        def start(actor: Any) -> Any:
            return actor.begin.options(max_task_retries=-1).remote(call)  # if it restarts, it answers later

        try:
            actors = [ray.remote(**options)(_RayWorker).remote() for _ in range(count)]
            pending |= {start(each): (each, None) for each in actors}
            idle: list[Any] = []
            while True:
                while idle and (item := lost.popleft() if lost else next(waiting, None)) is not None:
                    actor = idle.pop()
                    pending[actor.compute.remote(item[1])] = actor, item
                if idle and not any(item for _, item in pending.values()):
                    return
                if not pending:
                    raise UserError("engine: all Ray workers have died for good. Run the same command again.")
                (reference,), _ = ray.wait(list(pending), num_returns=1)
                actor, item = pending.pop(reference)
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayTaskError as error:  # joao is missing there, or has another version
                    raise UserError(f"engine: a Ray worker cannot run joao ({one_line(error.cause)}).") from error
                except ray.exceptions.RayError as error:
                    if item is None:
                        continue  # it will not restart
                    losses[item[0]] += 1
                    if losses[item[0]] >= MOST_LOSSES:
                        raise UserError(
                            f"engine: {short_repr(item[1])} ended {MOST_LOSSES} workers ({one_line(error)}). If memory "
                            "is short, use smaller parts or fewer workers per machine."
                        ) from error
                    lost.append(item)
                    pending[start(actor)] = actor, None
                    continue
                idle.append(actor)
                if isinstance(result, Exception):
                    raise result
                if item is not None:
                    yield item[0], result
        finally:
            for reference in pending:
                ray.cancel(reference)  # otherwise Ray may print that it tries again
            for actor in actors:
                ray.kill(actor)


class _RayWorker:
    """Computes items in an actor. Errors are returned, because Ray would put its own traceback into them."""

    _compute: Callable[[Any], Any] | None = None

    def begin(self, call: tuple[Callable[[Any], Any], Callable[[], None] | None]) -> None:
        """Take the functions, which are not arguments of the constructor: Ray may lose those before a restart."""
        self._compute, begin = call
        if begin is not None:
            begin()

    def compute(self, item: Any) -> Any:
        if self._compute is None:  # it has restarted since it began, and must begin again
            os._exit(1)
        try:
            return self._compute(item)
        except Exception as error:
            return portable_error(error)
