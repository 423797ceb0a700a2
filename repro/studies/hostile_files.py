"""What files that were made to do harm come to: ``python studies/hostile_files.py`` writes ``results/hostile-files.md``.

Every fault is caused for real, in a folder of its own, and what the user sees is written down, with the most memory that
it took. :data:`FAULTS` has them all; a test asks that each ends in the line it should.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import lzma
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import joao
from joao.core.errors import UserError
from joao.core.files import write_file
from joao.core.memory import peak_memory
from joao.data.formats.packed import make_header, packed_chunks
from joao.data.shards.writer import ShardWriter
from joao.data.synthetic import random_graphs

TU = {"s_A.txt": b"1, 2\n2, 1\n", "s_graph_indicator.txt": b"1\n1\n"}
GRAPHS = random_graphs(4, mean_nodes=4, seed=1)


@dataclass(frozen=True)
class Fault:
    """What is wrong, what makes such a file or folder in a folder and gives its path, and part of the line it ends in."""

    what: str
    make: Callable[[Path], Path]
    told: str
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


def growing_zip(folder: Path) -> Path:
    return archive(folder, {**TU, **{f"s_{number}.txt": bytes(20 << 20) for number in range(4)}})


def overlapping_zip(folder: Path) -> Path:
    """One piece of data that a thousand entries of the directory call their own."""
    path = archive(folder, {"s_A.txt": bytes(8 << 20)})
    content = path.read_bytes()
    end = content.rindex(b"PK\5\6")
    size, first = struct.unpack("<II", content[end + 12 : end + 20])
    entries = content[first : first + size] * 1000
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1000, 1000, len(entries), first, 0)
    path.write_bytes(content[:first] + entries + tail)
    return path


def repeated(name: str, piece: bytes, times: int, before: bytes = b"") -> Callable[[Path], Path]:
    """A compressed file of one piece many times: both formats allow pieces behind one another."""

    def make(folder: Path) -> Path:
        pack = gzip.compress if name.endswith(".gz") else lzma.compress
        (folder / name).write_bytes((pack(before) if before else b"") + pack(piece) * times)
        return folder / name

    return make


def great_dictionary(folder: Path) -> Path:
    """A ``.xz`` file whose decoder is to keep 3 GB."""
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


def packed(
    change: Callable[[dict[str, str], dict[str, object]], None], name: str = "s.safetensors"
) -> Callable[[Path], Path]:
    """A packed file with another header, whose checksum nobody put right."""

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
        told = json.loads(path.read_text())
        change(told)
        path.write_text(json.dumps(told))
        return folder / "some.joao"

    return make


def run(name: str, old: str, new: str) -> Callable[[Path], Path]:
    """A run of which one text was changed."""

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
    Fault("zip: a name with ..", lambda f: archive(f, {**TU, "../../evil.txt": b""}), "which leaves its folder"),
    Fault("zip: an absolute name", lambda f: archive(f, {**TU, "/etc/evil": b""}), "which leaves its folder"),
    Fault("zip: a symbolic link", link, "holds a link"),
    Fault("zip: 80 KB that become 80 MB", growing_zip, "grows to more than 100 times"),
    Fault("zip: a thousand files in one place", overlapping_zip, "grows to more than 100 times"),
    Fault("zip: cut in half", lambda f: text("s.zip", archive(f, TU).read_bytes()[:90])(f), "cannot be read"),
    Fault("csv.gz: 120 MB of rows in a small file", repeated("s.csv.gz", (b"g," + b"a" * 1000 + b",b\n") * 1000, 120, b"graph,source,target\n"), "grows to more"),
    Fault("jsonl.gz: a line of 1 GB", repeated("s.jsonl.gz", bytes(1 << 20), 1024), "grows to more"),
    Fault("smi.xz: a line of 1 GB", repeated("s.smi.xz", b"C" * (1 << 20), 1024), "grows to more"),
    Fault("smi: a molecule of 2 million letters", text("s.smi", "C" * 2_000_000), "2000000 letters; 1048576 are possible"),
    Fault("csv.xz: a decoder that wants 3 GB", great_dictionary, "cannot be read"),
    Fault("jsonl: a trillion nodes in 40 letters", text("s.jsonl", '{"edges": [], "num_nodes": 1000000000000}'), "neither a row nor an edge"),
    Fault("jsonl: nested ten thousand times", text("s.jsonl", '{"edges": ' + "[" * 10_000), "not JSON"),
    Fault("TU: a graph numbered 10^18", tu(graph_indicator=b"1\n1000000000000000000\n"), "but there are only 2 nodes"),
    Fault("TU: a node numbered 10^18", tu(A=b"1, 1000000000000000000\n"), "there is no node"),
    Fault("TU: as many edge labels as edges", tu(A=b"1, 2\n" * 1001, edge_labels=b"".join(b"%d\n" % n for n in range(1001))), "1001 different labels"),
    Fault("TU: a line of 80 MB", long_line, "a line of more than 64 MB"),
    Fault("OGB: 10^9 nodes in a word", ogb(num_node_list=b"1000000000\n", num_edge_list=b"0\n", edge=b""), "neither a row nor an edge"),
    Fault("OGB: 10^9 edges in a word", ogb(num_node_list=b"2\n", num_edge_list=b"1000000000\n", edge=b"0,1\n"), "fewer than its graphs need"),
    Fault("GraphML: entities that multiply", text("s.graphml", ENTITIES), "declares XML entities"),
    Fault("GraphML: an entity from another file", text("s.graphml", FILE), "declares XML entities"),
    Fault("packed: a header of 10^18 bytes", text("s.safetensors", (10**18).to_bytes(8, "little")), "is no packed data"),
    Fault("packed: an array of 8 TB", packed(endless), "is damaged"),
    Fault("packed, compressed: an array of 8 TB", packed(endless, "s.safetensors.xz"), "ends too early"),
    Fault("packed: changed by hand", packed(lambda metadata, entries: metadata.update(about="{}")), "its contents are not those"),
    Fault("shards: a file of another folder", shards(lambda told: told["shards"][0].update(file="../../etc/passwd")), "is not called so"),
    Fault("shards: 10^9 graphs", shards(lambda told: told["shards"][0].update(graphs=10**9, nodes=10**9)), "do not agree"),
    Fault("run: a recipe that nests", run("recipe.toml", 'data = ""', "data = " + "[" * 10_000), "is not TOML", load),
    Fault("run: an encoder of 10^8 columns", run("recipe.toml", "width = 32", "width = 100000000"), "do not fit its recipe", load),
    Fault("run: features by 10^9 degrees", run("run.json", '"max_degree": 64', '"max_degree": 1000000000'), "by no known rule", load),
    Fault("run: 10^12 epochs", run("recipe.toml", "epochs = 1", "epochs = 1000000000000"), "does not have a line for each", load),
    Fault("protein networks: a pickle that would do something", pickled, "which is not run"),
)  # fmt: skip


def caused(fault: Fault) -> tuple[str, int | None]:
    """The line that a user sees, with the folder left out, and the most memory that it took, in bytes."""
    lines: list[str] = []

    def cause(path: Path) -> None:
        try:
            fault.read(path)
            lines.append("nothing: it was read")
        except UserError as error:
            lines.append(str(error))

    with TemporaryDirectory() as place:
        path = fault.make(Path(place))
        taken = peak_memory(lambda: cause(path), "cpu")
        return lines[0].replace(f"{place}/", ""), taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/hostile-files.md"))
    out = parser.parse_args().out
    rows = []
    for fault in FAULTS:
        told, taken = caused(fault)
        if fault.told not in told or "\n" in told:
            sys.exit(f"{fault.what}: expected '...{fault.told}...', got: {told}")
        memory = "" if taken is None else f"{taken / 2**20:.0f}"
        rows.append(f"| {fault.what} | `joao: {told.replace('|', chr(92) + '|')}` | {memory} |")
        print(rows[-1])
    head = [
        "# Hostile files, and what they come to",
        "",
        f"Caused, one after the other, by `python studies/hostile_files.py`; joao {joao.__version__}. Memory: the most that",
        "reading took, above what was taken before, resident, in MB. What is promised: [SECURITY.md](../../SECURITY.md).",
        "",
        "| file | what the user sees | MB |",
        "| --- | --- | ---: |",
    ]
    write_file(out, "\n".join([*head, *rows, ""]))


if __name__ == "__main__":
    main()
