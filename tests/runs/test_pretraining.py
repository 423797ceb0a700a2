"""Pre-training from a recipe: the same again bit for bit, also after an interruption, and never with labels."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from joao.augmentations import Identity, NodeDrop
from joao.config.builder import CustomParts, build_encoder, build_method
from joao.config.recipe import METHODS, make_recipe
from joao.core import errors
from joao.core.graphs import GraphBatch, GraphStore
from joao.data import Shards, read
from joao.data.features import Features, make_store
from joao.data.shards import shards as shards_module
from joao.data.shards import store as shard_store
from joao.data.synthetic import random_graphs
from joao.encoders import Gin
from joao.objectives import OBJECTIVES, NtXent, PairObjective
from joao.runs.folder import Run
from joao.runs.pretraining import pretrain
from joao.runs.trained import load_run, make_untrained
from joao.training import pretrain as training_module
from joao.training.model import BatchSampler, embed
from tests.messages import refused

GRAPHS = random_graphs(14, mean_nodes=6, seed=1)
MOLECULES = dataclasses.replace(
    GRAPHS,
    kind="molecules",
    node_labels=np.stack([np.arange(GRAPHS.num_nodes) % 9, np.arange(GRAPHS.num_nodes) % 3], axis=1).astype(np.uint8),
    edge_attr=np.stack([(GRAPHS.source + GRAPHS.target) % 4, 0 * GRAPHS.source], axis=1).astype(np.uint8),
)
FOUR = {"features": "auto", "encoder": {"readout": "sum"}}  # four columns, which the encoders below are made for
RECIPE = make_recipe({**FOUR, "training": {"epochs": 4, "batch_size": 5, "seed": 3}})


class Interrupted(Exception):
    pass


class Forgetful(nn.Module):
    """An encoder of one's own with dropout, which draws from torch's global generator."""

    def __init__(self, num_features):
        super().__init__()
        self.linear = nn.Linear(num_features, 6)

    def forward(self, x, batch, batch_size):
        x = nn.functional.dropout(torch.relu(self.linear(x)), 0.3, self.training)
        return torch.zeros(batch_size, 6, dtype=x.dtype).index_add(0, batch, x)


class NodeSum(nn.Module):
    """An encoder of one's own that is not joao's."""

    def __init__(self, num_features):
        super().__init__()
        self.linear = nn.Linear(num_features, 6)

    def forward(self, x, batch, batch_size):
        return torch.zeros(batch_size, 6, dtype=x.dtype).index_add(0, batch, torch.relu(self.linear(x)))


def small(method="joao", parts=None, **training):
    return make_recipe(
        {**FOUR, "method": method, **(parts or {}), "training": {"epochs": 1, "batch_size": 7, **training}}
    )


def same_tensors(first, second):
    assert set(first) == set(second)
    return all(first[name].numpy().tobytes() == second[name].numpy().tobytes() for name in first)


def untimed(metrics):
    return [{**dataclasses.asdict(each), "seconds": 0, "graphs_per_second": 0} for each in metrics]


def read_untimed(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": 0, "graphs_per_second": 0} for line in lines]


def interrupt_after(number, folder, recipe=RECIPE, **options):
    def on_epoch(metrics):
        if metrics.epoch == number:
            raise Interrupted

    with pytest.raises(Interrupted):
        pretrain(recipe, GRAPHS, folder=folder, device="cpu", on_epoch=on_epoch, **options)


@pytest.mark.parametrize("method", METHODS)
def test_equal_seeds_give_equal_runs(method):
    graphs = MOLECULES if method == "attr_masking" else GRAPHS
    options = {"encoder": {"name": "molecule_gin", "width": 8}} if graphs is MOLECULES else {}
    first, again = (pretrain(small(method, options), graphs, device="cpu") for _ in range(2))
    assert same_tensors(first.weights, again.weights)
    assert untimed(first.metrics) == untimed(again.metrics)
    other = pretrain(small(method, options, seed=1), graphs, device="cpu")
    assert not same_tensors(first.weights, other.weights)


@pytest.mark.parametrize("objective", [name for name, kind in OBJECTIVES.items() if issubclass(kind, PairObjective)])
def test_every_pair_objective_works_with_joao_and_uniform(objective):
    dataset = read("MUTAG")
    trained = {
        method: pretrain(small(method, {"objective": objective}, epochs=3, batch_size=64), dataset, device="cpu")
        for method in ("uniform", "joao")
    }
    uniform, joao = (trained[method].metrics for method in ("uniform", "joao"))
    assert all(each.recipe.objective.name == objective for each in trained.values())
    # Both begin with all pairs alike, and so do the same until the policy moves; then it is the policy that differs.
    assert uniform[0].loss == joao[0].loss
    assert uniform[0].drawn == joao[0].drawn
    assert uniform[2].loss != joao[2].loss
    assert uniform[2].loss < uniform[0].loss
    # One step from the uniform law: the larger the loss of a pair, the more probable it is.
    losses, law = (np.array(table).flatten() for table in (joao[0].pair_losses, joao[0].probabilities))
    assert (np.diff(law[np.argsort(losses)]) >= 0).all()
    assert law.max() > 1.01 / 25
    assert [each.pair_losses for each in uniform] == [None] * 3
    for each in trained.values():
        embeddings = each.embed(dataset)
        assert embeddings.isfinite().all()
        assert embeddings.std(dim=0).min() > 0


@pytest.mark.parametrize("started_fast", [True, False])
def test_resumed_run_keeps_its_training_path(tmp_path, started_fast):
    undisturbed = pretrain(RECIPE, GRAPHS, device="cpu", fast=started_fast)
    interrupt_after(2, tmp_path / "cut", checkpoint_every=1, fast=started_fast)
    with refused(tmp_path / "cut", "fast" if started_fast else "plain", "32-true"):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "cut", resume=True, device="cpu", fast=not started_fast)
    with refused(tmp_path / "cut", "fast" if started_fast else "plain", "32-true"):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "cut", resume=True, device="cpu", precision="bf16-mixed")
    resumed = pretrain(RECIPE, GRAPHS, folder=tmp_path / "cut", resume=True, device="cpu")
    assert resumed.info.fast == started_fast
    assert same_tensors(resumed.weights, undisturbed.weights)


def test_pretraining_is_independent_of_the_global_generators():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first = pretrain(small(), GRAPHS, device="cpu")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    torch.manual_seed(1)
    assert same_tensors(first.weights, pretrain(small(), GRAPHS, device="cpu").weights)


def test_dropout_is_seeded_and_resumed_exactly(tmp_path):
    own = CustomParts(encoder=Forgetful(4))
    torch.manual_seed(1)
    undisturbed = pretrain(RECIPE, GRAPHS, device="cpu", custom=own)
    torch.manual_seed(2)
    assert same_tensors(pretrain(RECIPE, GRAPHS, device="cpu", custom=own).weights, undisturbed.weights)
    interrupt_after(2, tmp_path / "run", custom=own, checkpoint_every=1)
    resumed = pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", resume=True, device="cpu", custom=own)
    assert same_tensors(resumed.weights, undisturbed.weights)
    asked = iter([False] * 5 + [True])  # inside the second epoch of three steps
    with pytest.raises(errors.Interrupted, match="step 5"):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "part", device="cpu", custom=own, should_stop=lambda: next(asked))
    torch.manual_seed(3)
    resumed = pretrain(RECIPE, GRAPHS, folder=tmp_path / "part", resume=True, device="cpu", custom=own)
    assert same_tensors(resumed.weights, undisturbed.weights)


def test_writing_a_run_does_not_change_the_result(tmp_path):
    told = []
    written = pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu", on_epoch=told.append)
    alone = pretrain(RECIPE, GRAPHS, device="cpu")
    assert same_tensors(written.weights, alone.weights)
    assert told == written.metrics == Run.open(tmp_path / "run").metrics()
    assert [each.epoch for each in told] == [1, 2, 3, 4]


@pytest.mark.parametrize("parts", [METHODS["joao"], METHODS["joaov2"], {"objective": "bootstrap"}], ids=str)
@pytest.mark.parametrize(("interrupted_after", "checkpoint_every"), [(1, 1), (3, 1), (3, 2)])
def test_resumed_run_equals_an_uninterrupted_one(tmp_path, parts, interrupted_after, checkpoint_every):
    recipe = make_recipe({**RECIPE.table(), **parts})
    undisturbed = pretrain(recipe, GRAPHS, folder=tmp_path / "whole", device="cpu")
    interrupt_after(interrupted_after, tmp_path / "cut", recipe, checkpoint_every=checkpoint_every)
    resumed = pretrain(recipe, GRAPHS, folder=tmp_path / "cut", resume=True, device="cpu")
    assert same_tensors(resumed.weights, undisturbed.weights)
    assert same_tensors(*(Run.open(tmp_path / name).weights() for name in ("whole", "cut")))
    assert read_untimed(tmp_path / "cut") == read_untimed(tmp_path / "whole") == untimed(resumed.metrics)
    assert not list((tmp_path / "cut").glob("*checkpoint*"))


def test_run_can_be_interrupted_twice(tmp_path):
    undisturbed = pretrain(RECIPE, GRAPHS, device="cpu")
    interrupt_after(1, tmp_path / "cut", checkpoint_every=1)
    interrupt_after(3, tmp_path / "cut", checkpoint_every=1, resume=True)
    resumed = pretrain(RECIPE, GRAPHS, folder=tmp_path / "cut", resume=True, device="cpu")
    assert same_tensors(resumed.weights, undisturbed.weights)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"dataset": random_graphs(14, mean_nodes=6, seed=2)}, "synthetic"),
        ({"dataset": GRAPHS.subset(np.arange(13))}, "synthetic"),
        ({"recipe": make_recipe({"training": {"epochs": 5, "batch_size": 5, "seed": 3}})}, "recipe"),
        ({"custom": CustomParts(objective=NtXent())}, "recipe"),
    ],
)
def test_resuming_with_other_settings_or_data_is_rejected(tmp_path, change, value):
    interrupt_after(1, tmp_path / "run", checkpoint_every=1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with refused(tmp_path / "run", value):
        pretrain(**{"recipe": RECIPE, "dataset": GRAPHS, **change}, folder=tmp_path / "run", resume=True, device="cpu")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_resuming_with_other_custom_objects_is_rejected(tmp_path):
    interrupt_after(1, tmp_path / "run", checkpoint_every=1, custom=CustomParts(augmentations={"drop": NodeDrop(0.1)}))
    with refused(tmp_path / "run", "parts"):
        pretrain(
            RECIPE,
            GRAPHS,
            folder=tmp_path / "run",
            resume=True,
            device="cpu",
            custom=CustomParts(augmentations={"drop": NodeDrop(0.9)}),
        )


@pytest.mark.parametrize(
    ("options", "values"),
    [({"resume": True}, ["resume", "folder"]), ({"checkpoint_every": 0}, ["checkpoint_every", 1, 0])],
)
def test_invalid_options_are_rejected(options, values):
    with refused(*values):
        pretrain(RECIPE, GRAPHS, device="cpu", **options)


def test_failed_run_leaves_nothing_and_interrupted_run_resumes(tmp_path):
    diverging = make_recipe({"training": {"epochs": 2, "batch_size": 5, "learning_rate": 1e30}})
    with refused("nan", "step 2", "epoch 1", "learning rate", "1e+30"):
        pretrain(diverging, GRAPHS, folder=tmp_path / "lost", device="cpu")
    assert list(tmp_path.iterdir()) == []
    undisturbed = pretrain(RECIPE, GRAPHS, device="cpu")
    interrupt_after(1, tmp_path / "young")
    resumed = pretrain(RECIPE, GRAPHS, folder=tmp_path / "young", resume=True, device="cpu")
    assert same_tensors(resumed.weights, undisturbed.weights)


def test_embedding_with_nan_weights_raises():
    trained = pretrain(small(), GRAPHS, device="cpu")
    with torch.no_grad():
        next(trained.encoder.parameters()).fill_(torch.nan)
    with refused("synthetic", "graph 0"):
        trained.embed(GRAPHS)


def test_training_uses_one_thread_by_default(monkeypatch):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for setting, expected in (("", 1), ("2", 2)):
            monkeypatch.setenv("OMP_NUM_THREADS", setting)
            assert pretrain(small(), GRAPHS, device="cpu").info.machine["threads"] == expected
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_labels_never_reach_pretraining():
    shuffled = dataclasses.replace(GRAPHS, classes=np.roll(GRAPHS.classes, 1))
    assert not np.array_equal(shuffled.classes, GRAPHS.classes)
    unlabelled = dataclasses.replace(GRAPHS, classes=None, class_names=())
    runs = [pretrain(RECIPE, dataset, device="cpu") for dataset in (GRAPHS, shuffled, unlabelled)]
    for run in runs[1:]:
        assert same_tensors(run.weights, runs[0].weights)
        assert torch.equal(run.embed(GRAPHS), runs[0].embed(GRAPHS))
        assert run.info.fingerprint == runs[0].info.fingerprint


@pytest.mark.parametrize("kind", [GraphStore, GraphBatch])
def test_stores_have_no_field_for_labels(kind):
    names = {each.name for each in dataclasses.fields(kind)}
    assert names <= {"x", "source", "target", "edge_attr", "first_node", "first_edge", "graph_of_node", "num_graphs"}


def test_loaded_run_gives_the_same_embeddings(tmp_path):
    trained = pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu")
    loaded = load_run(tmp_path / "run", device="cpu")
    unseen = random_graphs(5, mean_nodes=6, seed=9)
    assert torch.equal(loaded.embed(GRAPHS), trained.embed(GRAPHS))
    assert torch.equal(loaded.embed(unseen), trained.embed(unseen))
    assert loaded.recipe == trained.recipe
    assert dataclasses.replace(loaded.info, finished=False) == trained.info
    assert loaded.metrics == trained.metrics
    np.testing.assert_array_equal(loaded.policy.values, trained.metrics[-1].probabilities)


def test_saving_writes_the_same_files_as_training(tmp_path):
    trained = pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu")
    trained.save(tmp_path / "saved")
    for path in (tmp_path / "run").iterdir():
        assert (tmp_path / "saved" / path.name).read_bytes() == path.read_bytes()


def test_drawn_is_the_share_over_all_epochs():
    trained = pretrain(RECIPE, GRAPHS, device="cpu")
    counts = sum(np.array(each.drawn) for each in trained.metrics)
    assert counts.sum() == 4 * len(GRAPHS)
    np.testing.assert_allclose(trained.drawn.values, counts / (4 * len(GRAPHS)))
    assert (
        trained.drawn.names == trained.policy.names == ("node_drop", "subgraph", "edge_perturb", *trained.info.pool[3:])
    )


def test_one_graph_can_be_embedded():
    trained = pretrain(small(), GRAPHS, device="cpu")
    together = trained.embed(GRAPHS)
    for number in (0, 5):
        torch.testing.assert_close(trained.embed(GRAPHS.subset(np.array([number])))[0], together[number])


@pytest.mark.parametrize("columns", [0, 2])
def test_other_edge_attributes_are_rejected(columns):
    encoder = {"name": "convolutions", "convolution": "GATv2Conv", "width": 4, "layers": 1}
    recipe = make_recipe({"encoder": encoder, "training": {"epochs": 1}})
    trained = pretrain(recipe, random_graphs(8, mean_nodes=6, num_edge_attributes=1), device="cpu")
    other = random_graphs(8, mean_nodes=6, num_edge_attributes=columns)
    with refused("synthetic", columns, "edge attributes", 1):
        trained.embed(other)


def test_graphs_without_edges_need_no_edge_attributes():
    encoder = {"name": "convolutions", "convolution": "GATv2Conv", "width": 4, "layers": 1}
    graphs = random_graphs(8, mean_nodes=6, num_edge_attributes=2)
    trained = pretrain(make_recipe({"encoder": encoder, "training": {"epochs": 1}}), graphs, device="cpu")
    edgeless = np.flatnonzero(np.diff(graphs.first_edge) == 0)
    assert len(edgeless)
    alone = dataclasses.replace(graphs.subset(edgeless), edge_attr=None)
    torch.testing.assert_close(trained.embed(alone), trained.embed(graphs)[edgeless])


def test_encoders_that_ignore_edge_attributes_accept_others():
    graphs = random_graphs(8, mean_nodes=6, num_edge_attributes=1)
    trained = pretrain(small(), graphs, device="cpu")
    assert torch.equal(trained.embed(dataclasses.replace(graphs, edge_attr=None)), trained.embed(graphs))


def test_pretraining_on_one_graph_is_rejected(tmp_path):
    with refused("graphs"):
        pretrain(small(), GRAPHS.subset(np.array([2])), folder=tmp_path / "run", device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_weights_that_do_not_match_the_recipe_are_rejected(tmp_path):
    pretrain(small(), GRAPHS, folder=tmp_path / "run", device="cpu")
    path = tmp_path / "run" / "recipe.toml"
    path.write_text(path.read_text().replace("width = 32", "width = 16"))
    with refused(tmp_path / "run", "recipe", "[32, 4]", "[16, 4]"):
        load_run(tmp_path / "run", device="cpu")


def test_untrained_encoder_has_initial_weights_and_calibrated_normalisation():
    features = Features.from_dataset(GRAPHS)
    store = make_store(GRAPHS, features)
    recipe = make_recipe({**FOUR, "training": {"batch_size": 100}})
    encoder = build_method(recipe, store).encoder
    batch = store.batch(torch.arange(len(store)))

    # By hand: a pass that normalises by the batch, here all graphs, collects the statistics of every layer ...
    x, statistics = batch.x, []
    for mlp in encoder.mlps:
        hidden = torch.relu(mlp(x.index_add(0, batch.target, x[batch.source])))
        statistics.append((hidden.mean(0), hidden.var(0, unbiased=True)))
        x = (hidden - hidden.mean(0)) / torch.sqrt(hidden.var(0, unbiased=False) + 1e-5)
    # ... and a second one uses them.
    x, pooled = batch.x, []
    for mlp, (mean, variance) in zip(encoder.mlps, statistics, strict=True):
        hidden = torch.relu(mlp(x.index_add(0, batch.target, x[batch.source])))
        x = (hidden - mean) / torch.sqrt(variance + 1e-5)
        pooled.append(torch.zeros(len(store), x.shape[1]).index_add(0, batch.graph_of_node, x))

    calibrated = make_untrained(recipe, GRAPHS, features, device="cpu").embed(GRAPHS)
    torch.testing.assert_close(calibrated, torch.cat(pooled, dim=1).detach(), atol=1e-4, rtol=1e-4)
    straw_man = embed(encoder, store)
    assert torch.equal(
        make_untrained(recipe, GRAPHS, features, calibrated=False, device="cpu").embed(GRAPHS), straw_man
    )
    assert not torch.allclose(calibrated, straw_man, atol=1e-2)
    in_small_batches = make_recipe({**FOUR, "training": {"batch_size": 5}})
    assert not torch.equal(make_untrained(in_small_batches, GRAPHS, features, device="cpu").embed(GRAPHS), calibrated)


def test_encoder_alone_has_the_same_initial_weights_as_in_the_method():
    store = make_store(GRAPHS, Features.from_dataset(GRAPHS))
    for method in METHODS:
        recipe = small(method)
        alone, within = build_encoder(recipe, store), build_method(recipe, store).encoder
        assert same_tensors(alone.state_dict(), within.state_dict())


def test_untrained_does_not_depend_on_the_pretraining():
    features = Features.from_dataset(GRAPHS)
    first, second = (
        make_untrained(
            make_recipe({"method": method, "training": {"epochs": epochs}}), GRAPHS, features, device="cpu"
        ).embed(GRAPHS)
        for method, epochs in (("joao", 1), ("joaov2", 9))
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"device": "gpu"}, ["device", "auto", "cpu", "cuda", "'gpu'"]),
        ({"device": "cuda"}, ["device", "cuda", "--device cpu"]),
        ({"precision": "8-bit"}, ["precision", "32-true", "tf32", "bf16-mixed", "16-mixed", "'8-bit'"]),
        ({"precision": "16-mixed", "device": "cpu"}, ["precision", "16-mixed", "bf16-mixed", "32-true"]),
    ],
)
def test_unavailable_devices_and_precisions_are_rejected(options, values, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused(*values):
        pretrain(small(), GRAPHS, folder=tmp_path / "run", **options)
    assert list(tmp_path.iterdir()) == []


def test_mixed_precision_trains_nearly_the_same(tmp_path):
    full = pretrain(small(), GRAPHS, device="cpu")
    mixed = pretrain(small(), GRAPHS, device="cpu", precision="bf16-mixed", folder=tmp_path / "run")
    assert Run.open(tmp_path / "run").info.precision == "bf16-mixed"
    assert mixed.metrics[0].loss == pytest.approx(full.metrics[0].loss, rel=0.05)
    assert mixed.metrics[0].loss != full.metrics[0].loss  # or it was not mixed
    assert {value.dtype for value in mixed.weights.values()} <= {torch.float32, torch.int64}


OWN = CustomParts(
    augmentations={"mine": NodeDrop(0.3), "same": Identity()}, encoder=NodeSum(4), objective=NtXent(temperature=1.0)
)


def test_custom_parts_are_used_and_recorded(tmp_path):
    trained = pretrain(small(), GRAPHS, folder=tmp_path / "run", device="cpu", custom=OWN)
    info = Run.open(tmp_path / "run").info
    assert info.pool == ("mine", "same")
    assert info.own == {
        "augmentations": repr(OWN.augmentations),
        "encoder": repr(OWN.encoder),
        "objective": repr(OWN.objective),
    }
    assert trained.embed(GRAPHS).shape == (14, 6)
    assert np.shape(trained.metrics[0].probabilities) == (2, 2)
    assert trained.metrics[0].loss != pretrain(small(), GRAPHS, device="cpu").metrics[0].loss


def test_custom_modules_are_copied():
    module = NodeSum(4)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    trained = pretrain(small(), GRAPHS, device="cpu", custom=CustomParts(encoder=module))
    assert same_tensors(module.state_dict(), before)
    learned = {name.removeprefix("module."): value for name, value in trained.encoder.state_dict().items()}
    assert not same_tensors(learned, before)


def test_node_objectives_reject_encoders_without_node_vectors():
    with refused("NodeSum", "gin", "res_gcn", "molecule_gin"):
        pretrain(
            make_recipe({**FOUR, "method": "infomax"}), GRAPHS, device="cpu", custom=CustomParts(encoder=NodeSum(4))
        )


def test_loading_needs_the_custom_encoder(tmp_path):
    trained = pretrain(small(), GRAPHS, folder=tmp_path / "run", device="cpu", custom=OWN)
    with refused(tmp_path / "run", "JOAO.load(folder, encoder=...)"):
        load_run(tmp_path / "run", device="cpu")
    loaded = load_run(tmp_path / "run", device="cpu", encoder=NodeSum(4))
    assert torch.equal(loaded.embed(GRAPHS), trained.embed(GRAPHS))
    with refused(tmp_path / "run", "recipe", "mlps.0.0.weight"):
        load_run(tmp_path / "run", device="cpu", encoder=Gin(4))


def test_loading_does_not_need_custom_augmentations(tmp_path):
    recipe = make_recipe({**small().table(), "policy": {"name": "fixed", "pair": ["mine", "same"]}})
    own = CustomParts(augmentations=OWN.augmentations)
    trained = pretrain(recipe, GRAPHS, folder=tmp_path / "run", device="cpu", custom=own)
    loaded = load_run(tmp_path / "run", device="cpu")
    assert torch.equal(loaded.embed(GRAPHS), trained.embed(GRAPHS))
    assert loaded.policy["mine", "same"] == 1


MASKING = [{"name": "attribute_mask", "fill": "token"}, "node_drop", "edge_perturb", "subgraph", "identity"]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])  # of node numbers; large molecules need the second
def test_molecules_train_with_atoms_and_bonds(fast, dtype):
    ends = {"source": GRAPHS.source.astype(dtype), "target": GRAPHS.target.astype(dtype)}
    molecules = dataclasses.replace(MOLECULES, **ends)
    parts = {"encoder": {"name": "molecule_gin", "width": 8, "layers": 2}, "augmentations": MASKING}
    trained = pretrain(small("joaov2", parts, epochs=3), molecules, device="cpu", fast=fast)
    assert trained.info.features.rule == "atoms"
    assert (trained.info.num_features, trained.info.num_edge_features) == (2, 2)
    assert trained.info.fast == fast
    embeddings = trained.embed(molecules)
    other_bonds = dataclasses.replace(MOLECULES, edge_attr=MOLECULES.edge_attr ^ np.uint8([1, 0]))
    changed = (trained.embed(other_bonds) != embeddings).any(dim=1).numpy()
    assert (changed == (np.diff(MOLECULES.first_edge) > 0)).all()


@pytest.mark.parametrize(
    ("graphs", "table", "values"),
    [
        (GRAPHS, {"encoder": "molecule_gin", "features": "atoms"}, ["synthetic", "'atoms'", "'auto'"]),
        (GRAPHS, {"encoder": "molecule_gin"}, ["MoleculeGin", 4, 0, "gin"]),
        (MOLECULES, {"encoder": "gin", "features": "auto"}, ["Gin", "'atoms'", "features = 'labels'"]),
        (MOLECULES, {"encoder": "molecule_gin", "features": "labels"}, ["MoleculeGin", 12, 2, "gin"]),
        (MOLECULES, {"encoder": "molecule_gin"}, ["'atoms'", "fill", "'token'", "'noise'"]),
        (GRAPHS, {"augmentations": MASKING}, ["fill", "'noise'", "'mean'", "'token'"]),
        (GRAPHS, {"method": "attr_masking"}, ["AttributeMasking", "molecule_gin"]),
    ],
)
def test_category_codes_and_numeric_features_are_not_mixed(graphs, table, values):
    with refused(*values):
        pretrain(make_recipe({**table, "training": {"epochs": 1}}), graphs, device="cpu")


@pytest.mark.parametrize("method", ["joao", "joaov2", "graphcl", "infograph"])
@pytest.mark.parametrize("pair_per", ["batch", "graph"])
def test_shards_and_memory_train_identically(method, pair_per, as_shards):
    shards, recipe = as_shards(GRAPHS, rows=4), small(method, epochs=2, pair_per=pair_per)
    one, other = (pretrain(recipe, graphs, device="cpu") for graphs in (GRAPHS, shards))
    assert untimed(one.metrics) == untimed(other.metrics)
    assert same_tensors(one.weights, other.weights)
    assert other.info.num_graphs == 14
    torch.testing.assert_close(other.embed(shards), one.embed(GRAPHS))


@pytest.fixture
def in_windows(monkeypatch):
    """As if a store of fourteen graphs were a large one: windows of eight graphs, of blocks of two."""
    monkeypatch.setattr(shard_store, "BLOCK", 2)
    monkeypatch.setattr(training_module, "BatchSampler", partial(BatchSampler, window=8))


def test_store_with_several_windows_resumes_exactly(as_shards, in_windows, tmp_path):
    shards = as_shards(GRAPHS, rows=4)
    whole = pretrain(RECIPE, shards, folder=tmp_path / "whole", device="cpu")
    assert untimed(whole.metrics) != untimed(pretrain(RECIPE, GRAPHS, device="cpu").metrics)

    def stop(metrics):
        if metrics.epoch == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        pretrain(RECIPE, shards, folder=tmp_path / "part", device="cpu", on_epoch=stop, checkpoint_every=2)
    again = pretrain(RECIPE, shards, folder=tmp_path / "part", device="cpu", resume=True)
    assert same_tensors(whole.weights, again.weights)
    assert read_untimed(tmp_path / "whole") == read_untimed(tmp_path / "part")
    with refused(tmp_path / "part", "synthetic"):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "part", device="cpu", resume=True)


@pytest.mark.parametrize("method", ["joao", "infograph"])
def test_training_on_shards_loads_one_batch_at_a_time(method, as_shards, in_windows, monkeypatch):
    taken, graphs = [], Shards.graphs

    def counted(self, numbers):
        taken.append(len(numbers))
        return graphs(self, numbers)

    def nothing(*arguments):
        pytest.fail("read_packed")

    shards = as_shards(GRAPHS, rows=4)
    monkeypatch.setattr(Shards, "graphs", counted)
    monkeypatch.setattr(shards_module, "read_packed", nothing)
    pretrain(small(method, batch_size=3), shards, device="cpu")
    assert max(taken) <= 4  # a last graph joins its neighbours
    assert sum(taken) >= len(GRAPHS)
