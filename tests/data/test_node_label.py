"""A text attribute of nodes as their category, and the progress of reading."""

import contextlib

import networkx as nx
import pytest

import joao
from joao.cli import main
from tests.messages import assert_mentions, refused


def routers(count=5):
    graphs = [nx.path_graph(size) for size in range(3, 3 + count)]
    for graph in graphs:
        nx.set_node_attributes(graph, {node: ("router", "switch")[node % 2] for node in graph}, "kind")
        nx.set_node_attributes(graph, {node: f"host{node}" for node in graph}, "name")
    return graphs


def test_the_notice_offers_the_attribute_with_the_fewest_values():
    (notice,) = joao.read(routers()).notices
    assert_mentions(notice, "kind", "name", "node_label='kind'", "--node-label", "2 values")


def test_an_attribute_without_repeated_values_is_not_offered():
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {node: f"host{node}" for node in graph}, "name")
    (notice,) = joao.read([graph]).notices
    assert "node_label" not in notice


@pytest.mark.parametrize("as_files", [False, True])
def test_the_attribute_becomes_the_node_label(as_files, tmp_path):
    graphs = routers()
    for number, graph in enumerate(graphs):
        nx.write_graphml(graph, tmp_path / f"{number}.graphml")
    dataset = joao.read(tmp_path if as_files else graphs, node_label="kind")
    expected = [("router", "switch")[node % 2] for graph in graphs for node in graph]
    assert dataset.node_labels.ravel().tolist() == expected
    (notice,) = dataset.notices
    assert "node_label" not in notice


@pytest.mark.parametrize("source", [[nx.path_graph(3)], "MUTAG"])
def test_label_that_does_not_exist(source):
    with refused("kind" if source != "MUTAG" else "TU"):
        joao.read(source, node_label="kind")


def test_the_command_line_packs_with_the_label(tmp_path, monkeypatch):
    (tmp_path / "nets").mkdir()
    for number, graph in enumerate(routers()):
        nx.write_graphml(graph, tmp_path / "nets" / f"{number}.graphml")
    for out in ("one.safetensors", "shards"):
        words = ["joao", "pack", str(tmp_path / "nets"), "--out", str(tmp_path / out), "--node-label", "kind"]
        monkeypatch.setattr("sys.argv", words)
        with contextlib.suppress(SystemExit):
            main.run(main.app, "joao")
        assert joao.read(tmp_path / out).label_values == (("router", "switch"),)


@pytest.mark.parametrize("count", [1001, 2500])
def test_rows_are_reported(count, tmp_path):
    (tmp_path / "g.jsonl").write_text('{"edges": [[0, 1]], "num_nodes": 2}\n' * count)
    seen = []
    joao.read(tmp_path / "g.jsonl", on_rows=lambda done, total: seen.append((done, total)))
    assert sum(done for done, _ in seen) == count
    assert {total for _, total in seen} == {count}
    assert len(seen) == -(-count // 1000)
