"""Oracle: the statistics that the TU collection and the paper print, less self-loops for COLLAB."""

import os
import subprocess
import sys

import numpy as np
import pytest

from joao.data import read

ROOT = os.environ.get("JOAO_DATA")
needs_data = pytest.mark.skipif(ROOT is None, reason="JOAO_DATA is not set")

# name: average nodes and edges as printed, graphs of each class, columns of node labels and edge attributes
PUBLISHED = {
    "MUTAG": (17.93, 19.79, [63, 125], 7, 4),
    "PROTEINS": (39.06, 72.82, [663, 450], 3, 0),
    "DD": (284.32, 715.66, [691, 487], 82, 0),
    "NCI1": (29.87, 32.30, [2053, 2057], 37, 0),
    "COLLAB": (74.49, 2457.22, [2600, 775, 1625], 0, 0),
    "IMDB-BINARY": (19.77, 96.53, [500, 500], 0, 0),
    "REDDIT-BINARY": (429.63, 497.75, [1000, 1000], 0, 0),
    "REDDIT-MULTI-5K": (508.52, 594.87, [1000, 1000, 1000, 1000, 999], 0, 0),
}


LARGE = ("COLLAB", "REDDIT-BINARY", "REDDIT-MULTI-5K")


@needs_data
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in PUBLISHED])
def test_statistics_match_the_published_ones(name):
    nodes, edges, classes, node_labels, edge_attributes = PUBLISHED[name]
    dataset = read(name, root=ROOT)
    assert len(dataset) == sum(classes)
    assert round(dataset.num_nodes / len(dataset), 2) == pytest.approx(nodes)
    assert round(dataset.num_edges / len(dataset), 2) == pytest.approx(edges)
    assert np.bincount(dataset.classes).tolist() == classes
    found_labels = 0 if dataset.node_labels is None else len(np.unique(dataset.node_labels))
    found_attributes = 0 if dataset.edge_attr is None else dataset.edge_attr.shape[1]
    assert (found_labels, found_attributes) == (node_labels, edge_attributes)
    assert dataset.notices == ()


def test_bundled_data_set_has_the_published_statistics():
    dataset = read("MUTAG")
    assert np.bincount(dataset.classes).tolist() == [63, 125]
    assert round(dataset.num_edges / len(dataset), 2) == 19.79


@needs_data
def test_bundled_data_set_equals_the_published_one():
    assert read("MUTAG").fingerprint == read("MUTAG", root=ROOT).fingerprint == "3a8b7e5ef5e9791b"  # as in all records


@needs_data
@pytest.mark.slow
def test_largest_data_set_needs_little_memory():
    # Not ru_maxrss: a new process inherits that of the one that started it.
    program = (
        "import sys; from pathlib import Path; from joao.data import read; read('COLLAB', root=sys.argv[1]);"
        "sys.stdout.write(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    answer = subprocess.run([sys.executable, "-c", program, ROOT], capture_output=True, text=True, check=True)
    assert 1e8 < int(answer.stdout) * 1024 < 1.5e9
