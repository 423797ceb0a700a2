"""Oracle: the data set that was packed, and safetensors itself as a second reader."""

import json
import lzma
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from joao.data import dataset as base
from joao.data import read
from joao.data.dataset import Dataset, Failure
from joao.data.formats import packed
from joao.data.formats.packed import drop_texts, read_packed, write_packed
from joao.data.synthetic import random_graphs
from tests.data.refusals import refused


@pytest.fixture
def molecules():
    """Three atoms in a row and a single one, and whatever else a table may have."""
    return Dataset(
        name="two",
        first_node=np.array([0, 3, 4]),
        first_edge=np.array([0, 4, 4]),
        source=np.array([1, 0, 2, 1], dtype=np.uint8),
        target=np.array([0, 1, 1, 2], dtype=np.uint8),
        node_labels=np.array([[5, 0], [5, 1], [7, 0], [10, 0]], dtype=np.uint8),
        edge_attr=np.array([[0, 0], [0, 0], [1, 2], [1, 2]], dtype=np.uint8),
        graph_names=("é, b", ""),
        targets=np.array([[0.5, np.nan], [np.nan, -1]], dtype=np.float32),
        target_names=("a", "b"),
        kind="molecules",
        smiles=("CCO", "[Na]"),
        row_of_graph=np.array([0, 2]),
        failures=(Failure(1, "x\n", "not SMILES", "ü", 3),),
        featuriser="codes 1",
        notices=("something",),
    )


@pytest.mark.parametrize("name", ["a.safetensors", "a.safetensors.xz"])
def test_molecules_round_trip(molecules, name, tmp_path, assert_equal):
    write_packed(tmp_path / name, molecules)
    assert_equal(read(tmp_path / name), molecules)


@pytest.mark.parametrize("options", [{}, {"num_attributes": 2, "num_edge_attributes": 1, "num_classes": 0}])
def test_other_graphs_round_trip(options, tmp_path, assert_equal):
    dataset = random_graphs(20, mean_nodes=5, **options)
    text = replace(dataset, node_labels=np.array(["C", "Öl"], dtype=object)[dataset.node_labels % 2], notices=("told",))
    for number, each in enumerate((dataset, text)):
        write_packed(tmp_path / f"{number}.safetensors", each)
        assert_equal(read(tmp_path / f"{number}.safetensors"), each)


def test_largest_node_number_in_one_byte(tmp_path, assert_equal):
    """A molecule of 256 atoms has node numbers in bytes, and a size that does not fit one."""
    pair = np.array([255, 0], dtype=np.uint8)
    numbers = {"node_labels": np.zeros((256, 2), np.uint8), "edge_attr": np.zeros((2, 2), np.uint8)}
    ends = np.array([0, 256]), np.array([0, 2]), pair, pair[::-1].copy()
    dataset = Dataset("large", *ends, kind="molecules", **numbers)
    write_packed(tmp_path / "large.safetensors", dataset)
    assert_equal(read(tmp_path / "large.safetensors"), dataset)


def test_safetensors_can_read_packed_files(molecules, tmp_path):
    path = tmp_path / "a.safetensors"
    write_packed(path, molecules)
    arrays = safetensors.numpy.load_file(path)
    assert arrays["node_labels"].tolist() == molecules.node_labels.tolist()
    assert bytes(arrays["smiles"]) == b"CCO[Na]"
    assert arrays["smiles_lengths"].tolist() == [3, 4]
    assert arrays["first_node"].dtype == np.uint8
    assert arrays["first_node"].tolist() == [3, 1]
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    about = json.loads(metadata["about"])
    assert metadata["joao.data"] == "1"
    assert (about["name"], about["kind"], about["featuriser"]) == ("two", "molecules", "codes 1")
    assert about["counts"] == {"graphs": 2, "nodes": 4, "edges": 2}


def test_texts_can_be_omitted(molecules, tmp_path):
    write_packed(tmp_path / "a.safetensors", drop_texts(molecules))
    content = (tmp_path / "a.safetensors").read_bytes()
    assert b"CCO" not in content
    dataset = read(tmp_path / "a.safetensors")
    assert (dataset.smiles, dataset.graph_names, dataset.failures, dataset.row_of_graph) == ((), (), (), None)
    assert dataset.fingerprint == molecules.fingerprint


def test_damaged_files_get_a_one_line_error(molecules, tmp_path):
    path = tmp_path / "a.safetensors"
    write_packed(path, molecules)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    places = [*range(0, header, 7), *range(header, len(whole))]
    damaged = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in places]
    damaged += [whole[:place] for place in places] + [whole + b"\0", b"PK\3\4" * 9, b"\2" + bytes(7) + b"{}"]
    for content in damaged:
        path.write_bytes(content)
        with refused(str(path)):
            read_packed(path)
    compressed = lzma.compress(whole)
    for content in (compressed[:-20], compressed[:50], b"", whole):
        (tmp_path / "a.safetensors.xz").write_bytes(content)
        with refused("a.safetensors.xz"):
            read_packed(tmp_path / "a.safetensors.xz")


def rewritten(path, change):
    """The file with another header, and a checksum that is right again."""
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    entries = json.loads(whole[8:end])
    metadata = entries.pop("__metadata__")
    data = bytearray(whole[end:])
    change(metadata, entries, data)
    metadata.pop("checksum")
    digest = packed._digest(metadata, entries)
    digest.update(data)
    header = json.dumps({"__metadata__": {**metadata, "checksum": digest.hexdigest()}, **entries}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def test_forged_sizes_are_rejected_before_allocation(molecules, tmp_path):
    def claim(metadata, entries, data):
        entries["node_labels"]["shape"] = [1 << 50, 2]
        entries["node_labels"]["data_offsets"][1] = entries["node_labels"]["data_offsets"][0] + (1 << 51)

    def overlap(metadata, entries, data):
        for entry in entries.values():
            entry["data_offsets"] = [0, entry["data_offsets"][1] - entry["data_offsets"][0]]

    def leave(metadata, entries, data):
        data[entries["source"]["data_offsets"][0]] = 200

    def invent(metadata, entries, data):
        data[entries["node_labels"]["data_offsets"][0]] = 200

    def forget(metadata, entries, data):
        metadata["about"] = metadata["about"].replace('"name": "two", ', "")

    def newer(metadata, entries, data):
        metadata["joao.data"] = "99"

    def other(metadata, entries, data):
        del metadata["joao.data"]

    path = tmp_path / "a.safetensors"
    for change, values in (
        (claim, ()),
        (overlap, ()),
        (leave, ()),
        (invent, ()),
        (forget, ()),
        (newer, (99,)),
        (other, ("joao pack",)),
    ):
        write_packed(path, molecules)
        rewritten(path, change)
        with refused("a.safetensors", *values):
            read(path)


def write_made_up(path, dataset, change):
    """A file whose checksum is right, of a data set that no reader gives."""
    made = packed._pack

    def changed(given):
        about, arrays = made(given)
        change(about, arrays)
        return about, arrays

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "_pack", changed)
        write_packed(path, dataset)


def setting(name, values, dtype=None):
    """Another array; ``dtype`` is that in memory."""

    def change(about, arrays):
        arrays[name] = np.array(values)
        about["types"][name] = dtype or arrays[name].dtype.str

    return change


def saying(**values):
    return lambda about, arrays: about.update(values)


def leaving_out(*names):
    def change(about, arrays):
        for name in names:
            del arrays[name]

    return change


# A change, and the kind of fault that it is, with the values that are told of it; None: whatever is told.
MADE_UP = (
    (setting("source", [-1, 0, 2, 1]), ("outside",)),
    (setting("source", [-1000000, 0, 2, 1]), ("outside",)),
    (setting("target", [-1, 1, 1, 2]), ("outside",)),
    (setting("source", [3, 0, 2, 1]), ("outside",)),
    (setting("source", [0, 0, 2, 1]), ("loop",)),
    (setting("source", [1, 2, 0, 1]), ("order",)),
    (setting("target", [2, 1, 1, 0]), ("order",)),
    (setting("source", [1, 0, 0, 1]), ("order",)),  # an edge twice
    (setting("source", [1.0, 0, 2, 1]), ("form", "source")),
    (setting("source", [[1, 0, 2, 1]]), (None,)),
    (setting("source", [1, 0, 2]), (None,)),
    (setting("source", np.array([1, 0, 2, 1], np.uint8), "|O"), ("type", "|O")),
    (setting("source", np.array([1, 0, 2, 1], np.uint8), "S999999999"), ("type", "S999999999")),
    (setting("source", np.array([1, 0, 2, 1], np.uint8), "|V999999999"), ("type", "|V999999999")),
    (setting("source", np.array([1, 0, 2, 1], np.uint8), "<i4,("), ("type", "<i4,(")),
    (leaving_out("node_labels"), ("nodes", "node_labels")),
    (setting("node_labels", np.array([[5, 0], [5, 4], [7, 0], [1, 0]], np.uint8)), ("codes",)),
    (setting("edge_attr", np.array([[0, 3]] * 4, np.uint8)), ("codes",)),
    (setting("edge_attr", np.array([[0, 0]] * 4, np.float32)), ("atoms",)),
    (setting("classes", [0, 1]), ("class name",)),
    (setting("classes", [-2, -1]), ("class name",)),
    (setting("classes", [-1, -1, -1]), ("form", "classes")),
    (setting("targets", np.zeros(2, np.float32)), ("form", "targets")),
    (setting("targets", np.zeros((2, 2))), ("form", "targets")),
    (setting("source", np.array([1, 0, 2, 1], np.uint8), ">i8"), ("type", ">i8")),
    (setting("targets", np.zeros((2, 3), np.float32)), ("task names",)),
    (setting("row_of_graph", [0, 10**9]), ("rows",)),
    (setting("row_of_graph", [2, 0]), ("rows",)),
    (setting("row_of_graph", [0, 1]), ("rows",)),
    (leaving_out("row_of_graph"), ("rows",)),
    (setting("failures_row", [1.5]), ("row",)),
    (leaving_out("failures_text", "failures_text_lengths"), ("failures",)),
    (leaving_out("failures_text_lengths"), (None,)),
    (setting("groups", [[0], [1]]), ("form", "groups")),
    (setting("first_node", [4, 0]), ("graphs",)),
    (setting("first_node", [5, -1]), ("size",)),
    (setting("first_edge", [5, -1]), ("size",)),
    (setting("first_node", [3.0, 1.0]), ("integers",)),
    (setting("first_edge", [4]), ("graphs",)),
    (setting("smiles_lengths", [7]), ("names",)),
    (saying(kind="whatever"), ("text",)),
    (saying(name=5), ("text",)),
    (saying(target_names="ab"), ("text",)),
    (saying(featuriser={"a": 1}), ("text",)),
    (saying(target_names=["a", 2]), ("text",)),
    (saying(target_names=["a"]), ("task names",)),
    (saying(notices=5), (None,)),
    (saying(classes=[0, 0]), (None,)),
)


def test_invalid_content_is_rejected(molecules, tmp_path):
    reasons = {}
    for change, (kind, *values) in MADE_UP:
        write_made_up(tmp_path / "a.safetensors", molecules, change)
        with refused("a.safetensors", *values) as told:
            read(tmp_path / "a.safetensors")
        reasons.setdefault(str(told.value), set()).add(kind)
    assert [kinds for kinds in reasons.values() if len(kinds - {None}) > 1] == []  # each kind has a reason of its own


def test_degrees_of_another_graph_are_rejected(tmp_path):
    """They stand in for the targets; here they sum to as many edges, but not of each graph."""
    edges = np.array([1, 0, 1, 0], dtype=np.int32), np.array([0, 1, 0, 1], dtype=np.int32)
    dataset = Dataset("two pairs", np.array([0, 2, 4]), np.array([0, 2, 4]), *edges)
    path = tmp_path / "a.safetensors"
    write_packed(path, dataset)
    assert read(path).target.tolist() == [0, 1, 0, 1]
    for degrees in ([1, 2, 0, 1], [2, 2, 0, 0], [1, 1, 1], [3, -1, 1, 1]):
        write_made_up(path, dataset, lambda about, arrays, d=degrees: arrays.update(degrees=np.array(d)))
        with refused("a.safetensors"):
            read(path)


def test_edges_of_all_graphs_are_checked_for_any_chunk_size(tmp_path, monkeypatch, assert_equal):
    dataset = random_graphs(7, mean_nodes=4, num_edge_attributes=1)
    molecules = replace(dataset, node_labels=np.zeros((dataset.num_nodes, 2), np.uint8), kind="molecules")
    molecules = replace(molecules, edge_attr=np.zeros((len(dataset.source), 2), np.uint8))
    path = tmp_path / "a.safetensors"
    for at_once in (1, 3, 7, 100):
        monkeypatch.setattr(base, "GRAPHS_PER_CHUNK", at_once)
        write_packed(path, molecules)
        assert_equal(read(path), molecules)
        with_edges = np.flatnonzero(np.diff(dataset.first_edge))
        assert 0 < len(with_edges) < 7  # one without any, too
        for graph in with_edges:
            first, last = dataset.first_edge[graph : graph + 2]
            order = np.arange(len(dataset.source))
            order[[first, last - 1]] = last - 1, first
            swapped = replace(molecules, source=dataset.source[order], target=dataset.target[order])
            write_packed(path, swapped)
            with refused("a.safetensors"):
                read(path)


def test_stored_fingerprint_is_ignored(molecules, tmp_path):
    write_made_up(tmp_path / "a.safetensors", molecules, saying(fingerprint="f" * 16))
    assert read(tmp_path / "a.safetensors").fingerprint == molecules.fingerprint


def test_text_labels_must_be_text(tmp_path):
    dataset = random_graphs(2, mean_nodes=3)
    dataset = replace(dataset, node_labels=np.array(["C", "N"])[dataset.node_labels % 2])
    points = np.full((dataset.num_nodes, 1, 1), 1 << 30)
    write_made_up(tmp_path / "a.safetensors", dataset, lambda about, arrays: arrays.update(node_labels=points))
    with refused("a.safetensors"):
        read(tmp_path / "a.safetensors")


def test_packed_file_is_read_without_rdkit(molecules, tmp_path):
    write_packed(tmp_path / "a.safetensors", molecules)
    program = (
        f"import sys; sys.modules['rdkit'] = None; import joao; print(joao.read({str(tmp_path / 'a.safetensors')!r}))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "Dataset('two', 2 molecules, 4 nodes, 2 edges)\n"
