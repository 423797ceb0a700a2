"""Oracle: networkx itself, asked for its nodes and edges."""

import networkx as nx
import numpy as np
import pytest
from torch_geometric.data import Data

from joao.data import read
from joao.data.formats import graphml
from tests.data.refusals import assert_told, refused


def coloured(graph, **fields):
    for position, node in enumerate(graph.nodes):
        graph.nodes[node].update(label="AB"[position % 2], size=position / 2, charge=position)
    nx.set_edge_attributes(graph, 2.5, "weight")
    graph.graph.update(fields)
    return graph


def test_graphs_with_labels_attributes_weights_and_classes(neighbours):
    graphs = [coloured(nx.cycle_graph("pqrs"), y=1), coloured(nx.star_graph(4), y=0), coloured(nx.empty_graph(2), y=1)]
    dataset = read(graphs)
    for index, graph in enumerate(graphs):
        position = {node: number for number, node in enumerate(graph.nodes)}
        edges = {(position[s], position[t]) for s, t in graph.edges}
        assert neighbours(dataset, index) == edges | {(t, s) for s, t in edges}
    assert dataset.node_labels.ravel().tolist() == [*"ABAB", *"ABABA", *"AB"]
    # in the order of the names: charge, size
    assert dataset.node_attributes[:4].tolist() == [[0, 0], [1, 0.5], [2, 1], [3, 1.5]]
    assert np.unique(dataset.edge_attr).tolist() == [2.5]
    assert dataset.edge_attr.shape == (16, 1)
    assert (dataset.classes.tolist(), dataset.notices) == ([1, 0, 1], ())


def test_x_may_be_a_list_and_the_class_may_be_named_label():
    graph = nx.path_graph(2, create_using=nx.Graph)
    graph.nodes[0]["x"], graph.nodes[1]["x"] = [1, 2.5], np.array([3, 4])
    graph.graph["label"] = "ring"
    dataset = read([graph])
    assert dataset.node_attributes.tolist() == [[1, 2.5], [3, 4]]
    assert dataset.class_names == ("ring",)


def test_directed_graphs_give_a_notice_and_symmetric_ones_do_not():
    [notice] = read([nx.path_graph(3, create_using=nx.DiGraph)]).notices
    assert_told(notice, "graphs", 2)
    assert read([nx.path_graph(3).to_directed(), nx.path_graph(2)]).notices == ()


def test_parallel_edges_are_merged(neighbours):
    graph = nx.MultiGraph([(0, 1, {"weight": 1}), (0, 1, {"weight": 2}), (1, 1, {"weight": 3})])
    dataset = read([graph])
    assert neighbours(dataset, 0) == {(0, 1), (1, 0)}
    assert dataset.edge_attr.ravel().tolist() == [1, 1]


def test_text_attributes_are_omitted_with_a_notice():
    graph = nx.path_graph(2)
    graph.nodes[0]["name"] = "first"
    graph.edges[0, 1]["kind"] = "single"
    dataset = read([graph])
    assert (dataset.node_attributes, dataset.edge_attr) == (None, None)
    of_nodes, of_edges = dataset.notices
    assert_told(of_nodes, "graphs", "node attributes", "name")
    assert_told(of_edges, "graphs", "edge attributes", "kind")


def with_node(**data):
    graph = nx.path_graph(2)
    graph.nodes[1].update(data)
    return graph


@pytest.mark.parametrize(
    ("graphs", "values"),
    [
        ([with_node(size=1)], ("graphs[0]", 0, 0, "'size'")),
        ([coloured(nx.path_graph(2)), nx.path_graph(2)], ("graphs[1]", 0, "'label'")),
        ([with_node(label=1.5)], ("graphs[0]", 0, 0, "'label'")),
        ([nx.Graph([(0, 1, {"weight": 1}), (1, 2)])], ("graphs[0]", "(1, 2)", "'weight'")),
        ([nx.Graph([(0, 1, {"weight": 1}), (1, 2, {"weight": "a"})])], ("graphs[0]", "(1, 2)", "'weight'", "'a'")),
        ([nx.Graph([(0, 1, {"weight": 10**400})])], ("graphs", "edge attribute", 0, 0, "inf")),
        ([nx.Graph()], ("graphs", 0)),
        (nx.path_graph(3), ("Graph", "[graph]")),
        ([nx.path_graph(3), Data(num_nodes=1)], ("graphs[1]", "Data", "graphs[0]", "Graph")),
        ([nx.Graph([(0, 1)], y=[1, 2])], ("graphs[0]", "label", "[1, 2]")),
    ],
)
def test_invalid_graphs_are_rejected(graphs, values):
    with refused(*values):
        read(graphs)


@pytest.mark.parametrize(("labels", "values"), [([1.5, 1], (0, 0, "'label'", "1.5")), ([1, "C"], (0, 1, "'C'", 1))])
def test_invalid_node_labels_are_rejected(labels, values):
    graph = nx.path_graph(2)
    nx.set_node_attributes(graph, dict(enumerate(labels)), "label")
    with refused("graphs[0]", *values):
        read([graph])


def test_graphml_written_by_networkx_round_trips(tmp_path):
    graphs = [coloured(nx.cycle_graph(5), y=1), coloured(nx.path_graph(3), y=0)]
    folder = tmp_path / "many"
    folder.mkdir()
    for name, graph in zip(("a", "b"), graphs, strict=True):
        nx.write_graphml(graph, folder / f"{name}.graphml")
    expected, found = read(graphs), read(folder)
    assert found.fingerprint == expected.fingerprint
    assert (found.classes.tolist(), found.name) == ([1, 0], "many")
    assert read(str(folder / "b.graphml")).fingerprint == read(graphs[1:]).fingerprint


GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="w" for="edge" attr.name="weight" attr.type="double"><default>1.5</default></key>
<graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="c"/>
<edge source="a" target="b"/><edge source="b" target="c"><data key="w">3</data></edge></graph>
<graph edgedefault="undirected"><node id="a"/></graph></graphml>"""


def test_graphml_defaults_apply_and_all_graphs_of_a_file_are_read(tmp_path):
    (tmp_path / "two.graphml").write_text(GRAPHML)
    dataset = read(tmp_path / "two.graphml")
    assert np.diff(dataset.first_node).tolist() == [3, 1]
    assert dataset.edge_attr.ravel().tolist() == [1.5, 1.5, 3, 3]


@pytest.mark.parametrize("content", [b"", b"\x00\xff junk", b"<html></html>", GRAPHML[:200].encode(), b"<graphml/>"])
def test_file_that_is_not_graphml_is_rejected(tmp_path, content):
    (tmp_path / "odd.graphml").write_bytes(content)
    with refused("odd.graphml", "GraphML"):
        read(tmp_path / "odd.graphml")


def test_error_names_its_file_once(tmp_path):
    (tmp_path / "odd.graphml").write_text('<!DOCTYPE graphml [<!ENTITY a "b">]><graphml/>')
    with refused(str(tmp_path / "odd.graphml"), "XML") as told:
        read(tmp_path / "odd.graphml")
    assert str(told.value).count("odd.graphml") == 1


def test_length_of_tags_is_limited_and_of_text_is_not(tmp_path, monkeypatch):
    begin, end = GRAPHML.split("<edge source", 1)
    (tmp_path / "text.graphml").write_text(GRAPHML.replace(">3<", f">{' ' * 3_000_000}3<"))
    monkeypatch.setattr(graphml, "MAX_TAG_BYTES", 1 << 20)
    assert read(tmp_path / "text.graphml").edge_attr.ravel().tolist() == [1.5, 1.5, 3, 3]
    for name, tag in (("node", f'<node id="{"a" * 3_000_000}"/>'), ("comment", f"<!--{'a' * 3_000_000}-->")):
        (tmp_path / f"{name}.graphml").write_text(f"{begin}{tag}<edge source{end}")
        with refused(f"{name}.graphml", 1):
            read(tmp_path / f"{name}.graphml")
