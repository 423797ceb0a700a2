"""Graphs and files at the edges of what is possible, drawn by hypothesis, for any test of the suite.

A drawn graph is as careless as files are: loops, repeats, one direction or both, nodes without an edge, hubs.
"""

import json
from dataclasses import dataclass

import networkx as nx
import torch
from hypothesis import strategies as st
from torch_geometric.data import Data

# What stands in files where a number should: too large for a type, none at all, or no text.
ODD_CELLS = (
    "", " ", "-1", "0", "1.5", "1e400", "-1e400", "nan", "inf", "NaN", "2147483648", "4294967296",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "99999999999999999999999",
    "1_0", "0x10", "٣", "\x00", "1;2", "a", "1,2", '"', "true", "null", "[]", "{}", "1e-400", "\ufeff1", "[" * 2000,
)  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A graph as somebody might write it: edges in any form; ``labels`` and ``attributes`` a row a node."""

    size: int
    edges: tuple[tuple[int, int], ...]
    labels: tuple[int, ...]
    attributes: tuple[tuple[float, ...], ...]
    label: int

    @property
    def neighbours(self):
        """What a reader must make of it: both directions of every edge once, no loops."""
        return {(u, v) for a, b in self.edges if a != b for u, v in ((a, b), (b, a))}


@st.composite
def graphs(draw, most_nodes=7, columns=2):
    """One graph; every other one has a shape with a name."""
    size = draw(st.integers(1, most_nodes))
    node = st.integers(0, size - 1)
    shape = draw(st.sampled_from(["any", "any", "any", "edgeless", "hub", "complete", "loops", "repeats", "one way"]))
    edges = draw(st.lists(st.tuples(node, node), max_size=3 * size))
    if shape == "edgeless":
        edges = []
    elif shape == "hub":
        centre = draw(node)
        edges = [(centre, other) for other in range(size) if other != centre]
    elif shape == "complete":
        edges = [(u, v) for u in range(size) for v in range(size)]
    elif shape == "loops":
        edges = [(v, v) for v in range(size)]
    elif shape == "repeats":
        edges = [*edges, *edges, *((v, u) for u, v in edges)]
    elif shape == "one way":
        edges = [(min(pair), max(pair)) for pair in edges]
    number = st.floats(-(2**20), 2**20, width=32, allow_subnormal=False)
    rows = st.tuples(*[number] * columns)
    return Drawn(
        size,
        tuple(edges),
        tuple(draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))),
        tuple(draw(st.lists(rows, min_size=size, max_size=size))),
        draw(st.integers(-2, 2)),
    )


def graph_lists(**options):
    """A few graphs, of which at least one is there."""
    return st.lists(graphs(**options), min_size=1, max_size=4)


def shapes(**options):
    """Numbers of nodes and undirected edges of a few graphs, as the fixture ``make_batch`` takes them."""

    def plain(drawn):
        return [(each.size, sorted({(min(pair), max(pair)) for pair in each.neighbours})) for each in drawn]

    return graph_lists(**options).map(plain)


def as_tu(drawn):
    """The parts of a TU data set, by the ends of their names."""
    before = [sum(each.size for each in drawn[:number]) for number in range(len(drawn))]
    pairs = [(u + first + 1, v + first + 1) for first, each in zip(before, drawn, strict=True) for u, v in each.edges]
    return {
        "A": "".join(f"{u}, {v}\n" for u, v in pairs),
        "graph_indicator": "".join(f"{number}\n" * each.size for number, each in enumerate(drawn, 1)),
        "graph_labels": "".join(f"{each.label}\n" for each in drawn),
        "node_labels": "".join(f"{label}\n" for each in drawn for label in each.labels),
        "node_attributes": "".join(f"{', '.join(map(repr, row))}\n" for each in drawn for row in each.attributes),
    }


def as_jsonl(drawn):
    """A line a graph."""
    lines = (
        {
            "edges": each.edges,
            "num_nodes": each.size,
            "node_labels": each.labels,
            "node_attributes": each.attributes,
            "label": each.label,
        }
        for each in drawn
    )
    return "".join(json.dumps(line) + "\n" for line in lines)


def as_edge_list(drawn):
    """A row an edge, nodes with names that are no running numbers; every node is declared first, to keep the order."""
    rows = ["graph,source,target,label"]
    for number, each in enumerate(drawn):
        rows += [f"g{number},n{7 * node - 3},,{each.label}" for node in range(each.size)]
        rows += [f"g{number},n{7 * u - 3},n{7 * v - 3}," for u, v in each.edges]
    return "\n".join(rows)


def as_networkx(drawn):
    """Directed graphs with parallel edges."""
    found = []
    for each in drawn:
        graph = nx.MultiDiGraph(label=each.label)
        for node in range(each.size):
            values = dict(zip("ab", each.attributes[node], strict=True))
            graph.add_node(f"n{7 * node}", label=each.labels[node], **values)
        graph.add_edges_from((f"n{7 * u}", f"n{7 * v}") for u, v in each.edges)
        found.append(graph)
    return found


def as_geometric(drawn):
    """``Data`` with real features."""
    return [
        Data(
            edge_index=torch.tensor(each.edges, dtype=torch.long).reshape(-1, 2).T,
            x=torch.tensor(each.attributes),
            y=torch.tensor([each.label]),
        )
        for each in drawn
    ]
