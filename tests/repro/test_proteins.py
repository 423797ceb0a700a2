"""Protein networks from files of the published layout, made here, and from no other pickle."""

import os

import numpy as np
import pytest
import torch
import torch_geometric.data.data as geometric

from joao.data.features import Features, make_store
from repro.proteins import FILE, read_ppi
from repro.protocols.transfer.score import read_proteins
from tests.data.packed_files import WIDE
from tests.data.refusals import refused
from tests.repro.protein_folders import ppi_tensors, write_ppi


class OldData:
    """How torch-geometric's ``Data`` was in 2019: all that it holds is in its ``__dict__``."""


OldData.__module__, OldData.__qualname__, OldData.__name__ = "torch_geometric.data.data", "Data", "Data"

# Nodes, undirected edges in the order of the file, species and centre of each graph.
GRAPHS = [(4, [(2, 0), (3, 1), (0, 3)], 9606, 2), (1, [], 3702, 0), (3, [(0, 1), (2, 1)], 9606, 1)]
FUNCTIONS = [[1, 0], [0, 0], [1, 1]]


def bits(graph, edge):
    return [float((graph + 3 * edge + k) % 2) for k in range(7)] + [0.0, 0.0]


def published(with_functions=True):
    """Attributes and slices as published: both directions one after the other, numbers inside their graph."""
    edges, attr, first_node, first_edge = [], [], [0], [0]
    for number, (size, pairs, _, _) in enumerate(GRAPHS):
        for edge, (u, v) in enumerate(pairs):
            edges += [(u, v), (v, u)]
            attr += [bits(number, edge)] * 2
        first_node.append(first_node[-1] + size)
        first_edge.append(len(edges))
    values = {
        "x": torch.ones(first_node[-1], 1),
        "edge_index": torch.tensor(edges).T.contiguous(),
        "edge_attr": torch.tensor(attr),
        "y": None,
        "pos": None,
        "species_id": torch.tensor([species for _, _, species, _ in GRAPHS]),
        "center_node_idx": torch.tensor([centre for _, _, _, centre in GRAPHS]),
    }
    ones = torch.arange(len(GRAPHS) + 1)
    slices = {
        "x": torch.tensor(first_node),
        "edge_index": torch.tensor(first_edge),
        "edge_attr": torch.tensor(first_edge),
        "species_id": ones,
        "center_node_idx": ones,
    }
    if with_functions:
        values["go_target_downstream"] = torch.tensor(FUNCTIONS).flatten()
        values["go_target_pretrain"] = torch.zeros(5 * len(GRAPHS), dtype=torch.long)
        slices |= {"go_target_downstream": 2 * ones, "go_target_pretrain": 5 * ones}
    return values, slices


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a folder; attributes are given as an old ``Data``, as torch wrote in 2019 or writes now."""

    def write(values, slices, zipped=False):
        folder = tmp_path / "supervised"
        (folder / "processed").mkdir(parents=True, exist_ok=True)
        data = OldData()
        data.__dict__.update(values)
        with monkeypatch.context() as patch:
            patch.setattr(geometric, "Data", OldData)
            torch.save((data, slices), folder / FILE, _use_new_zipfile_serialization=zipped)
        return folder

    return write


@pytest.mark.parametrize("zipped", [False, True])
def test_edges_keep_their_attributes(write, zipped):
    graphs = read_ppi(write(*published(), zipped=zipped))
    assert (graphs.name, len(graphs), np.diff(graphs.first_node).tolist()) == ("supervised", 3, [4, 1, 3])
    for number, (_, pairs, _, _) in enumerate(GRAPHS):
        expected = {}
        for edge, (u, v) in enumerate(pairs):
            expected[u, v] = expected[v, u] = bits(number, edge)
        part = graphs.subset(np.array([number]))
        found = zip(part.source.tolist(), part.target.tolist(), part.edge_attr.tolist(), strict=True)
        ordered = [((u, v), attr) for u, v, attr in found]
        assert dict(ordered) == expected
        assert [pair for pair, _ in ordered] == sorted(expected, key=lambda pair: pair[::-1])


def test_torch_geometric_is_not_needed(write):
    folder, allowed = write(*published()), torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()  # torch-geometric lets its own classes in when it is loaded
    try:
        assert len(read_ppi(folder)) == 3
        assert torch.serialization.get_safe_globals() == []
    finally:
        torch.serialization.add_safe_globals(allowed)


def test_species_centres_and_functions_are_read(write):
    folder = write(*published())
    graphs = read_ppi(folder)
    proteins = read_proteins(folder, graphs)
    assert proteins.species.tolist() == [9606, 3702, 9606]
    assert proteins.centre.tolist() == [2, 0, 1]
    assert graphs.targets.tolist() == FUNCTIONS
    assert graphs.target_names == ("go_0", "go_1")
    assert graphs.classes is None


def test_without_functions_there_are_no_targets(write):
    assert read_ppi(write(*published(with_functions=False))).targets is None


def test_default_features_are_constant(write):
    graphs = read_ppi(write(*published()))
    store = make_store(graphs, Features.from_dataset(graphs))
    assert store.x.tolist() == [[1.0]] * 8
    assert store.edge_attr.shape == (10, 9)


class Harm:
    """Leaves a file behind when a pickle of it is run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [False, True])
def test_pickle_with_code_is_rejected(write, tmp_path, zipped):
    values, slices = published()
    folder = write({**values, "y": Harm(tmp_path / "harm")}, slices, zipped=zipped)
    with refused(str(FILE), ".mkdir'"):
        read_ppi(folder)
    assert not (tmp_path / "harm").exists()
    torch.load(folder / FILE, weights_only=False)  # the harm is real
    assert (tmp_path / "harm").exists()


def without(name, where=0):
    return lambda both: both[where].pop(name)


def changed(name, value, where=0):
    return lambda both: both[where].update({name: value})


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (without("edge_attr"), ("'edge_attr'",)),
        (without("x", 1), ("'x'",)),
        (changed("edge_attr", torch.ones(3, 9)), ()),
        (changed("x", torch.tensor([0, 4, 4]), 1), ("'x'",)),
        (changed("x", torch.tensor([0, 5, 4, 8]), 1), ("'x'",)),
        (changed("edge_index", torch.tensor([0, 6, 10]), 1), ()),
        (changed("edge_index", torch.zeros(3, 10, dtype=torch.long)), ("'edge_index'",)),
        (changed("edge_index", torch.full((2, 10), 5)), ("'edge_index'",)),
        (changed("edge_index", torch.full((2, 10), -1)), ("'edge_index'",)),
        (changed("species_id", torch.ones(2, dtype=torch.long)), (2, "'species_id'", 3)),
        (changed("center_node_idx", torch.tensor([2, 1, 1])), ()),
        (changed("go_target_downstream", torch.ones(7)), (7, 3)),
        (changed("edge_attr", torch.full((10, 9), torch.nan)), ("supervised", "edge attribute", 0, 0, "nan")),
    ],
)
def test_inconsistent_files_are_rejected(write, change, values):
    both = published()
    change(both)
    folder = write(*both)
    with refused(*(values if "supervised" in values else (str(FILE), *values))):
        read_proteins(folder, read_ppi(folder))


def test_other_files(tmp_path):
    with refused(str(FILE), "'supervised'", "'unsupervised'"):
        read_ppi(tmp_path)
    (tmp_path / "processed").mkdir()
    for content in (b"", b"nonsense" * 20, b"PK\x03\x04" + bytes(100), b"\x80\x02."):
        (tmp_path / FILE).write_bytes(content)
        with refused(str(FILE)):
            read_ppi(tmp_path)
    torch.save([torch.ones(2)], tmp_path / FILE)
    with refused(str(FILE)):
        read_ppi(tmp_path)


def test_a_folder_of_networks_by_hand_is_read(tmp_path):
    dataset = read_ppi(write_ppi(tmp_path / "ppi", *ppi_tensors()))
    assert (len(dataset), dataset.num_nodes, dataset.num_edges) == (3, 6, 3)


@pytest.mark.parametrize("name", ["x", "edge_index"])
def test_slices_whose_differences_wrap_are_refused(name, tmp_path):
    values, slices = ppi_tensors()
    values["edge_index"] = torch.tensor([[0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0]])
    slices = {"x": torch.tensor([0, 2, 4, 6]), "edge_index": torch.tensor([0, 6, 6, 6])}
    slices[name] = torch.tensor([0, WIDE, -2, 6])
    folder = write_ppi(tmp_path / "ppi", values, slices)
    with refused("geometric_data_processed.pt", f"'{name}'"):
        read_ppi(folder)
