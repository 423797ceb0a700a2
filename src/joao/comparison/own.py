"""Methods of the user in a comparison: estimators with ``fit`` and ``transform``, and functions from graphs to rows.

A method receives a :class:`joao.Dataset` without classes, tasks and graph names, and returns one row of numbers per
graph. It sees all graphs, in the same order, also those that are not scored.
"""

import copy
import hashlib
import inspect
import pickle
import re
import signal
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import wrap_non_picklable_objects  # type: ignore[import-untyped]
from scipy.sparse import csr_array, issparse
from sklearn.base import clone

from joao.baselines.base import Rows
from joao.core.errors import UserError, is_out_of_memory, one_line, short_repr
from joao.data.dataset import Dataset
from joao.evaluation.svm import Kernel

SEEDS = ("random_state", "seed")  # names of parameters that receive the seed
EXPECTED = (
    "the name of a method, an estimator with fit and transform, a function that maps graphs to rows, or a dictionary "
    "of names and these"
)


def name_methods(requested: Any, known: Sequence[str]) -> dict[str, Any]:
    """Return own methods by name and, with the value None, names of ``known`` methods, in order.

    Without a name, a method has that of its class or function; later ones of the same name have a number.
    """
    items = requested.split(",") if isinstance(requested, str) else requested
    if isinstance(items, Mapping) or not isinstance(items, Sequence):
        items = [items]
    methods: dict[str, Any] = {}
    for item in items:
        if isinstance(item, str):
            if name := "+".join(map(str.strip, item.split("+"))):
                methods[name] = None
            continue
        for name, method in item.items() if isinstance(item, Mapping) else [("", item)]:
            _check_method(method, name)
            reserved = [*methods, *known]
            if not isinstance(name, str) or (name and (name in reserved or "+" in name or name != name.strip())):
                raise UserError(
                    f"compare: {short_repr(name)} cannot be the name of an own method. Use text without '+' that is "
                    "not the name of another method."
                )
            base = name or _default_name(method)
            names = (base if number == 1 else f"{base}-{number}" for number in range(1, len(reserved) + 2))
            methods[next(each for each in names if each not in reserved)] = method
    return methods


def _check_method(method: Any, name: object) -> None:
    prefix = f"compare: {short_repr(name)}: " if name else "compare: "
    if inspect.isclass(method):
        raise UserError(f"{prefix}got the class {method.__name__}. Give an object of it: {method.__name__}().")
    if not (is_estimator(method) or callable(method)):
        raise UserError(f"{prefix}expected {EXPECTED}, got {short_repr(method)}.")


def is_estimator(method: Any) -> bool:
    """Whether a method has ``fit`` and ``transform``; others are called."""
    try:
        return callable(getattr(method, "fit", None)) and callable(getattr(method, "transform", None))
    except AttributeError:  # of a pipeline, whose last step has no transform
        return False


def _default_name(method: Any) -> str:
    if hasattr(method, "steps"):  # a pipeline
        return "-".join(type(step).__name__ for _, step in method.steps)
    name = getattr(method, "__name__", type(method).__name__)
    return "function" if name == "<lambda>" else name


def kind_of_own(method: Any) -> str:
    """One of :data:`joao.comparison.summary.KINDS`: ``own``, unless it is an estimator of this package."""
    return str(getattr(method, "compared_as", "own"))


def seed_parameters(method: Any) -> list[str]:
    """Return the parameters that receive the seed: ``random_state`` or ``seed``, also of the steps of a pipeline."""
    if is_estimator(method):
        names = list(method.get_params()) if hasattr(method, "get_params") else []
        return [name for name in names if name.rpartition("__")[2] in SEEDS]
    try:
        return [name for name in inspect.signature(method).parameters if name in SEEDS]
    except (TypeError, ValueError):  # a function without a signature
        return []


def describe_own(method: Any) -> dict[str, Any]:
    """Return the settings of a method in a record: what it is, a hash of its source code and its parameters."""
    kind = type(method) if is_estimator(method) or not hasattr(method, "__qualname__") else method
    try:
        source = hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        source = "unknown"
    seeds, parameters = seed_parameters(method), {}
    if hasattr(method, "get_params"):
        parameters = {name: _stable_repr(value) for name, value in method.get_params().items() if name not in seeds}
    return {
        "method": f"{kind.__module__}.{kind.__qualname__}",
        "source": source,
        "parameters": parameters,
        "seeds": seeds,
    }


def _stable_repr(value: object) -> str:
    """``repr`` without memory addresses, which differ between sessions."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(repr(value).split()))[:200]


def own_rows(method: Any, dataset: Dataset, seed: int) -> Rows:
    """Compute ``(G, d)`` rows of a method; every error of its code is a :class:`UserError` with the place."""
    graphs = replace(dataset.without_labels(), graph_names=())
    seeds = dict.fromkeys(seed_parameters(method), seed)
    with raise_on_interrupt():
        rows = _make_rows(method, graphs, seeds)
    return _check_rows(rows, len(graphs))


@contextmanager
def raise_on_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the comparison: ``JOAO.fit`` would return a partly trained encoder, which must not be scored."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: signal.default_int_handler(number, frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _make_rows(method: Any, graphs: Dataset, seeds: Mapping[str, int]) -> Any:
    try:
        if is_estimator(method):
            copied = clone(method) if hasattr(method, "get_params") else copy.deepcopy(method)
            copied = copied.set_params(**seeds) if seeds else copied
            return (
                copied.fit_transform(graphs)
                if hasattr(copied, "fit_transform")
                else copied.fit(graphs).transform(graphs)
            )
        return method(graphs, **seeds)
    except Exception as error:
        if isinstance(error, UserError) or is_out_of_memory(error):
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"{what} ({Path(frame.filename).name}, line {frame.lineno}).") from error


def _check_rows(rows: Any, num_graphs: int) -> Rows:
    if issparse(rows):
        matrix: Any = csr_array(rows, dtype=np.float64)
    else:
        try:
            rows = rows.detach().cpu() if hasattr(rows, "detach") else rows
            matrix = np.asarray(rows, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise UserError(f"expected one row of numbers per graph, got {short_repr(rows)}.") from error
    if matrix.ndim != 2 or matrix.shape[0] != num_graphs or not matrix.shape[1]:
        raise UserError(f"expected one row of numbers for each of {num_graphs} graphs, got shape {matrix.shape}.")
    values = matrix.data if issparse(matrix) else matrix
    if not np.isfinite(values).all():
        raise UserError(f"its rows have {(~np.isfinite(values)).sum()} values that are NaN or infinite.")
    checked: Rows = matrix
    return checked


def own_kernel(method: Any, rows: Rows) -> Kernel:
    """``linear`` for graph kernels of this package and sparse rows, which are feature maps; else ``rbf``."""
    return "linear" if getattr(method, "kernel", False) is True or issparse(rows) else "rbf"


def are_equal(first: Rows, second: Rows) -> bool:
    """Whether a method made the same rows twice, up to rounding."""
    if first.shape != second.shape:
        return False
    difference: Any = abs(first - second)
    return bool(difference.max() <= 1e-6 * max(1.0, abs(first).max()))


def make_sendable(method: Any) -> bytes | None:
    """Pickle a method for another process, also functions of a notebook; None if that is not possible."""
    try:
        return pickle.dumps(wrap_non_picklable_objects(method, keep_wrapper=False))
    except Exception:  # objects may raise anything when they are pickled
        return None
