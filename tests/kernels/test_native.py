"""The compiled core: views by the laws of the augmentations; losses and gradients of float64 on the same views."""

import copy
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kstest

import joao
from joao.augmentations import AttributeMask, EdgePerturb, Identity, NodeDrop, Subgraph
from joao.config.builder import Method
from joao.config.recipe import Schedule, make_recipe
from joao.core.errors import Interrupted, UserError
from joao.core.graphs import GraphBatch, GraphStore
from joao.encoders import Gin
from joao.heads import HEADS
from joao.kernels import native
from joao.objectives import NtXent
from joao.policies import MinMax
from joao.runs.pretraining import pretrain
from joao.training.fast.compiled import describe_augmentation
from joao.training.model import ContrastiveModel
from joao.training.pretrain import Pretraining

is_built = (native.FOLDER / "baseline.so").exists()
needs_core = pytest.mark.skipif(not is_built, reason="the compiled core was not built")
POOL = [
    Identity(),
    NodeDrop(0.3),
    Subgraph(0.4),
    Subgraph(0.5, keep=0.3),
    AttributeMask(0.3),
    AttributeMask(0.5, fill="mean"),
    EdgePerturb(0.4),
    EdgePerturb(0.5, drop_only=True),
]


@pytest.fixture(params=native.LEVELS)
def library(request, monkeypatch):
    """Each library that was built and that this processor can run."""
    monkeypatch.setenv("JOAO_NATIVE", request.param)
    if native.native_level() != request.param:
        pytest.skip(f"no {request.param} here")
    return native.load_library()


def store_of(batch):
    """All graphs of a batch as a store."""
    first_edge = torch.searchsorted(batch.target, batch.first_node)
    shift = torch.repeat_interleave(batch.first_node[:-1], first_edge.diff())
    return GraphStore(batch.x, batch.source - shift, batch.target - shift, batch.first_node, first_edge)


@pytest.fixture
def draw(library):
    """Draws a view of all graphs of a batch."""

    def drawn(batch, augmentation, seed=0, number=0):
        core = native.CompiledCore(library, store_of(batch))
        graphs = torch.arange(batch.num_graphs)
        return core.draw(graphs, describe_augmentation(augmentation), seed, number)

    return drawn


def edges_of(view, size):
    """The undirected edges of each of many graphs with ``size`` nodes."""
    found = [set() for _ in range(view.num_graphs)]
    for source, target in zip(view.source.tolist(), view.target.tolist(), strict=True):
        if source < target:
            found[source // size].add((source % size, target % size))
    return map(frozenset, found)


@needs_core
@pytest.mark.parametrize("augmentation", POOL, ids=str)
def test_views_are_valid_and_as_large_as_those_of_torch(draw, augmentation, make_batch, shapes, generator):
    batch = make_batch([*shapes.values()] * 5)
    view, other, plain = draw(batch, augmentation), draw(batch, augmentation, 1), augmentation(batch, generator())
    assert view.nodes_per_graph.tolist() == plain.nodes_per_graph.tolist()
    graphs, pairs = view.graph_of_node.tolist(), list(zip(view.target.tolist(), view.source.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert {(s, t) for t, s in pairs} == set(pairs)
    assert all(t != s and graphs[t] == graphs[s] for t, s in pairs)
    if view.num_nodes < batch.num_nodes:  # induced subgraphs
        old = view.x[:, 0].long()
        assert torch.equal(view.x, batch.x[old])
        assert torch.equal(view.graph_of_node, batch.graph_of_node[old])
        kept = torch.zeros(batch.num_nodes, dtype=torch.bool).index_fill_(0, old, True)
        expected = batch.keep_nodes(kept)
        assert torch.equal(view.source, expected.source)
        assert torch.equal(view.target, expected.target)
    again = draw(batch, augmentation)
    for name in ("x", "source", "target"):
        assert torch.equal(getattr(view, name), getattr(again, name))
    is_same = torch.equal(view.x, other.x) and torch.equal(view.source, other.source)
    assert is_same == isinstance(augmentation, Identity)


@needs_core
@pytest.mark.parametrize("augmentation", POOL, ids=str)
def test_strength_zero_changes_nothing_in_the_core(draw, augmentation, make_batch, shapes):
    batch = make_batch([*shapes.values()])
    view = draw(batch, replace(augmentation, strength=0.0))
    for name in ("x", "source", "target", "graph_of_node"):
        assert torch.equal(getattr(view, name), getattr(batch, name).to(getattr(view, name).dtype)), name


@needs_core
def test_law_of_dropped_nodes(draw, make_batch, assert_law):
    view = draw(make_batch([(5, [(0, 1)])] * 6000), NodeDrop(0.4))
    kept = map(frozenset, (view.x[:, 0].long() % 5).view(6000, 3).tolist())
    subsets = map(frozenset, itertools.combinations(range(5), 3))
    assert_law(kept, dict.fromkeys(subsets, 1 / 10))


@needs_core
@pytest.mark.parametrize("drop_only", [False, True])
@pytest.mark.parametrize(
    ("size", "given", "count"), [(4, {(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)}, 2), (9, {(0, 8), (3, 8)}, 1)]
)
def test_law_of_perturbed_edges(draw, make_batch, assert_law, size, given, count, drop_only):
    """The core has two forms, for dense and for sparse graphs."""
    batch = make_batch([(size, sorted(given))] * 6000)
    law = Counter()
    pairs = [*itertools.combinations(range(size), 2)]
    ways = [
        frozenset((given - {*dropped}) | {*new})
        for dropped in itertools.combinations(given, count)
        for new in ([()] if drop_only else itertools.product(pairs, repeat=count))
    ]
    for way in ways:
        law[way] += 1 / len(ways)
    view = draw(batch, EdgePerturb((count + 0.1) / len(given), drop_only=drop_only))
    assert_law(edges_of(view, size), law)


@needs_core
@pytest.mark.parametrize("drop_only", [False, True])
def test_perturbed_edges_of_dense_graphs_of_many_nodes(draw, make_batch, drop_only):
    """More nodes than bits in a word: how often a pair is an edge depends only on whether it was one."""
    size, copies = 150, 60
    pairs = np.array([*itertools.combinations(range(size), 2)])
    is_edge = np.random.default_rng(0).random(len(pairs)) < 0.6
    one, shift = make_batch([(size, pairs[is_edge].tolist())]), size * torch.arange(copies)[:, None]
    batch = GraphBatch(
        x=one.x.repeat(copies, 1),
        source=(shift + one.source).flatten(),
        target=(shift + one.target).flatten(),
        graph_of_node=torch.arange(copies).repeat_interleave(size),
        num_graphs=copies,
    )
    view = draw(batch, EdgePerturb(0.2, drop_only=drop_only))
    adjacent = np.zeros((copies, size, size), dtype=bool)
    adjacent[view.source // size, view.source % size, view.target % size] = True
    found = adjacent[:, pairs[:, 0], pairs[:, 1]]
    count = int(0.2 * is_edge.sum() + 1e-9)
    if drop_only:
        assert (found[:, is_edge].sum(axis=1) == is_edge.sum() - count).all()
    drawn = 0.0 if drop_only else 1 - (1 - 1 / len(pairs)) ** count  # of a pair, at least once
    share = count / is_edge.sum()
    for chosen, expected in ((is_edge, 1 - share * (1 - drawn)), (~is_edge, drawn)):
        for part in ((pairs < 64).all(1), (pairs >= 128).all(1), (pairs[:, 0] < 64) & (pairs[:, 1] >= 64)):
            rate, number = found[:, chosen & part].mean(), copies * (chosen & part).sum()
            assert abs(rate - expected) <= 5 * (expected * (1 - expected) / number) ** 0.5


def growth_law(size, edges, wanted):
    """The probability of each set of nodes that growth may take, by following all of its steps."""
    law = Counter()

    def grow(taken, probability):
        if len(taken) == wanted:
            law[frozenset(taken)] += probability
            return
        next_to = {v for u, v in [*edges, *((v, u) for u, v in edges)] if u in taken and v not in taken}
        choices = next_to or set(range(size)) - set(taken)
        for node in choices:
            grow([*taken, node], probability / len(choices))

    grow([], 1.0)
    return law


@needs_core
def test_law_of_growth(draw, make_batch, assert_law):
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (4, 5)]
    view = draw(make_batch([(6, edges)] * 8000), Subgraph(0.5))
    kept = map(frozenset, (view.x[:, 0].long() % 6).view(8000, 3).tolist())
    assert_law(kept, growth_law(6, edges, 3))


@needs_core
def test_law_of_masked_features(draw, make_batch, assert_law):
    batch = make_batch([(5, [])] * 4000)
    batch = replace(batch, x=batch.x.repeat(1, 47))  # 141 columns: several rounds of the generator of noise
    noise, mean = draw(batch, AttributeMask(0.4)), draw(batch, AttributeMask(0.4, fill="mean"))
    masked = (noise.x != batch.x).all(1)
    chosen = [frozenset(each.nonzero().flatten().tolist()) for each in masked.view(4000, 5)]
    assert_law(chosen, dict.fromkeys(map(frozenset, itertools.combinations(range(5), 2)), 1 / 10))
    values = noise.x[masked]
    assert kstest(values.flatten().double().numpy()[:200_000], "norm", args=(0.5, 0.5)).pvalue > 1e-3
    correlation = torch.corrcoef(values.T.double()) - torch.eye(values.shape[1])
    assert correlation.abs().max() < 5.5 / len(values) ** 0.5  # of 9,870 pairs of columns
    rows = values[:, :64].double() - 0.5
    assert float((rows[1:] * rows[:-1]).mean()) == pytest.approx(0, abs=5 * 0.25 / rows[1:].numel() ** 0.5)
    changed = (mean.x != batch.x).any(1)
    expected = batch.x.view(4000, 5, -1).mean(1, keepdim=True).expand(4000, 5, -1).reshape(batch.x.shape)
    torch.testing.assert_close(mean.x[changed], expected[changed])


def make_training(store, *, width=12, layers=3, heads="shared_head", objective=None, pool=POOL, **options):
    """A training with BatchNorm weights that are not 1 and 0."""
    torch.manual_seed(5)
    encoder = Gin(store.num_features, width=width, layers=layers)
    for norm in encoder.norms:
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
        torch.nn.init.uniform_(norm.bias, -0.5, 0.5)
    for each in [*encoder.mlps.parameters()]:
        if each.dim() == 1:
            torch.nn.init.uniform_(each, -0.2, 0.2)
    named = {f"{number} {each}": each for number, each in enumerate(pool)}
    method = Method(
        named, encoder, HEADS[heads](encoder.num_dimensions, len(pool)), objective or NtXent(), MinMax(list(named))
    )
    return Pretraining(store, method, Schedule(epochs=2, batch_size=40, learning_rate=0.01), **options)


def double_model(training):
    """A copy of encoder and heads in float64."""
    model = ContrastiveModel(copy.deepcopy(training.method.encoder), copy.deepcopy(training.method.heads))
    return model.double().train()


def project(training, model, graphs, index, seed, number):
    view = training.steps.core.draw(graphs, training.steps.pool[index], seed, number)
    return model(index, *replace(view, x=view.x.double()).fields)


def next_seed(training, purpose):
    """The seed that the next step or measurement will draw."""
    generator = torch.Generator()
    generator.set_state(training.generators[purpose].get_state())
    return int(torch.randint(2**62, (), generator=generator))


SETTINGS = {
    "default": {},
    "heads": {"heads": "head_per_augmentation"},
    "no head": {"heads": "no_head"},
    "textbook loss": {"objective": NtXent(0.5, positive_in_denominator=True)},
    "symmetric loss": {"objective": NtXent(0.3, symmetric=True)},
    "wide": {"width": 40, "layers": 2},
    "as in the paper": {"width": 32},
}


@needs_core
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("features", ["labels", "numbers"])
def test_gradients_and_losses_are_those_of_float64(library, mutag, setting, features, generator):
    assert library is not None
    store = mutag if features == "labels" else replace(mutag, x=torch.randn(*mutag.x.shape, generator=generator()))
    check_gradients(make_training(store, **SETTINGS[setting]), features, generator)


@needs_core
@pytest.mark.parametrize("setting", ["default", "wide", "as in the paper"])
def test_gradients_on_graphs_of_cliques_are_those_of_float64(library, make_batch, setting, generator):
    """Most nodes have twins, whose sums over neighbours the core computes once."""
    assert library is not None
    rng = np.random.default_rng(0)
    graphs = []
    for size in rng.integers(8, 40, size=188).tolist():
        members = [rng.choice(size, size=rng.integers(size // 2, size + 1), replace=False).tolist() for _ in range(3)]
        graphs.append((size, sorted({tuple(sorted(p)) for each in members for p in itertools.combinations(each, 2)})))
    store = store_of(make_batch(graphs))
    store = replace(store, x=torch.randn(len(store.x), 5, generator=generator()))
    training = make_training(store, **SETTINGS[setting])
    arrays = training.steps.core._arrays
    start = np.repeat(arrays["first_node"][:-1], np.diff(arrays["first_node"]))
    first = {}
    ends = zip(arrays["first_edge"], arrays["first_edge"][1:], strict=False)
    for node, (begin, end) in enumerate(ends):
        closed = (start[node], *sorted({*arrays["source"][begin:end].tolist(), node - start[node]}))
        assert arrays["twin"][node] == first.setdefault(closed, node - start[node])
    assert len(first) < len(start) / 2
    check_gradients(training, "numbers", generator)


def check_gradients(training, features, generator):
    assert training.is_compiled
    for first, second in [(0, 0), (1, 2), (4, 6), (5, 3), (7, 4)]:
        graphs = torch.randperm(188, generator=generator(first))[:40]
        model, seed = double_model(training), next_seed(training, "views")
        both = [project(training, model, graphs, k, seed, side) for side, k in enumerate((first, second))]
        loss = training.method.objective(*both)
        loss.backward()
        before = float(training.steps.loss_sum)
        training.steps.train(graphs, torch.tensor([[first, second]]))
        assert (float(training.steps.loss_sum) - before) / 40 == pytest.approx(loss.item(), abs=2e-5)
        scale = max(float(each.grad.abs().max()) for each in model.parameters() if each.grad is not None)
        for (name, expected), found in zip(model.named_parameters(), training.model.parameters(), strict=True):
            if expected.grad is None:
                assert found.grad is None, name
            else:
                error = (found.grad - expected.grad).abs() / scale
                # A value next to the corner of a ReLU may be on its other side, for all nodes with the same labels.
                assert error.mean() < (1e-5 if features == "numbers" else 1e-3), name
                assert error.max() < (1e-3 if features == "numbers" else 1e-2), name
        for (name, expected), found in zip(
            model.encoder.named_buffers(), training.method.encoder.buffers(), strict=True
        ):
            torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=1e-5, msg=name)


@needs_core
@pytest.mark.parametrize("setting", SETTINGS)
def test_pair_losses_are_those_of_float64(library, mutag, setting, generator):
    assert library is not None
    training = make_training(mutag, **SETTINGS[setting])
    graphs = [torch.randperm(188, generator=generator(k))[:40] for k in range(2)]
    size, expected = len(POOL), torch.zeros(len(POOL), len(POOL), dtype=torch.float64)
    copied = torch.Generator()
    copied.set_state(training.generators["evaluation views"].get_state())
    for each in graphs:
        model, seed = double_model(training), int(torch.randint(2**62, (), generator=copied))
        with torch.no_grad():
            z = [project(training, model, each, k % size, seed, k) for k in range(2 * size)]
            for i, j in itertools.product(range(size), repeat=2):
                expected[i, j] += training.method.objective(z[i], z[size + j]) / 2
    before = copy.deepcopy(training.method.encoder.state_dict())
    torch.testing.assert_close(training.steps.measure(graphs), expected, rtol=1e-4, atol=1e-4)
    for name, value in training.method.encoder.state_dict().items():
        assert torch.equal(value, before[name]), name


def run(training):
    return [epoch.loss for epoch in training.run()], training.method.encoder.state_dict()


@needs_core
def test_threads_do_not_change_the_result(library, mutag):
    assert library is not None
    losses, weights = run(make_training(mutag, heads="head_per_augmentation"))
    torch.set_num_threads(2)
    try:
        again, others = run(make_training(mutag, heads="head_per_augmentation"))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert losses == again
    assert all(torch.equal(weights[name], others[name]) for name in weights)


@needs_core
def test_graphs_of_many_nodes_and_a_batch_of_two(library, make_batch):
    """A graph larger than a block of nodes, a hub, and graphs of one node."""
    assert library is not None
    star = (700, [(0, v) for v in range(1, 700)] + [(v, v + 1) for v in range(1, 699)])
    store = store_of(make_batch([star, (1, []), (1, []), (2, [(0, 1)])]))
    store = replace(store, x=torch.ones(len(store.x), 1, dtype=torch.uint8))
    training = make_training(store, width=32)
    for graphs in (torch.tensor([0, 3]), torch.tensor([1, 2, 3])):
        model, seed = double_model(training), next_seed(training, "views")
        both = [project(training, model, graphs, k, seed, side) for side, k in enumerate((6, 0))]
        loss = training.method.objective(*both)
        before = float(training.steps.loss_sum)
        training.steps.train(graphs, torch.tensor([[6, 0]]))
        found = (float(training.steps.loss_sum) - before) / graphs.numel()
        assert found == pytest.approx(loss.item(), abs=1e-3)


@needs_core
@pytest.mark.parametrize("minutes", [0, 10])  # a checkpoint after every step, or after every epoch
def test_a_run_in_the_core_resumes_exactly(tmp_path, monkeypatch, minutes):
    monkeypatch.delenv("JOAO_NATIVE")
    graphs, recipe = joao.read("MUTAG"), make_recipe({"method": "joaov2", "training": {"epochs": 3, "seed": 2}})
    undisturbed = pretrain(recipe, graphs, device="cpu")
    assert undisturbed.info.fast
    assert undisturbed.info.compiled == native.native_level()
    stops, options = itertools.count(), {"folder": tmp_path / "run", "checkpoint_minutes": minutes, "device": "cpu"}
    with pytest.raises(Interrupted):
        pretrain(recipe, graphs, should_stop=lambda: next(stops) == 3, **options)
    with pytest.raises(UserError, match="fast path"):
        pretrain(recipe, graphs, resume=True, fast=False, **options)
    monkeypatch.setenv("JOAO_NATIVE", "off")
    with pytest.raises(UserError, match="off"):
        pretrain(recipe, graphs, resume=True, **options)
    monkeypatch.delenv("JOAO_NATIVE")
    resumed = pretrain(recipe, graphs, resume=True, **options)
    assert resumed.weights.keys() == undisturbed.weights.keys()
    assert all(torch.equal(value, undisturbed.weights[name]) for name, value in resumed.weights.items())
    assert [each.loss for each in resumed.metrics] == [each.loss for each in undisturbed.metrics]


@needs_core
def test_the_estimator_uses_the_core_and_remembers_its_path(tmp_path, monkeypatch):
    monkeypatch.delenv("JOAO_NATIVE")
    for number, fast in enumerate((None, False)):
        model = joao.JOAO(epochs=2, fast=fast).fit("MUTAG")
        assert bool(model.trained_.info.compiled) == (fast is None)
        model.save(tmp_path / str(number))
        assert joao.JOAO.load(tmp_path / str(number)).fast is fast


@needs_core
def test_nan_is_reported_with_its_step(mutag, monkeypatch):
    monkeypatch.delenv("JOAO_NATIVE")
    training = make_training(mutag)
    with torch.no_grad():
        training.method.encoder.mlps[0][0].weight[0, 0] = torch.nan
    with pytest.raises(UserError, match="step 1"):
        list(training.run())


@needs_core
def test_what_the_core_does_not_have_is_left_to_torch(mutag, monkeypatch):
    monkeypatch.delenv("JOAO_NATIVE", raising=False)
    assert make_training(mutag).is_compiled
    assert not make_training(mutag, fast=False).is_compiled
    assert not make_training(mutag, pool=[AttributeMask(0.2, fill="token"), Identity()]).is_compiled
    monkeypatch.setenv("JOAO_NATIVE", "off")
    assert not make_training(mutag).is_compiled
    with pytest.raises(UserError, match="off"):
        make_training(mutag, compiled=True)
    monkeypatch.setenv("JOAO_NATIVE", "fastest")
    with pytest.raises(UserError, match="'fastest'"):
        make_training(mutag)


def test_everything_works_without_the_core(tmp_path, monkeypatch):
    """As on a machine without a compiler: the folder of the libraries is empty."""
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    monkeypatch.delenv("JOAO_NATIVE")
    native._open.cache_clear()
    try:
        model = joao.JOAO(epochs=1, device="cpu").fit("MUTAG")
        assert native.native_level() == "not built"
        assert "not built" in native.describe()
        assert model.trained_.info.compiled == ""
        assert model.transform("MUTAG").shape == (188, 303)
    finally:
        native._open.cache_clear()


def test_a_failed_compiler_gives_no_library(tmp_path):
    import hatch_build

    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "one.cpp").write_text('extern "C" int one() { return 1; }')
    (sources / "baseline.so").write_text("old")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hatch_build, "SOURCES", sources)
        for compiler in ("no-such-compiler", "false"):
            patch.setenv("CXX", compiler)
            assert compiler in hatch_build.build()
            assert [path.name for path in sources.iterdir()] == ["one.cpp"]
