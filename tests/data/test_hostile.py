"""Files that were made to do harm end in one line, before they have taken memory or time."""

import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest

from joao.core import memory as _compressed
from joao.core.errors import UserError
from joao.data import read
from joao.data.formats import text as _text
from repro.studies.hostile_files import FAULTS, Fault, archive, cause, repeated
from tests.data.refusals import assert_told, refused

LEAST = 1 << 26  # bytes that are little enough


# What the line has beside the name of the file, where there is more to have.
VALUES = {
    "zip: a name with ..": ("'../../evil.txt'",),
    "zip: an absolute name": ("'/etc/evil'",),
    "zip: a symbolic link": ("'s_A.txt'",),
    "smi: a molecule of 2 million letters": (1, 2_000_000, 1 << 20),
    "jsonl: a trillion nodes in 40 letters": (10**12, 1024),
    "zip: two folders of data": ("a", "b"),
    "smi: a ring of 42,000 atoms": (1, 42_000, 2_048),
    "jsonl: a key twice": (1, "'num_nodes'"),
    "jsonl: nested ten thousand times": (1, "JSON"),
    "TU: node labels of 64 bits and more": ("s_node_labels.txt", 1, "9223372036854775808"),
    "TU: a graph numbered 10^18": ("s_graph_indicator.txt", 2, 10**18, 2),
    "TU: a node numbered 10^18": ("s_A.txt", 1, 10**18, 1, 2),
    "TU: as many edge labels as edges": ("s_edge_labels.txt", 1001, 1000),
    "TU: a line of 80 MB": ("s_graph_indicator.txt", 64),
    "OGB: 10^9 nodes in a word": (10**9, 1024),
    "OGB: 10^9 edges in a word": (10**9, 1024),
    "GraphML: entities that multiply": ("XML",),
    "GraphML: an entity from another file": ("XML",),
    "packed: a header of 10^18 bytes": ("safetensors",),
    "packed: an array of 8 TB": (8796093022936,),
    "shards: a file of another folder": ("index.json", 0),
    "shards: 10^9 graphs": ("index.json",),
    "run: a recipe that nests": ("recipe.toml", "TOML"),
    "run: an encoder of 10^8 columns": (50000003000000003,),
    "run: features by 10^9 degrees": ("run.json",),
    "run: 10^12 epochs": ("metrics.jsonl", 10**12),
    "protein networks: a pickle that would do something": ("ppi",),  # joao has no reader for it
}
GROWING = {
    fault.what for fault in FAULTS if fault.what.endswith(("become 80 MB", "one place", "small file", "of 1 GB"))
}


def test_the_values_are_those_of_faults():
    assert {*VALUES} | GROWING <= {fault.what for fault in FAULTS}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_hostile_values_get_a_one_line_error(fault, monkeypatch):
    if fault.what in GROWING:
        monkeypatch.setattr(_compressed, "ALWAYS_ALLOWED_BYTES", 1 << 22)  # to save the time
    places = []
    told, taken = cause(replace(fault, make=lambda folder: places.append(fault.make(folder)) or places[0]))
    values = VALUES.get(fault.what, (_compressed.MAX_EXPANSION, 4) if fault.what in GROWING else ())
    assert told.startswith(places[0].name)
    assert_told(told, *values)
    assert "\n" not in told
    assert taken is None or taken < 8 * LEAST


def test_expansion_of_compressed_files_is_limited(monkeypatch, tmp_path):
    rows = b"g,a,b\n" * 100_000
    monkeypatch.setattr(_compressed, "ALWAYS_ALLOWED_BYTES", len(rows) * 3 + 100)
    path = repeated("s.csv.gz", rows, 3, b"graph,source,target\n")(tmp_path)
    assert len(path.read_bytes()) * _compressed.MAX_EXPANSION < len(rows) * 3
    assert len(read(path)) == 1
    monkeypatch.setattr(_compressed, "ALWAYS_ALLOWED_BYTES", len(rows) * 3)
    with refused("s.csv.gz", _compressed.MAX_EXPANSION):
        read(path)


@pytest.mark.parametrize("word", ["1", "x", ""])
@pytest.mark.parametrize("header", ["smiles", "graph,source,target"])
def test_tables_with_many_columns_take_bounded_time(header, word, tmp_path):
    number = 60_000  # of which pairs are too many to be compared in a minute
    names = ",".join(f"t{each}" for each in range(number))
    cells = "CCO" if header == "smiles" else "a,b,c"
    (tmp_path / "a.csv").write_text(f"{header},{names}\n{cells}{f',{word}' * number}\n")
    begun = time.process_time()
    with suppress(UserError):
        assert len(read(tmp_path / "a.csv")) == 1
    assert time.process_time() - begun < 15


def test_overlong_smiles_need_little_memory(tmp_path):
    pytest.importorskip("rdkit")
    letters = 4_000_000
    (tmp_path / "a.smi").write_text("CCO\n" + "C" * letters + "\n")
    read(tmp_path / "a.smi")  # loads what it needs
    tracemalloc.start()
    try:
        assert len(read(tmp_path / "a.smi")) == 1
        assert tracemalloc.get_traced_memory()[1] < 6 * letters
    finally:
        tracemalloc.stop()


def test_endless_line_is_rejected(monkeypatch, tmp_path):
    monkeypatch.setattr(_text, "MAX_LINE_BYTES", 1000)
    (tmp_path / "a.jsonl").write_text('{"edges": [], "num_nodes": 1}\n' + "[" * 5000)
    with refused("a.jsonl", 2, 0):
        read(tmp_path / "a.jsonl")


def nameless(folder):
    """An archive with a name that begins with what ends one."""
    path = archive(folder, {"qx": b"", "s_A.txt": b""})
    path.write_bytes(path.read_bytes().replace(b"qx", b"\0x"))
    return path


def mangled(folder):
    """An archive that says that its names are UTF-8 and has some that are not."""
    path = archive(folder, {"é_A.txt": b"", "s_A.txt": b"1, 2\n"})
    path.write_bytes(path.read_bytes().replace("é_A".encode(), b"\xff_\xfeA"))
    return path


# What the fuzzer found, and what led there; each ended in another error before.
FOUND = {
    "s.zip": Fault("a name in an archive that is not UTF-8", mangled),
    "s_graph_indicator.txt": Fault("a member without a name", nameless),
    "graph_indicator.txt": Fault(
        "a name that is written in a roundabout way", lambda folder: archive(folder, {"./s_A.txt": b""})
    ),
}


@pytest.mark.parametrize("value", FOUND)
def test_inputs_found_by_fuzzing(value):
    error, _ = cause(FOUND[value])
    assert value in error
