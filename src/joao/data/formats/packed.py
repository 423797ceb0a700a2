"""Packed data sets (``.safetensors``): one file that is read without RDKit and without pickle.

The layout is that of safetensors: length of the header, header in JSON, arrays. Integers are stored in the smallest
sufficient type, offsets as sizes, and texts as UTF-8 with their lengths.

======================================= ===============================================================================
``first_node``, ``first_edge``          ``(G,)`` nodes and directed edges of each graph
``source``                              ``(E,)``
``target`` or ``degrees``               ``(E,)`` for molecules; otherwise, and in shards, ``(N,)``: targets are sorted
``node_labels``, ``edge_attr``, ...     the other arrays of :class:`joao.data.Dataset`; text labels as code points
``smiles``, ``graph_names``             bytes; their lengths ``(G,)`` are in ``smiles_lengths`` and so on
``failures_row``, ``failures_text``...  failures, stored in the same way
======================================= ===============================================================================

The metadata are ``joao.data`` (number of the format), ``about`` (JSON: name, kind, counts, names of classes and tasks,
version of the featuriser, types of the arrays in memory) and ``checksum``, a hash of everything else.
"""

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
from joao.core.files import parse_json, write_file
from joao.data.dataset import Array, Dataset, Failure, as_bytes, sizes_to_offsets, text_width
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
    """Write ``dataset`` to ``path``, compressed if it ends in ``.xz``."""
    pieces = packed_chunks(dataset)
    write_file(path, _compress(pieces) if path.suffix == ".xz" else pieces)


def packed_chunks(
    dataset: Dataset, extra: Mapping[str, str] | None = None, by_degrees: bool = False
) -> list[bytes | memoryview]:
    """Contents of a packed file, with ``extra`` metadata; ``by_degrees`` always stores degrees instead of targets."""
    about, arrays = _pack(dataset)
    if by_degrees and arrays.pop("target", None) is not None:
        arrays["degrees"] = _narrow(dataset.degrees)
    # Widest first, so that all are aligned.
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))
    entries = describe_arrays({name: (array.dtype.str, array.shape) for name, array in arrays.items()})
    metadata = {_FORMAT_KEY: str(FORMAT), "about": json.dumps(about), **(extra or {})}
    digest = _digest(metadata, entries)
    for array in arrays.values():
        digest.update(as_bytes(array))
    return [make_header({**metadata, "checksum": digest.hexdigest()}, entries), *map(as_bytes, arrays.values())]


def describe_arrays(arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, dict[str, Any]]:
    """Header entries of consecutive arrays with the given types and shapes."""
    sizes = [prod(shape) * np.dtype(dtype).itemsize for dtype, shape in arrays.values()]
    ends = list(accumulate(sizes, initial=0))
    return {
        name: {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [first, last]}
        for (name, (dtype, shape)), first, last in zip(arrays.items(), ends[:-1], ends[1:], strict=True)
    }


def make_header(metadata: Mapping[str, str], entries: Mapping[str, Any]) -> bytes:
    """The bytes before the arrays of a safetensors file."""
    header = json.dumps({"__metadata__": metadata, **entries}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def drop_texts(dataset: Dataset) -> Dataset:
    """Remove SMILES, graph names and failures."""
    return replace(dataset, smiles=(), graph_names=(), failures=(), row_of_graph=None)


def read_packed(path: Path) -> Dataset:
    """Read a file written by :func:`write_packed`."""
    with _open_packed(path) as packed:
        return _read(*packed)


def read_packed_file(path: Path) -> Dataset:
    """Like :func:`read_packed`, for a file that is not a shard: all its classes occur."""
    return read_packed(path).drop_unused_classes()


def read_header(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Read the metadata and array entries of a packed file, and check them against its size."""
    with _open_packed(path) as (_, metadata, entries):
        return metadata, entries


def read_array(path: Path, name: str) -> NDArray[Any]:
    """Read one array of an uncompressed packed file, as it is stored."""
    with _open_packed(path) as (stream, _, entries):
        stream.seek(entries[name]["data_offsets"][0], 1)
        return _read_array(stream, entries[name])[0]


@contextmanager
def _open_packed(path: Path) -> Iterator[tuple[IO[bytes], dict[str, str], dict[str, Any]]]:
    """Open a file and read its metadata and entries. Errors inside the block become a :class:`UserError`."""
    try:
        with open_file(path) as stream:
            yield stream, *_header(stream)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UserError(f"{path}: is damaged ({one_line(error)}). Copy or pack it again.") from error


def read_packed_if(path: Path, extra: Mapping[str, str]) -> Dataset | None:
    """Like :func:`read_packed`; None if the metadata do not contain ``extra`` or the file cannot be read."""
    with suppress(UserError), _open_packed(path) as packed:
        if extra.items() <= packed[1].items():
            return _read(*packed)
    return None


def _compress(pieces: list[bytes | memoryview]) -> Iterator[bytes]:
    compressor = lzma.LZMACompressor(preset=3)
    for piece in pieces:
        for first in range(0, len(piece), _CHUNK_BYTES):
            yield compressor.compress(piece[first : first + _CHUNK_BYTES])
    yield compressor.flush()


def _header(stream: IO[bytes]) -> tuple[dict[str, str], dict[str, Any]]:
    """Read the metadata and the array entries, and check the entries."""
    length = int.from_bytes(stream.read(8), "little")
    if not 2 <= length <= _MAX_HEADER_BYTES:
        raise UserError("is not a safetensors file.")
    entries = parse_json(bytes(_read_bytes(stream, length)))
    metadata = entries.pop("__metadata__", {})
    if _FORMAT_KEY not in metadata:
        raise UserError("contains no graphs: it was not written by 'joao pack'.")
    if int(metadata[_FORMAT_KEY]) > FORMAT:
        raise UserError(f"format {metadata[_FORMAT_KEY]} is newer than this version of joao. Update joao.")
    end = 0  # of the arrays so far, relative to the start of the first
    for entry in entries.values():
        size = prod(entry["shape"]) * np.dtype(TYPES[entry["dtype"]]).itemsize
        if min(entry["shape"], default=0) < 0 or entry["data_offsets"] != [end, end + size]:
            raise ValueError("arrays are not consecutive")
        end += size
    if stream.seekable():  # not compressed
        start = stream.tell()
        if stream.seek(0, 2) != start + end:
            raise ValueError(f"{stream.tell()} bytes instead of {start + end}")
        stream.seek(start)
    return metadata, entries


def _read(stream: IO[bytes], metadata: dict[str, str], entries: dict[str, Any]) -> Dataset:
    checksum = metadata.pop("checksum")
    digest, arrays = _digest(metadata, entries), {}
    for name, entry in entries.items():
        arrays[name], data = _read_array(stream, entry)
        digest.update(data)
    if stream.read(1):
        raise ValueError("unexpected data at the end")
    if digest.hexdigest() != checksum:
        raise ValueError("wrong checksum")
    return _unpack(parse_json(metadata["about"]), arrays)


def _read_array(stream: IO[bytes], entry: Mapping[str, Any]) -> tuple[NDArray[Any], bytearray]:
    first, last = entry["data_offsets"]
    data = _read_bytes(stream, last - first)
    return np.frombuffer(data, TYPES[entry["dtype"]]).reshape(entry["shape"]), data


def _read_bytes(stream: IO[bytes], size: int) -> bytearray:
    """Read ``size`` bytes in chunks, because a compressed file may declare any size."""
    data = bytearray()
    while len(data) < size:
        piece = stream.read(min(_CHUNK_BYTES, size - len(data)))
        if not piece:
            raise ValueError("unexpected end of file")
        data += piece
    return data


def _digest(metadata: Mapping[str, str], entries: Mapping[str, Any]) -> Any:
    return hashlib.sha256(json.dumps([metadata, entries], sort_keys=True).encode())


def _pack(dataset: Dataset) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the contents of ``about``, and the arrays."""
    values = {each.name: getattr(dataset, each.name) for each in fields(Dataset)}
    columns = {name: _fixed_width(value) for name, value in values.items() if isinstance(value, np.ndarray)}
    arrays: dict[str, Array] = {}
    for name, array in columns.items():
        if name in ("first_node", "first_edge"):
            arrays[name] = _narrow(np.diff(array))
        elif name == "target" and dataset.kind == "graphs":
            arrays["degrees"] = _narrow(dataset.degrees)
        elif array.dtype.kind == "U":  # as code points, (..., width)
            points = np.ascontiguousarray(array).view(np.uint32).reshape(*array.shape, -1)
            arrays[name] = _narrow(points.astype(np.int64))
        else:
            arrays[name] = _narrow(array)
    for name in _TEXTS:
        arrays |= _text_arrays(name, values[name])
    for name, column in zip(Failure._fields, zip(*dataset.failures, strict=True), strict=False):
        key = f"failures_{name}"
        arrays |= {key: _narrow(np.array(column))} if name in ("row", "line") else _text_arrays(key, column)
    about = {
        name: value for name, value in values.items() if name not in (*columns, *_TEXTS, "failures", "standardised")
    }
    about["name"] = dataset.name.encode(errors="replace").decode()  # that of a file may have bytes that are not UTF-8
    counts = {"graphs": len(dataset), "nodes": dataset.num_nodes, "edges": dataset.num_edges}
    types = {name: array.dtype.str for name, array in columns.items()}
    return {**about, "counts": counts, "fingerprint": dataset.fingerprint, "types": types}, arrays


def _unpack(about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Dataset:
    """The reverse of :func:`_pack`."""
    types, *_ = (about.pop(name) for name in ("types", "fingerprint", "counts"))  # the last two are only informative
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}
    failures: dict[str, Any] = {
        name: arrays.pop(key) for name in Failure._fields if (key := f"failures_{name}") in arrays
    }
    if len(failures) not in (0, len(Failure._fields)):
        raise ValueError("a part of the failures is missing")
    for name, column in failures.items():
        is_number = name in ("row", "line")
        if is_number and column.dtype.kind not in "iu":
            raise ValueError("a row is not an integer")
        failures[name] = column.tolist() if is_number else _texts(column, arrays.pop(f"failures_{name}_lengths"))
    values["failures"] = tuple(Failure(*row) for row in zip(*failures.values(), strict=True))
    for name in _TEXTS:
        values[name] = _texts(arrays.pop(name), arrays.pop(f"{name}_lengths")) if name in arrays else ()
    degrees, num_edges = arrays.pop("degrees", None), len(arrays["source"])
    num_nodes = len(arrays["node_labels"] if degrees is None else degrees)
    values["first_node"] = first_node = sizes_to_offsets(arrays.pop("first_node"), num_nodes)
    values["first_edge"] = first_edge = sizes_to_offsets(arrays.pop("first_edge"), num_edges)
    if len(first_node) != len(first_edge) or (first_node[1:] == first_node[:-1]).any():
        raise ValueError("numbers of graphs differ, or a graph has no nodes")
    if degrees is not None:
        if (sizes_to_offsets(degrees, num_edges)[first_node] != first_edge).any():
            raise ValueError("degrees and edges differ")
        number = np.arange(num_nodes) - np.repeat(first_node[:-1], np.diff(first_node))
        arrays["target"] = np.repeat(number.astype(parse_dtype(types["target"])), degrees)
    values |= {name: convert_array(array, parse_dtype(types[name])) for name, array in arrays.items()}
    dataset = Dataset(**values)
    check_dataset(dataset)
    if degrees is not None:
        vars(dataset)["degrees"] = degrees.astype(np.int64)  # saves a pass over all edges
    return dataset


def _fixed_width(array: Array) -> Array:
    """Convert an array of texts to fixed width; others are returned."""
    if array.dtype != object:
        return array
    width = text_width(array.ravel().tolist())
    if not width:
        raise UserError("some node labels are too long to be packed. Shorten them.")
    return array.astype(f"<U{width}")


def parse_dtype(name: str) -> np.dtype[Any]:
    """Parse a type of numbers or text; other types could take any amount of memory."""
    if name not in _CODES and not _TEXT_TYPE.fullmatch(name):
        raise ValueError(f"{one_line(name)!r} is not a supported dtype")
    return np.dtype(name)


def _narrow(array: Array) -> Array:
    if array.dtype.kind != "i" or not array.size or array.min() < 0:
        return array
    return array.astype(np.min_scalar_type(array.max()))


def convert_array(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert an array as stored to its type in memory; text is stored as code points."""
    if dtype.kind != "U":
        return array.astype(dtype, copy=False)
    if array.min(initial=0) < 0 or array.max(initial=0) > sys.maxunicode or (array >> 11 == 0xD800 >> 11).any():
        raise ValueError("a label is not valid text")
    text: NDArray[np.str_] = np.ascontiguousarray(array.astype(np.uint32)).view(dtype)[..., 0]
    return text.astype(object)


def _text_arrays(name: str, texts: tuple[str, ...]) -> dict[str, Array]:
    """Bytes of all texts, and the length of each; empty for no texts."""
    if not texts:
        return {}
    encoded = [text.encode("utf-8", "backslashreplace") for text in texts]
    lengths = _narrow(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)))
    return {name: np.frombuffer(b"".join(encoded), np.uint8), f"{name}_lengths": lengths}


def _texts(data: NDArray[np.uint8], lengths: Array) -> tuple[str, ...]:
    if data.dtype != np.uint8:
        raise ValueError("texts are not bytes")
    content, offsets = data.tobytes(), sizes_to_offsets(lengths, len(data)).tolist()
    if content.isascii():  # one character per byte: decode all texts at once
        text = content.decode("ascii")
        return tuple(text[first:last] for first, last in pairwise(offsets))
    return tuple(content[first:last].decode() for first, last in pairwise(offsets))
