"""What all tests share: one thread, seeded weights, graphs made by hand and MUTAG."""

import gc
import gzip
import importlib.metadata
import os
import pickle
import signal
import warnings
import zipfile
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import hypothesis
import numpy as np
import pytest
import torch
from scipy.stats import chi2

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch-geometric warns about torch.jit when it is loaded
    import torch_geometric.nn  # noqa: F401

from joao.augmentations import Identity
from joao.augmentations.base import PaddedAugmentation, floor_share
from joao.core.codes import OGB_ATOM_SIZES, OGB_BOND_SIZES
from joao.core.graphs import GraphBatch
from joao.core.padded import keep_nodes
from joao.data import Features, make_store
from joao.data.names import BUNDLED
from joao.data.shards.writer import ShardWriter, slice_rows
from joao.data.sources import read
from joao.data.synthetic import random_graphs

# `make slow` uses the profile "thorough".
hypothesis.settings.register_profile("joao", deadline=None, derandomize=True, max_examples=20, database=None)
hypothesis.settings.register_profile("thorough", hypothesis.settings.get_profile("joao"), max_examples=100)
hypothesis.settings.load_profile("joao")
torch.set_num_threads(1)
# A command in the background begins with Ctrl-C ignored, which some tests wait for.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The tests are about the plain path, on every machine; those of the compiled core set this themselves.
os.environ["JOAO_NATIVE"] = "off"
# Lightning, which takes this function when it is imported, would search all packages for callbacks in every training.
importlib.metadata.entry_points = cache(importlib.metadata.entry_points)


def pytest_collection_finish():
    """Exclude the thousands of collected tests from garbage collection: measuring memory collects garbage first."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item, nextitem):
    """Exclude, too, what the tests of a file leave behind, such as imported modules and cached data."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def quick_system():
    """No waiting for the disk, and forests of few trees. Yields the usual settings of forests."""
    from joao.baselines.forests import FOREST

    usual = dict(FOREST)
    with pytest.MonkeyPatch.context() as patch:
        for kind, settings in usual.items():
            patch.setitem(FOREST, kind, settings | {"n_estimators": 5})
        patch.setattr(os, "fsync", lambda file: None)
        yield usual


@pytest.fixture
def usual_forests(quick_system, monkeypatch):
    """Forests of as many trees as outside of tests."""
    from joao.baselines.forests import FOREST

    for kind, settings in quick_system.items():
        monkeypatch.setitem(FOREST, kind, settings)


@pytest.fixture
def few_epochs(monkeypatch):
    """Pre-trainings of the estimator and of comparisons have at most two epochs, and pictures need no screen."""
    import matplotlib

    from joao.comparison import methods
    from joao.estimators import joao as estimator

    make = estimator.make_recipe

    def make_short(*arguments, **options):
        recipe = make(*arguments, **options)
        return replace(recipe, training=replace(recipe.training, epochs=min(recipe.training.epochs, 2)))

    for module in (estimator, methods):
        monkeypatch.setattr(module, "make_recipe", make_short)
    matplotlib.use("agg")


@pytest.fixture
def one_c(monkeypatch):
    """SVMs try one value of C instead of seven."""
    from joao.evaluation import svm

    monkeypatch.setattr(svm, "C_GRID", (1.0,))


@pytest.fixture
def few_folds(monkeypatch):
    """``joao.compare`` scores two partitions of two folds."""
    import joao

    compare = joao.compare
    few = {"partitions": 2, "folds": 2}
    monkeypatch.setattr(joao, "compare", lambda *given, **options: compare(*given, **options | few))


@pytest.fixture
def jobs_here(monkeypatch):
    """Jobs run in this process, on copies of what other processes would get; tests/core is about the processes.

    Returns the numbers of jobs that were asked for.
    """
    from joao.core import processes

    asked = []

    def in_this_process(compute, items, jobs, begin=None, on_note=None):
        assert (begin, on_note) == (None, None)
        asked.append(jobs)
        copy = pickle.loads(pickle.dumps(compute))
        return ((number, copy(pickle.loads(pickle.dumps(item)))) for number, item in enumerate(items))

    monkeypatch.setattr(processes, "map_in_processes", in_this_process)
    return asked


@pytest.fixture(autouse=True)
def seeded_weights():
    torch.manual_seed(0)


@pytest.fixture
def generator():
    """Makes a generator from a seed."""
    return lambda seed=0: torch.Generator().manual_seed(seed)


SHAPES = {
    "single node": (1, []),
    "two nodes": (2, [(0, 1)]),
    "edgeless": (7, []),
    "complete": (6, [(u, v) for v in range(6) for u in range(v)]),
    "disconnected": (9, [(0, 3), (3, 5), (1, 2), (2, 8), (1, 8), (4, 7)]),
    "star": (8, [(2, v) for v in (0, 1, 3, 4, 5, 6, 7)]),
    "path": (6, [(0, 4), (4, 1), (1, 5), (5, 2), (2, 3)]),
    "cycle": (10, [(v, (v + 1) % 10) for v in range(10)]),
}


@pytest.fixture
def shapes():
    """Graphs at the edges of what is possible: name to number of nodes and undirected edges."""
    return SHAPES


@pytest.fixture
def make_batch():
    """Puts graphs, given as numbers of nodes and undirected edges, side by side by plain loops.

    The first column of ``x`` is the number of the node; ``edge_attr`` is the number of the undirected edge.
    """

    def make(graphs, with_attributes=False) -> GraphBatch:
        numbered, graph_of_node = {}, []
        for graph, (size, edges) in enumerate(graphs):
            first = len(graph_of_node)
            for u, v in edges:
                numbered[first + u, first + v] = numbered[first + v, first + u] = len(numbered) // 2
            graph_of_node += [graph] * size
        by_target = sorted(numbered, key=lambda edge: (edge[1], edge[0]))
        ends = torch.tensor(by_target, dtype=torch.long).reshape(-1, 2)
        number = torch.arange(len(graph_of_node), dtype=torch.float)
        return GraphBatch(
            x=torch.stack([number, torch.sin(number), torch.cos(3 * number)], dim=1),
            source=ends[:, 0].contiguous(),
            target=ends[:, 1].contiguous(),
            graph_of_node=torch.tensor(graph_of_node),
            num_graphs=len(graphs),
            edge_attr=torch.tensor([[float(numbered[edge])] for edge in by_target]).reshape(-1, 1)
            if with_attributes
            else None,
        )

    return make


@pytest.fixture
def as_atoms():
    """Makes molecules of a batch: atoms by the nodes' numbers, bonds by the ends' numbers, the same both ways."""

    def make(batch) -> GraphBatch:
        number = torch.arange(batch.num_nodes, device=batch.device)
        place = number - batch.first_node[batch.graph_of_node]
        sums, products = place[batch.source] + place[batch.target], place[batch.source] * place[batch.target]
        return replace(
            batch,
            x=torch.stack([number % 13, number % 4], dim=1).to(batch.x.dtype),
            edge_attr=torch.stack([sums % 4, products % 3], dim=1).to(batch.x.dtype),
        )

    return make


@pytest.fixture
def as_input(as_atoms):
    """Gives a batch the numbers of categories that a kind of encoder takes, by the nodes' numbers, if it takes any."""

    def make(kind, batch) -> GraphBatch:
        if kind.codes is None or kind.takes_atoms:
            return as_atoms(batch) if kind.takes_atoms else batch
        number = torch.arange(batch.num_nodes, device=batch.device)
        place = number - batch.first_node[batch.graph_of_node]
        sums, products = place[batch.source] + place[batch.target], place[batch.source] * place[batch.target]
        if kind.codes == "ogb_atoms":
            nodes, edges = [number % (size + 1) for size in OGB_ATOM_SIZES], [sums % 5, products % 6, sums % 2]
        else:
            nodes = [number % 7, number % 11, place % 23, torch.where(number % 3 > 0, place * 7 % 101, -1)]
            edges = [(batch.source > batch.target).long()]
        x, attr = (torch.stack(columns, dim=1).to(batch.x.dtype) for columns in (nodes, edges))
        return replace(batch, x=x, edge_attr=attr)

    return make


@pytest.fixture(scope="session")
def ogb_tables():
    """Makes the texts of the files of a small data set in OGB's layout, by loops, by names such as ``raw/edge``."""

    def make(kind, num_graphs=60, seed=0):
        draw = np.random.default_rng(seed)
        lines = {name: [] for name in ("raw/num-node-list", "raw/num-edge-list", "raw/edge", "raw/graph-label")}

        def add(name, *row):
            lines.setdefault(name, []).append(",".join(map(str, row)))

        for graph in range(num_graphs):
            size, label = int(draw.integers(3, 9)), graph % 3 if kind == "ppa" else graph % 2
            parents = [int(draw.integers(0, node)) for node in range(1, size)]
            add("raw/num-node-list", size)
            add("raw/num-edge-list", size - 1)
            for node, parent in enumerate(parents, start=1):
                add("raw/edge", parent, node)
                if kind == "ppa":
                    add("raw/edge-feat", *(round(float(value), 3) for value in draw.random(7) * (1 + label)))
                elif kind == "mol":
                    add("raw/edge-feat", *(int(draw.integers(0, most)) for most in OGB_BOND_SIZES))
            depth = [0]
            for node in range(size):
                if kind == "mol":
                    add("raw/node-feat", 5 + label, *(int(draw.integers(0, most)) for most in OGB_ATOM_SIZES[1:]))
                elif kind == "code":
                    depth += [depth[parents[node - 1]] + 1] if node else []
                    add("raw/node-feat", int(draw.integers(0, 98)), 17 * label + int(draw.integers(0, 5)))
                    add("raw/node_depth", depth[node])
                    add("raw/node_is_attributed", int(draw.integers(0, 2)))
                    add("raw/node_dfs_order", node)
            words = ["get name", "set the value", "rare x y z of it"][label if graph % 7 else 2]
            add("raw/graph-label", words if kind == "code" else label)
        split = {"ppa": "species", "code": "project", "mol": "scaffold"}[kind]
        order = draw.permutation(num_graphs)
        cuts = [0, num_graphs * 2 // 3, num_graphs * 5 // 6, num_graphs]
        for part, first, last in zip(("train", "valid", "test"), cuts[:-1], cuts[1:], strict=True):
            lines[f"split/{split}/{part}"] = [str(graph) for graph in sorted(order[first:last])]
        if kind == "mol":
            sizes = map(int, lines["raw/num-node-list"])
            rows = (f"{label},{'C' * size},mol" for label, size in zip(lines["raw/graph-label"], sizes, strict=True))
            lines["mapping/mol"] = ["active,smiles,mol_id", *rows]
        return {name: "".join(f"{line}\n" for line in rows) for name, rows in lines.items()}

    return make


@pytest.fixture(scope="session")
def write_ogb():
    """Writes such texts to a folder or, where the path ends so, into a zip file; gives the path."""

    def write(path, tables, inside=None):
        path.parent.mkdir(parents=True, exist_ok=True)
        packed = {f"{name}.csv.gz": gzip.compress(text.encode(), mtime=0) for name, text in tables.items()}
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w") as archive:
                for name, data in packed.items():
                    archive.writestr(f"{path.stem if inside is None else inside}/{name}".lstrip("/"), data)
            return path
        for name, data in packed.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
        return path

    return write


@dataclass(frozen=True)
class WithoutFirstNodes(PaddedAugmentation):
    """Every graph loses its first nodes."""

    def __call__(self, batch, generator):
        return batch.keep_nodes(self._kept(batch))

    def padded(self, batch, generator):
        return keep_nodes(batch, self._kept(batch))

    def _kept(self, batch):
        place = torch.arange(batch.num_nodes, device=batch.device) - batch.first_node[batch.graph_of_node]
        return place >= floor_share(batch.nodes_per_graph, self.strength)[batch.graph_of_node]


@dataclass(frozen=True)
class WithoutSomeEdges(PaddedAugmentation):
    """Every graph loses the edges whose ends' numbers in the graph add up to a multiple of three."""

    def __call__(self, batch, generator):
        return batch.keep_edges(~self._lost(batch))

    def padded(self, batch, generator):
        return replace(batch, source=torch.where(self._lost(batch), batch.num_nodes - 1, batch.source))

    def _lost(self, batch):
        first = batch.first_node[batch.graph_of_node[batch.target]]
        return (batch.source + batch.target - 2 * first) % 3 == 0


@pytest.fixture
def certain_pool():
    """Augmentations without chance, so that the plain and the fast path must agree number by number."""
    return {"nodes": WithoutFirstNodes(0.3), "edges": WithoutSomeEdges(), "identity": Identity()}


@pytest.fixture(scope="session")
def mutag():
    """The store of MUTAG: 188 molecules with one-hot atoms and bonds."""
    dataset = read(BUNDLED / "MUTAG.zip")
    return make_store(dataset, Features.from_dataset(dataset))


@pytest.fixture(scope="session")
def made_data(tmp_path_factory):
    """A folder of data sets with these names, each of the same few made graphs in two classes."""

    def make(*names, num_graphs):
        dataset = random_graphs(num_graphs, mean_nodes=6, seed=5)
        first_node = np.repeat(dataset.first_node[:-1], np.diff(dataset.first_edge)) + 1
        parts = {
            "A": zip(dataset.source + first_node, dataset.target + first_node, strict=True),
            "graph_indicator": [[number + 1] for number in dataset.graph_of_node],
            "graph_labels": [[number] for number in dataset.classes],
            "node_labels": dataset.node_labels.tolist(),
        }
        texts = {part: "".join(", ".join(map(str, line)) + "\n" for line in lines) for part, lines in parts.items()}
        root = tmp_path_factory.mktemp("data")
        for name in names:
            (root / name).mkdir()
            for part, text in texts.items():
                (root / name / f"{name}_{part}.txt").write_text(text)
        return root

    return make


@pytest.fixture
def numbered():
    """A batch whose nodes can be told by ``x[:, 0]`` and whose undirected edges by ``edge_attr``, found by loops."""

    def number(batch: GraphBatch) -> GraphBatch:
        ids, attr = {}, []
        for pair in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
            attr.append([float(ids.setdefault(frozenset(pair), len(ids)))])
        numbers = torch.arange(batch.num_nodes, dtype=batch.x.dtype)
        return replace(
            batch, x=torch.cat([numbers[:, None], batch.x], dim=1), edge_attr=torch.tensor(attr).reshape(-1, 1)
        )

    return number


@pytest.fixture
def edges_of():
    """The directed edges of a batch in their order, with their attributes: ``[((source, target), (…)), …]``."""

    def edges(batch: GraphBatch) -> list:
        pairs = list(zip(batch.source.tolist(), batch.target.tolist(), strict=True))
        attr = [()] * len(pairs) if batch.edge_attr is None else [tuple(row) for row in batch.edge_attr.tolist()]
        return list(zip(pairs, attr, strict=True))

    return edges


@pytest.fixture
def assert_same():
    """Asserts that two batches are bit-identical, shapes and dtypes included."""

    def check(found: GraphBatch, expected: GraphBatch) -> None:
        assert found.num_graphs == expected.num_graphs
        assert (found.edge_attr is None) == (expected.edge_attr is None)
        for name in ("x", "source", "target", "graph_of_node", "edge_attr"):
            one, other = getattr(found, name), getattr(expected, name)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=0, atol=0, msg=name)

    return check


@pytest.fixture
def assert_law():
    """Asserts that ``outcomes`` follow ``law``, a dictionary of probabilities.

    Pearson's statistic must stay below the value that it exceeds once in a million times under the law.
    """

    def check(outcomes, law: dict) -> None:
        counts, total = Counter(outcomes), 0.0
        law = {outcome: probability for outcome, probability in law.items() if probability > 0}
        assert sum(law.values()) == pytest.approx(1)
        assert set(counts) <= set(law), set(counts) - set(law)
        num = sum(counts.values())
        assert num * min(law.values()) >= 5, "too few draws for the statistic"
        for outcome, probability in law.items():
            total += (counts[outcome] - num * probability) ** 2 / (num * probability)
        assert total < chi2.ppf(1 - 1e-6, max(len(law) - 1, 1)), (total, len(law))

    return check


@pytest.fixture
def numpy_state():
    """The state of numpy's global generator, as something that can be compared."""
    return lambda: np.random.get_state()[1].tolist()  # noqa: NPY002


@pytest.fixture
def as_shards(tmp_path):
    """Writes a data set into a store, some rows a shard, and opens it."""

    def write(dataset, rows=7, folder=None):
        writer = ShardWriter(folder or tmp_path / f"{dataset.name}.joao", dataset.name, "made by a test")
        count = len(dataset) + len(dataset.failures)
        for first in range(0, count, rows):
            last = min(first + rows, count)
            writer.add(slice_rows(dataset, first, last), 0, last - first)
        return writer.finish()

    return write
