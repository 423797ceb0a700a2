"""Oracle: a fresh read. What the cache gives must be that, bit for bit, whatever happened to source or cache."""

import gzip
import json
import os
import shutil
import stat
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import hypothesis.extra.numpy as numpy_strategies
import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from joao.core import codes
from joao.data import Features, cache, make_store, read, sources
from joao.data.formats import FileFormat
from joao.data.formats.packed import read_packed_if
from joao.data.formats.tu import read_tu
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from tests.data.refusals import assert_told

ROOT = os.environ.get("JOAO_DATA")
GRAPHS = [
    {"edges": [[0, 1], [1, 2]], "node_labels": ["C", "C", "Ö"], "label": "toxic"},
    {"edges": [], "node_labels": ["N"], "label": "not"},
    {"edges": [[3, 0]], "node_labels": ["C", "", "C", "O"], "label": "toxic"},
]
TU = {
    "A": "1,2\n2,1\n3,4\n",
    "graph_indicator": "1\n1\n2\n2\n",
    "graph_labels": "-1\n1\n",
    "node_labels": "3\n-4\n5\n6\n",
    "node_attributes": "0.1\n0.2\n0.3\n0.4\n",
    "edge_labels": "7\n7\n8\n",
}


MOLECULES = {
    "molecules.csv": "smiles,id,toxic,note\nCCO,é,1,a\nnone,b,0,\n[Na+].[Cl-],,,\n".encode(),
    "smi.gz": b"C" * 300 + b"\nC/C=C/C two words\n",
}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """A cache of its own, which keeps even the smallest source."""
    monkeypatch.setenv("JOAO_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cache, "MIN_SOURCE_BYTES", 1)
    monkeypatch.setattr(sources, "MIN_TABLE_BYTES", 1)
    return tmp_path / "kept" / "packed"


@pytest.fixture
def fresh():
    """Reads without the cache."""

    def read_fresh(path):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JOAO_CACHE", "off")
            return read(path)

    return read_fresh


class ReadAgain(AssertionError):
    """A reader was asked for what should be in the cache."""


def load_cached(file, stamp):
    return read_packed_if(file, {"stamp": stamp.hex()})


@pytest.fixture
def kept_only():
    """Reads what is in the cache: no reader works any more."""

    def refuse(file_format, path, *_):
        raise ReadAgain(path)

    def read_kept(path):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FileFormat, "read", refuse)
            return read(path)

    return read_kept


def lines(graphs=GRAPHS):
    return "".join(json.dumps(graph) + "\n" for graph in graphs).encode()


def csv_text():
    return b"graph,source,target,weight,label\nwater,O,H1,0.5,polar\nwater,O,H2,0.25,polar\nargon,Ar,,,inert\n"


def write_graphml(path, size):
    graph = networkx.DiGraph([(n, n + 1) for n in range(size)], label=size)
    networkx.set_node_attributes(graph, 0.5, "charge")
    networkx.set_node_attributes(graph, "left out", "comment")
    networkx.write_graphml(graph, path)
    return path


@pytest.fixture(
    params=[
        "zip", "flat zip", "folder", "raw", "jsonl", "jsonl.gz", "csv", "csv.gz", "graphml", "graphmls",
        "molecules.csv", "smi.gz",
    ]
)  # fmt: skip
def source(request, tmp_path, write_tu):
    """A source of every kind."""
    kind = request.param
    if kind in ("zip", "flat zip", "folder"):
        return write_tu(TU, kind)
    if kind == "raw":
        (tmp_path / "PYG").mkdir()
        return write_tu(TU).rename(tmp_path / "PYG" / "raw").parent
    if kind == "graphml":
        return write_graphml(tmp_path / "one.graphml", 3)
    if kind == "graphmls":
        (tmp_path / "many").mkdir()
        for size in (2, 3, 4):
            write_graphml(tmp_path / "many" / f"g{size}.graphml", size)
        return tmp_path / "many"
    if kind in MOLECULES:
        pytest.importorskip("rdkit")
    text = MOLECULES.get(kind) or (lines() if "jsonl" in kind else csv_text())
    path = tmp_path / f"mine.{kind}"
    path.write_bytes(gzip.compress(text) if kind.endswith("gz") else text)
    return path


def test_second_read_comes_from_the_cache(source, fresh, kept_only, assert_equal):
    expected = fresh(source)
    assert_equal(read(source), expected)
    assert_equal(kept_only(source), expected)
    assert_equal(kept_only(str(source)), expected)


def test_notices_and_names_are_kept(tmp_path, kept_only):
    (tmp_path / "many").mkdir()
    for size in (2, 3):
        write_graphml(tmp_path / "many" / f"g{size}.graphml", size)
    read(tmp_path / "many")
    dataset = kept_only(tmp_path / "many")
    assert dataset.graph_names == ("g2", "g3")
    assert dataset.class_names == ("2", "3")
    assert len(dataset.notices) == 2
    assert_told(dataset.notices[0], "many", "comment")


LABELS = some.sampled_from([some.integers(-(2**62), 2**62), some.integers(0, 300), some.text(max_size=5)])


@some.composite
def data_sets(draw):
    sizes = draw(some.lists(some.integers(1, 5), min_size=1, max_size=6))
    first = np.cumsum(sizes) - sizes
    graph = some.integers(0, len(sizes) - 1)
    edges = []
    for number in draw(some.lists(graph, max_size=12)):
        edges.append([first[number] + draw(some.integers(0, sizes[number] - 1)) for _ in "ab"])
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)

    def rows(count, element):
        shape = (count, draw(some.integers(1, 3)))
        return np.array([draw(element) for _ in range(count * shape[1])]).reshape(shape) if count else None

    def numbers(count):
        return draw(numpy_strategies.arrays(np.float32, (count, 2), elements=some.floats(-9, 9, width=32)))

    texts = some.lists(some.text(max_size=4), min_size=len(sizes), max_size=len(sizes))
    return make_dataset(
        draw(some.text(max_size=9)),
        np.array(sizes),
        (ends[:, 0], ends[:, 1]),
        node_labels=rows(sum(sizes), draw(LABELS)) if draw(some.booleans()) else None,
        node_attributes=numbers(sum(sizes)) if draw(some.booleans()) else None,
        edge_attr=numbers(len(ends)) if draw(some.booleans()) else None,
        graph_labels=draw(some.one_of(some.none(), texts, some.just([7] * len(sizes)))),
        graph_names=draw(some.one_of(some.just([]), texts)),
        notices=draw(some.lists(some.text(max_size=9), max_size=2)),
    )


@given(dataset=data_sets())
def test_any_data_set_round_trips(dataset, tmp_path_factory, assert_equal):
    file = tmp_path_factory.getbasetemp() / "any.packed"
    cache._save(file, b"stamp", dataset)
    assert_equal(load_cached(file, b"stamp"), dataset)
    assert load_cached(file, b"another") is None


def test_cached_arrays_are_ordinary_arrays(tmp_path, kept_only):
    source = tmp_path / "mine.jsonl"
    source.write_bytes(lines())
    read(source)
    dataset = kept_only(source)
    for array in (dataset.first_node, dataset.source, dataset.target, dataset.node_labels, dataset.classes):
        assert array.flags.writeable
        assert array.flags.aligned
        assert array.flags.c_contiguous
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_store(dataset, Features.from_dataset(dataset))


def rewritten(path, old, new):
    """Replaces text in a file of the source, its size and dates left as they were."""
    before = path.stat()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            members = {info: archive.read(info) for info in archive.infolist()}
        with zipfile.ZipFile(path, "w") as archive:
            for info, text in members.items():
                archive.writestr(info, text.replace(old, new))
    else:
        path.write_bytes(path.read_bytes().replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("kind", ["zip", "folder", "jsonl", "graphml"])
def test_changed_source_with_equal_size_and_date_is_read_again(kind, folder, tmp_path, write_tu, fresh, assert_equal):
    if kind in ("zip", "folder"):
        source = write_tu(TU, kind)
        changed, old, new = source if kind == "zip" else source / "TINY_node_labels.txt", b"6\n", b"9\n"
    elif kind == "jsonl":
        source = changed = tmp_path / "mine.jsonl"
        source.write_bytes(lines())
        old, new = b"toxic", b"tonic"
    else:
        source = changed = write_graphml(tmp_path / "mine.graphml", 3)
        old, new = b"0.5", b"0.7"
    first = read(source)
    rewritten(changed, old, new)
    second = read(source)
    assert_equal(second, fresh(source))
    with pytest.raises(AssertionError):
        assert_equal(second, first)
    assert len(list(folder.iterdir())) == 1


def test_touched_source_is_not_read_again(source, kept_only):
    read(source)
    os.utime(source, ns=(0, 0))
    kept_only(source)


def test_new_file_in_the_folder_is_read(write_tu, folder):
    source = write_tu({name: text for name, text in TU.items() if name != "graph_labels"})
    assert read(source).classes is None
    (source / "TINY_graph_labels.txt").write_text("5\n6\n")
    assert read(source).class_names == ("5", "6")
    (source / "raw").mkdir()
    for file in source.glob("*.txt"):
        shutil.copy(file, source / "raw")
    (source / "raw" / "TINY_graph_labels.txt").write_text("7\n8\n")
    assert read(source).class_names == ("7", "8")
    assert len(list(folder.iterdir())) == 1


def test_changed_reader_invalidates_the_cache(source, monkeypatch, kept_only):
    read(source)
    monkeypatch.setattr(cache, "_READERS_HASH", b"of another version")
    with pytest.raises(ReadAgain):
        kept_only(source)
    read(source)
    kept_only(source)


@pytest.mark.parametrize("module", [codes, sources])
def test_atom_codes_and_readers_are_part_of_the_key(module, monkeypatch):
    before, read_bytes = cache._hash_readers(), Path.read_bytes
    assert before == cache._READERS_HASH

    def changed(path):
        return read_bytes(path) + (b"#" if path.samefile(module.__file__) else b"")

    monkeypatch.setattr(Path, "read_bytes", changed)
    assert cache._hash_readers() != before


def test_data_set_is_named_after_the_path_that_was_read(tmp_path):
    (tmp_path / "mine.jsonl").write_bytes(lines())
    (tmp_path / "yours.jsonl").symlink_to(tmp_path / "mine.jsonl")
    for _ in range(2):
        assert [read(tmp_path / f"{name}.jsonl").name for name in ("mine", "yours")] == ["mine", "yours"]


def test_damaged_cache_file_is_ignored(tmp_path, folder, fresh, kept_only, assert_equal):
    source = tmp_path / "mine.jsonl"
    source.write_bytes(lines())
    expected = fresh(source)
    read(source)
    [file] = folder.iterdir()
    whole = file.read_bytes()
    stamp = cache._stamp(source, "", 1)
    assert_equal(load_cached(file, stamp), expected)
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert load_cached(file, stamp) is None
        file.write_bytes(whole[:place])
        assert load_cached(file, stamp) is None
    for damaged in (b"", b"foreign\n", whole + b"\0", whole[:-1], whole * 2):
        file.write_bytes(damaged)
        assert_equal(read(source), expected)
        assert file.read_bytes() == whole  # and mended
    kept_only(source)


def test_columns_and_rdkit_version_are_part_of_the_key(tmp_path, kept_only, monkeypatch):
    pytest.importorskip("rdkit")
    source = tmp_path / "mine.csv"
    source.write_bytes(b"smiles,other,a,b\nC,CC,1,2\n")
    assert read(source).target_names == ("a", "b")
    assert read(source, tasks=["b"]).target_names == ("b",)
    assert read(source, smiles="other", tasks=[]).num_nodes == 2
    assert kept_only(source).target_names == ("a", "b")  # each is kept by itself
    monkeypatch.setattr(cache, "featuriser_version", lambda: "codes 1, RDKit of tomorrow")
    with pytest.raises(ReadAgain):
        kept_only(source)
    monkeypatch.setattr(cache, "featuriser_version", lambda: None)  # without RDKit they are good enough
    assert kept_only(source).num_nodes == 1


def test_cache_file_of_another_source_is_ignored(tmp_path, folder):
    for name, graphs in (("mine", GRAPHS), ("yours", GRAPHS[:2])):
        (tmp_path / f"{name}.jsonl").write_bytes(lines(graphs))
        read(tmp_path / f"{name}.jsonl")
    mine, yours = sorted(folder.iterdir())
    shutil.copy(mine, yours)
    assert len(read(tmp_path / "yours.jsonl")) == 2


@pytest.mark.parametrize("setting", ["", "off"])
def test_cache_can_be_disabled(setting, tmp_path, folder, monkeypatch):
    monkeypatch.setenv("JOAO_CACHE", setting)
    (tmp_path / "mine.jsonl").write_bytes(lines())
    read(tmp_path / "mine.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.jsonl"]
    assert cache.sizes() == {}


def test_default_cache_folder_is_private(tmp_path, monkeypatch, kept_only):
    monkeypatch.delenv("JOAO_CACHE")
    (tmp_path / "mine.jsonl").write_bytes(lines())
    read(tmp_path / "mine.jsonl")
    [file] = (tmp_path / "cache" / "joao" / "packed").iterdir()
    assert file.name.startswith("mine.jsonl-")
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    kept_only(tmp_path / "mine.jsonl")


def test_nothing_is_cached_without_a_home_folder(tmp_path, monkeypatch):
    def homeless():
        raise RuntimeError("homeless")

    monkeypatch.delenv("JOAO_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(cache.Path, "home", homeless)
    (tmp_path / "mine.jsonl").write_bytes(lines())
    assert read(tmp_path / "mine.jsonl").notices == ()


def test_small_sources_are_not_cached(tmp_path, monkeypatch, folder):
    monkeypatch.undo()
    monkeypatch.setenv("JOAO_CACHE", str(folder.parent))
    (tmp_path / "mine.jsonl").write_bytes(lines())
    read(tmp_path / "mine.jsonl")
    read("MUTAG", root=tmp_path)
    assert not folder.exists()


def full(handle):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("fault", ["full", "occupied"])
def test_unwritable_cache_gives_one_notice(fault, tmp_path, monkeypatch, fresh, assert_equal):
    if fault == "full":
        monkeypatch.setattr(os, "fsync", full)
    else:
        (tmp_path / "kept").write_text("a file, not a folder")
    (tmp_path / "mine.jsonl").write_bytes(lines())
    for _ in range(2):
        dataset = read(tmp_path / "mine.jsonl")
        [notice] = dataset.notices
        assert_told(notice, "mine", "JOAO_CACHE", "off")
        assert_equal(replace(dataset, notices=()), fresh(tmp_path / "mine.jsonl"))
    assert cache.sizes() == {}


def test_source_that_changes_during_reading_is_not_cached(write_tu, folder):
    source = write_tu(TU)

    def slow_reader(path):
        dataset = read_tu(path)
        (source / "TINY_graph_labels.txt").write_text("5\n6\n")
        return dataset

    assert cache.read_cached(source, slow_reader).class_names == ("-1", "1")
    assert not folder.exists()
    assert read(source).class_names == ("5", "6")


def test_concurrent_reads_and_writes(tmp_path, folder, assert_equal):
    """Two versions of a source take turns in one place; everybody gets what was there when he came, or later."""
    versions = [random_graphs(20, seed=seed) for seed in (0, 1)]
    file = folder / "shared.packed"
    folder.mkdir(parents=True)

    def work(number):
        dataset = versions[number % 2]
        for _ in range(30):
            cache._save(file, bytes([number % 2]), dataset)
            found = load_cached(file, bytes([number % 2]))
            if found is not None:
                assert_equal(found, dataset)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert [path.name for path in folder.iterdir()] == ["shared.packed"]
    assert sum(load_cached(file, bytes([number])) is not None for number in (0, 1)) == 1


def test_least_recently_used_files_are_evicted(tmp_path, folder, monkeypatch):
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_bytes(lines())
        read(tmp_path / f"{name}.jsonl")
        os.utime(next(folder.glob(f"{name}.*")), (ord(name), ord(name)))
    read(tmp_path / "a.jsonl")  # used again
    size = max(cache.sizes().values())
    monkeypatch.setattr(cache, "MAX_CACHE_BYTES", 2 * size + 1)
    (tmp_path / "d.jsonl").write_bytes(lines())
    read(tmp_path / "d.jsonl")
    assert [file.name[0] for file in cache.sizes()] == ["d", "a"]


def test_sources_above_the_limit_are_not_cached(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(cache, "MAX_CACHE_BYTES", 1)
    (tmp_path / "a.jsonl").write_bytes(lines())
    assert len(read(tmp_path / "a.jsonl")) == len(GRAPHS)
    assert cache.sizes() == {}


def test_clearing_keeps_foreign_files(tmp_path, folder):
    (tmp_path / "mine.jsonl").write_bytes(lines())
    read(tmp_path / "mine.jsonl")
    (folder / ".mine.jsonl-0.packed.half").write_text("left by a killed process")
    (folder / "notes.txt").write_text("somebody's")
    (folder.parent / "tu").mkdir()
    (folder.parent / "tu" / "FAR.zip").write_text("a download")
    assert len(cache.sizes()) == 2
    cache.clear()
    assert cache.sizes() == {}
    left = sorted(path.name for path in folder.parent.rglob("*") if path.is_file())
    assert left == ["FAR.zip", "notes.txt"]


@pytest.mark.skipif(ROOT is None, reason="JOAO_DATA is not set")
@pytest.mark.parametrize(
    "name",
    ["DD", "REDDIT-BINARY", *(pytest.param(name, marks=pytest.mark.slow) for name in ("COLLAB", "REDDIT-MULTI-5K"))],
)
def test_published_data_sets_round_trip(name, monkeypatch, assert_equal):
    first = read(name, root=ROOT)
    monkeypatch.setattr(FileFormat, "read", lambda file_format, path: pytest.fail("was read again"))
    assert_equal(read(name, root=ROOT), first)
    cache.clear()
