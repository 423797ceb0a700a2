"""Memory-mapped arrays of the shards of a store."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError, one_line, user_error_on_failure
from joao.data.formats.packed import TYPES, from_code_points, parse_dtype, read_header
from joao.data.shards.index import INDEX, OFFSETS, Index, ShardInfo, damage_error

NODE_ROWS = ("degrees", "node_labels", "node_attributes")
EDGE_ROWS = ("source", "edge_attr")
_AS_STORED = ("degrees", "source")


class _Form(NamedTuple):
    """Type and shape of a row in the file, and its type in memory."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    kind: np.dtype[Any]

    @property
    def width(self) -> int:
        """Bytes per row."""
        return self.dtype.itemsize * int(np.prod(self.shape))


@final
class MappedRows:
    """The files of a store, mapped on first use.

    Attributes:
        offsets: ``first_node`` and ``first_edge``, ``(graphs + shards,)``: a shard with G graphs has G + 1 offsets.
    """

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index
        self._mapped: set[int] = set()
        self._views = {name: [memoryview(b"")] * len(index.shards) for name in (*NODE_ROWS, *EDGE_ROWS)}
        self._headers = [self._checked_header(each) for each in index.shards]
        self._first_place = list(accumulate((each.graphs + 1 for each in index.shards), initial=0))
        self.offsets = self._checked_offsets()
        self._forms = {name: self._forms_of(name) for name in (*NODE_ROWS, *EDGE_ROWS)}

    def rows(
        self, name: str, shards: list[int], first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> NDArray[Any] | None:
        """Concatenate the rows ``first`` to ``last - 1`` of array ``name`` of each graph."""
        forms = self._forms[name]
        if not forms:
            return None
        for number in {*shards} - self._mapped:
            self._map(number)
        form, *others = forms
        if others or form.kind.kind == "U":
            return self._mixed_rows(name, shards, first.tolist(), last.tolist())
        # Joining byte ranges is several times faster than indexing with numpy.
        width, views = form.width, self._views[name]
        ends = zip(shards, (first * width).tolist(), (last * width).tolist(), strict=True)
        data = bytearray().join([views[shard][start:stop] for shard, start, stop in ends])
        if len(data) != int((last - first).sum()) * width:
            raise damage_error(self.folder, f"{name}: a graph exceeds its shard")
        array: NDArray[Any] = np.frombuffer(data, form.dtype).reshape(-1, *form.shape)
        return array if name in _AS_STORED else array.astype(form.kind, copy=False)

    def prefetch(self, shard: int, first: int, last: int) -> None:
        """Tell the operating system that graphs ``first`` to ``last - 1`` of a shard will be read soon.

        Without this hint, every page fault reads megabytes of neighbouring pages.
        """
        place, length = self._first_place[shard] + first, self._first_place[-1]
        size, count = self._offsets_size, 4 * (last - first + 1)
        _will_need(self.folder / OFFSETS, [(size - 4 * (back - place), count) for back in (2 * length, length)])
        nodes, edges = ((int(each[place]), int(each[place + last - first])) for each in self.offsets)
        entries, _, start = self._headers[shard]
        ranges = []
        for names, (begin, end) in ((NODE_ROWS, nodes), (EDGE_ROWS, edges)):
            for entry in (entries[name] for name in names if name in entries):
                array, behind = entry["data_offsets"]
                width = (behind - array) // max(1, entry["shape"][0])
                ranges.append((start + array + begin * width, (end - begin) * width))
        _will_need(self.folder / self.index.shards[shard].file, ranges)

    def _mixed_rows(self, name: str, shards: list[int], first: list[int], last: list[int]) -> NDArray[Any]:
        """Like :meth:`rows`, for text and for arrays with different types in different shards."""
        parts = []
        for shard, start, stop in zip(shards, first, last, strict=True):
            form = self._form_of(name, shard)
            if form is None:
                if stop > start:
                    raise damage_error(self.folder, f"{name}: missing in {self.index.shards[shard].file}")
                continue
            data = self._views[name][shard][start * form.width : stop * form.width]
            if len(data) != (stop - start) * form.width:
                raise damage_error(self.folder, f"{name}: a graph exceeds its shard")
            array = np.frombuffer(data, form.dtype).reshape(-1, *form.shape)
            parts.append(array if name in _AS_STORED else self._in_memory(name, array, form.kind))
        _, shape, kind = self._forms[name][0]
        shape = shape[:-1] if kind.kind == "U" else shape
        return np.concatenate([np.zeros((0, *shape), parts[0].dtype if parts else kind), *parts])

    def _in_memory(self, name: str, array: NDArray[Any], kind: np.dtype[Any]) -> NDArray[Any]:
        try:
            return from_code_points(array, kind.str) if kind.kind == "U" else array.astype(kind, copy=False)
        except ValueError as error:
            raise damage_error(self.folder, f"{name}: {one_line(error)}") from error

    def _checked_header(self, info: ShardInfo) -> tuple[dict[str, Any], dict[str, str], int]:
        """Return a shard's array entries, their types in memory, and the position of the first array."""
        path = self.folder / info.file
        if not path.is_file():
            raise UserError(f"{path}: is missing. Copy it again, or pack the graphs again.")
        metadata, entries = read_header(path)
        size = path.stat().st_size
        if size != info.bytes or metadata.get("checksum") != info.checksum:
            raise UserError(f"{path}: does not match {INDEX}. Copy or pack it again.")
        with user_error_on_failure(f"{path}: is damaged", "Copy or pack it again."):
            lengths = {"first_node": info.graphs, "first_edge": info.graphs}
            lengths |= dict.fromkeys(NODE_ROWS, info.nodes) | dict.fromkeys(EDGE_ROWS, info.edges)
            types = json.loads(metadata["about"])["types"]
            for name, entry in entries.items():
                if name in lengths and (entry["shape"][0] != lengths[name] or 0 in entry["shape"][1:]):
                    raise ValueError(f"{name} has a wrong length")
            if not {"first_node", "first_edge", "source", "degrees"} <= entries.keys():
                raise ValueError("an array is missing")
            whole = ("U8", "U16", "U32")
            if any(entries[name]["dtype"] not in whole and entries[name]["shape"][0] for name in _AS_STORED):
                raise ValueError("node numbers are not integers")
        last = max(entry["data_offsets"][1] for entry in entries.values())
        return entries, types, size - last

    def _checked_offsets(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        path, length = self.folder / OFFSETS, self._first_place[-1]
        try:
            size = self._offsets_size = path.stat().st_size
        except OSError as error:
            raise UserError(f"{path}: is missing. Copy it again, or pack the graphs again.") from error
        if size < 8 * length:
            raise UserError(f"{path}: is incomplete. Copy it again, or pack the graphs again.")
        both = np.frombuffer(_mapping(path, size)[size - 8 * length :], "<u4")
        return both[:length], both[length:]

    def _map(self, number: int) -> None:
        info = self.index.shards[number]
        entries, _, start = self._headers[number]
        whole = _mapping(self.folder / info.file, info.bytes)
        for name in self._views.keys() & entries.keys():
            first, last = entries[name]["data_offsets"]
            self._views[name][number] = whole[start + first : start + last]
        self._mapped.add(number)

    def _form_of(self, name: str, shard: int) -> _Form | None:
        """Form of an array in a shard; None if it is missing."""
        entries, types, _ = self._headers[shard]
        if name not in entries:
            return None
        entry = entries[name]
        try:
            dtype = np.dtype(TYPES[entry["dtype"]])
            return _Form(dtype, tuple(entry["shape"][1:]), parse_dtype(types.get(name, dtype.str)))
        except (TypeError, ValueError) as error:
            raise damage_error(self.folder, f"{name}: {one_line(error)}") from error

    def _forms_of(self, name: str) -> list[_Form]:
        forms = [self._form_of(name, number) for number in range(len(self.index.shards))]
        sizes = [self._headers[number][0].get(name, {"shape": [0]})["shape"][0] for number in range(len(forms))]
        # Ignore the type of empty arrays, unless the array is empty in all shards.
        found = list(dict.fromkeys(form for form, size in zip(forms, sizes, strict=True) if form is not None and size))
        found = found or [form for form in forms if form is not None][:1]
        is_missing = len(found) and name != "edge_attr" and None in forms
        axes = {"degrees": 1, "source": 1}.get(name, 2)
        wrong = [kind for _, shape, kind in found if len(shape) + 1 - (kind.kind == "U") != axes]
        if is_missing or wrong or len({shape for _, shape, kind in found if kind.kind != "U"}) > 1:
            raise damage_error(self.folder, f"{name} differs between shards")
        return found


def _will_need(path: Path, ranges: list[tuple[int, int]]) -> None:
    """Ask the operating system to read ranges (position, size) of a file ahead; failures do not matter."""
    with suppress(OSError, OverflowError, AttributeError):  # AttributeError: not supported by the system
        handle = os.open(path, os.O_RDONLY)
        try:
            for place, size in ranges:
                os.posix_fadvise(handle, place, size, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(handle)


def _mapping(path: Path, size: int) -> memoryview:
    """Map a file into memory. Unlike Python's mmap, torch does not keep a file handle open."""
    import torch

    try:
        storage = torch.UntypedStorage.from_file(str(path), False, size)
    except (RuntimeError, OSError) as error:
        raise UserError(f"{path}: cannot be mapped ({one_line(error)}).") from error
    mapped: NDArray[np.uint8] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()  # type: ignore[arg-type]
    return mapped.data
