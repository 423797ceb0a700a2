"""Every reader makes the same graphs of the same careless description, and one line of every odd cell."""

import warnings

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from joao.core.errors import UserError
from joao.data import Dataset, read
from joao.data.validation import check_dataset
from tests.strategies import ODD_CELLS, as_edge_list, as_geometric, as_jsonl, as_networkx, as_tu, graph_lists

PER_TEST = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def tu(drawn, folder):
    (folder / "TINY").mkdir(exist_ok=True)
    for part, text in as_tu(drawn).items():
        (folder / f"TINY/TINY_{part}.txt").write_text(text)
    return folder / "TINY"


def written(name, text):
    def write(drawn, folder):
        (folder / name).write_text(text(drawn))
        return folder / name

    return write


def graphml(drawn, folder):
    place = folder / "graphs"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    for number, graph in enumerate(as_networkx(drawn)):
        nx.write_graphml(graph, place / f"{number}.graphml")
    return place


SOURCES = {
    "tu": tu,
    "jsonl": written("tiny.jsonl", as_jsonl),
    "edge list": written("tiny.csv", as_edge_list),
    "graphml": graphml,
    "networkx": lambda drawn, folder: as_networkx(drawn),
    "torch-geometric": lambda drawn, folder: as_geometric(drawn),
}
WITH_LABELS = ("tu", "jsonl", "graphml", "networkx")


@pytest.mark.parametrize("source", SOURCES)
def test_all_readers_return_the_same_graphs(source, tmp_path, neighbours):
    @PER_TEST
    @given(drawn=graph_lists())
    def holds(drawn):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what networkx says of its own types
            dataset = read(SOURCES[source](drawn, tmp_path))
        check_dataset(dataset)
        assert np.diff(dataset.first_node).tolist() == [each.size for each in drawn]
        assert [neighbours(dataset, number) for number in range(len(drawn))] == [each.neighbours for each in drawn]
        assert dataset.labels.tolist() == [str(each.label) for each in drawn]
        if source in WITH_LABELS:
            assert dataset.node_labels.ravel().tolist() == [label for each in drawn for label in each.labels]
        if source != "edge list":
            expected = np.array([row for each in drawn for row in each.attributes], dtype=np.float32)
            np.testing.assert_array_equal(dataset.node_attributes, expected)

    holds()


TU = {"A": "{}, 2\n", "graph_indicator": "1\n{}\n", "node_labels": "1\n{}\n", "node_attributes": "1, {}\n2, 3\n"}
JSON = (
    '{{"edges": [[0, {}]], "num_nodes": 2}}', '{{"edges": [], "num_nodes": {}}}', '{{"edges": {}, "num_nodes": 2}}',
    '{{"edges": [], "node_labels": [0, {}]}}', '{{"edges": [], "node_attributes": [[0], [{}]]}}',
    '{{"edges": [], "num_nodes": 1, "label": {}}}',
)  # fmt: skip


def outcome(path):
    try:
        dataset = read(path)
        assert isinstance(dataset, Dataset)
        check_dataset(dataset)
        return "read"
    except UserError as error:
        return "refused" if "\n" not in str(error) else "told in several lines"


@pytest.mark.parametrize("part", TU)
def test_unusual_values_in_tu_files(part, write_tu, tmp_path):
    whole = {"A": "1, 2\n", "graph_indicator": "1\n1\n"}
    found = {}
    for number, cell in enumerate(ODD_CELLS):
        folder = write_tu({**whole, part: TU[part].format(cell)}, under=tmp_path / str(number))
        found[cell] = outcome(folder)
    assert {*found.values()} <= {"read", "refused"}
    assert found["a"] == found["[]"] == "refused"
    assert found["0"] == ("refused" if part in ("A", "graph_indicator") else "read")


@pytest.mark.parametrize("line", JSON)
def test_unusual_values_in_json_lines(line, tmp_path):
    found = {}
    for cell in ODD_CELLS:
        (tmp_path / "a.jsonl").write_text(line.format(cell), encoding="utf-8")
        found[cell] = outcome(tmp_path / "a.jsonl")
    assert {*found.values()} <= {"read", "refused"}
    assert found["a"] == found["[" * 2000] == found["99999999999999999999999"] == "refused"


@pytest.mark.parametrize("column", ["graph", "source", "target", "weight", "label"])
def test_unusual_values_in_edge_lists(column, tmp_path):
    found = {}
    for cell in ODD_CELLS:
        row = {"graph": "g", "source": "a", "target": "b", "weight": "1", "label": "x", column: cell}
        (tmp_path / "a.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n", encoding="utf-8")
        found[cell] = outcome(tmp_path / "a.csv")
    assert {*found.values()} <= {"read", "refused"}
    assert found["1,2"] == "refused"
    assert found["a"] == ("refused" if column == "weight" else "read")
