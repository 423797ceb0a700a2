"""Oracle: the same graphs in memory."""

import json
from dataclasses import replace

import numpy as np
import pytest

from joao.core.errors import UserError
from joao.data import Dataset, Shards, read, read_whole
from joao.data.dataset import Failure
from joao.data.shards import shards as shards_module
from joao.data.shards.index import INDEX, OFFSETS
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from tests.data.refusals import assert_told, refused


def molecules():
    """Three molecules of a table of five rows, made by hand."""
    return Dataset(
        name="three",
        first_node=np.array([0, 3, 4, 6]),
        first_edge=np.array([0, 4, 4, 6]),
        source=np.array([1, 0, 2, 1, 1, 0], np.uint8),
        target=np.array([0, 1, 1, 2, 0, 1], np.uint8),
        node_labels=np.array([[5, 0], [5, 1], [7, 0], [10, 0], [5, 0], [6, 3]], np.uint8),
        edge_attr=np.array([[0, 0], [0, 0], [1, 2], [1, 2], [3, 0], [3, 0]], np.uint8),
        targets=np.array([[0, np.nan], [1, 2.5], [np.nan, np.nan]], np.float32),
        target_names=("toxic", "logP"),
        graph_names=("a", "b", "e"),
        kind="molecules",
        smiles=("CCO", "[Na]", "CN"),
        row_of_graph=np.array([0, 1, 4]),
        failures=(Failure(2, "x", "not SMILES", "c", 4), Failure(3, "", "empty", "d", 5)),
        featuriser="codes 1",
    )


def graphs_with_text():
    """The labels of later shards are longer than those of the first."""
    dataset = random_graphs(23, 5, 2)
    words = np.array(["C", "Öl", "longer", "-"], dtype=object)
    return replace(dataset, node_labels=words[np.minimum(dataset.node_labels, dataset.graph_of_node[:, None] // 8)])


def a_large_graph_last():
    """Node numbers and degrees need more bytes in the last shard than in those before."""
    sizes = np.array([2] * 8 + [300])
    centre = 16
    source = np.append(np.arange(0, 16, 2), np.full(299, centre))
    target = np.append(np.arange(1, 16, 2), np.arange(centre + 1, centre + 300))
    return make_dataset("large", sizes, (source, target), node_labels=np.arange(316) % 3 - 1, report_directed=False)


def edgeless_first():
    """No edges in the first shard, and so no edge attributes."""
    weights = np.array([[0.5], [1.5], [2.5]])
    edges = np.array([20, 21, 22]), np.array([21, 22, 23])
    return make_dataset("late", np.array([2] * 10 + [5] * 3), edges, edge_attr=weights, report_directed=False)


MADE = {
    "labels": lambda: random_graphs(30, 6, 2),
    "attributes": lambda: random_graphs(30, 6, 2, num_node_labels=0, num_attributes=2, num_edge_attributes=3),
    "nothing": lambda: random_graphs(30, 6, 2, num_node_labels=0, num_classes=0),
    "negative labels": lambda: replace(random_graphs(9, 4, 2), node_labels=random_graphs(9, 4, 2).node_labels - 2),
    "text": graphs_with_text,
    "a large graph last": a_large_graph_last,
    "edgeless first": edgeless_first,
    "molecules": molecules,
}


@pytest.fixture(params=MADE)
def dataset(request):
    return MADE[request.param]()


def assert_same_graphs(found, expected):
    for name in ("first_node", "first_edge", "source", "target", "degrees"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    for name in ("node_labels", "node_attributes", "edge_attr"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None), name
        if one is not None and one.size:
            assert one.tolist() == other.tolist(), name
            assert one.dtype.kind == other.dtype.kind, name


def test_graphs_can_be_selected_in_any_order(dataset, as_shards):
    shards = as_shards(dataset, rows=4)
    assert (len(shards), shards.kind) == (len(dataset), dataset.kind)
    random = np.random.default_rng(0)
    for numbers in (np.arange(len(dataset)), random.integers(len(dataset), size=9), np.array([len(dataset) - 1, 0])):
        assert_same_graphs(shards.graphs(numbers), dataset.subset(numbers))
        nodes, edges = shards.sizes(numbers)
        assert nodes.tolist() == np.diff(dataset.first_node)[numbers].tolist()
        assert edges.tolist() == np.diff(dataset.first_edge)[numbers].tolist()
    assert_same_graphs(shards[1:3], dataset[1:3])
    assert_same_graphs(shards[-1], dataset[-1])


@pytest.mark.parametrize("number", [-1, 30, 10**12])
def test_graph_number_out_of_range_is_rejected(as_shards, number):
    shards = as_shards(random_graphs(30, 6, 2))
    with pytest.raises(IndexError, match=r"\b0\b.*\b29\b"):
        shards.graphs(np.array([0, number]))


def test_whole_data_set_equals_the_packed_one(dataset, as_shards, assert_equal):
    shards = as_shards(dataset, rows=4)
    shards.check()
    assert_equal(shards.whole(), dataset)
    assert_equal(read_whole(shards.folder), dataset)
    assert isinstance(read(shards.folder), Shards)


def test_labels_have_everything_but_the_graphs(as_shards):
    dataset = molecules()
    labels = as_shards(dataset, rows=3).labels()
    assert labels.graph_names == dataset.graph_names
    assert labels.failures == dataset.failures
    assert labels.row_of_graph.tolist() == [0, 1, 4]
    assert np.array_equal(labels.targets, dataset.targets, equal_nan=True)
    assert labels.num_nodes == len(labels.source) == 0


def test_classes_are_numbered_as_in_memory(as_shards):
    edges = np.zeros(0, int), np.zeros(0, int)
    dataset = make_dataset("some", np.ones(4, int), edges, graph_labels=[10, 9, None, -2])
    found = as_shards(dataset, rows=1).whole()
    assert (found.class_names, found.classes.tolist()) == (("-2", "9", "10"), [2, 1, -1, 0])


def test_fingerprint_of_shards_ignores_labels(as_shards, tmp_path):
    dataset = random_graphs(20, 6, 2)
    one, same, other = (
        as_shards(each, folder=tmp_path / str(number)).fingerprint
        for number, each in enumerate((dataset, replace(dataset, classes=None, class_names=()), dataset[::-1]))
    )
    assert one == same != other
    assert as_shards(dataset, rows=20, folder=tmp_path / "all").fingerprint == dataset.fingerprint


def refusal(folder):
    with refused() as told:
        Shards(folder)
    return str(told.value)


def changed(path, **values):
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | values))


def test_damage_that_is_detected_on_opening(as_shards):
    folder = as_shards(random_graphs(20, 6, 2)).folder
    shard, other = folder / "shard-00001.safetensors", folder / "shard-00000.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-3])
    reasons = [refusal(folder)]
    shard.write_bytes(other.read_bytes())
    reasons.append(refusal(folder))
    assert_told(reasons[-1], INDEX)
    shard.write_bytes(whole.replace(b'"joao.data": "1"', b'"joao.data": "9"'))
    reasons.append(refusal(folder))
    assert_told(reasons[-1], 9)
    shard.unlink()
    reasons.append(refusal(folder))
    assert all(str(shard) in reason for reason in reasons)
    assert len({*reasons}) == 4  # each fault has a reason of its own
    shard.write_bytes(whole)
    offsets = (folder / OFFSETS).read_bytes()
    (folder / OFFSETS).write_bytes(offsets[:20])
    cut = refusal(folder)
    (folder / OFFSETS).unlink()
    gone = refusal(folder)
    assert_told(cut, str(folder / OFFSETS))
    assert_told(gone, str(folder / OFFSETS))
    assert cut != gone
    (folder / OFFSETS).write_bytes(offsets)
    told = (folder / INDEX).read_text()
    changed(folder / INDEX, **{"joao.shards": 2})
    assert_told(refusal(folder), str(folder / INDEX), 2)
    (folder / INDEX).write_text(told.replace('"name": ', '"name": "other",\n "name": ', 1))
    assert_told(refusal(folder), str(folder / INDEX))
    (folder / INDEX).write_text(told)
    changed(folder / INDEX, complete=False)
    assert_told(refusal(folder), str(folder), "joao pack")
    (folder / INDEX).write_text(told)
    assert len(Shards(folder)) == 20


@pytest.mark.parametrize(
    "change",
    [
        {"graphs": -1},
        {"graphs": 10**9},
        {"nodes": 10**20},
        {"edges": "many"},
        {"bytes": None},
        {"file": "../elsewhere.safetensors"},
        {"unknown": 1},
    ],
)
def test_impossible_index_is_rejected(as_shards, change):
    folder = as_shards(random_graphs(20, 6, 2)).folder
    told = json.loads((folder / INDEX).read_text())
    told["shards"][1] |= change
    (folder / INDEX).write_text(json.dumps(told))
    assert_told(refusal(folder), str(folder / INDEX))


def test_check_finds_a_changed_byte(as_shards):
    shards = as_shards(random_graphs(20, 6, 2))
    shard = shards.folder / "shard-00001.safetensors"
    offsets, last = shards.folder / OFFSETS, "shard-00002.safetensors"
    for path, place, named in ((shard, -1, shard.name), (shard, -40, shard.name), (offsets, -1, last)):
        whole = path.read_bytes()
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place:][1:])
        with refused(str(shards.folder), named):
            Shards(shards.folder).check()
        path.write_bytes(whole)
    changed(shards.folder / INDEX, name="another")
    Shards(shards.folder).check()


def test_damaged_shards_give_valid_graphs_or_a_one_line_error(as_shards):
    """Whatever stands in shards and offsets, graphs that come are graphs, and everything else is told in a line."""
    random = np.random.default_rng(0)
    told, came = set(), 0
    for dataset in (random_graphs(20, 6, 2), molecules()):
        shards = as_shards(dataset, rows=5)
        for file in (shards.folder / OFFSETS, shards.folder / "shard-00000.safetensors"):
            whole = file.read_bytes()
            start = 8 + int.from_bytes(whole[:8], "little")
            for _ in range(60):
                content = bytearray(whole)
                for place in random.integers(start, len(whole), size=random.integers(1, 6)):
                    content[place] = random.choice([0, 1, 255, random.integers(256)])
                file.write_bytes(content)
                try:
                    found = Shards(shards.folder).graphs(random.integers(len(dataset), size=6))
                except UserError as error:
                    told.add(str(error))
                    continue
                came += 1
                sizes = np.repeat(np.diff(found.first_node), np.diff(found.first_edge))
                assert len(found.source) == found.first_edge[-1] == len(sizes) == found.degrees.sum()
                assert (found.source < sizes).all()
            file.write_bytes(whole)
    assert [line for line in told if "\n" in line] == []
    assert len(told) > 4  # of each of two folders: sizes, edges, and more
    assert came > 20


def test_selecting_graphs_does_not_read_whole_shards(as_shards, monkeypatch):
    shards = as_shards(random_graphs(40, 6, 2))

    def read_packed(path):
        raise LookupError(path)

    monkeypatch.setattr(shards_module, "read_packed", read_packed)
    again = Shards(shards.folder)
    assert len(again.graphs(np.array([39, 3]))) == 2
    with pytest.raises(LookupError):
        again.whole()


def test_prefetched_bytes_are_those_of_the_graphs(as_shards, monkeypatch):
    """Oracle: the bytes that are asked for ahead, read from the files, are those of the graphs."""
    dataset = random_graphs(20, 6, 2, num_attributes=2, num_edge_attributes=1)
    shards = as_shards(dataset)  # of seven graphs each
    asked = {}

    def will_need(path, ranges):
        content = path.read_bytes()
        asked.setdefault(path.name, []).extend(content[place : place + size] for place, size in ranges)

    monkeypatch.setattr(shards_module, "_will_need", will_need)
    shards.prefetch(5, 9)
    for number, (first, last) in enumerate(((5, 7), (7, 9))):
        part, inside = dataset[first:last], dataset[7 * number : 7 * number + 7]
        degrees, labels, attributes, source, weights = asked[f"shard-0000{number}.safetensors"]
        assert list(degrees) == part.degrees.tolist()
        assert list(labels) == part.node_labels[:, 0].tolist()
        assert attributes == part.node_attributes.tobytes()
        assert list(source) == part.source.tolist()
        assert weights == part.edge_attr.tobytes()
        for content, offsets in zip(asked[OFFSETS][2 * number :], (inside.first_node, inside.first_edge), strict=False):
            here = offsets[first - 7 * number : last - 7 * number + 1]
            assert np.frombuffer(content, "<u4").tolist() == here.tolist()
    shards.prefetch(18, 4096)  # beyond the end
    monkeypatch.undo()
    shards.prefetch(0, 20)
    for path in shards.folder.iterdir():
        path.unlink()
    shards.prefetch(0, 20)  # a hint that nobody can follow is no error
