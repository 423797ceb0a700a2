"""Data sets as single files that are read anywhere, without RDKit and without pickle (``.safetensors``).

The layout is that of safetensors: the length of a header, the header in JSON, and arrays in one piece each. Whole
numbers are in as few bytes as hold them, offsets as sizes, text as UTF-8 and the length of each.

======================================= ===============================================================================
``first_node``, ``first_edge``          ``(G,)`` nodes and directed edges of each graph
``source``                              ``(E,)``
``target``, or ``degrees``              ``(E,)`` of molecules; else, and in shards, ``(N,)``: targets are sorted
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
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, one_line
from joao.core.files import write_file
from joao.data.dataset import Array, Dataset, Failure, as_bytes, sizes_to_offsets
from joao.data.formats.text import open_file
from joao.data.validation import check_dataset

FORMAT = 1
_FORMAT_KEY = "joao.data"
_TEXTS = ("graph_names", "smiles")
_MAX_HEADER_BYTES = 100_000_000  # bytes, as in safetensors
_CHUNK_BYTES = 1 << 24  # bytes
# fmt: off
TYPES = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}
# fmt: on
_CODES = {dtype: code for code, dtype in TYPES.items()}
_TEXT_TYPE = re.compile(r"<U[0-9]{1,9}")


def write_packed(path: Path, dataset: Dataset) -> None:
    """Writes ``dataset`` to ``path``, compressed where it ends in ``.xz``."""
    pieces = packed_chunks(dataset)
    write_file(path, _compress(pieces) if path.suffix == ".xz" else pieces)


def packed_chunks(
    dataset: Dataset, extra: Mapping[str, str] | None = None, by_degrees: bool = False
) -> list[bytes | memoryview]:
    """The content of a file of ``dataset``, with ``extra`` metadata; ``by_degrees`` leaves ``target`` out always."""
    about, arrays = _pack(dataset)
    if by_degrees and arrays.pop("target", None) is not None:
        arrays["degrees"] = _narrow(dataset.degrees)
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))  # stable; keeps them aligned
    entries = describe_arrays({name: (array.dtype.str, array.shape) for name, array in arrays.items()})
    metadata = {_FORMAT_KEY: str(FORMAT), "about": json.dumps(about), **(extra or {})}
    digest = _digest(metadata, entries)
    for array in arrays.values():
        digest.update(as_bytes(array))
    return [make_header({**metadata, "checksum": digest.hexdigest()}, entries), *map(as_bytes, arrays.values())]


def describe_arrays(arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, dict[str, Any]]:
    """The descriptions of arrays, given by their types and shapes, one behind the other."""
    sizes = [prod(shape) * np.dtype(dtype).itemsize for dtype, shape in arrays.values()]
    ends = list(accumulate(sizes, initial=0))
    return {
        name: {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [first, last]}
        for (name, (dtype, shape)), first, last in zip(arrays.items(), ends[:-1], ends[1:], strict=True)
    }


def make_header(metadata: Mapping[str, str], entries: Mapping[str, Any]) -> bytes:
    """What stands before the arrays in a safetensors file."""
    header = json.dumps({"__metadata__": metadata, **entries}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def drop_texts(dataset: Dataset) -> Dataset:
    """The graphs and labels alone: no SMILES, no names of graphs, no rows that gave none."""
    return replace(dataset, smiles=(), graph_names=(), failures=(), row_of_graph=None)


def read_packed(path: Path) -> Dataset:
    """Reads what :func:`write_packed` wrote."""
    with user_error_on_damage(path), open_file(path) as stream:
        metadata, entries = _header(stream)
        return _read(stream, metadata, entries)


def read_header(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Metadata and descriptions of the arrays of a packed file, checked against its size; the arrays are not read."""
    with user_error_on_damage(path), open_file(path) as stream:
        return _header(stream)


def read_array(path: Path, name: str) -> NDArray[Any]:
    """One array of a packed file that is not compressed, as it is stored and without a look at the others."""
    with user_error_on_damage(path), path.open("rb") as stream:
        entry = _header(stream)[1][name]
        first, last = entry["data_offsets"]
        stream.seek(first, 1)
        return np.frombuffer(_read_bytes(stream, last - first), TYPES[entry["dtype"]]).reshape(entry["shape"])


@contextmanager
def user_error_on_damage(path: Path) -> Iterator[None]:
    """Whatever is wrong with ``path`` is told in one line."""
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UserError(f"{path}: is damaged ({one_line(error)}). Copy or pack it again.") from error


def read_packed_if(path: Path, extra: Mapping[str, str]) -> Dataset | None:
    """Like :func:`read_packed`; None where the file has other metadata than ``extra``, or cannot be read."""
    with suppress(UserError), user_error_on_damage(path), open_file(path) as stream:
        metadata, entries = _header(stream)
        if extra.items() <= metadata.items():
            return _read(stream, metadata, entries)
    return None


def _compress(pieces: list[bytes | memoryview]) -> Iterator[bytes]:
    compressor = lzma.LZMACompressor(preset=3)
    for piece in pieces:
        for first in range(0, len(piece), _CHUNK_BYTES):
            yield compressor.compress(piece[first : first + _CHUNK_BYTES])
    yield compressor.flush()


def _header(stream: IO[bytes]) -> tuple[dict[str, str], dict[str, Any]]:
    """The metadata, and the checked descriptions of the arrays in their order."""
    length = int.from_bytes(stream.read(8), "little")
    if not 2 <= length <= _MAX_HEADER_BYTES:
        raise UserError("is no packed data: it does not begin as a safetensors file does.")
    entries = json.loads(_read_bytes(stream, length))
    metadata = entries.pop("__metadata__", {})
    if _FORMAT_KEY not in metadata:
        raise UserError("holds no graphs: 'joao pack' did not write it.")
    if int(metadata[_FORMAT_KEY]) > FORMAT:
        raise UserError(f"format {metadata[_FORMAT_KEY]} is newer than this version of joao knows.")
    place = 0
    for entry in entries.values():
        size = prod(entry["shape"]) * np.dtype(TYPES[entry["dtype"]]).itemsize
        if min(entry["shape"], default=0) < 0 or entry["data_offsets"] != [place, place + size]:
            raise ValueError("the arrays are not behind one another")
        place += size
    if stream.seekable():  # a compressed one is not
        here = stream.tell()
        if stream.seek(0, 2) != here + place:
            raise ValueError(f"{stream.tell()} bytes instead of {here + place}")
        stream.seek(here)
    return metadata, entries


def _read(stream: IO[bytes], metadata: dict[str, str], entries: dict[str, Any]) -> Dataset:
    told = metadata.pop("checksum")
    digest, arrays = _digest(metadata, entries), {}
    for name, entry in entries.items():
        data = _read_bytes(stream, entry["data_offsets"][1] - entry["data_offsets"][0])
        digest.update(data)
        arrays[name] = np.frombuffer(data, TYPES[entry["dtype"]]).reshape(entry["shape"])
    if stream.read(1):
        raise ValueError("something is behind its end")
    if digest.hexdigest() != told:
        raise ValueError("its contents are not those that were written")
    return _unpack(json.loads(metadata["about"]), arrays)


def _read_bytes(stream: IO[bytes], size: int) -> bytearray:
    """The next ``size`` bytes; memory is taken only as they come, for a compressed file may claim any size."""
    data = bytearray()
    while len(data) < size:
        piece = stream.read(min(_CHUNK_BYTES, size - len(data)))
        if not piece:
            raise ValueError("it ends too early")
        data += piece
    return data


def _digest(metadata: Mapping[str, str], entries: Mapping[str, Any]) -> Any:
    return hashlib.sha256(json.dumps([metadata, entries], sort_keys=True).encode())


def _pack(dataset: Dataset) -> tuple[dict[str, Any], dict[str, Array]]:
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


def _unpack(about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Dataset:
    """The reverse of :func:`_pack`; the arrays may be written to."""
    types, *_ = (about.pop(name) for name in ("types", "fingerprint", "counts"))  # the last two are for other readers
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}
    failures: dict[str, Any] = {
        name: arrays.pop(f"failures_{name}") for name in Failure._fields if f"failures_{name}" in arrays
    }
    if len(failures) not in (0, len(Failure._fields)):
        raise ValueError("a part of the failures is not there")
    for name, column in failures.items():
        is_number = name in ("row", "line")
        if is_number and column.dtype.kind not in "iu":
            raise ValueError("a row is no whole number")
        failures[name] = column.tolist() if is_number else _texts(column, arrays.pop(f"failures_{name}_lengths"))
    values["failures"] = tuple(Failure(*row) for row in zip(*failures.values(), strict=True))
    for name in _TEXTS:
        values[name] = _texts(arrays.pop(name), arrays.pop(f"{name}_lengths")) if name in arrays else ()
    for name, least in (("first_node", 1), ("first_edge", 0)):
        sizes = arrays.pop(name)
        values[name] = sizes_to_offsets(sizes)
        if sizes.dtype.kind not in "iu" or sizes.ndim != 1 or np.diff(values[name]).min() < least:
            raise ValueError("a graph has an impossible size")
    if len(values["first_node"]) != len(values["first_edge"]):
        raise ValueError("its arrays do not fit together")
    degrees = arrays.pop("degrees").astype(np.int64) if "degrees" in arrays else None
    if degrees is not None:
        first_node = values["first_node"]
        is_right = degrees.ndim == 1 and len(degrees) == first_node[-1] and degrees.min() >= 0
        if not is_right or (sizes_to_offsets(degrees)[first_node] != values["first_edge"]).any():
            raise ValueError("nodes and edges do not fit together")
        if len(arrays["source"]) != values["first_edge"][-1]:  # before as many targets are made
            raise ValueError("source: not of the form it should have")
        number = np.arange(len(degrees)) - np.repeat(first_node[:-1], np.diff(first_node))
        arrays["target"] = np.repeat(number.astype(parse_dtype(types["target"])), degrees)
    elif "node_labels" not in arrays:
        raise ValueError("its nodes are not there")
    for name, array in arrays.items():
        kind = parse_dtype(types[name])
        values[name] = from_code_points(array, kind.str) if kind.kind == "U" else array.astype(kind, copy=False)
    dataset = Dataset(**values)
    check_dataset(dataset)
    if degrees is not None:
        vars(dataset)["degrees"] = degrees  # which would take a pass over all edges
    return dataset


def parse_dtype(told: str) -> np.dtype[Any]:
    """The type that a file tells for an array: numbers, or text; any other could take any amount of memory."""
    if told not in _CODES and not _TEXT_TYPE.fullmatch(told):
        raise ValueError(f"{one_line(told)!r} is no type of an array")
    return np.dtype(told)


def _narrow(array: Array) -> Array:
    if array.dtype.kind != "i" or not array.size or array.min() < 0:
        return array
    return array.astype(np.min_scalar_type(array.max()))


def _code_points(array: Array) -> NDArray[np.int64]:
    """``(..., width)`` of text."""
    points: NDArray[np.uint32] = np.ascontiguousarray(array).view(np.uint32)
    return points.reshape(*array.shape, -1).astype(np.int64)


def from_code_points(points: Array, dtype: str) -> NDArray[np.str_]:
    if points.min(initial=0) < 0 or points.max(initial=0) > sys.maxunicode:
        raise ValueError("a label is no text")
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
    ends = sizes_to_offsets(lengths)
    if data.dtype != np.uint8 or ends[-1] != len(data):
        raise ValueError("a text is too long or too short")
    whole, places = data.tobytes(), ends.tolist()
    if whole.isascii():  # then bytes are characters, and one decoding does for all
        text = whole.decode("ascii")
        return tuple(text[first:last] for first, last in pairwise(places))
    return tuple(whole[first:last].decode("utf-8", "surrogatepass") for first, last in pairwise(places))
