"""Files that say two things, or what cannot be kept exactly, are refused, or their values stay different."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

import joao
from joao.core.errors import UserError
from tests.data.refusals import refused


def write_tu(path, folder="", **parts):
    """Two graphs of two nodes as a zip file in the TU layout, with further files."""
    texts = {"A": "1, 2\n2, 1\n3, 4\n4, 3\n", "graph_indicator": "1\n1\n2\n2\n", **parts}
    with zipfile.ZipFile(path, "a") as archive:
        for part, text in texts.items():
            archive.writestr(f"{folder}TINY_{part}.txt", text)
    return path


@pytest.mark.parametrize("first", [1 << 63, 1 << 64, -(1 << 64), 10**18 * 9 + (1 << 62)])
@pytest.mark.parametrize("part", ["node_labels", "edge_labels"])
def test_labels_beyond_64_bits_are_refused(part, first, tmp_path):
    path = write_tu(tmp_path / "TINY.zip", **{part: "".join(f"{first + number}\n" for number in range(4))})
    with refused("TINY.zip", f"TINY_{part}.txt", 1):
        joao.read(path)


def test_largest_labels_stay_different(tmp_path):
    """Numbers near the limit are exact: no float is involved."""
    numbers = [(1 << 63) - 2 - number for number in range(2)] + [-(1 << 63) + 1 + number for number in range(2)]
    path = write_tu(tmp_path / "TINY.zip", node_labels="".join(f"{number}\n" for number in numbers))
    assert joao.read(path).node_labels.ravel().tolist() == numbers


ALIKE = [("1_0", "10"), ("\u0661\u0660", "10"), ("\uff11\uff10", "10"), ("010", "10"), ("+10", "10"), ("-0", "0")]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_different_texts_are_different_classes(one, other, tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text(f"graph,source,target,label\ng1,a,b,{one}\ng2,a,b,{other}\n")
    assert {*joao.read(path).labels.tolist()} == {one, other}


def test_integer_classes_are_sorted_by_number(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("graph,source,target,label\n" + "".join(f"g{n},a,b,{n}\n" for n in (10, -3, 2)))
    assert joao.read(path).class_names == ("-3", "2", "10")


@pytest.mark.parametrize("cell", ["1_0", "\u0661\u0660", "\uff11"])
def test_numbers_that_only_python_accepts_are_refused(cell, tmp_path):
    (tmp_path / "edges.csv").write_text(f"graph,source,target,weight\ng1,a,b,{cell}\n")
    with refused("edges.csv", "'weight'", cell):
        joao.read(tmp_path / "edges.csv")
    pytest.importorskip("rdkit")
    (tmp_path / "table.csv").write_text(f"smiles,y\nCCO,{cell}\nCCN,1\n")
    with refused("table.csv", "'y'", cell):
        joao.read(tmp_path / "table.csv", tasks=["y"])


def test_two_folders_in_an_archive_are_refused(tmp_path):
    path = write_tu(write_tu(tmp_path / "TINY.zip", "one/"), "other/", A="1, 2\n2, 1\n")
    with refused("TINY.zip", "one", "other"):
        joao.read(path)


def test_file_twice_in_an_archive_is_refused(tmp_path):
    path = write_tu(tmp_path / "TINY.zip")
    with pytest.warns(UserWarning, match="TINY"):
        write_tu(path, A="1, 2\n2, 1\n")
    with refused("TINY.zip"):
        joao.read(path)


def test_labels_of_another_folder_are_not_used(tmp_path):
    path = write_tu(tmp_path / "TINY.zip", "one/")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/TINY_graph_labels.txt", "0\n1\n")
        archive.writestr("__MACOSX/one/TINY_A.txt", "nothing")
    assert joao.read(path).classes is None


def test_memory_of_edge_labels_is_limited(tmp_path, monkeypatch):
    count, nodes = 20_000, 1_000
    pairs = np.arange(count)
    edges = "".join(f"{pair // nodes + 1}, {pair % nodes + 1}\n" for pair in pairs)
    parts = {"graph_indicator": "1\n" * nodes, "edge_labels": "".join(f"{pair % 900}\n" for pair in pairs)}
    path = write_tu(tmp_path / "TINY.zip", A=edges, **parts)
    assert joao.read(path).edge_attr.shape[1] == 900
    monkeypatch.setenv("JOAO_MEMORY", "1M")
    monkeypatch.setattr("joao.core.memory.GROWTH", 1)
    with refused("TINY.zip", 900, "JOAO_MEMORY=1G"):
        joao.read(path)


def test_memory_of_features_is_limited(monkeypatch):
    import networkx

    graph = networkx.path_graph(2_000)
    networkx.set_node_attributes(graph, {node: node for node in graph}, "label")
    assert joao.data.batch_of([graph]).x.shape == (2_000, 2_000)
    monkeypatch.setenv("JOAO_MEMORY", "50M")
    with pytest.raises(UserError, match=r"2000 .*JOAO_MEMORY"):
        joao.data.batch_of([graph])
