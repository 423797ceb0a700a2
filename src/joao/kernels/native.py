"""Load the compiled core, C++ in ``_native``, where it was built; everything works without it, on torch alone.

``JOAO_NATIVE`` is ``off``, or the highest level of instructions to use: ``baseline``, ``avx2`` or ``avx512``.
"""

import ctypes
import os
import weakref
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, GraphStore
from joao.core.randomness import numpy_generator
from joao.kernels.svm_dual import MAX_STEPS, TOLERANCE

FOLDER = Path(__file__).parent / "_native"
LEVELS = ("baseline", "avx2", "avx512")
KINDS = ("identity", "node_drop", "subgraph", "attribute_mask", "edge_perturb")
DENSE = 8  # edges per node from which on it saves time to find nodes with the same neighbours
SPARSE = 0.25  # the share of numbers of x that are not 0 up to which its rows are stored as lists


def load_library() -> ctypes.CDLL | None:
    """Return the library for this processor, or None if it was not built or is switched off."""
    level = native_level()
    return _open(level) if level in LEVELS else None


def native_level() -> str:
    """Return the level of instructions of the compiled core, ``off``, or ``not built``."""
    requested = os.environ.get("JOAO_NATIVE") or LEVELS[-1]
    if requested not in ("off", *LEVELS):
        raise UserError(f"JOAO_NATIVE: must be off, {', '.join(LEVELS)}, got '{requested}'.")
    if requested == "off":
        return requested
    baseline = _open("baseline")
    if baseline is None:
        return "not built"
    highest = min(LEVELS.index(requested), baseline.joao_cpu_level())
    return next(level for level in reversed(LEVELS[: highest + 1]) if _open(level) is not None)


def describe() -> str:
    """Say in one line whether training on a CPU uses the compiled core."""
    level = native_level()
    if level in LEVELS:
        return f"compiled core: {level}"
    reason = "JOAO_NATIVE=off" if level == "off" else "not built; install a C++ compiler and joao again"
    return f"compiled core: none ({reason}); training uses torch alone"


@cache
def _open(level: str) -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(FOLDER / f"{level}.so"))
        library.joao_open.restype = c_void_p
        for name in ("joao_close", "joao_view_size", "joao_view_copy"):
            getattr(library, name).restype = None
        library.joao_svm_fit.restype = c_int32
    except (OSError, AttributeError):  # not built, built for another system, or from older sources
        return None
    return library


def fit_machines(
    kernel: NDArray[Any], rows: NDArray[np.int64], positive: int, c_values: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Fit a support vector machine for each C; see ``svm.cpp``.

    Args:
        kernel: float32, symmetric.
        rows: ``(m,)`` the rows of the kernel to fit to; the first ``positive`` have class 1, the others -1.
        c_values: in rising order: each machine starts from the one before.

    Returns:
        ``(C, m)`` :math:`y \alpha` and ``(C,)`` :math:`\rho`, as :func:`joao.kernels.svm_dual.solve_duals`.
    """
    library = load_library()
    if library is None:
        raise UserError(f"svm: the compiled core is {native_level()}.")
    kernel, rows = np.ascontiguousarray(kernel, np.float32), np.ascontiguousarray(rows, np.int64)
    bounds = np.array(c_values, dtype=np.float64)
    coefficients, offsets = np.empty((len(bounds), len(rows))), np.empty(len(bounds))
    steps = np.empty(len(bounds), dtype=np.int64)
    addresses = [c_void_p(each.ctypes.data) for each in (kernel, rows, bounds, coefficients, offsets, steps)]
    code = library.joao_svm_fit(
        *(addresses[0], c_int64(kernel.shape[1]), addresses[1], c_int64(len(rows)), c_int64(positive)),
        *(addresses[2], c_int64(len(bounds)), c_double(TOLERANCE), c_int64(MAX_STEPS), *addresses[3:]),
    )
    if code == 2:
        raise UserError("svm: the kernel has NaN or infinite values. Check the rows that it is computed from.")
    if code:
        raise MemoryError("the compiled core ran out of memory")
    return coefficients, offsets


class _Graphs(ctypes.Structure):
    _fields_ = (
        *(
            (name, c_void_p)
            for name in ("first_node", "first_edge", "source", "first_value", "column", "value", "dense")
        ),
        ("features", c_int64),
        ("twin", c_void_p),
    )


class AugmentationSpec(ctypes.Structure):
    """An augmentation: its index in :data:`KINDS`, ``drop_only`` or whether to fill with the mean, and its shares."""

    _fields_ = (("kind", c_int32), ("option", c_int32), ("strength", c_double), ("keep", c_double))


class Network(ctypes.Structure):
    """Weights and options of a training; see ``train.cpp``."""

    _fields_ = (
        ("layers", c_int64),
        ("width", c_int64),
        ("encoder", c_void_p),
        ("heads", c_void_p),
        *((name, c_double) for name in ("eps", "momentum", "temperature")),
        ("positive_in_denominator", c_int32),
        ("symmetric", c_int32),
    )


def pointers(tensors: Sequence[Tensor]) -> Any:
    """An array of the addresses of contiguous float32 tensors, which must outlive it."""
    for each in tensors:
        assert (each.dtype, each.is_contiguous(), each.device.type) == (torch.float32, True, "cpu")
    return (c_void_p * len(tensors))(*(each.data_ptr() for each in tensors))


class CompiledCore:
    """Steps of a pre-training on the graphs of ``store``, on a CPU; see ``train.cpp``.

    Args:
        library: from :func:`load_library`.
        store: its edge attributes are not used.
    """

    def __init__(self, library: ctypes.CDLL, store: GraphStore) -> None:
        self.library, self.num_features = library, store.num_features
        nodes, edges = store.first_node.numpy().astype(np.int64), store.first_edge.numpy().astype(np.int64)
        target = store.target.numpy() + np.repeat(nodes[:-1], np.diff(edges))
        degrees = np.bincount(target, minlength=nodes[-1])
        arrays = {
            "first_node": nodes,
            "first_edge": np.concatenate([[0], np.cumsum(degrees)]),
            "source": store.source.numpy().astype(np.int32),
        }
        if len(target) > DENSE * len(degrees):
            arrays["twin"] = find_twin_nodes(nodes, arrays["first_edge"], arrays["source"])
        x = store.x.numpy()
        if np.count_nonzero(x) <= SPARSE * x.size or x.shape[1] == 1:
            row, column = np.nonzero(x)
            arrays["first_value"] = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(x)))])
            arrays |= {"column": column.astype(np.int32), "value": x[row, column].astype(np.float32)}
        else:
            arrays["dense"] = np.ascontiguousarray(x, dtype=np.float32)
        self._arrays = arrays  # kept alive
        self.graphs = _Graphs(**{name: each.ctypes.data for name, each in arrays.items()}, features=x.shape[1])
        self._handle = c_void_p(library.joao_open())
        if not self._handle:
            raise MemoryError
        self._close = weakref.finalize(self, library.joao_close, self._handle)

    def train(
        self,
        graphs: Tensor,
        augmentations: Sequence[AugmentationSpec],
        seed: int,
        network: Network,
        gradients: Any,
        head_gradients: Any,
        threads: int,
    ) -> float:
        """Write the gradients of one batch ``(B,)`` under a pair of augmentations; returns the loss.

        ``gradients`` and ``head_gradients`` are :func:`pointers`, as in ``train.cpp``.
        """
        loss = c_double()
        both = (AugmentationSpec * 2)(*augmentations)
        self._check(
            self.library.joao_train(
                *(self._handle, byref(self.graphs), *_indices(graphs), both, c_uint64(seed), byref(network)),
                *(gradients, head_gradients, threads, byref(loss)),
            )
        )
        return loss.value

    def measure(
        self, graphs: Tensor, pool: Sequence[AugmentationSpec], seed: int, network: Network, threads: int
    ) -> Tensor:
        """Return the ``(K, K)`` losses of one batch under all pairs."""
        size = len(pool)
        table = torch.empty(size, size, dtype=torch.float64)
        all_of_them = (AugmentationSpec * size)(*pool)
        self._check(
            self.library.joao_measure(
                *(self._handle, byref(self.graphs), *_indices(graphs), all_of_them, c_int64(size), c_uint64(seed)),
                *(byref(network), threads, c_void_p(table.data_ptr())),
            )
        )
        return table

    def draw(self, graphs: Tensor, augmentation: AugmentationSpec, seed: int, number: int = 0) -> GraphBatch:
        """Draw a view as a step or measurement with ``seed`` does that draws it as number ``number``."""
        arguments = *_indices(graphs), byref(augmentation), c_uint64(seed), c_uint64(number)
        self._check(self.library.joao_draw(self._handle, 0, byref(self.graphs), *arguments))
        nodes, edges = c_int64(), c_int64()
        self.library.joao_view_size(self._handle, 0, byref(nodes), byref(edges))
        row, graph_of_node = torch.empty(2, nodes.value, dtype=torch.long)
        source, target = torch.empty(2, edges.value, dtype=torch.long)
        replaced = torch.empty(nodes.value, self.num_features)
        outputs = [c_void_p(each.data_ptr()) for each in (row, source, target, graph_of_node, replaced)]
        self.library.joao_view_copy(self._handle, 0, c_int64(graphs.numel()), c_int64(self.num_features), *outputs)
        # A node has the features of a row of the store or, if ``row`` is -1 - i, those in row i of ``replaced``.
        x = torch.where(row.unsqueeze(1) < 0, replaced[(-1 - row).clamp(min=0)], self._x()[row.clamp(min=0)])
        return GraphBatch(x, source, target, graph_of_node, graphs.numel())

    def _x(self) -> Tensor:
        if "dense" in self._arrays:
            return torch.from_numpy(self._arrays["dense"])
        first, column, value = (torch.from_numpy(self._arrays[name]) for name in ("first_value", "column", "value"))
        x = torch.zeros(len(first) - 1, self.num_features)
        x[torch.repeat_interleave(first.diff()), column.long()] = value
        return x

    def _check(self, code: int) -> None:
        if code:
            raise MemoryError("the compiled core ran out of memory" if code == 1 else "no second thread")


def find_twin_nodes(
    first_node: NDArray[np.int64], first_edge: NDArray[np.int64], source: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return ``(N,)`` the first node of the graph that has, with itself, the same neighbours as each node.

    Sums over neighbours are the same for twins. In graphs made of cliques, as of people who worked together, most nodes
    have one. Nodes are compared by a sum of random numbers of 64 bits, one for each neighbour.
    """
    sizes = np.diff(first_node)
    start = np.repeat(first_node[:-1], sizes)  # of the graph of each node
    code = numpy_generator(0, "twins").integers(2**64, size=len(start), dtype=np.uint64)
    neighbours = source + np.repeat(start, np.diff(first_edge))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(code[neighbours])])  # modulo 2**64
    _, first, number = np.unique(
        code + sums[first_edge[1:]] - sums[first_edge[:-1]], return_index=True, return_inverse=True
    )
    return (first[number] - start).astype(np.int32)


def _indices(graphs: Tensor) -> tuple[Any, Any]:
    assert (graphs.dtype, graphs.is_contiguous()) == (torch.long, True)
    return ctypes.cast(graphs.data_ptr(), POINTER(c_int64)), c_int64(graphs.numel())
