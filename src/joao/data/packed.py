r"""Data sets as single files that are read anywhere, without RDKit and without pickle (``.safetensors``).

The layout is that of safetensors: the length of a header, the header in JSON, and arrays in one piece each. Whole
numbers are in as few bytes as hold them, offsets as sizes, text as UTF-8 and the length of each.

======================================= ===============================================================================
``first_node``, ``first_edge``          ``(G,)`` nodes and directed edges of each graph
``source``                              ``(E,)``
``target``, or ``degrees``              ``(E,)`` of molecules; else ``(N,)``, as edges are sorted by target
``node_labels``, ``edge_attr``, ...     the other arrays of :class:`joao.data.Dataset`; text labels as code points
``smiles``, ``graph_names``             bytes; their lengths ``(G,)`` are in ``smiles_lengths`` and so on
``failures_row``, ``failures_text``...  the rows that gave no graph, likewise
======================================= ===============================================================================

The metadata are ``joao.data`` (the number of the format), ``about`` (JSON: name, kind, counts, names of classes and
tasks, version of the featuriser, types of the arrays in memory) and ``checksum``, a hash of all else.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from joao.atoms import BOND_TYPES, CHIRALITIES, DIRECTIONS, ELEMENTS
from joao.data.base import Array, Dataset, Failure, as_bytes, offsets_of
from joao.errors import UserError
from joao.files import write_file

SUFFIXES = (".safetensors", ".safetensors.xz")
FORMAT = 1
_FORMAT_KEY = "joao.data"
_TEXTS = ("graph_names", "smiles")
_MOST_HEADER = 100_000_000  # bytes, as in safetensors
_AT_ONCE = 1 << 24  # bytes
# fmt: off
_TYPES = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}
# fmt: on
_CODES = {dtype: code for code, dtype in _TYPES.items()}


def write_packed(path: Path, dataset: Dataset) -> None:
    """Writes ``dataset`` to ``path``, compressed where it ends in ``.xz``."""
    pieces = pieces_of(dataset)
    write_file(path, _compressed(pieces) if path.suffix == ".xz" else pieces)


def pieces_of(dataset: Dataset, extra: Mapping[str, str] | None = None) -> list[bytes | memoryview]:
    """The content of a file of ``dataset``, with ``extra`` metadata."""
    about, arrays = _packed(dataset)
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))  # stable; keeps them aligned
    ends = offsets_of(np.array([array.nbytes for array in arrays.values()])).tolist()
    entries = {
        name: {"dtype": _CODES[array.dtype.str], "shape": list(array.shape), "data_offsets": [first, last]}
        for (name, array), first, last in zip(arrays.items(), ends[:-1], ends[1:], strict=True)
    }
    metadata = {_FORMAT_KEY: str(FORMAT), "about": json.dumps(about), **(extra or {})}
    digest = _digest(metadata, entries)
    for array in arrays.values():
        digest.update(as_bytes(array))
    header = json.dumps({"__metadata__": {**metadata, "checksum": digest.hexdigest()}, **entries}).encode()
    header += b" " * (-len(header) % 8)
    return [len(header).to_bytes(8, "little"), header, *map(as_bytes, arrays.values())]


def without_texts(dataset: Dataset) -> Dataset:
    """The graphs and labels alone: no SMILES, no names of graphs, no rows that gave none."""
    return replace(dataset, smiles=(), graph_names=(), failures=(), row_of_graph=None)


def read_packed(path: Path) -> Dataset:
    """Reads what :func:`write_packed` wrote."""
    try:
        with _opened(path) as stream:
            metadata, entries = _header(stream)
            return _read(stream, metadata, entries)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UserError(f"{path}: is damaged ({shortly(error)}). Copy or pack it again.") from error


def read_if(path: Path, extra: Mapping[str, str]) -> Dataset | None:
    """Like :func:`read_packed`; None where the file has other metadata than ``extra``, or cannot be read."""
    try:
        with _opened(path) as stream:
            metadata, entries = _header(stream)
            return _read(stream, metadata, entries) if extra.items() <= metadata.items() else None
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def shortly(error: Exception) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__


def _opened(path: Path) -> IO[bytes]:
    return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")


def _compressed(pieces: list[bytes | memoryview]) -> Iterator[bytes]:
    compressor = lzma.LZMACompressor(preset=3)
    for piece in pieces:
        for first in range(0, len(piece), _AT_ONCE):
            yield compressor.compress(piece[first : first + _AT_ONCE])
    yield compressor.flush()


def _header(stream: IO[bytes]) -> tuple[dict[str, str], dict[str, Any]]:
    """The metadata, and the checked descriptions of the arrays in their order."""
    length = int.from_bytes(stream.read(8), "little")
    if not 2 <= length <= _MOST_HEADER:
        raise UserError("is no packed data: it does not begin as a safetensors file does.")
    entries = json.loads(_taken(stream, length))
    metadata = entries.pop("__metadata__", {})
    if _FORMAT_KEY not in metadata:
        raise UserError("holds no graphs: 'joao pack' did not write it.")
    if int(metadata[_FORMAT_KEY]) > FORMAT:
        raise UserError(f"format {metadata[_FORMAT_KEY]} is newer than this version of joao knows.")
    place = 0
    for entry in entries.values():
        size = prod(entry["shape"]) * np.dtype(_TYPES[entry["dtype"]]).itemsize
        if min(entry["shape"], default=0) < 0 or entry["data_offsets"] != [place, place + size]:
            raise ValueError("the arrays are not behind one another")
        place += size
    if not isinstance(stream, lzma.LZMAFile):
        here = stream.tell()
        if stream.seek(0, 2) != here + place:
            raise ValueError(f"{stream.tell()} bytes instead of {here + place}")
        stream.seek(here)
    return metadata, entries


def _read(stream: IO[bytes], metadata: dict[str, str], entries: dict[str, Any]) -> Dataset:
    told = metadata.pop("checksum")
    digest, arrays = _digest(metadata, entries), {}
    for name, entry in entries.items():
        data = _taken(stream, entry["data_offsets"][1] - entry["data_offsets"][0])
        digest.update(data)
        arrays[name] = np.frombuffer(data, _TYPES[entry["dtype"]]).reshape(entry["shape"])
    if stream.read(1):
        raise ValueError("something is behind its end")
    if digest.hexdigest() != told:
        raise ValueError("its contents are not those that were written")
    return _unpacked(json.loads(metadata["about"]), arrays)


def _taken(stream: IO[bytes], size: int) -> bytearray:
    """The next ``size`` bytes; memory is taken only as they come, for a compressed file may claim any size."""
    data = bytearray()
    while len(data) < size:
        piece = stream.read(min(_AT_ONCE, size - len(data)))
        if not piece:
            raise ValueError("it ends too early")
        data += piece
    return data


def _digest(metadata: Mapping[str, str], entries: Mapping[str, Any]) -> Any:
    return hashlib.sha256(json.dumps([metadata, entries], sort_keys=True).encode())


def _packed(dataset: Dataset) -> tuple[dict[str, Any], dict[str, Array]]:
    """What goes into ``about``, and the arrays."""
    values = {each.name: getattr(dataset, each.name) for each in fields(Dataset)}
    given = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    arrays: dict[str, Array] = {}
    for name, array in given.items():
        if name in ("first_node", "first_edge"):
            arrays[name] = _narrow(np.diff(array))
        elif name == "target" and dataset.kind == "graphs":
            arrays["degrees"] = _narrow(dataset.degrees)
        else:
            arrays[name] = _narrow(_code_points(array) if array.dtype.kind == "U" else array)
    for name in _TEXTS:
        arrays |= _text_arrays(name, values[name])
    for name, column in zip(Failure._fields, zip(*dataset.failures, strict=True), strict=False):
        key = f"failures_{name}"
        arrays |= {key: _narrow(np.array(column))} if name in ("row", "line") else _text_arrays(key, column)
    about = {name: value for name, value in values.items() if name not in (*given, *_TEXTS, "failures")}
    counts = {"graphs": len(dataset), "nodes": dataset.num_nodes, "edges": dataset.num_edges}
    types = {name: array.dtype.str for name, array in given.items()}
    return {**about, "counts": counts, "fingerprint": dataset.fingerprint, "types": types}, arrays


def _unpacked(about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Dataset:
    """The reverse of :func:`_packed`; the arrays may be written to."""
    fingerprint, types, _ = about.pop("fingerprint"), about.pop("types"), about.pop("counts")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}
    failures: dict[str, Any] = {
        name: arrays.pop(f"failures_{name}") for name in Failure._fields if f"failures_{name}" in arrays
    }
    for name, column in failures.items():
        lengths = arrays.pop(f"failures_{name}_lengths", None)
        failures[name] = column.tolist() if lengths is None else _texts(column, lengths)
    values["failures"] = tuple(Failure(*row) for row in zip(*failures.values(), strict=True))
    for name in _TEXTS:
        values[name] = _texts(arrays.pop(name), arrays.pop(f"{name}_lengths")) if name in arrays else ()
    sizes, num_edges = arrays.pop("first_node"), arrays.pop("first_edge")
    values["first_node"], values["first_edge"] = offsets_of(sizes), offsets_of(num_edges)
    degrees = arrays.pop("degrees").astype(np.int64) if "degrees" in arrays else None
    if degrees is not None:
        if (len(degrees), degrees.sum()) != (sizes.sum(), len(arrays["source"])):
            raise ValueError("nodes and edges do not fit together")
        number = np.arange(len(degrees)) - np.repeat(values["first_node"][:-1], sizes)
        arrays["target"] = np.repeat(number.astype(types["target"]), degrees)
    for name, array in arrays.items():
        is_text = types[name][1] == "U"
        values[name] = _from_code_points(array, types[name]) if is_text else array.astype(types[name], copy=False)
    dataset = Dataset(**values)
    _check(dataset)
    # These would take a pass over all edges; they are known since those were packed.
    vars(dataset)["fingerprint"] = fingerprint
    if degrees is not None:
        vars(dataset)["degrees"] = degrees
    return dataset


def _check(dataset: Dataset) -> None:
    """A file that somebody else made must not send a kernel beyond the end of its memory."""
    lengths = (
        (len(dataset), (dataset.classes, dataset.targets, dataset.row_of_graph, dataset.groups)),
        (len(dataset), (dataset.graph_names or None, dataset.smiles or None)),
        (dataset.num_nodes, (dataset.node_labels, dataset.node_attributes)),
        (int(dataset.first_edge[-1]), (dataset.source, dataset.target, dataset.edge_attr)),
    )
    sizes = np.diff(dataset.first_node)
    if (
        any(part is not None and len(part) != expected for expected, parts in lengths for part in parts)
        or sizes.min() < 1
    ):
        raise ValueError("its arrays do not fit together")
    last = np.repeat((sizes - 1).astype(dataset.source.dtype), np.diff(dataset.first_edge))
    if (dataset.source > last).any() or (dataset.target > last).any():
        raise ValueError("an edge leaves its graph")
    if dataset.kind == "molecules":
        _check_codes(dataset.node_labels, (ELEMENTS, CHIRALITIES))
        _check_codes(dataset.edge_attr, (BOND_TYPES, DIRECTIONS))


def _check_codes(codes: NDArray[Any] | None, bounds: tuple[int, int]) -> None:
    if codes is None or codes.dtype != np.uint8 or codes.shape[1:] != (2,) or (codes >= np.array(bounds)).any():
        raise ValueError("its atoms or bonds are of no known kind")


def _narrow(array: Array) -> Array:
    if array.dtype.kind != "i" or not array.size or array.min() < 0:
        return array
    return array.astype(np.min_scalar_type(array.max()))


def _code_points(array: Array) -> NDArray[np.int64]:
    """``(..., width)`` of text."""
    points: NDArray[np.uint32] = np.ascontiguousarray(array).view(np.uint32)
    return points.reshape(*array.shape, -1).astype(np.int64)


def _from_code_points(points: Array, dtype: str) -> NDArray[np.str_]:
    text: NDArray[np.str_] = np.ascontiguousarray(points.astype(np.uint32)).view(dtype)[..., 0]
    return text


def _text_arrays(name: str, texts: tuple[str, ...]) -> dict[str, Array]:
    """The bytes of all texts and the length of each; nothing for none."""
    if not texts:
        return {}
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = _narrow(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)))
    return {name: np.frombuffer(b"".join(encoded), np.uint8), f"{name}_lengths": lengths}


def _texts(data: NDArray[np.uint8], lengths: Array) -> tuple[str, ...]:
    ends = offsets_of(lengths)
    if ends[-1] != len(data):
        raise ValueError("a text is too long or too short")
    whole, places = data.tobytes(), ends.tolist()
    if whole.isascii():  # then bytes are characters, and one decoding does for all
        text = whole.decode("ascii")
        return tuple(text[first:last] for first, last in pairwise(places))
    return tuple(whole[first:last].decode("utf-8", "surrogatepass") for first, last in pairwise(places))
