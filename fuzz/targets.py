"""Fuzz targets: every reader of files from outside.

A target has a function that reads bytes as a file, and seeds: valid inputs. Formats with several files are given as one
text that is split at lines ``=== name``, so that the fuzzer need not learn archives and compression, which are separate
targets. Checksums are corrected, so that the code behind them is reached.

Any input must give valid graphs or a :class:`joao.UserError` of one line. Anything else is a fault.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import math
import operator
import shutil
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fuzz.mutation import CUT as _CUT
from joao.config.recipe import KINDS, make_recipe, parse_toml, read_toml
from joao.core.errors import UserError
from joao.data import validation as form
from joao.data.dataset import Dataset
from joao.data.formats import packed
from joao.data.shards.shards import Shards
from joao.data.shards.writer import ShardWriter, slice_rows
from joao.data.sources import read
from joao.data.synthetic import random_graphs
from repro.proteins import read_ppi

Read = Callable[[bytes, Path], None]


@dataclass(frozen=True)
class Target:
    """A function that reads bytes with the help of an empty folder, and valid inputs."""

    read: Read
    seeds: tuple[bytes, ...]


def find_fault(target: Target, data: bytes, folder: Path) -> Exception | None:
    """Read ``data``; return the fault, or None."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        target.read(data, folder)
    except UserError as error:
        if isinstance(error.__cause__, MemoryError):
            return error.__cause__
        message = str(error)
        return None if message and "\n" not in message else AssertionError(f"a message of several lines: {message!r}")
    except Exception as error:
        return error
    return None


def check(source: Dataset | Shards) -> None:
    """Check that a reader returned a valid data set."""
    for piece in [source] if isinstance(source, Dataset) else [source.whole(), source[: min(len(source), 8)]]:
        form.check_dataset(piece)
        assert len(piece.fingerprint) == 16


def split_parts(data: bytes) -> dict[str, bytes]:
    """Split ``data`` into files by name; names outside the folder are ignored."""
    parts = {}
    for piece in (b"\n" + data).split(b"\n" + _CUT)[1:]:
        name, _, content = piece.partition(b"\n")
        text = name.decode("ascii", "replace")
        if text.replace("/", "").replace("_", "").replace(".", "").replace("-", "").isalnum() and ".." not in text:
            parts[text.strip("/")] = content
    return parts


def join_parts(parts: Mapping[str, bytes]) -> bytes:
    """The reverse of :func:`split_parts`."""
    return b"\n".join(_CUT + name.encode() + b"\n" + content for name, content in parts.items())


def of_file(name: str, pack: Callable[[bytes], bytes] = bytes) -> Read:
    """Read the bytes, encoded by ``pack``, as a file of this name."""

    def run(data: bytes, folder: Path) -> None:
        (folder / name).write_bytes(pack(data))
        check(read(folder / name))

    return run


def of_folder(suffix: str = "", pack: Callable[[bytes], bytes] = bytes) -> Read:
    """Read the parts of the bytes as the files of a folder."""

    def run(data: bytes, folder: Path) -> None:
        _write(folder / "some", {f"{name}{suffix}": pack(part) for name, part in split_parts(data).items()})
        check(read(folder / "some"))

    return run


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        with suppress(OSError):  # a name may be too long, or that of a folder
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def any_compressed(data: bytes, folder: Path) -> None:
    """Read a compressed file; the first byte chooses its suffix."""
    names = ("a.csv.gz", "a.csv.xz", "a.smi.gz", "a.smi.xz", "a.jsonl.gz", "a.safetensors.xz")
    path = folder / names[data[0] % len(names)] if data else folder / names[0]
    path.write_bytes(data[1:])
    check(read(path))


def with_valid_checksum(data: bytes) -> bytes:
    """Correct the lengths and the checksum of a packed file, as far as possible."""
    try:
        length = int.from_bytes(data[:8], "little")
        entries = json.loads(data[8 : 8 + length])
        metadata, place = entries.pop("__metadata__"), 0
        for entry in entries.values():
            size = math.prod(map(operator.index, entry["shape"])) * np.dtype(packed.TYPES[entry["dtype"]]).itemsize
            if not 0 <= size < 1 << 20:
                return data
            entry["data_offsets"] = [place, place + size]
            place += size
        arrays = data[8 + length :][:place].ljust(place, b"\0")
        metadata.pop("checksum", None)
        digest = hashlib.sha256(json.dumps([metadata, entries], sort_keys=True).encode() + arrays)
        return packed.make_header({**metadata, "checksum": digest.hexdigest()}, entries) + arrays
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return data


def packed_from_json(data: bytes) -> bytes:
    """A packed file from a description in JSON, whose values a fuzzer can change; lengths and checksum are correct."""
    try:
        described = json.loads(data)
        entries, arrays = {}, b""
        for name, array in described["arrays"].items():
            values = np.array(array["values"], dtype=object).ravel()
            size = math.prod(map(operator.index, array["shape"])) * np.dtype(packed.TYPES[array["dtype"]]).itemsize
            if not 0 <= size < 1 << 20:
                return b""
            arrays += values.astype(packed.TYPES[array["dtype"]]).tobytes()[:size].ljust(size, b"\0")
            entries[name] = {"dtype": array["dtype"], "shape": array["shape"], "data_offsets": [0, 0]}
        return with_valid_checksum(packed.make_header(described["metadata"], entries) + arrays)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return b""


def json_from_packed(content: bytes) -> bytes:
    """The reverse of :func:`packed_from_json`."""
    length = int.from_bytes(content[:8], "little")
    entries = json.loads(content[8 : 8 + length])
    metadata, arrays = entries.pop("__metadata__"), {}
    for name, entry in entries.items():
        begin, end = (8 + length + place for place in entry["data_offsets"])
        values = np.frombuffer(content[begin:end], packed.TYPES[entry["dtype"]]).tolist()
        arrays[name] = {"dtype": entry["dtype"], "shape": entry["shape"], "values": values}
    return json.dumps({"metadata": metadata, "arrays": arrays}).encode()


def networks(data: bytes, folder: Path) -> None:
    """Read a folder of protein networks whose tensors are described in JSON."""
    try:
        described = json.loads(data)
        values, slices = (
            {name: _tensor(each) for name, each in described[part].items()} for part in ("values", "slices")
        )
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, RuntimeError):
        return
    stream = io.BytesIO()
    torch.save((values, slices), stream)
    networks_as_they_are(stream.getvalue(), folder)


def networks_as_they_are(data: bytes, folder: Path) -> None:
    """Read a folder of protein networks from the bytes of its file."""
    _write(folder / "some", {"processed/geometric_data_processed.pt": data})
    check(read_ppi(folder / "some"))


def _tensor(described: Any) -> Any:
    """A tensor of any type and layout; what is not described as one stays as it is."""
    if not isinstance(described, dict):
        return described
    tensor = torch.tensor(described["values"]).to(getattr(torch, described["dtype"]))
    return tensor.to_sparse() if described.get("sparse") else tensor


def shard_folder(data: bytes, folder: Path) -> None:
    """Read a store with some files replaced; sizes and checksums in the index are corrected."""
    parts = {
        name.replace(".packed", ".safetensors"): packed_from_json(part) if name.endswith(".packed") else part
        for name, part in split_parts(data).items()
    }
    files = {**_STORE, **{name: part for name, part in parts.items() if name in _STORE}}
    shards = {name: with_valid_checksum(part) for name, part in files.items() if name.startswith("shard-")}
    try:
        told = json.loads(files["index.json"])
        for each in told["shards"]:
            content = shards[each["file"]]
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            each.update(bytes=len(content), checksum=header["__metadata__"]["checksum"])
        files["index.json"] = json.dumps(told).encode()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    _write(folder / "some.joao", {**files, **shards})
    check(read(folder / "some.joao"))


def _zip(files: Mapping[str, bytes], method: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def _packed(dataset: Dataset) -> bytes:
    return b"".join(bytes(piece) for piece in packed.packed_chunks(dataset))


def _store(dataset: Dataset) -> dict[str, bytes]:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        writer = ShardWriter(Path(folder) / "made", dataset.name, "made to be fuzzed")
        for first in range(0, len(dataset), 2):
            writer.add(slice_rows(dataset, first, first + 2), 0, 2)
        writer.finish()
        return {path.name: path.read_bytes() for path in sorted((Path(folder) / "made").iterdir())}


_TU = {
    "s_A.txt": b"1, 2\n2, 1\n3, 4\n4, 3\n",
    "s_graph_indicator.txt": b"1\n1\n2\n2\n",
    "s_graph_labels.txt": b"-1\n1\n",
    "s_node_labels.txt": b"0\n1\n1\n2\n",
    "s_node_attributes.txt": b"1.5, 2\n-1e3, 4\n5, 6\n7, 8\n",
    "s_edge_labels.txt": b"0\n0\n1\n1\n",
    "s_edge_attributes.txt": b"0.5\n0.5\n1\n1\n",
}
_OGB = {
    "raw/num-node-list": b"2\n3\n",
    "raw/num-edge-list": b"1\n2\n",
    "raw/edge": b"0,1\n0,1\n1,2\n",
    "raw/graph-label": b"0\n1\n",
}
_ATOM = b"5,0,4,5,3,0,2,0,0\n"
_OGB_MOLECULES = {
    **_OGB,
    "raw/node-feat": _ATOM * 5,
    "raw/edge-feat": b"0,0,0\n" * 3,
    "mapping/mol": b"active,smiles,mol_id\n0,CC,a\n1,CCC,b\n",
}
_SYNTAX = ("raw/node_depth", "raw/node_is_attributed", "raw/node_dfs_order")
_OGB_CODE = {**_OGB, "raw/node-feat": b"1,2\n" * 5, **dict.fromkeys(_SYNTAX, b"0\n1\n0\n1\n2\n")}
_OGB_PLAIN = {**_OGB, "raw/edge-feat": b"0.5,1\n0,1\n1,0\n"}
_JSON = (
    b'{"edges": [[0, 1], [1, 2]], "node_labels": ["C", "C", "O"], "label": 1}\n'
    b'{"edges": [[0, 1]], "num_nodes": 3, "node_labels": ["C", "C", "N"], "label": 0}\n',
    b'{"edges": [[0, 1]], "num_nodes": 2, "node_attributes": [[1, 2.5], [3, 4]], "edge_attributes": [[0.5]]}\n',
)
_EDGES = b"graph,source,target,weight,label\nwater,O,H1,0.5,polar\nwater,O,H2,0.5,polar\nargon,Ar,,,inert\n"
_SDF = (
    b"TOX1\n  made\n\n  3  2  0  0  0  0  0  0  0  0999 V2000\n"
    b"    0.0000    0.0000    0.0000 C   0  0\n    1.2990    0.7500    0.0000 C   0  0\n"
    b"    2.5981   -0.0000    0.0000 O   0  5\n  1  2  1  0\n  2  3  1  1\nM  CHG  1   3  -1\nM  END\n"
    b">  <logP>  (1)\n-0.31\n\n> <source>\nA\nB\n\n$$$$\n",
    b"\n  made\n\n  0  0  0     0  0            999 V3000\nM  V30 BEGIN CTAB\nM  V30 COUNTS 2 1 0 0 0\n"
    b"M  V30 BEGIN ATOM\nM  V30 1 N 0 0 0 0 CHG=1\nM  V30 2 * 1.3 0.75 0 0\nM  V30 END ATOM\nM  V30 BEGIN BOND\n"
    b"M  V30 1 1 1 2\nM  V30 END BOND\nM  V30 END CTAB\nM  END\n> <toxic>\n1\n\n$$$$\n",
)
_CSV = b'mol_id,smiles,toxic,logP,source\nTOX1,CCO,0,-0.31,A\n"TOX2",c1ccccc1,,2.13,B\n'
_SMI = b"CCO ethanol\nC[C@H](N)C(=O)O\tL-alanine\n[Na+].[Cl-] salt\n"
_GRAPHML = (
    b'<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    b'<key id="d0" for="node" attr.name="size" attr.type="double"><default>1</default></key>'
    b'<key id="d1" for="edge" attr.name="w" attr.type="int"/><key id="d2" for="graph" attr.name="y" attr.type="int"/>'
    b'<graph edgedefault="undirected"><data key="d2">1</data><node id="a"><data key="d0">2.5</data></node>'
    b'<node id="b"/><edge source="a" target="b"><data key="d1">3</data></edge></graph></graphml>'
)
_GRAPHS = random_graphs(4, mean_nodes=4, seed=1)
_STORE = _store(_GRAPHS)

_COMPRESSED = (
    *(gzip.compress(_EDGES), lzma.compress(_CSV), gzip.compress(_SMI), lzma.compress(_SMI)),
    *(gzip.compress(_JSON[0]), lzma.compress(_packed(_GRAPHS))),
)

_NETWORKS: dict[str, Any] = {
    "values": {
        "x": {"dtype": "float32", "values": [[1.0]] * 6},
        "edge_index": {"dtype": "int64", "values": [[0, 1] * 3, [1, 0] * 3]},
        "edge_attr": {"dtype": "float32", "values": [[1.0] * 9] * 6},
        "species_id": {"dtype": "int64", "values": [9606, 9606, 10090]},
        "center_node_idx": {"dtype": "int64", "values": [0, 1, 0]},
    },
    "slices": {name: {"dtype": "int64", "values": [0, 2, 4, 6]} for name in ("x", "edge_index")},
}


def _saved(described: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    torch.save(tuple({name: _tensor(each) for name, each in part.items()} for part in described.values()), stream)
    return stream.getvalue()


def _recipe(data: bytes, folder: Path) -> None:
    (folder / "recipe.toml").write_bytes(data)
    for kind in KINDS:
        recipe = make_recipe(read_toml(folder / "recipe.toml"), "recipe", kind)
        assert make_recipe(parse_toml(recipe.toml(), "recipe"), "recipe", kind) == recipe


_MOLECULES = replace(random_graphs(3, mean_nodes=4, seed=2, num_classes=2), graph_names=("a", "b", "c"), notices=())
_PACKED = (_packed(_GRAPHS), _packed(_MOLECULES))

TARGETS: dict[str, Target] = {
    "tu": Target(of_folder(), (join_parts(_TU), join_parts(dict(list(_TU.items())[:2])))),
    "tu_zip": Target(of_file("some.zip"), (_zip(_TU, zipfile.ZIP_STORED), _zip(_TU, zipfile.ZIP_LZMA))),
    "jsonl": Target(of_file("a.jsonl"), _JSON),
    "edge_list": Target(of_file("a.csv"), (_EDGES,)),
    "graphml": Target(of_file("a.graphml"), (_GRAPHML,)),
    "smiles_csv": Target(of_file("b.csv"), (_CSV,)),
    "smi": Target(of_file("a.smi"), (_SMI, b"smiles\tactive\nCCO\t1\nCC\t0\n")),
    "sdf": Target(of_file("a.sdf"), _SDF),
    "compressed": Target(
        any_compressed,
        tuple(bytes([number]) + content for number, content in enumerate(_COMPRESSED)),
    ),
    "packed": Target(of_file("a.safetensors", with_valid_checksum), (_packed(_GRAPHS),)),
    "packed_values": Target(of_file("a.safetensors", packed_from_json), tuple(map(json_from_packed, _PACKED))),
    "packed_as_it_is": Target(of_file("a.safetensors"), (_packed(_GRAPHS),)),
    "packed_xz": Target(
        of_file("a.safetensors.xz", lambda data: lzma.compress(with_valid_checksum(data))), (_packed(_GRAPHS),)
    ),
    "shards": Target(shard_folder, (join_parts({"index.json": _STORE["index.json"]}), join_parts(_STORE))),
    "shards_values": Target(
        shard_folder,
        (
            join_parts(
                {
                    name.replace(".safetensors", ".packed"): json_from_packed(content)
                    for name, content in _STORE.items()
                    if name.endswith(".safetensors")
                }
            ),
        ),
    ),
    "ppi": Target(networks, (json.dumps(_NETWORKS).encode(),)),
    "ppi_as_it_is": Target(networks_as_they_are, (_saved(_NETWORKS),)),
    "recipe": Target(
        _recipe,
        (b'method = "joaov2"\nstrength = 0.3\n[training]\nepochs = 5\n[encoder]\nname = "gin"\nwidth = 8\n',),
    ),
    "ogb": Target(
        of_folder(".csv.gz", lambda part: gzip.compress(part, 1)),
        tuple(join_parts(files) for files in (_OGB, _OGB_PLAIN, _OGB_MOLECULES, _OGB_CODE)),
    ),
    "ogb_zip": Target(
        of_file("ogbg_ppa.zip"),
        (_zip({f"a/{name}.csv.gz": gzip.compress(part) for name, part in _OGB_PLAIN.items()}, zipfile.ZIP_STORED),),
    ),
}
