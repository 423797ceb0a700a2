"""Oracle: the same packing without an interruption, file by file."""

import json
import shutil

import pytest

from joao.data.formats.packed import write_packed
from joao.data.formats.smiles import Columns
from joao.data.molecules import ReadOptions
from joao.data.shards.index import INDEX
from joao.data.shards.shards import Shards
from joao.data.shards.writer import BlockSource, ShardWriter, pack_shards
from joao.data.synthetic import random_graphs
from tests.data.refusals import refused


@pytest.fixture
def sources(tmp_path):
    """Two files of the same kind of graphs: 20 in one that is read whole, 5 in one that is streamed."""
    dataset = random_graphs(20, 5, 2, num_classes=0)
    write_packed(tmp_path / "a.safetensors", dataset)
    graph = {"edges": [[0, 1]], "node_labels": [1, 3]}
    (tmp_path / "b.jsonl").write_text("".join(f"{json.dumps(graph)}\n" for _ in range(5)))
    return [tmp_path / "a.safetensors", tmp_path / "b.jsonl"]


def packed(sources, folder, **options):
    pieces = [BlockSource(str(source), None, Columns(), ReadOptions()) for source in sources]
    return pack_shards(pieces, folder, "both", **{"shard_graphs": 4, **options})


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Stop(BaseException):
    """What nobody catches."""


def interrupted(sources, folder, after):
    def on_shard(shards, graphs):
        assert graphs <= 4 * shards
        if shards == after:
            raise Stop

    with pytest.raises(Stop):
        packed(sources, folder, on_shard=on_shard)


@pytest.fixture
def expected(sources, tmp_path):
    shards = packed(sources, tmp_path / "undisturbed")
    assert [each.graphs for each in shards.index.shards] == [4, 4, 4, 4, 4, 4, 1]
    assert [each.source for each in shards.index.shards] == [0, 0, 0, 0, 0, 1, 1]
    return contents(shards.folder)


@pytest.mark.parametrize("after", [1, 5, 6, 7])
def test_interrupted_packing_resumes(sources, tmp_path, expected, after):
    folder = tmp_path / "store"
    interrupted(sources, folder, after)
    with refused(str(folder), "joao pack"):
        Shards(folder)
    (folder / ".shard-00009.safetensors.abc").write_bytes(b"half of it")
    times = {path: path.stat().st_mtime_ns for path in folder.glob("shard-*")}
    assert len(times) == after
    packed(sources, folder)
    assert contents(folder) == expected
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_incomplete_shard_and_later_ones_are_rewritten(sources, tmp_path, expected):
    folder = tmp_path / "store"
    damages = (
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.unlink(),
        lambda path: shutil.copy(path.with_name("shard-00002.safetensors"), path),
    )
    for damage in damages:
        interrupted(sources, folder, 4)
        before = {path.name: path.stat().st_mtime_ns for path in folder.glob("shard-*")}
        damage(folder / "shard-00001.safetensors")
        packed(sources, folder)
        assert contents(folder) == expected
        after = {name: (folder / name).stat().st_mtime_ns for name in before}
        assert [name for name in before if before[name] == after[name]] == ["shard-00000.safetensors"]
        shutil.rmtree(folder)


def test_shard_missing_in_the_index_is_rewritten(sources, tmp_path, expected):
    folder = tmp_path / "store"
    interrupted(sources, folder, 2)
    told = (folder / INDEX).read_text()
    shutil.rmtree(folder)
    interrupted(sources, folder, 3)
    (folder / INDEX).write_text(told)
    packed(sources, folder)
    assert contents(folder) == expected


def test_packing_with_other_options_is_not_resumed(sources, tmp_path):
    folder = tmp_path / "store"
    interrupted(sources, folder, 2)
    begun = contents(folder)
    for other, options in ((sources[:1], {}), (sources, {"shard_graphs": 5}), (sources, {"with_texts": False})):
        with refused(str(folder)):
            packed(other, folder, **options)
    (tmp_path / "b.jsonl").write_text('{"edges": [[0, 1]], "node_labels": [2, 3]}\n')
    with refused(str(folder)):
        packed(sources, folder)
    assert contents(folder) == begun


def test_no_shard_is_made_from_a_source_that_changed_while_it_was_read(sources, tmp_path, expected):
    folder, text = tmp_path / "store", sources[1].read_text()
    for changed in (text.replace("[1, 3]", "[3, 3]"), text[: len(text) // 5 * 4]):
        with refused("b.jsonl"):
            packed(sources, folder, on_shard=lambda shards, graphs, to=changed: sources[1].write_text(to))
        with refused(str(folder), "joao pack"):
            Shards(folder)
        sources[1].write_text(text)
        packed(sources, folder)
        assert contents(folder) == expected
        shutil.rmtree(folder)


def test_two_calls_at_once_are_refused(sources, tmp_path, expected):
    def again(shards, graphs):
        with refused("store"):
            packed(sources, tmp_path / "store")

    packed(sources, tmp_path / "store", on_shard=again)
    assert contents(tmp_path / "store") == expected


def test_nothing_is_overwritten(sources, tmp_path):
    packed(sources, tmp_path / "store")
    before = contents(tmp_path / "store")
    with refused(str(tmp_path / "store")):
        packed(sources, tmp_path / "store")
    assert contents(tmp_path / "store") == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("text")
    with refused(str(tmp_path / "mine")):
        packed(sources, tmp_path / "mine")
    with refused("b.jsonl"):
        packed(sources, sources[1])
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "text"


def test_different_graphs_are_rejected(sources, tmp_path):
    sources[1].write_text('{"edges": [[0, 1]], "num_nodes": 2}\n')
    with refused("both", "node labels", 20, 1):
        packed(sources, tmp_path / "store")


def test_empty_store_is_rejected(tmp_path):
    with refused("some"):
        ShardWriter(tmp_path / "store", "some", "").finish()


def test_store_can_be_packed_again(sources, tmp_path):
    first = packed(sources, tmp_path / "first")
    again = packed([tmp_path / "first"], tmp_path / "again", shard_graphs=3)
    assert [each.graphs for each in again.index.shards] == [3, 1] * 6 + [1]
    assert again.whole().fingerprint == first.whole().fingerprint
