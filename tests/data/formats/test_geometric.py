"""Oracle: the tensors that were put in, read back graph by graph."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader

from joao.data import read
from joao.data.formats.geometric import graph_batch
from tests.data.refusals import assert_told, refused


def path(size, **fields):
    """An undirected path, both directions listed."""
    ends = torch.arange(size - 1)
    edge_index = torch.cat([torch.stack([ends, ends + 1]), torch.stack([ends + 1, ends])], dim=1)
    return Data(edge_index=edge_index, num_nodes=size, **fields)


def test_real_x_becomes_attributes_and_y_classes(neighbours):
    graphs = [path(n, x=torch.randn(n, 2), y=torch.tensor([label])) for n, label in ((3, 5), (1, 2), (4, 5))]
    dataset = read(graphs)
    np.testing.assert_array_equal(dataset.node_attributes, torch.cat([graph.x for graph in graphs]).numpy())
    assert (dataset.node_labels, dataset.edge_attr, dataset.notices) == (None, None, ())
    assert (dataset.classes.tolist(), dataset.class_names) == ([1, 0, 1], ("2", "5"))
    for index, graph in enumerate(graphs):
        assert neighbours(dataset, index) == set(map(tuple, graph.edge_index.T.tolist()))


@pytest.mark.parametrize("x", [torch.tensor([3, 1, 2]), torch.tensor([[3], [1], [2]], dtype=torch.uint8)])
def test_one_integer_column_becomes_labels(x):
    dataset = read([path(3, x=x), path(3, x=x)])
    assert dataset.node_labels.ravel().tolist() == [3, 1, 2, 3, 1, 2]
    assert dataset.node_attributes is None


@pytest.mark.parametrize("x", [torch.eye(3, dtype=torch.long), torch.eye(3, dtype=torch.bool), torch.eye(3).double()])
def test_several_columns_become_attributes(x):
    dataset = read([path(3, x=x)])
    assert dataset.node_labels is None
    assert dataset.node_attributes.dtype == np.float32
    assert dataset.node_attributes.tolist() == torch.eye(3).tolist()


def test_a_table_without_columns_is_no_table():
    found = read([path(2, x=torch.ones(2, 0), edge_attr=torch.ones(2, 0))] * 2)
    assert found.node_attributes is None
    assert found.edge_attr is None


def test_edge_attributes_follow_their_edges():
    pair = torch.tensor([[0, 2, 1], [1, 1, 0]])
    graph = Data(
        edge_index=pair, num_nodes=3, edge_attr=torch.tensor([1.0, 2.0, 3.0]), edge_weight=torch.tensor([7, 8, 9])
    )
    dataset = read([Data(num_nodes=1), graph])
    found = {
        (s, t): row
        for s, t, row in zip(dataset.source.tolist(), dataset.target.tolist(), dataset.edge_attr.tolist(), strict=True)
    }
    assert found == {(0, 1): [1, 7], (1, 0): [3, 9], (2, 1): [2, 8], (1, 2): [2, 8]}
    [notice] = dataset.notices
    assert_told(notice, "graphs", 1)


@pytest.mark.parametrize("y", [torch.tensor([0.5]), torch.tensor([1, 2]), torch.tensor([float("nan")])])
def test_y_that_is_not_a_class_is_omitted_with_a_notice(y):
    dataset = read([path(2, y=torch.tensor(1)), path(2, y=y)])
    assert dataset.classes is None
    [notice] = dataset.notices
    assert_told(notice, "y", "graphs[1]")


@pytest.mark.parametrize("y", [2, 2.0, torch.tensor(2.0), torch.tensor([[2]]), np.int64(2), np.array([2]), [2], True])
def test_integer_y_is_a_class(y):
    assert read([path(2, y=y), path(2, y=0)]).classes.tolist() == [1, 0]


def test_node_count_inferred_from_edges_gives_a_notice():
    dataset = read([Data(edge_index=torch.tensor([[0, 4], [4, 0]]))])
    assert dataset.num_nodes == 5
    [notice] = dataset.notices
    assert_told(notice, "graphs", "num_nodes")


class Paths(InMemoryDataset):
    def __init__(self):
        super().__init__()
        graphs = [path(n, x=torch.full((n, 1), float(n)), y=n % 2) for n in range(1, 7)]
        self.data, self.slices = self.collate(graphs)


def test_data_sets_slices_and_subsets_are_read_in_order():
    whole = Paths()
    assert np.diff(read(whole).first_node).tolist() == [1, 2, 3, 4, 5, 6]
    assert read(whole).name == "Paths"
    chosen = whole[torch.tensor([4, 0, 2])]
    assert np.diff(read(chosen).first_node).tolist() == [5, 1, 3]
    assert read(chosen).node_attributes.ravel().tolist() == [5.0] * 5 + [1.0] + [3.0] * 3
    subset = torch.utils.data.Subset(whole, [3, 1])
    assert np.diff(read(subset).first_node).tolist() == [4, 2]
    assert read(tuple(whole)).fingerprint == read(whole).fingerprint


@pytest.mark.parametrize(
    ("graphs", "values"),
    [
        ([path(2, x=torch.ones(2, 3)), path(2)], ("graphs[1]", " x", "graphs[0]")),
        ([path(2), path(2, x=torch.ones(2, 3))], ("graphs[0]", " x", "graphs[1]")),
        ([path(2, x=torch.ones(2, 3)), path(2, x=torch.ones(2, 4))], ("graphs[1]", " x", 4, 3, "graphs[0]")),
        (
            [path(2, x=torch.ones(2)), path(2, x=torch.tensor([1, 2]))],
            ("graphs[1]", " x", "torch.int64", "torch.float32", "graphs[0]"),
        ),
        ([path(2, x=torch.ones(3, 1))], ("graphs[0]", " x", 2, "(3, 1)")),
        ([path(2, x="ab")], ("graphs[0]", " x", "str")),
        ([path(2, x=torch.tensor([0, torch.nan]))], ("graphs", "node attribute", 0, 1, "nan")),
        ([path(2, edge_attr=torch.ones(2, 1)), path(3)], ("graphs[1]", "edge_attr", "graphs[0]")),
        ([path(2, edge_attr=torch.ones(3, 1))], ("graphs[0]", "edge_attr", 2, "(3, 1)")),
        ([path(2), Data(edge_index=torch.tensor([[0], [3]]), num_nodes=2)], ("graphs[1]", "edge_index", 3, 0, 1)),
        ([Data(edge_index=torch.tensor([[-1], [0]]), num_nodes=2)], ("graphs[0]", "edge_index", -1, 0, 1)),
        ([Data(edge_index=torch.ones(3, 2).long(), num_nodes=2)], ("graphs[0]", "edge_index", "(3, 2)")),
        ([Data(edge_index=torch.zeros(2, 2), num_nodes=2)], ("graphs[0]", "edge_index", "torch.float32")),
        ([path(2), Data()], ("graphs[1]", "num_nodes", "edge_index")),
        ([path(2, x=torch.ones(2, 1, device="meta"))], ("graphs[0]", " x")),
        (
            [Data(edge_index=torch.zeros(2, 1, dtype=int, device="meta"), num_nodes=2)],
            ("graphs[0]", "edge_index", "meta"),
        ),
        (
            [Data(edge_index=torch.zeros(2, 1, dtype=int).to_sparse(), num_nodes=2)],
            ("graphs[0]", "edge_index", "torch.sparse_coo"),
        ),
        ([Data(num_nodes=2.5)], ("graphs[0]", "num_nodes", 2.5)),
        ([Data(num_nodes=10**30)], ("graphs[0]", "num_nodes", 10**30)),
        ([Data(num_nodes=0)], ("graphs", 0)),
        ([Data(adj_t=torch.eye(2), num_nodes=2)], ("graphs[0]", "edge_index")),
        ([HeteroData()], ("graphs[0]", "HeteroData")),
        (HeteroData(), ("HeteroData",)),
        (path(2), ("Data", "[graph]")),
        (Batch.from_data_list([path(2), path(3)]), ("Batch", "batch.to_data_list()")),
        ([path(2), Batch.from_data_list([path(2)])], ("graphs[1]", "Batch", "batch.to_data_list()")),
        (DataLoader([path(2)]), ("DataLoader",)),
        ([path(2), "MUTAG"], ("graphs[1]", "'MUTAG'")),
        ([path(2), None], ("graphs[1]", "None")),
        ([(path(2), 1)], ("graphs[0]", "(Data(", "1)")),
        ([], ("graphs",)),
        (iter([path(2)]), ("list_iterator",)),
        ({"a": path(2)}, ("{'a': Data(",)),
        (3, (" 3.",)),
        (torch.eye(3), ("graphs[0]", "tensor([1., 0., 0.])")),
    ],
)
def test_invalid_graphs_are_rejected(graphs, values):
    with refused(*values):
        read(graphs)


@pytest.mark.parametrize("with_attributes", [True, False])
def test_torch_geometric_batch_becomes_a_graph_batch(with_attributes):
    one = Data(x=torch.rand(4, 2), edge_index=torch.tensor([[3, 0, 2, 2, 1, 3], [0, 3, 1, 2, 2, 0]]))
    other = Data(x=torch.rand(3, 2, dtype=torch.float64), edge_index=torch.tensor([[2], [0]]))  # one direction
    if with_attributes:
        one.edge_attr, other.edge_attr = torch.tensor([1.0, 1.0, 5.0, 9.0, 5.0, 4.0]), torch.tensor([7.0])
    batch = graph_batch(Batch.from_data_list([one, path(1, x=torch.rand(1, 2), edge_attr=torch.zeros(0)), other]))
    ends = list(zip(batch.source.tolist(), batch.target.tolist(), strict=True))
    assert ends == sorted([(0, 3), (3, 0), (1, 2), (2, 1), (5, 7), (7, 5)], key=lambda edge: (edge[1], edge[0]))
    assert (batch.num_graphs, batch.graph_of_node.tolist()) == (3, [0, 0, 0, 0, 1, 2, 2, 2])
    assert batch.x.dtype == torch.float32
    if with_attributes:  # three times 0-3, two of them one way: the mean of 1, 1 and 4 with its mirror image
        found = dict(zip(ends, batch.edge_attr.squeeze(1).tolist(), strict=True))
        assert found == {(0, 3): 2, (3, 0): 2, (1, 2): 5, (2, 1): 5, (5, 7): 7, (7, 5): 7}
    else:
        assert batch.edge_attr is None
