"""Ensembles of forests and encoder. Oracles: means, deviations and scores by hand; what is loaded predicts the same."""

import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

import joao
from joao.core.errors import JoaoNotice
from joao.data.formats.smiles import Columns
from joao.runs.ensemble import MEMBERS
from joao.runs.export import export
from joao.runs.finetuning import finetune, load_finetuned
from joao.runs.folder import write_tensors
from joao.runs.parts import load_model, model_hash, open_sources, prediction_columns, write_parts
from joao.runs.trained import bundled_model_path, load_run
from joao.training.finetune import Finetune
from tests.messages import refused

pytest.importorskip("rdkit")
RINGS = ["C1CC1", "C1CCC1", "C1CCCC1", "C1CCCCC1", "c1ccccc1", "c1ccncc1", "c1ccoc1", "c1ccsc1", "C1CCOC1", "C1CCNCC1"]
SMILES = [chain + ring for ring in RINGS for chain in ("C", "CC", "CCO", "CCN", "ClCC", "CCC")]
NITROGEN = np.array([float("n" in text.lower()) for text in SMILES], dtype=np.float32)


@pytest.fixture(scope="module")
def encoder():
    return load_run(bundled_model_path("molecules"), device="cpu")


def table(*columns, smiles=SMILES):
    names = tuple(f"t{number}" for number in range(len(columns)))
    return dataclasses.replace(joao.read(smiles), targets=np.stack(columns, axis=1), target_names=names)


def train(encoder, dataset, **options):
    how = {"split": "random", "test_share": 0.3, "device": "cpu", **options}
    return finetune(encoder, dataset, Finetune(), ensemble=True, **how)


@pytest.fixture(scope="module")
def dataset():
    """Two tasks, the first with missing labels."""
    first = NITROGEN.copy()
    first[::7] = np.nan
    return table(first, np.array([float("O" in text) for text in SMILES], dtype=np.float32))


@pytest.fixture(scope="module")
def seen():
    """The members that training reports."""
    return []


@pytest.fixture(scope="module")
def model(encoder, dataset, seen):
    return train(encoder, dataset, on_member=seen.append)


def test_prediction_is_the_mean_and_std_the_deviation_of_the_members(model, dataset):
    members = model.predict_members(dataset)
    assert tuple(members) == tuple(MEMBERS) == ("ecfp", "descriptors", "encoder")
    by_hand = np.stack([each.numpy() for each in members.values()])
    found = model.predict_with_std(dataset)
    np.testing.assert_allclose(found.values.numpy(), by_hand.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(found.std.numpy(), by_hand.std(axis=0), atol=1e-6)
    assert found.values.numpy().min() >= 0
    assert found.values.numpy().max() <= 1
    assert len({each.numpy().tobytes() for each in members.values()}) == 3
    assert [*prediction_columns(model, found)] == ["p_t0", "p_t1", "std_t0", "std_t1"]


def test_no_task_hides_another_column(encoder):
    names = ("y", "std_y", "row", "predicted_row", "id", "graph")
    dataset = table(*(np.arange(len(SMILES), dtype=np.float32) + task for task in range(len(names))))
    model = train(encoder, dataclasses.replace(dataset, target_names=names))
    found = model.predict_with_std(dataset)
    columns = prediction_columns(model, found)
    assert not {"row", "id", "graph"} & {*columns}
    np.testing.assert_array_equal(np.stack([*columns.values()]), torch.cat([found.values, found.std], dim=1).numpy().T)
    assert "predicted_std_y" in columns
    assert [*columns][6:] == [f"std_{name}" for name in names]
    assert columns["std_y"].tolist() == found.std[:, 0].tolist()


def test_contributions_match_scores_by_hand(model, seen, dataset):
    assert seen == list(MEMBERS)
    from joao.evaluation.splits import split_graphs

    test = split_graphs(dataset, "random", 0.2, 0.3, 0).test
    labels = dataset.targets[test]
    members = {name: each.numpy() for name, each in model.predict_members(dataset.subset(test)).items()}

    def score(names):
        mean = np.mean([members[name] for name in names], axis=0)
        known = ~np.isnan(labels)
        return np.mean([roc_auc_score(labels[known[:, t], t], mean[known[:, t], t]) for t in (0, 1)])

    found = model.scores["test"]
    assert found["roc_auc"] == pytest.approx(score([*MEMBERS]))
    for name in MEMBERS:
        assert found["members"][name]["roc_auc"] == pytest.approx(score([name]))
        assert found["without"][name]["roc_auc"] == pytest.approx(score([each for each in MEMBERS if each != name]))
    assert found["forest"] == found["members"]["ecfp"]


@pytest.mark.parametrize("kind", ["binary", "numbers"])
def test_saved_and_exported_ensembles_predict_the_same(encoder, kind, tmp_path):
    sizes = np.array([float(len(text)) for text in SMILES], dtype=np.float32)
    dataset = table(NITROGEN if kind == "binary" else sizes)
    model = train(encoder, dataset)
    model.save(tmp_path / "run")
    export(tmp_path / "run", tmp_path / "model.safetensors")
    expected = model.predict_with_std(dataset)
    for place in (tmp_path / "run", tmp_path / "model.safetensors"):
        loaded = load_finetuned(place, device="cpu")
        found = loaded.predict_with_std(dataset)
        assert torch.equal(found.values, expected.values)
        assert torch.equal(found.std, expected.std)
        assert loaded.scores == model.scores
        assert model_hash(loaded) == model_hash(model)
    other = train(encoder, table(1 - NITROGEN if kind == "binary" else -sizes))
    assert model_hash(other) != model_hash(model)  # only the members differ
    if kind == "numbers":
        rmse = model.scores["test"]["rmse"]
        assert rmse < model.scores["test"]["tasks"]["t0"]["rmse_of_mean"]


def test_damaged_member_is_named(model, tmp_path):
    model.save(tmp_path / "run")
    path = tmp_path / "run" / "weights.safetensors"
    weights = load_file(path)
    for name, change in {"members.ecfp.right": 0, "members.encoder.bias": float("nan")}.items():
        changed = {**weights, name: torch.full_like(weights[name], change)}
        write_tensors(path, changed)  # with a valid checksum
        with refused("run", "forest" if "ecfp" in name else "kernel"):
            load_finetuned(tmp_path / "run", device="cpu")
    write_tensors(path, {name: value for name, value in weights.items() if ".ecfp." not in name or "encoder" in name})
    with refused("run", "forest"):
        load_finetuned(tmp_path / "run", device="cpu")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with refused("weights.safetensors", "checksum"):
        load_finetuned(tmp_path / "run", device="cpu")


def test_labels_that_cannot_be_learned_are_refused(encoder):
    with refused("0 and 1"):
        train(encoder, table(np.ones(60, np.float32)))
    with refused("label"):
        train(encoder, table(np.full(60, np.nan, np.float32)))
    with refused("molecules", 2):
        train(encoder, table(NITROGEN[:2], smiles=SMILES[:2]))
    with refused("SMILES"):
        train(encoder, dataclasses.replace(table(NITROGEN), smiles=()))
    three = dataclasses.replace(joao.read(SMILES), classes=np.arange(60) % 3, class_names=("a", "b", "c"))
    with refused("3 classes"):
        train(encoder, three)


def test_seven_molecules_are_enough(encoder):
    found = train(encoder, table(NITROGEN[::9], smiles=SMILES[::9]), seed=1)
    assert np.isfinite(found.predict(joao.read(SMILES)).numpy()).all()


def test_estimators():
    labels = np.where(NITROGEN == 1, "amine", "other").astype(object)
    labels[5] = None
    classifier = joao.JOAOClassifier("molecules", ensemble=True, device="cpu").fit(SMILES, labels)
    probabilities = classifier.predict_proba(SMILES)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    assert classifier.score(SMILES, labels) > 0.9
    assert classifier.predict_std(SMILES[:2]).shape == (2, 2)
    regressor = joao.JOAORegressor("molecules", ensemble=True, device="cpu").fit(SMILES, [len(text) for text in SMILES])
    with pytest.warns(JoaoNotice):
        std = regressor.predict_std([*SMILES[:2], "C("])
    assert std.shape == (3,)
    assert np.isnan(std).tolist() == [False, False, True]
    assert regressor.predict_std([]).shape == (0,)
    with refused("predict_std", "ensemble=True"):
        joao.JOAOClassifier("molecules", epochs=1, device="cpu").fit(SMILES, labels).predict_std(SMILES)


@pytest.mark.parametrize("workers", [None, 2])
def test_parts_equal_the_prediction_at_once(model, encoder, tmp_path, workers, jobs_here):
    parquet = pytest.importorskip("pyarrow.parquet")
    model.save(tmp_path / "model")
    path = tmp_path / "new.csv"
    smiles = ["CCO", "c1ccncc1CC", "C(", "x", "CCN", "y", "ClCC1CCC1"]  # the second block has no molecule
    path.write_text("id,smiles\n" + "".join(f"m{row},{text}\n" for row, text in enumerate(smiles)))
    model = load_model(tmp_path / "model", "predict")
    sources = open_sources(path, Columns(tasks=()))
    written = write_parts(sources, model, tmp_path / "out", part_rows=2, device="cpu", workers=workers)
    assert (len(written), written.num_failures, len(written.parts)) == (7, 3, 4)
    assert jobs_here == ([workers] if workers else [])
    found = parquet.read_table(tmp_path / "out")
    assert found.column_names == ["row", "id", "p_t0", "p_t1", "std_t0", "std_t1"]
    assert found["id"].to_pylist() == [f"m{row}" for row in range(7)]
    expected = model.predict_with_std(joao.read([smiles[row] for row in (0, 1, 4, 6)]))
    by_hand = np.concatenate([expected.values.numpy(), expected.std.numpy()], axis=1)
    for column, values in zip(found.column_names[2:], by_hand.T, strict=True):
        assert [row for row, value in enumerate(found[column].to_pylist()) if value is None] == [2, 3, 5]
        known = [value for value in found[column].to_pylist() if value is not None]
        np.testing.assert_allclose(known, values, atol=1e-5)
    again = write_parts(sources, model, tmp_path / "out", part_rows=2, device="cpu")
    assert again.computed == 0
    other = train(encoder, table(NITROGEN, NITROGEN))
    with refused("model"):
        write_parts(sources, other, tmp_path / "out", part_rows=2, device="cpu")
