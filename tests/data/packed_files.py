"""Packed files written by hand, with checksums that are right whatever is in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "float32": "F32", "float64": "F64",
}  # fmt: skip
WIDE = (1 << 63) - 1  # twice this and 4 more is 2, in 64 bits

ABOUT = {
    "name": "by hand",
    "class_names": [],
    "target_names": [],
    "kind": "graphs",
    "featuriser": "",
    "notices": [],
    "counts": {"graphs": 3, "nodes": 6, "edges": 3},
    "fingerprint": "0" * 16,
    "types": {
        "first_node": "<i8",
        "first_edge": "<i8",
        "source": "<i4",
        "target": "<i4",
        "node_labels": "<i8",
        "node_attributes": "<f4",
        "edge_attr": "<f4",
        "classes": "<i8",
        "targets": "<f4",
    },
}


def three_graphs() -> dict[str, np.ndarray]:
    """Three graphs of two nodes and an edge, with labels of nodes; targets by degrees."""
    return {
        "first_node": np.array([2, 2, 2]),
        "first_edge": np.array([2, 2, 2]),
        "source": np.array([1, 0, 1, 0, 1, 0]),
        "degrees": np.array([1, 1, 1, 1, 1, 1]),
        "node_labels": np.array([[0], [1], [0], [1], [0], [1]]),
    }


def by_targets(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same with targets, as molecules have them, instead of degrees."""
    return {**{name: array for name, array in arrays.items() if name != "degrees"}, "target": np.array([0, 1] * 3)}


def write_packed(path: Path, arrays: Mapping[str, np.ndarray], **about: Any) -> Path:
    """Writes arrays and what ``about`` changes in :data:`ABOUT` as ``joao pack`` would."""
    ordered = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))
    entries, place = {}, 0
    for name, array in ordered.items():
        shape, last = list(array.shape), place + array.nbytes
        entries[name] = {"dtype": _TYPES[array.dtype.name], "shape": shape, "data_offsets": [place, last]}
        place = last
    metadata = {"joao.data": "1", "about": json.dumps({**ABOUT, **about})}
    digest = hashlib.sha256(json.dumps([metadata, entries], sort_keys=True).encode())
    content = b"".join(np.ascontiguousarray(array).tobytes() for array in ordered.values())
    digest.update(content)
    header = json.dumps({"__metadata__": {**metadata, "checksum": digest.hexdigest()}, **entries}).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)
    return path
