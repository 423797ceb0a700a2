"""Oracle: a reader of a few lines that loops over the text, after the description of the layout."""

import io

import numpy as np
import pytest

from joao.data.formats import text as _numbers
from joao.data.formats.text import read_numbers
from joao.data.formats.tu import is_tu, read_tu
from tests.data.refusals import assert_told, refused

# Graphs 1, 4 and 6 have no edges; graph 3 has an isolated node; one line is repeated, one is a loop.
TINY = {
    "A": "2, 3\n3, 2\n4,5\n5, 4\n4,  6\n6,4\n4,5\n6,6\n10, 11\n11,10\n",
    "graph_indicator": "1\n2\n2\n3\n3\n3\n3\n4\n4\n5\n5\n6\n",
    "graph_labels": "-1\n1\n1\n-1\n1\n-1\n",
    "node_labels": "".join(f"{node % 3}, {node % 2 + 5}\n" for node in range(12)),
    "node_attributes": "".join(f" {node / 4:.3f},{-node}e-1\n" for node in range(12)),
    "edge_labels": "".join(f"{line % 3 - 1}\n" for line in range(10)),
    "edge_attributes": "".join(f"{line}.5, {line * line}\n" for line in range(10)),
}


def naive(parts):
    """For each graph: node rows, and edges with their rows; the first of repeated lines counts."""

    def table(part):
        return [[float(cell) for cell in line.split(",")] for line in parts[part].split("\n") if line]

    graph_of_node = [int(row[0]) for row in table("graph_indicator")]
    graphs = [{"labels": [], "attributes": [], "edges": {}} for _ in range(max(graph_of_node))]
    position = []
    for node, graph in enumerate(graph_of_node):
        position.append(len(graphs[graph - 1]["labels"]))
        graphs[graph - 1]["labels"].append(table("node_labels")[node])
        graphs[graph - 1]["attributes"].append(table("node_attributes")[node])
    edge_labels = sorted({row[0] for row in table("edge_labels")})
    for line, (source, target) in enumerate(table("A")):
        one_hot = [float(table("edge_labels")[line][0] == label) for label in edge_labels]
        if source != target:
            edges = graphs[graph_of_node[int(source) - 1] - 1]["edges"]
            key = position[int(target) - 1], position[int(source) - 1]
            edges.setdefault(key, table("edge_attributes")[line] + one_hot)
    return graphs


def assert_same(dataset, graphs):
    assert len(dataset) == len(graphs)
    for index, graph in enumerate(graphs):
        nodes = slice(*dataset.first_node[index : index + 2])
        edges = slice(*dataset.first_edge[index : index + 2])
        assert dataset.node_labels[nodes].tolist() == graph["labels"]
        np.testing.assert_allclose(dataset.node_attributes[nodes], graph["attributes"], rtol=1e-6)
        keys = list(zip(dataset.target[edges].tolist(), dataset.source[edges].tolist(), strict=True))
        assert keys == sorted(graph["edges"])
        assert dataset.edge_attr[edges].tolist() == [graph["edges"][key] for key in keys]


@pytest.mark.parametrize("kind", ["folder", "zip", "flat zip"])
def test_data_set_matches_a_plain_loop(write_tu, kind):
    dataset = read_tu(write_tu(TINY, kind))
    assert_same(dataset, naive(TINY))
    assert dataset.name == "TINY"
    assert dataset.class_names == ("-1", "1")
    assert dataset.classes.tolist() == [0, 1, 1, 0, 1, 0]
    assert np.diff(dataset.first_edge).tolist() == [0, 2, 4, 0, 2, 0]


@pytest.mark.parametrize("size", [3, 8, 20, 64])
def test_reading_in_pieces_changes_nothing(write_tu, monkeypatch, size):
    monkeypatch.setattr(_numbers, "_CHUNK_BYTES", size)
    assert_same(read_tu(write_tu(TINY)), naive(TINY))


def test_scattered_nodes_are_sorted_with_their_rows(write_tu):
    parts = TINY | {"graph_indicator": "2\n1\n1\n3\n3\n3\n2\n6\n5\n4\n4\n3\n"}
    assert_same(read_tu(write_tu(parts)), naive(parts))


def test_line_endings_trailing_blank_lines_and_byte_order_mark_are_ignored(write_tu):
    parts = {part: text.replace("\n", " \r\n") + "\n\n" for part, text in TINY.items()}
    parts["A"] = "\ufeff" + parts["A"]
    assert_same(read_tu(write_tu(parts)), naive(TINY))


@pytest.mark.parametrize("labels", ["1\n2\n", "0\n1\n", "-1\n1\n", "7\n12\n"])
def test_class_values_may_start_anywhere(write_tu, labels):
    dataset = read_tu(write_tu({"A": "1,2\n2,1", "graph_indicator": "1\n1\n2\n", "graph_labels": labels}))
    assert dataset.classes.tolist() == [0, 1]
    assert dataset.class_names == tuple(labels.split())


def test_missing_parts_are_none(write_tu):
    dataset = read_tu(write_tu({"A": "1,2\n2,1\n", "graph_indicator": "1\n1\n2\n"}))
    assert len(dataset) == 2
    found = dataset.node_labels, dataset.node_attributes, dataset.edge_attr, dataset.classes, dataset.notices
    assert found == (None, None, None, None, ())


@pytest.mark.parametrize("labels", ["0.5\n1\n", "1,2\n3,4\n", "nan\n1\n", "inf\n1\n"])
def test_targets_that_are_not_classes_are_omitted_with_a_notice(write_tu, labels):
    dataset = read_tu(write_tu({"A": "1,2\n2,1", "graph_indicator": "1\n1\n2\n", "graph_labels": labels}))
    assert dataset.classes is None
    [notice] = dataset.notices
    assert_told(notice, "TINY", "labels")


def test_empty_edge_file_gives_no_edges_and_a_notice(write_tu):
    dataset = read_tu(write_tu({"A": "\n", "graph_indicator": "1\n2\n", "edge_labels": ""}))
    assert (dataset.num_edges, len(dataset), dataset.edge_attr) == (0, 2, None)
    [notice] = dataset.notices
    assert_told(notice, "TINY_A.txt")


@pytest.mark.parametrize(
    ("part", "text", "values"),
    [
        ("A", "1,2\n3,\n", (2, "''")),
        ("A", "1,2\n3, \n4,5\n", (2, "''")),
        ("A", "1,2\n3\n", (2, 1, 2)),
        ("A", "1\n2,3,4\n", (1, 1, 2)),
        ("A", "1,2\n\n3,2\n", (2,)),
        ("A", "1,2\n3 2\n", (2, "'3 2'")),
        ("A", "1,2\n2,x\n", (2, "'x'")),
        ("A", "1,2\n2,1.5\n", (2, "'1.5'")),
        ("A", "2,3\n3,13\n", (2, 13, 1, 12)),
        ("A", "2,3\n0,2\n", (2, 0, 1, 12)),
        ("A", "2,3\n9999999999,2\n", (2, 9999999999, 1, 12)),
        ("A", "2,3\n3,4\n", (2, 3, 2, 4, 3)),
        ("A", b"\x00\xff\xfe\x80binary", (1, "binary")),
        ("graph_indicator", "", ()),
        ("graph_indicator", "1,1\n2,2\n", (2, 1)),
        ("graph_indicator", "1\n0\n", (2, 0, 1)),
        ("graph_indicator", "1\n7\n", (2, 7, 6)),
        ("graph_labels", "1\n1\n", ("TINY_graph_indicator.txt", 12, 6, 2)),
        ("graph_labels", "1\n" * 7, ("TINY", 6)),
        ("graph_labels", "", ("TINY_graph_indicator.txt", 12, 6, 0)),
        ("node_labels", "1\n2\n", (2, 12)),
        ("node_labels", "a\n", (1, "'a'")),
        ("node_attributes", "1.0\n" * 11 + "nan\n", ("TINY", "node attribute", 0, 11, "nan")),
        ("node_attributes", "1.0, 2\n3.0\n", (2, 1, 2)),
        ("edge_labels", "1\n" * 9, (9, 10)),
        ("edge_attributes", "", (0, 10)),
    ],
)
def test_errors_name_file_and_line(write_tu, part, text, values):
    path = write_tu(TINY | {part: text})
    place = () if any(str(value).startswith("TINY") for value in values) else (f"TINY_{part}.txt",)
    with refused(*place, *values):
        read_tu(path)


def test_error_far_down_names_its_line(write_tu, monkeypatch):
    monkeypatch.setattr(_numbers, "_CHUNK_BYTES", 64)
    with refused("TINY_A.txt", 90, 77):
        read_tu(write_tu(TINY | {"A": "2,3\n" * 89 + "3,77\n"}))
    with refused("here", 90, "'oops'"):
        read_numbers(io.BytesIO(b"1.5\n" * 89 + b"oops\n"), "here", np.float64)


def test_missing_indicator_and_huge_graph_number_are_rejected(write_tu):
    with refused("TINY_graph_indicator.txt"):
        read_tu(write_tu({"A": "1,2\n"}))
    with refused("WILD_graph_indicator.txt", 2, 900000000000, 2):
        read_tu(write_tu({"A": "1,1\n", "graph_indicator": "1\n900000000000\n"}, name="WILD"))


@pytest.mark.parametrize("damage", ["cut", "flip", "junk", "empty"])
def test_damaged_zip_file_is_rejected(write_tu, damage):
    path = write_tu(TINY, "zip")
    whole = path.read_bytes()
    middle = whole.index(b"TINY_A.txt") + 40
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "flip": whole[:middle] + bytes(byte ^ 255 for byte in whole[middle : middle + 20]) + whole[middle + 20 :],
            "junk": b"\x00\x01 not a zip",
            "empty": b"",
        }[damage]
    )
    with refused("TINY.zip"):
        read_tu(path)


def test_folder_name_selects_one_of_several_data_sets(write_tu, tmp_path):
    path = write_tu(TINY)
    (path / "OTHER_A.txt").write_text("1,2\n")
    assert len(read_tu(path)) == 6
    (tmp_path / "TINY").rename(tmp_path / "mixed")
    with refused("mixed", "NAME_A.txt", "OTHER, TINY"):
        read_tu(tmp_path / "mixed")


def test_holds_tu_inspects_the_content(write_tu, tmp_path):
    assert is_tu(write_tu(TINY))
    assert is_tu(write_tu(TINY, "zip"))
    (tmp_path / "other").mkdir()
    (tmp_path / "broken.zip").write_text("no zip")
    assert not is_tu(tmp_path / "other")
    assert not is_tu(tmp_path / "broken.zip")
    assert not is_tu(tmp_path / "absent")
