"""JOAO behaves like any scikit-learn transformer, on lists of graphs."""

import dataclasses
import json
import pickle
import subprocess
import sys
import warnings
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import nn
from typer.testing import CliRunner

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch-geometric warns about torch.jit when it is loaded
    from torch_geometric.data import Data
    from torch_geometric.nn import GCNConv, global_add_pool

import joao
from joao.augmentations import Identity, NodeDrop
from joao.cli.main import app
from joao.config.recipe import METHODS, make_recipe
from joao.core.errors import short_repr
from joao.data.synthetic import random_graphs
from joao.estimators import joao as estimator
from joao.objectives import NtXent, PairObjective
from joao.runs.pretraining import pretrain
from tests.messages import assert_mentions, notice, refused

OPTIONS = {"epochs": 1, "batch_size": 8, "device": "cpu"}


def data_list(num_graphs=16, seed=0):
    """Labelled graphs as torch-geometric has them, with two classes that their attributes tell apart."""
    dataset = random_graphs(num_graphs, mean_nodes=6, num_node_labels=0, num_attributes=3, seed=seed)
    graphs = []
    for number in range(num_graphs):
        nodes = slice(*dataset.first_node[number : number + 2])
        edges = slice(*dataset.first_edge[number : number + 2])
        index = np.stack([dataset.source[edges], dataset.target[edges]]).astype(np.int64)
        x = torch.from_numpy(dataset.node_attributes[nodes])
        graphs.append(Data(x=x, edge_index=torch.from_numpy(index), y=int(dataset.classes[number])))
    return graphs


GRAPHS = data_list()
MOLECULES = ["CCO", "c1ccccc1", "CC(=O)O", "C[C@H](N)C(=O)O", "[Na+].[Cl-]", "F/C=C/F", "C", "CCO", "OCC(O)CO"]
SMALL = {"name": "molecule_gin", "width": 16, "layers": 2}
CLASSES = [graph.y for graph in GRAPHS]


@pytest.fixture(scope="module")
def fitted():
    return joao.JOAO(**OPTIONS).fit(GRAPHS)


@dataclass(frozen=True)
class Double(joao.Augmentation):
    """A user's own augmentation, in the fewest lines."""

    def __call__(self, batch, generator):
        return dataclasses.replace(batch, x=batch.x * (2 if self.strength else 1))


@dataclass(frozen=True)
class Distance(PairObjective):
    """A user's own objective."""

    def __call__(self, first, second):
        return (first - second).square().mean(dim=(-2, -1))


class TwoLayers(nn.Module):
    """A user's own torch-geometric module."""

    def __init__(self, num_features=3, width=5):
        super().__init__()
        self.first, self.second = GCNConv(num_features, width), GCNConv(width, width)

    def forward(self, x, edge_index, batch, batch_size):
        x = self.second(torch.relu(self.first(x, edge_index)), edge_index)
        return global_add_pool(x, batch, size=batch_size)


def same_weights(first, second):
    first, second = first.encoder_.state_dict(), second.encoder_.state_dict()
    return all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


def test_one_row_a_graph_in_the_order_given(fitted):
    embeddings = fitted.transform(GRAPHS)
    assert embeddings.shape == (16, 3 * 96 + 3 + 8)  # three readouts of all layers, attributes and random walks
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(fitted.transform(GRAPHS[::-1]), embeddings[::-1], rtol=1e-5, atol=1e-5)


def test_fit_transform_is_fit_and_transform(fitted):
    np.testing.assert_array_equal(joao.JOAO(**OPTIONS).fit_transform(GRAPHS), fitted.transform(GRAPHS))


def test_embeddings_of_new_graphs_do_not_depend_on_other_graphs(fitted):
    unseen = data_list(5, seed=3)
    embeddings = fitted.transform(unseen)
    for number, graph in enumerate(unseen):
        np.testing.assert_allclose(fitted.transform([graph])[0], embeddings[number], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fitted.transform([*GRAPHS, *unseen])[16:], embeddings, rtol=1e-4, atol=1e-4)


def test_labels_have_no_effect(fitted):
    relabelled = [Data(x=graph.x, edge_index=graph.edge_index, y=number) for number, graph in enumerate(GRAPHS)]
    bare = [Data(x=graph.x, edge_index=graph.edge_index) for graph in GRAPHS]
    for graphs, y in ((GRAPHS, CLASSES), (GRAPHS, ["nonsense"]), (relabelled, None), (bare, CLASSES[::-1])):
        assert same_weights(joao.JOAO(**OPTIONS).fit(graphs, y), fitted)


def test_labels_are_not_passed_to_pretrain(monkeypatch):
    seen = []

    def spied(recipe, dataset, **options):
        seen.append(dataset)
        return pretrain(recipe, dataset, **options)

    monkeypatch.setattr(estimator, "pretrain", spied)
    joao.JOAO(**OPTIONS).fit(GRAPHS, CLASSES)
    (dataset,) = seen
    assert (dataset.classes, dataset.class_names) == (None, ())


def test_random_state_sets_the_seed_and_none_draws_one(fitted):
    other = joao.JOAO(**OPTIONS, random_state=1).fit(GRAPHS)
    assert not same_weights(other, fitted)
    first, second = (joao.JOAO(**OPTIONS, random_state=None).fit(GRAPHS) for _ in range(2))
    assert not same_weights(first, second)


def test_params_are_got_set_and_cloned(fitted):
    model = joao.JOAO("joaov2", gamma=0.3)
    assert model.get_params()["method"] == "joaov2"
    assert model.set_params(epochs=7) is model
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert copied.epochs == 7
    with pytest.raises(NotFittedError):
        clone(fitted).transform(GRAPHS)
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        model.set_params(epoch=3)


def test_params_reach_the_recipe():
    model = joao.JOAO(
        "joaov2",
        features="degree",
        augmentations=["node_drop", {"name": "subgraph", "strength": 0.1}],
        strength=0.4,
        encoder={"name": "gin", "width": 4},
        objective={"name": "nt_xent", "temperature": 0.5},
        gamma=0.7,
        epochs=np.int64(1),
        batch_size=4,
        learning_rate=0.002,
        random_state=5,
        device="cpu",
    ).fit(GRAPHS)
    recipe = model.trained_.recipe
    assert recipe.heads.name == METHODS["joaov2"]["heads"]
    assert recipe.features == "degree"
    assert [(part.name, part.options["strength"]) for part in recipe.augmentations] == [
        ("node_drop", 0.4),
        ("subgraph", 0.1),
    ]
    assert recipe.encoder.options["width"] == 4
    assert recipe.objective.options["temperature"] == 0.5
    assert recipe.policy.options["gamma"] == 0.7
    training = recipe.training
    assert (training.epochs, training.batch_size, training.learning_rate, training.seed) == (1, 4, 0.002, 5)
    assert model.transform(GRAPHS).shape == (16, 3 * 12 + 65)


@pytest.mark.parametrize(
    ("policy", "gamma"),
    [
        (None, 0.7),
        ("maximiser", 0.7),
        ({"name": "min_max", "step": 0.5}, 0.7),
        ({"step": 0.5}, 0.7),
        ({"name": "min_max", "gamma": 0.2}, 0.2),
        ("uniform", None),
    ],
)
def test_gamma_is_passed_to_policies_that_have_one(policy, gamma):
    recipe = joao.JOAO(policy=policy, gamma=0.7)._recipe()
    assert recipe.policy.options.get("gamma") == gamma


@pytest.mark.parametrize("policy", ["min_max", "maximiser", "kullback_leibler"])
def test_default_gamma_is_that_of_the_policy(policy):
    assert joao.JOAO(policy=policy)._recipe().policy == make_recipe({"policy": policy}).policy


def test_strengths_reach_the_recipe():
    model = joao.JOAO("joao_strengths", strengths={0.1: 1, 0.4: 3}, augmentations=["subgraph", "identity"])
    recipe = clone(model)._recipe()
    assert [part.options["strength"] for part in recipe.augmentations[:2]] == [0.1, 0.4]
    assert recipe.policy.options["prior"] == [0.125, 0.375, 0.5]
    assert joao.JOAO("joao_strengths")._recipe() == make_recipe({"method": "joao_strengths", "strength": 0.2})
    # Objects have strengths of their own, and an equal prior.
    own = joao.JOAO("joao_strengths", augmentations=[NodeDrop(0.1), NodeDrop(0.4)], **OPTIONS).fit(GRAPHS)
    assert own.policy_.values.shape == (2, 2)
    with refused("JOAO", "strengths", "augmentation"):
        joao.JOAO(strengths=[0.1], augmentations=[NodeDrop(0.1), NodeDrop(0.4)]).fit(GRAPHS)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"method": "joao3"}, ["JOAO", "'joao3'", "'joao'", "joaov2"]),
        ({"augmentations": []}, ["JOAO", "augmentations", '["node_drop", "subgraph"]', "[]"]),
        ({"augmentations": ["nodedrop"]}, ["augmentations", "'nodedrop'", "'node_drop'"]),
        ({"augmentations": ["node_drop", Double()]}, ["augmentations", "'node_drop'"]),
        ({"augmentations": [Double]}, ["augmentations", "Double()"]),
        ({"augmentations": [Double(), Double(), Double()]}, ["augmentations", Double()]),
        ({"encoder": "gat"}, ["encoder", "'gat'", "gin"]),
        ({"policy": 3}, ["policy", 3]),
        ({"epochs": 0}, ["epochs", 1, 0]),
        ({"epochs": 2.5}, ["epochs", 2.5]),
        ({"strength": 1.0}, ["strength", "[0, 1)", 1.0]),
        ({"device": "tpu"}, ["device", "auto", "cpu", "cuda", "'tpu'"]),
        ({"precision": "half"}, ["precision", "32-true", "bf16-mixed", "'half'"]),
    ],
)
def test_fit_rejects_wrong_parameters(options, values):
    with refused(*values):
        joao.JOAO(**{**OPTIONS, **options}).fit(GRAPHS)


def test_the_learned_policy_has_names(fitted):
    table = fitted.policy_
    assert isinstance(table, joao.PairTable)
    np.testing.assert_array_equal(table.values, fitted.history_[-1].probabilities)
    assert table.values.sum() == pytest.approx(1)
    assert table.names == ("node_drop", "subgraph", "edge_perturb", "attribute_mask", "identity")
    assert fitted.drawn_.values.sum() == pytest.approx(1)
    assert fitted.drawn_.names == table.names


@pytest.mark.parametrize("use", ["policy_", "drawn_", "history_", "encoder_", "save", "transform", "names"])
def test_not_fitted(use, tmp_path):
    model = joao.JOAO()
    uses = {
        "save": lambda: model.save(tmp_path / "run"),
        "transform": lambda: model.transform(GRAPHS),
        "names": model.get_feature_names_out,
    }
    with pytest.raises(NotFittedError):
        uses.get(use, lambda: getattr(model, use))()
    assert list(tmp_path.iterdir()) == []


def test_in_a_pipeline_with_a_grid_search():
    pipeline = make_pipeline(joao.JOAO(**OPTIONS), StandardScaler(), SVC())
    search = GridSearchCV(pipeline, {"joao__epochs": [1, 2]}, cv=StratifiedKFold(2))
    search.fit(GRAPHS, CLASSES)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_.named_steps["joao"]
    assert len(best.history_) == search.best_params_["joao__epochs"]
    # The same by hand.
    by_hand = joao.JOAO(**{**OPTIONS, "epochs": search.best_params_["joao__epochs"]})
    embeddings = by_hand.fit_transform(GRAPHS)
    machine = make_pipeline(StandardScaler(), SVC()).fit(embeddings, CLASSES)
    unseen = data_list(6, seed=4)
    np.testing.assert_array_equal(search.predict(unseen), machine.predict(by_hand.transform(unseen)))


def test_pandas_output():
    frame = joao.JOAO(**OPTIONS).set_output(transform="pandas").fit_transform(GRAPHS)
    assert list(frame.columns) == [f"joao{number}" for number in range(299)]
    assert list(frame.index) == list(range(16))
    np.testing.assert_array_equal(frame.to_numpy(), joao.JOAO(**OPTIONS).fit_transform(GRAPHS))


@pytest.mark.parametrize("kind", ["networkx", "Dataset", "name"])
def test_other_kinds_of_graphs(kind, monkeypatch):
    monkeypatch.delenv("JOAO_DATA", raising=False)
    graphs = {
        "networkx": [nx.cycle_graph(number) for number in range(3, 9)],
        "Dataset": random_graphs(6, mean_nodes=6),
        "name": "MUTAG",
    }[kind]
    embeddings = joao.JOAO(**OPTIONS).fit_transform(graphs)
    assert embeddings.shape == {"networkx": (6, 361), "Dataset": (6, 300), "name": (188, 303)}[kind]
    assert np.isfinite(embeddings).all()


def test_directed_graphs_warn():
    directed = [Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]])) for _ in range(4)]
    with notice("graphs", 8, "directed"):
        model = joao.JOAO(**OPTIONS).fit(directed)
    with notice("graphs", 8, "directed"):
        model.transform(directed)


def test_unknown_node_labels_warn():
    model = joao.JOAO(**OPTIONS).fit(random_graphs(6, mean_nodes=6, num_node_labels=2))
    unseen = random_graphs(6, mean_nodes=6, num_node_labels=5, num_classes=1)
    count = int((unseen.node_labels > 1).sum())
    assert count > 0
    with notice("synthetic", count):
        model.transform(unseen)


def test_graphs_with_other_columns_are_refused(fitted):
    two_columns = [Data(x=graph.x[:, :2], edge_index=graph.edge_index) for graph in GRAPHS]
    with refused("graphs", 2, "attributes", 3):
        fitted.transform(two_columns)
    dataset = random_graphs(6, mean_nodes=6, num_node_labels=2)
    model = joao.JOAO(**OPTIONS).fit(dataset)
    wider = dataclasses.replace(dataset, node_labels=np.repeat(dataset.node_labels, 2, axis=1))
    with refused("synthetic", 2, "labels", 1):
        model.transform(wider)


def test_own_augmentations():
    model = joao.JOAO(**OPTIONS, augmentations=[Double(), Identity(), NodeDrop(0.3)]).fit(GRAPHS)
    assert model.policy_.names == ("double", "identity", "node_drop")
    assert "Double(strength=0.2)" in model.trained_.info.own["augmentations"]


@pytest.mark.parametrize("strength", [0.0, 0.2])
def test_own_augmentation_makes_the_views(strength):
    pair = {"name": "fixed", "pair": ["double", "identity"]}
    pool = [Double(strength), Identity()]
    model = joao.JOAO(**OPTIONS, objective=Distance(), augmentations=pool, policy=pair).fit(GRAPHS)
    # Nothing but Double can make the two views differ, and at strength 0 it does not.
    assert (model.history_[0].loss > 0) == (strength > 0)
    assert model.policy_["double", "identity"] == 1


@pytest.mark.parametrize("objective", ["nt_xent", NtXent()])
def test_an_objective_of_pairs_needs_views_that_differ(objective):
    with refused("NtXent", "augmentations", "joao"):
        joao.JOAO("gae", objective=objective, **OPTIONS).fit(GRAPHS)
    for pool in (["node_drop"], [NodeDrop(0.2)]):
        joao.JOAO("gae", objective=objective, augmentations=pool, **OPTIONS).fit(GRAPHS)
    joao.JOAO(objective=objective, augmentations=["identity"], **OPTIONS).fit(GRAPHS)  # whoever says so


def test_own_encoder(tmp_path):
    module = TwoLayers()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = joao.JOAO(**OPTIONS, encoder=module)
    embeddings = model.fit_transform(GRAPHS)
    assert embeddings.shape == (16, 5)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])  # the user's own object is not trained, a copy is
    model.save(tmp_path / "run")
    with refused(tmp_path / "run", "JOAO.load(folder, encoder=...)"):
        joao.JOAO.load(tmp_path / "run")
    loaded = joao.JOAO.load(tmp_path / "run", encoder=TwoLayers(), device="cpu")
    np.testing.assert_array_equal(loaded.transform(GRAPHS), embeddings)
    assert clone(model).encoder is not module
    assert clone(model).fit_transform(GRAPHS).tolist() == embeddings.tolist()


def test_encoder_without_pooling_is_rejected():
    class NodesOnly(nn.Module):
        def forward(self, x):
            return x

    with refused("NodesOnly", "3)", "global_add_pool"):
        joao.JOAO(**OPTIONS, encoder=NodesOnly()).fit(GRAPHS)


def test_own_objective_is_recorded():
    model = joao.JOAO(**OPTIONS, objective=NtXent(temperature=0.9)).fit(GRAPHS)
    assert model.trained_.info.own == {"objective": repr(NtXent(temperature=0.9))}
    named = joao.JOAO(**OPTIONS, objective={"name": "nt_xent", "temperature": 0.9}).fit(GRAPHS)
    assert same_weights(model, named)
    assert named.trained_.info.own == {}


@pytest.mark.parametrize("method", METHODS)
def test_saved_and_loaded(method, tmp_path):
    graphs, options = GRAPHS, OPTIONS
    if method == "attr_masking":  # hides atoms
        pytest.importorskip("rdkit")
        graphs, options = MOLECULES, {**OPTIONS, "encoder": SMALL}
    model = joao.JOAO(method, **options).fit(graphs)
    model.save(tmp_path / "run")
    loaded = joao.JOAO.load(tmp_path / "run", device="cpu")
    np.testing.assert_array_equal(loaded.transform(graphs), model.transform(graphs))
    np.testing.assert_array_equal(loaded.policy_.values, model.policy_.values)
    assert loaded.policy_.names == model.policy_.names
    assert loaded.history_ == model.history_
    # Its parameters make the same model again.
    assert same_weights(clone(loaded).fit(graphs), model)


def test_loading_keeps_every_setting(tmp_path):
    settings = {"pair_per": "graph", "update_every": 2, "update_batches": 1, "decay": "cosine"}
    model = joao.JOAO("graphcl", features="degree", max_degree=3, training=settings, **OPTIONS).fit(GRAPHS)
    model.save(tmp_path / "run")
    loaded = joao.JOAO.load(tmp_path / "run", device="cpu")
    assert (loaded.method, loaded.max_degree, loaded.training) == ("graphcl", 3, settings)
    assert clone(loaded)._recipe() == model.trained_.recipe


@pytest.mark.parametrize(
    ("device", "is_fast", "fast"),
    [("cpu", False, None), ("cpu", True, True), ("cuda", True, None), ("cuda", False, False)],
)
def test_loading_keeps_the_path_that_was_asked_for(fitted, tmp_path, device, is_fast, fast):
    fitted.save(tmp_path / "run")
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    info["machine"]["device"], info["fast"] = device, is_fast
    (tmp_path / "run" / "run.json").write_text(json.dumps(info))
    assert joao.JOAO.load(tmp_path / "run", device="cpu").fast is fast


def test_a_loaded_model_does_not_fit_again_without_its_own_augmentations(tmp_path):
    joao.JOAO(augmentations=[NodeDrop(0.4), Identity()], **OPTIONS).fit(GRAPHS).save(tmp_path / "run")
    loaded = joao.JOAO.load(tmp_path / "run", device="cpu")
    assert loaded.transform(GRAPHS).shape == (len(GRAPHS), 299)
    with refused("augmentations", "'own node_drop'"):
        loaded.fit(GRAPHS, retrain=True)


def test_save_does_not_overwrite(fitted, tmp_path):
    (tmp_path / "mine").write_text("precious")
    with refused(tmp_path):
        fitted.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_a_saved_model_is_a_run_of_the_command_line_and_of_another_process(tmp_path, monkeypatch):
    monkeypatch.delenv("JOAO_DATA", raising=False)
    model = joao.JOAO(**OPTIONS).fit("MUTAG")
    model.save(tmp_path / "run")
    expected = model.transform("MUTAG")
    result = CliRunner().invoke(app, ["embed", str(tmp_path / "run"), "MUTAG", "--out", str(tmp_path / "here.npz")])
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "here.npz") as file:
        np.testing.assert_array_equal(file["embeddings"], expected)
    program = (
        "import joao, numpy, sys; model = joao.JOAO.load(sys.argv[1], device='cpu');"
        "numpy.save(sys.argv[2], model.transform('MUTAG')); print(model.policy_.top(1)[0][:2])"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "run"), str(tmp_path / "there.npy")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    np.testing.assert_array_equal(np.load(tmp_path / "there.npy"), expected)
    assert done.stdout.strip() == str(model.policy_.top(1)[0][:2])


def test_pickled_model_embeds_the_same(fitted):
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.transform(GRAPHS), fitted.transform(GRAPHS))
    np.testing.assert_array_equal(copied.policy_.values, fitted.policy_.values)


def test_molecules_are_embedded_row_by_row():
    pytest.importorskip("rdkit")
    model = joao.JOAO(epochs=1, encoder=SMALL, device="cpu").fit(MOLECULES)
    recipe = model.trained_.recipe
    assert (recipe.features, recipe.training.batch_size, recipe.training.learning_rate) == ("atoms", 256, 0.001)
    alone = {text: model.transform([text])[0] for text in ("CCO", "C")}
    with notice("molecules", "2 of 4", "NaN", "row 1", "'C1CC'"):
        found = model.transform(["C", "C1CC", "CCO", None])
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False, True]
    np.testing.assert_allclose(found[[0, 2]], [alone["C"], alone["CCO"]], rtol=1e-5)
    with notice("1 of 1", "NaN"):
        assert np.isnan(model.transform(["C1CC"])).all()
    # A data set has rows for its own graphs alone.
    assert model.transform(joao.read(["C", "C1CC", "CCO"])).shape == (2, 16)
    with notice("1 of 10", "row 9", "'C1CC'"):
        model.fit([*MOLECULES, "C1CC"])


def test_graphs_are_no_molecules():
    pytest.importorskip("rdkit")
    model = joao.JOAO(epochs=1, encoder=SMALL, device="cpu").fit(MOLECULES)
    with refused("graphs", "molecules"):
        model.transform(GRAPHS)


def test_no_graphs_have_no_rows(fitted):
    width = fitted.transform(GRAPHS).shape[1]
    for nothing in ([], (), np.array([]), joao.read(GRAPHS)[:0]):
        assert fitted.transform(nothing).shape == (0, width)
    for nothing in ([], joao.read(GRAPHS)[:0]):
        with refused("graphs"):
            joao.JOAO().fit(nothing)


def test_data_frame_error_names_the_column(fitted):
    table = pd.DataFrame({"weight": [46.0], "SMILES": ["CCO"]})
    with refused("DataFrame", "df['SMILES']"):
        joao.JOAO().fit(table)
    with refused("df['weight']"):
        fitted.transform(table[["weight"]])


@pytest.mark.parametrize("smiles", ["CCO", "C/C=C/C", "C" * 300])
def test_one_smiles_is_not_taken_for_a_name(fitted, smiles, monkeypatch):
    pytest.importorskip("rdkit")
    monkeypatch.setattr("joao.data.names.download", lambda name: pytest.fail("a SMILES must not leave the machine"))
    for use in (joao.JOAO().fit, fitted.transform):
        with refused(f"[{short_repr(smiles)}]"):
            use(smiles)


def test_a_file_may_be_called_like_a_molecule(fitted, tmp_path, monkeypatch):
    (tmp_path / "CCO").mkdir()
    monkeypatch.chdir(tmp_path)
    with refused("CCO", "NAME_A.txt", ".graphml"):
        fitted.transform("CCO")
    with refused("nowhere.csv"):  # no molecule either
        fitted.transform("nowhere.csv")


def test_notices_point_at_the_line_of_the_user():
    directed = [nx.DiGraph([(0, 1), (1, 2)]), nx.DiGraph([(0, 1), (0, 2)])] * 2
    model = joao.JOAO(epochs=1, batch_size=4, device="cpu")
    for use in (model.fit, model.transform, model.fit_transform):
        with pytest.warns(joao.JoaoNotice) as told:
            use(directed)
        assert_mentions(told[0].message, "graphs", 8, "directed")
        assert {each.filename for each in told} == {__file__}
    weighted = [nx.Graph([(0, 1, {"weight": 2})]), nx.Graph([(0, 1, {"weight": 3})])] * 2
    with pytest.warns(joao.JoaoNotice) as told:  # comes from a function that contextlib decorates
        model.fit(weighted)
    assert [each.filename for each in told] == [__file__]


def test_a_store_is_fitted_as_its_graphs_are(as_shards):
    dataset = random_graphs(20, 5, 2)
    shards = as_shards(dataset, rows=6)
    fitted = [
        joao.JOAO(epochs=1, device="cpu").fit(graphs) for graphs in (dataset, shards, shards.folder, str(shards.folder))
    ]
    first, *others = (each.transform(dataset) for each in fitted)
    assert all((first == other).all() for other in others)
    assert (fitted[1].transform(shards) == first).all()


def test_a_notebook_shows_what_was_learned():
    graphs = random_graphs(8)
    model = joao.JOAO(epochs=2)
    assert "8 graphs" not in model._repr_html_()
    model.fit(graphs)
    for shown in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert_mentions(shown, "8 graphs", "synthetic", "2 epochs", f"{model.history_[-1].loss:.4g}")
        assert f"</p>{model.policy_._repr_html_()}" in shown
    assert "</p><table>" not in joao.JOAO("infomax", epochs=1).fit(graphs)._repr_html_()
    with config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
        assert not hasattr(model, "_repr_html_")
