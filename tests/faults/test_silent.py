"""Files that say two things, or what cannot be kept, are refused or kept apart, never read as something else."""

from __future__ import annotations

import json
import shutil
import zipfile

import numpy as np
import pytest

import joao
from tests.faults.harness import assert_one_line, call, run


def write_tu(path, name="TINY", folder="", **parts):
    """Two graphs of two nodes as a zip file in the TU layout, with further files."""
    texts = {"A": "1, 2\n2, 1\n3, 4\n4, 3\n", "graph_indicator": "1\n1\n2\n2\n", **parts}
    with zipfile.ZipFile(path, "a") as archive:
        for part, text in texts.items():
            archive.writestr(f"{folder}{name}_{part}.txt", text)
    return path


WIDE = [f"{(1 << 63) + number}\n" for number in range(4)]
FAR = [f"{(1 << 64) + number}\n" for number in range(4)]


@pytest.mark.parametrize("numbers", [WIDE, FAR, [f"-{line}" for line in FAR]], ids=["wide", "far", "negative"])
@pytest.mark.parametrize("part", ["node_labels", "edge_labels", "graph_labels"])
def test_labels_beyond_64_bits_do_not_merge(part, numbers, tmp_path):
    """Four different labels stay four, or are refused; with a notice they may be left out."""
    lines = numbers[:2] if part == "graph_labels" else numbers
    path = write_tu(tmp_path / "TINY.zip", **{part: "".join(lines)})

    def read():
        dataset = joao.read(path)
        if part == "node_labels":
            assert len(np.unique(dataset.node_labels)) == 4
        elif part == "edge_labels":
            assert len(np.unique(dataset.edge_attr, axis=0)) == 4
        else:
            assert dataset.classes is None or len({*dataset.classes.tolist()}) == 2

    ended = call(read)
    assert ended.code == 0 or len(ended.complaints) == 1, ended.err[-500:]


@pytest.mark.parametrize("label", [1 << 63, (1 << 64) + 1, -(1 << 63) - 1])
@pytest.mark.parametrize("key", ["label", "node_labels"])
def test_labels_beyond_64_bits_in_json_do_not_merge(key, label, tmp_path):
    lines = [
        {"edges": [[0, 1]], "num_nodes": 2, **({"label": each} if key == "label" else {key: [each, 0]})}
        for each in (label, label + 1, 0, 0)
    ]
    path = tmp_path / "graphs.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def read():
        dataset = joao.read(path)
        found = dataset.classes if key == "label" else dataset.node_labels
        assert len(np.unique(found)) == 3

    ended = call(read)
    assert ended.code == 0 or len(ended.complaints) == 1, ended.err[-500:]


ALIKE = {
    "underscore": ("1_0", "10"),
    "other script": ("\u0661\u0660", "10"),
    "full width": ("\uff11\uff10", "10"),
    "leading zero": ("010", "10"),
    "plus": ("+10", "10"),
}


@pytest.mark.parametrize("how", ALIKE)
def test_classes_that_only_python_takes_for_one_number_stay_two(how, tmp_path):
    one, other = ALIKE[how]
    path = tmp_path / "edges.csv"
    path.write_text(f"graph,source,target,label\ng1,a,b,{one}\ng2,a,b,{other}\n")

    def read():
        dataset = joao.read(path)
        assert len({*dataset.classes.tolist()}) == 2
        assert {*dataset.labels.tolist()} == {one, other}

    ended = call(read)
    assert ended.code == 0 or len(ended.complaints) == 1, ended.err[-500:]


@pytest.mark.parametrize("cell", ["1_0", "\u0661\u0660", "\uff11"])
def test_numbers_that_only_python_takes_for_one_are_refused(cell, tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text(f"graph,source,target,weight\ng1,a,b,{cell}\n")
    assert_one_line(run("data", path))


@pytest.mark.parametrize("cell", ["1_0", "\u0661\u0660", "\uff11"])
def test_tasks_that_only_python_takes_for_numbers_are_refused(cell, tmp_path):
    pytest.importorskip("rdkit")
    path = tmp_path / "table.csv"
    path.write_text(f"smiles,y\nCCO,{cell}\nCCN,1\n")
    assert_one_line(run("data", path, "--task", "y"))


REPEATED = [
    '{"edges": [[0, 1]], "num_nodes": 2, "label": 0, "label": 1}',
    '{"edges": [[0, 1]], "edges": [], "num_nodes": 2}',
    '{"edges": [[0, 1]], "num_nodes": 2, "num_nodes": 5}',
]


@pytest.mark.parametrize("line", REPEATED)
def test_repeated_keys_of_a_graph_are_refused(line, tmp_path):
    (tmp_path / "graphs.jsonl").write_text(f"{line}\n{line}\n")
    assert_one_line(run("data", "graphs.jsonl"))


@pytest.mark.parametrize(
    ("file", "key"), [("run.json", '"num_graphs": '), ("run.json", '"finished": '), ("finetune.json", '"kind": ')]
)
def test_repeated_keys_of_a_run_are_refused(file, key, tuned, graphs, tmp_path):
    shutil.copytree(tuned, tmp_path / "tuned")
    path = tmp_path / "tuned" / file
    text = path.read_text()
    value = text.split(key, 1)[1].split(",", 1)[0].split("\n", 1)[0]
    path.write_text(text.replace(key, f"{key}{value},\n {key}", 1))
    assert json.loads(path.read_text()) == json.loads(text)
    assert_one_line(run("predict", "tuned", graphs, "--out", "out.csv"))


def test_repeated_keys_of_a_store_are_refused(store, tmp_path):
    shutil.copytree(store, tmp_path / "store")
    path = tmp_path / "store" / "index.json"
    path.write_text(path.read_text().replace('"name": ', '"name": "other",\n "name": ', 1))
    assert_one_line(run("data", "store"))


def test_two_folders_in_one_archive_are_refused(tmp_path):
    path = write_tu(tmp_path / "TINY.zip", folder="one/")
    write_tu(path, folder="other/", A="1, 2\n2, 1\n", graph_indicator="1\n1\n2\n2\n")
    assert_one_line(run("data", path))


def test_one_file_twice_in_one_archive_is_refused(tmp_path):
    path = write_tu(tmp_path / "TINY.zip")
    with pytest.warns(UserWarning, match="TINY"):
        write_tu(path, A="1, 2\n2, 1\n")
    assert_one_line(run("data", path))


def test_files_of_one_data_set_are_in_one_folder(tmp_path):
    """Labels of another folder are not those of the graphs."""
    path = write_tu(tmp_path / "TINY.zip", folder="one/")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/TINY_graph_labels.txt", "0\n1\n")

    def read():
        assert joao.read(path).classes is None

    ended = call(read)
    assert ended.code == 0 or len(ended.complaints) == 1, ended.err[-500:]


TABLES = {
    "too much": lambda table: [[2 * value for value in row] for row in table],
    "nothing": lambda table: [[0.0 for _ in row] for row in table],
    "negative": lambda table: [[-0.5, table[0][1] + 0.5 + table[0][0], *table[0][2:]], *table[1:]],
    "large": lambda table: [[1e300 for _ in row] for row in table],
}


@pytest.mark.parametrize("how", TABLES)
def test_a_table_of_pairs_that_is_no_distribution_is_refused(how, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1]["probabilities"] = TABLES[how](lines[-1]["probabilities"])
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert_one_line(run("report", "run", "--out", "out.html"))
    assert_one_line(run("export", "run", "--out", "model.safetensors"))
    assert_one_line(call(lambda: repr(joao.load(tmp_path / "run", device="cpu").policy_)))


@pytest.mark.parametrize("new", [-1, 0.5, 1e300])
def test_pairs_that_were_drawn_are_counts(new, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1]["drawn"][0][0] = new
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert_one_line(run("report", "run", "--out", "out.html"))
