"""What happens when joao reads files that were made to do harm?

    python -m repro.studies.hostile_files

Each of :data:`FAULTS` is caused in a temporary folder. It must end in a one-line error. The error and the peak memory are
recorded.
"""

import gzip
import io
import json
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import joao
from joao.core.errors import UserError
from joao.core.provenance import peak_memory
from joao.data.formats.packed import make_header, packed_chunks
from joao.data.shards.writer import ShardWriter
from joao.data.synthetic import random_graphs
from joao.evaluation.tables import markdown
from repro.studies.common import generated, make_page, origin, publish

TU = {"s_A.txt": b"1, 2\n2, 1\n", "s_graph_indicator.txt": b"1\n1\n"}
GRAPHS = random_graphs(4, mean_nodes=4, seed=1)


@dataclass(frozen=True)
class Fault:
    """A hostile file.

    Attributes:
        what: what is wrong with it.
        make: creates the file or folder in a given folder and returns its path.
        read: reads it.
    """

    what: str
    make: Callable[[Path], Path]
    read: Callable[[Path], object] = joao.read


def archive(folder: Path, files: Mapping[Any, bytes]) -> Path:
    with zipfile.ZipFile(folder / "s.zip", "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return folder / "s.zip"


def link(folder: Path) -> Path:
    member = zipfile.ZipInfo("s_A.txt")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return archive(folder, {member: b"/etc/passwd", "s_graph_indicator.txt": b"1\n"})


def overlapping_zip(folder: Path) -> Path:
    """Return an archive in which a thousand entries of the directory share one piece of data."""
    path = archive(folder, {"s_A.txt": bytes(8 << 20)})
    content = path.read_bytes()
    end = content.rindex(b"PK\5\6")
    size, first = struct.unpack("<II", content[end + 12 : end + 20])
    entries = content[first : first + size] * 1000
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1000, 1000, len(entries), first, 0)
    path.write_bytes(content[:first] + entries + tail)
    return path


def repeated(name: str, piece: bytes, times: int, before: bytes = b"") -> Callable[[Path], Path]:
    """Make a compressed file that repeats one piece many times."""

    def make(folder: Path) -> Path:
        pack = gzip.compress if name.endswith(".gz") else lzma.compress
        (folder / name).write_bytes((pack(before) if before else b"") + pack(piece) * times)
        return folder / name

    return make


def great_dictionary(folder: Path) -> Path:
    """Make an ``.xz`` file whose decoder needs 3 GB."""
    content = bytearray(lzma.compress(b"graph,source,target\na,b,c\n"))
    place = content.index(b"\x21\x01", 12)
    content[place + 2] = 39
    last = 12 + (content[12] + 1) * 4 - 4
    content[last : last + 4] = struct.pack("<I", zlib.crc32(content[12:last]))
    (folder / "s.csv.xz").write_bytes(content + b"cut")
    return folder / "s.csv.xz"


def text(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return folder / name

    return make


def tu(**parts: bytes) -> Callable[[Path], Path]:
    return lambda folder: archive(folder, {**TU, **{f"s_{part}.txt": content for part, content in parts.items()}})


def long_line(folder: Path) -> Path:
    (folder / "s").mkdir()
    for name, content in {**TU, "s_graph_indicator.txt": b"1" * (80 << 20)}.items():
        (folder / "s" / name).write_bytes(content)
    return folder / "s"


def ogb(**tables: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "some/raw").mkdir(parents=True)
        for name, content in tables.items():
            (folder / f"some/raw/{name.replace('_', '-')}.csv.gz").write_bytes(gzip.compress(content))
        return folder / "some"

    return make


def nested(folder: Path) -> Path:
    """An archive of compressed files: 117 MB of blanks in about a kilobyte."""
    lines = {"num-node-list": b"2\n", "num-edge-list": b"1\n", "edge": b"0,1\n"}
    files = {f"some/raw/{name}.csv.gz": gzip.compress((b" " * 13_000_000 + line) * 3) for name, line in lines.items()}
    return archive(folder, files)


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "s.jsonl")
    return folder / "s.jsonl"


def packed(
    change: Callable[[dict[str, str], dict[str, object]], None], name: str = "s.safetensors"
) -> Callable[[Path], Path]:
    """Make a packed file with a changed header and the old checksum."""

    def make(folder: Path) -> Path:
        content = b"".join(bytes(piece) for piece in packed_chunks(GRAPHS))
        end = 8 + int.from_bytes(content[:8], "little")
        entries = json.loads(content[8:end])
        metadata = entries.pop("__metadata__")
        change(metadata, entries)
        changed = make_header(metadata, entries) + content[end:]
        (folder / name).write_bytes(lzma.compress(changed) if name.endswith(".xz") else changed)
        return folder / name

    return make


def endless(metadata: dict[str, str], entries: dict[str, object]) -> None:
    entries.clear()
    entries["source"] = {"dtype": "I64", "shape": [1 << 40], "data_offsets": [0, 1 << 43]}


def shards(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        writer = ShardWriter(folder / "some.joao", "some", "made")
        writer.add(GRAPHS, 0, len(GRAPHS))
        writer.finish()
        path = folder / "some.joao/index.json"
        index = json.loads(path.read_text())
        change(index)
        path.write_text(json.dumps(index))
        return folder / "some.joao"

    return make


def run(name: str, old: str, new: str) -> Callable[[Path], Path]:
    """Make a run folder in which one text is changed."""

    def make(folder: Path) -> Path:
        joao.JOAO(epochs=1, device="cpu").fit(GRAPHS).save(folder / "run")
        path = folder / "run" / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))
        return folder / "run"

    return make


def load(path: Path) -> object:
    return joao.load(path, device="cpu").transform(GRAPHS)


def pickled(folder: Path) -> Path:
    import torch

    place = folder / "ppi/processed/geometric_data_processed.pt"
    place.parent.mkdir(parents=True)
    stream = io.BytesIO()
    torch.save((Path("harm"), {}), stream)
    place.write_bytes(stream.getvalue())
    return folder / "ppi"


ENTITIES = '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><graphml>&b;</graphml>'
FILE = '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a SYSTEM "file:///etc/passwd">]><graphml>&a;</graphml>'
FAULTS = (
    Fault("zip: a name with ..", lambda f: archive(f, {**TU, "../../evil.txt": b""})),
    Fault("zip: an absolute name", lambda f: archive(f, {**TU, "/etc/evil": b""})),
    Fault("zip: a symbolic link", link),
    Fault("zip: 80 KB that become 80 MB", lambda f: archive(f, {**TU, **{f"s_{number}.txt": bytes(20 << 20) for number in range(4)}})),
    Fault("zip: a thousand files in one place", overlapping_zip),
    Fault("zip: gzip files that become 117 MB", nested),
    Fault("zip: two folders of data", lambda f: archive(f, {f"{each}/{name}": TU[name] for each in ("a", "b") for name in TU})),
    Fault("zip: cut in half", lambda f: text("s.zip", archive(f, TU).read_bytes()[:90])(f)),
    Fault("csv.gz: 120 MB of rows in a small file", repeated("s.csv.gz", (b"g," + b"a" * 1000 + b",b\n") * 1000, 120, b"graph,source,target\n")),
    Fault("jsonl.gz: a line of 1 GB", repeated("s.jsonl.gz", bytes(1 << 20), 1024)),
    Fault("smi.xz: a line of 1 GB", repeated("s.smi.xz", b"C" * (1 << 20), 1024)),
    Fault("smi: a molecule of 2 million letters", text("s.smi", "C" * 2_000_000)),
    Fault("smi: a ring of 42,000 atoms", text("s.smi", "c1" + "c" * 41_999 + "1")),
    Fault("csv.xz: a decoder that wants 3 GB", great_dictionary),
    Fault("jsonl: a trillion nodes in 40 letters", text("s.jsonl", '{"edges": [], "num_nodes": 1000000000000}')),
    Fault("jsonl: a key twice", text("s.jsonl", '{"edges": [], "num_nodes": 1, "num_nodes": 2}')),
    Fault("jsonl: a pipe", pipe),
    Fault("jsonl: nested ten thousand times", text("s.jsonl", '{"edges": ' + "[" * 10_000)),
    Fault("TU: a graph numbered 10^18", tu(graph_indicator=b"1\n1000000000000000000\n")),
    Fault("TU: a node numbered 10^18", tu(A=b"1, 1000000000000000000\n")),
    Fault("TU: node labels of 64 bits and more", tu(node_labels=b"9223372036854775808\n9223372036854775809\n")),
    Fault("TU: as many edge labels as edges", tu(A=b"1, 2\n" * 1001, edge_labels=b"".join(b"%d\n" % n for n in range(1001)))),
    Fault("TU: a line of 80 MB", long_line),
    Fault("OGB: 10^9 nodes in a word", ogb(num_node_list=b"1000000000\n", num_edge_list=b"0\n", edge=b"")),
    Fault("OGB: 10^9 edges in a word", ogb(num_node_list=b"2\n", num_edge_list=b"1000000000\n", edge=b"0,1\n")),
    Fault("GraphML: entities that multiply", text("s.graphml", ENTITIES)),
    Fault("GraphML: an entity from another file", text("s.graphml", FILE)),
    Fault("packed: a header of 10^18 bytes", text("s.safetensors", (10**18).to_bytes(8, "little"))),
    Fault("packed: an array of 8 TB", packed(endless)),
    Fault("packed, compressed: an array of 8 TB", packed(endless, "s.safetensors.xz")),
    Fault("packed: changed by hand", packed(lambda metadata, entries: metadata.update(about="{}"))),
    Fault("shards: a file of another folder", shards(lambda index: index["shards"][0].update(file="../../etc/passwd"))),
    Fault("shards: 10^9 graphs", shards(lambda index: index["shards"][0].update(graphs=10**9, nodes=10**9))),
    Fault("run: a recipe that nests", run("recipe.toml", 'data = ""', "data = " + "[" * 10_000), load),
    Fault("run: an encoder of 10^8 columns", run("recipe.toml", "width = 32", "width = 100000000"), load),
    Fault("run: features by 10^9 degrees", run("run.json", '"max_degree": 64', '"max_degree": 1000000000'), load),
    Fault("run: 10^12 epochs", run("recipe.toml", "epochs = 1", "epochs = 1000000000000"), load),
    Fault("protein networks: a pickle that would do something", pickled),
)  # fmt: skip


def cause(fault: Fault) -> tuple[str, int | None]:
    """Return the error that a user sees, without the path of the folder, and the peak memory in bytes."""
    lines: list[str] = []

    def read(path: Path) -> None:
        try:
            fault.read(path)
        except UserError as error:
            lines.append(str(error))

    with TemporaryDirectory() as folder:
        path = fault.make(Path(folder))
        memory = peak_memory(lambda: read(path), "cpu")
        if len(lines) != 1 or "\n" in lines[0]:
            raise AssertionError(f"{fault.what}: expected an error of one line, got {lines}")
        return lines[0].replace(f"{folder}/", ""), memory


def page(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    lines = [
        [
            row["file"],
            f"`joao: {row['error'].replace('|', chr(92) + '|')}`",
            "" if row["bytes"] is None else f"{row['bytes'] / 2**20:.0f}",
        ]
        for row in record["rows"]
    ]
    return make_page(
        "Hostile files",
        f"{generated('hostile_files')} joao {record['versions']['joao']}. Memory: the largest increase of resident memory while "
        "reading. [SECURITY.md](../../SECURITY.md) says what joao promises.",
        markdown(["file", "what the user sees", "MB"], lines),
    )


def main() -> None:
    rows = []
    for fault in FAULTS:
        error, memory = cause(fault)
        rows.append({"file": fault.what, "error": error, "bytes": memory})
        print(rows[-1], flush=True)
    record = {**origin(), "rows": rows}
    publish("hostile-files", record, page)


if __name__ == "__main__":
    main()
