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

from joao.data import packed, read
from joao.data.base import Dataset, Failure
from joao.data.packed import read_packed, without_texts, write_packed
from joao.data.synthetic import random_graphs
from joao.errors import UserError


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
def test_molecules_come_back_as_they_were(molecules, name, tmp_path, assert_equal):
    write_packed(tmp_path / name, molecules)
    assert_equal(read(tmp_path / name), molecules)


@pytest.mark.parametrize("options", [{}, {"num_attributes": 2, "num_edge_attributes": 1, "num_classes": 0}])
def test_other_graphs_come_back_as_they_were(options, tmp_path, assert_equal):
    dataset = random_graphs(20, mean_nodes=5, **options)
    text = replace(dataset, node_labels=np.array(["C", "Öl"])[dataset.node_labels % 2], notices=("told",))
    for number, each in enumerate((dataset, text)):
        write_packed(tmp_path / f"{number}.safetensors", each)
        assert_equal(read(tmp_path / f"{number}.safetensors"), each)


def test_the_largest_node_number_of_a_byte(tmp_path, assert_equal):
    """A molecule of 256 atoms has node numbers in bytes, and a size that does not fit one."""
    pair = np.array([255, 0], dtype=np.uint8)
    numbers = {"node_labels": np.zeros((256, 2), np.uint8), "edge_attr": np.zeros((2, 2), np.uint8)}
    ends = np.array([0, 256]), np.array([0, 2]), pair, pair[::-1].copy()
    dataset = Dataset("large", *ends, kind="molecules", **numbers)
    write_packed(tmp_path / "large.safetensors", dataset)
    assert_equal(read(tmp_path / "large.safetensors"), dataset)


def test_other_programs_read_it(molecules, tmp_path):
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


def test_texts_can_be_left_out(molecules, tmp_path):
    write_packed(tmp_path / "a.safetensors", without_texts(molecules))
    content = (tmp_path / "a.safetensors").read_bytes()
    assert b"CCO" not in content
    dataset = read(tmp_path / "a.safetensors")
    assert (dataset.smiles, dataset.graph_names, dataset.failures, dataset.row_of_graph) == ((), (), (), None)
    assert dataset.fingerprint == molecules.fingerprint


def test_every_damage_is_told_in_one_line(molecules, tmp_path):
    path = tmp_path / "a.safetensors"
    write_packed(path, molecules)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    places = [*range(0, header, 7), *range(header, len(whole))]
    damaged = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in places]
    damaged += [whole[:place] for place in places] + [whole + b"\0", b"PK\3\4" * 9, b"\2" + bytes(7) + b"{}"]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(UserError) as told:
            read_packed(path)
        assert str(told.value).startswith(f"{path}: ")
        assert "\n" not in str(told.value)
    compressed = lzma.compress(whole)
    for content in (compressed[:-20], compressed[:50], b"", whole):
        (tmp_path / "a.safetensors.xz").write_bytes(content)
        with pytest.raises(UserError, match=r"a\.safetensors\.xz: "):
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


def test_what_somebody_made_up_is_refused_before_memory_is_taken(molecules, tmp_path):
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
    for change, message in (
        (claim, "is damaged"),
        (overlap, "the arrays are not behind one another"),
        (leave, "an edge leaves its graph"),
        (invent, "its atoms or bonds are of no known kind"),
        (forget, "is damaged"),
        (newer, "format 99 is newer than this version of joao knows"),
        (other, "holds no graphs: 'joao pack' did not write it"),
    ):
        write_packed(path, molecules)
        rewritten(path, change)
        with pytest.raises(UserError, match=message):
            read(path)


def test_it_is_read_without_rdkit(molecules, tmp_path):
    write_packed(tmp_path / "a.safetensors", molecules)
    program = (
        f"import sys; sys.modules['rdkit'] = None; import joao; print(joao.read({str(tmp_path / 'a.safetensors')!r}))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "Dataset('two', 2 molecules, 4 nodes, 2 edges)\n"
