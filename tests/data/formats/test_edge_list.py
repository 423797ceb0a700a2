"""Oracle: the small tables here, read by eye."""

import gzip

import numpy as np
import pytest

from joao.data import read
from tests.data.refusals import refused

MOLECULES = """graph,source,target,weight,length,label
water,O,H1,0.5,1,polar
water,O,H2,0.75,2,polar
argon,Ar,,,,inert
water,H1,O,9,9,
ring,a,b,1,1,polar
ring,b,c,1,1,polar
ring,c,a,1,1,polar
ring,d,,,,polar
"""


@pytest.fixture
def write(tmp_path):
    def to(text, name="bonds.csv"):
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return tmp_path / name

    return to


@pytest.mark.parametrize("name", ["bonds.csv", "bonds.csv.gz"])
def test_table_of_edges(write, neighbours, name):
    dataset = read(write(MOLECULES, name))
    assert (dataset.name, len(dataset), dataset.notices) == ("bonds", 3, ())
    assert np.diff(dataset.first_node).tolist() == [3, 1, 4]
    assert neighbours(dataset, 0) == {(0, 1), (1, 0), (0, 2), (2, 0)}
    assert neighbours(dataset, 1) == set()
    assert neighbours(dataset, 2) == {(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)}
    # sorted by target then source: 1>0 (listed with 9), 2>0, 0>1, 0>2
    assert dataset.edge_attr[:4].tolist() == [[9, 9], [0.75, 2], [0.5, 1], [0.75, 2]]
    assert (dataset.classes.tolist(), dataset.class_names) == ([1, 0, 1], ("inert", "polar"))


def test_minimal_table_with_any_column_order_spaces_and_byte_order_mark(write, neighbours):
    dataset = read(write("\ufefftarget, source ,graph\r\nb,a,1\r\n\r\n c ,b,1\r\n"))
    assert neighbours(dataset, 0) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert (dataset.edge_attr, dataset.classes) == (None, None)


def test_numeric_labels_are_sorted_as_numbers(write):
    dataset = read(write("graph,source,target,label\na,1,2,10\nb,1,2,9\n"))
    assert (dataset.class_names, dataset.classes.tolist()) == (("9", "10"), [1, 0])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", ("bonds.csv", 1, "smiles", "--smiles", "graph, source, target")),
        ("graph,from,target\n1,2,3\n", ("bonds.csv", 1, "'source'", "graph, from, target")),
        ("graph,source,target\n", ("bonds",)),
        ("graph,source,target,graph\n1,2,3,4\n", ("bonds.csv", 1, "'graph'")),
        ("graph,source,target\n1,2,3\n1,2\n", ("bonds.csv", 3, 2, 3)),
        ("graph,source,target\n,2,3\n", ("bonds.csv", 2, "'graph'")),
        ("graph,source,target\n1,,3\n", ("bonds.csv", 2, "'source'")),
        ("graph,source,target,weight\n1,2,3,heavy\n", ("bonds.csv", 2, "'weight'", "'heavy'")),
        ("graph,source,target,weight\n1,2,3,nan\n", ("bonds.csv", 2, "'weight'", "'nan'")),
        ("graph,source,target,weight\n1,2,3,\n", ("bonds.csv", 2, "'weight'", "''")),
        ("graph,source,target,label\n1,2,3,a\n1,2,4,b\n", ("bonds.csv", 3, "'1'", "'b'", "'a'")),
        ('graph,source,target\n1,"2"x,3\n', ("bonds.csv", 2, "','")),
        (b"graph,source,target\n1,2,\xff\xfe\n", ("bonds.csv", 2, "UTF-8", "0xff")),
        (b"\x89PNG\r\n\x1a\n\x00\x00", ("bonds.csv", 1, "UTF-8", "0x89")),
    ],
)
def test_errors_name_the_line(write, text, values):
    with refused(*values):
        read(write(text))


@pytest.mark.parametrize("damage", [lambda whole: whole[:-12], lambda whole: b"plain text"])
def test_damaged_gzip_file_is_rejected(tmp_path, damage):
    (tmp_path / "bonds.csv.gz").write_bytes(damage(gzip.compress(MOLECULES.encode())))
    with refused("bonds.csv.gz"):
        read(tmp_path / "bonds.csv.gz")


def test_graphs_keep_their_names_in_order_of_first_occurrence(tmp_path):
    path = tmp_path / "named.csv"
    path.write_text("graph,source,target\nmolB,a,b\nmolA,a,b\nmolB,b,c\n")
    dataset = read(str(path))
    assert dataset.graph_names == ("molB", "molA")
    assert dataset.subset(np.array([1])).graph_names == ("molA",)
    assert repr(dataset) == "Dataset('named', 2 graphs, 5 nodes, 3 edges)"
