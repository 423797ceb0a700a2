"""Whatever happens to a file, reading it ends in graphs or in one line for the user."""

import gzip
import json
import zipfile

import networkx as nx
import numpy as np
import pytest

from joao.core.errors import UserError
from joao.data import Dataset, read


def tu_zip(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("some_A.txt", "1, 2\n2, 1\n3, 4\n4, 3\n")
        archive.writestr("some_graph_indicator.txt", "1\n1\n2\n2\n")
        archive.writestr("some_node_attributes.txt", "1.5, 2\n-1e3, 4\n5, 6\n7, 8\n")


def graphml(path):
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, 1.5, "size")
    nx.write_graphml(graph, path)


def edge_list(path):
    path.write_text("graph,source,target,weight,label\n1,a,b,2.5,x\n1,b,c,1,x\n2,a,,,y\n")


def edge_list_gz(path):
    path.write_bytes(gzip.compress(b"graph,source,target\n1,a,b\n1,b,c\n2,a,\n"))


def jsonl(path):
    graph = {"edges": [[0, 1]], "node_labels": ["C", "O"], "node_attributes": [[1, 2.5], [3, 4]], "label": 1}
    path.write_text(f"{json.dumps(graph)}\n" * 2)


@pytest.mark.filterwarnings("ignore::UserWarning")  # networkx's about odd types in GraphML
@pytest.mark.parametrize(
    ("write", "suffix"),
    [(tu_zip, "zip"), (graphml, "graphml"), (edge_list, "csv"), (edge_list_gz, "csv.gz"), (jsonl, "jsonl")],
)
def test_damaged_bytes_raise_only_user_errors(tmp_path, write, suffix):
    random = np.random.default_rng(0)
    path = tmp_path / f"some.{suffix}"
    write(path)
    whole = path.read_bytes()
    assert isinstance(read(path), Dataset)
    refusals = []
    for _ in range(150):
        content = bytearray(whole[: random.integers(len(whole) // 2, len(whole) + 1)])
        for position in random.integers(len(content), size=random.integers(1, 5)):
            content[position] = random.choice([random.integers(256), *b'0,\n"-.<{[ '])
        path.write_bytes(content)
        try:
            assert isinstance(read(path), Dataset)
        except UserError as error:
            refusals.append(str(error))
    assert len(refusals) > 20
    assert [refusal for refusal in refusals if "\n" in refusal] == []
