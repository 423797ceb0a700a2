"""Fine-tuning: what is predicted, what stays as it was, what a folder keeps, and what is refused."""

import copy
import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from joao.config.builder import CustomParts
from joao.config.recipe import make_recipe
from joao.core.randomness import numpy_generator, torch_generator
from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from joao.evaluation.splits import hold_out
from joao.runs.finetuning import FILE, FORMAT, finetune, load_finetuned
from joao.runs.pretraining import pretrain
from joao.runs.trained import load_run, make_untrained
from joao.training.finetune import Finetune
from joao.training.model import calibrate, embed
from tests.messages import refused

GRAPHS = random_graphs(36, mean_nodes=6, num_classes=3, seed=1)
UNSEEN = random_graphs(9, mean_nodes=7, num_classes=3, seed=2)
RECIPE = make_recipe(
    {"features": "auto", "encoder": {"width": 8}, "training": {"epochs": 2, "batch_size": 12, "seed": 3}}
)
HOW = Finetune(epochs=4, batch_size=10, learning_rate=0.01, patience=20, balanced=True, standardise=True)


class NodeSum(nn.Module):
    """A user's own encoder."""

    def __init__(self, num_features=4):
        super().__init__()
        self.linear = nn.Linear(num_features, 6)

    def forward(self, x, batch, batch_size):
        return torch.zeros(batch_size, 6, dtype=x.dtype).index_add(0, batch, torch.relu(self.linear(x)))


def tuned(trained, dataset=GRAPHS, how=HOW, **options):
    return finetune(trained, dataset, how, device="cpu", **options)


def copied(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def trained():
    return pretrain(RECIPE, GRAPHS, device="cpu")


@pytest.fixture(scope="module")
def finetuned(trained):
    return tuned(trained)


@pytest.fixture
def folder(finetuned, tmp_path):
    finetuned.save(tmp_path / "tuned")
    return tmp_path / "tuned"


def test_probabilities_are_a_softmax_of_standardised_embeddings(finetuned, folder):
    weights = {name: value.double().numpy() for name, value in load_file(folder / "weights.safetensors").items()}
    embeddings = load_run(folder, device="cpu").embed(UNSEEN, pooled=True).double().numpy()
    standardised = (embeddings - weights["classifier.shift"]) / weights["classifier.scale"]
    logits = standardised @ weights["classifier.linear.weight"].T + weights["classifier.linear.bias"]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(finetuned.predict(UNSEEN).numpy(), expected, rtol=1e-4, atol=1e-6)
    assert finetuned.predict_logits(UNSEEN).shape == (9, 3)


def test_embeddings_are_standardised_over_the_training_graphs(trained, finetuned):
    learn, choose = hold_out(GRAPHS.classes, 0.2, numpy_generator(0, "validation"))
    encoder, store = copy.deepcopy(trained.encoder), trained.store(GRAPHS)
    draws = torch_generator(0, "fine-tuning calibration")
    calibrate(encoder, store, HOW.batch_size, draws, torch.from_numpy(learn))
    before = embed(encoder, store, pooled=True)[learn].double().numpy()
    np.testing.assert_allclose(finetuned.classifier.shift.numpy(), before.mean(axis=0), rtol=1e-4, atol=1e-5)
    assert (finetuned.info.num_train, finetuned.info.num_validation) == (len(learn), len(choose)) == (29, 7)


def test_validation_score_of_the_selected_epoch_is_reproduced(trained):
    for seed in (0, 1):
        found = tuned(trained, how=dataclasses.replace(HOW, balanced=False), seed=seed)
        _, choose = hold_out(GRAPHS.classes, 0.2, numpy_generator(seed, "validation"))
        held_out = GRAPHS.subset(choose)
        probabilities = found.predict(held_out).double().numpy()
        right = (probabilities.argmax(axis=1) == held_out.classes).mean()
        loss = -np.log(probabilities[np.arange(7), held_out.classes]).mean()
        assert found.chosen_epoch.validation_score == pytest.approx(right)
        assert found.chosen_epoch.validation_loss == pytest.approx(loss, rel=1e-4)
        assert found.fit.epochs[found.fit.chosen - 1] is found.chosen_epoch


def test_pre_trained_encoder_is_unchanged(trained):
    before, embeddings = copied(trained.encoder), trained.embed(GRAPHS)
    found = tuned(trained)
    assert same(copied(trained.encoder), before)
    assert torch.equal(trained.embed(GRAPHS), embeddings)
    assert not same(copied(found.trained.encoder), before)
    assert (trained.info.finetuned_on, found.trained.info.finetuned_on) == ((), (GRAPHS.fingerprint,))


def test_frozen_encoder_is_unchanged_and_the_linear_layer_learns(trained):
    found, longer = (tuned(trained, how=dataclasses.replace(HOW, frozen=True, epochs=n)) for n in (1, 3))
    assert same(copied(found.trained.encoder), copied(trained.encoder))
    assert same(copied(longer.trained.encoder), copied(trained.encoder))
    losses = [[epoch.loss for epoch in each.fit.epochs] for each in (found, longer)]
    assert losses[0] == losses[1][:1]
    assert losses[1][2] < losses[1][0]  # a convex problem


@pytest.mark.parametrize("frozen", [False, True])
def test_a_channel_that_was_silent_in_training_does_not_blow_up_a_new_graph(trained, frozen):
    silent = dataclasses.replace(trained, encoder=copy.deepcopy(trained.encoder))
    norm, linear = silent.encoder.norms[0], silent.encoder.mlps[0][2]
    with torch.no_grad():
        linear.weight[3], linear.bias[3] = 0, -1  # below the bend of the ReLU: it stays there, whatever is learned
        norm.running_mean[3] = norm.running_var[3] = 0
    model = tuned(silent, how=dataclasses.replace(HOW, frozen=frozen))
    tuned_norm = model.trained.encoder.norms[0].eval()
    activated = torch.zeros(1, 8).index_fill(1, torch.tensor([3]), 0.5)
    change = (tuned_norm(activated) - tuned_norm(torch.zeros(1, 8)))[0, 3].item()
    variance = 0.0 if frozen else 1.0  # a frozen encoder is never changed
    assert change == pytest.approx(0.5 * tuned_norm.weight[3].item() / (variance + tuned_norm.eps) ** 0.5)


def test_training_from_scratch_ignores_the_run_weights(trained):
    blank = dataclasses.replace(trained, encoder=make_untrained(RECIPE, GRAPHS, device="cpu").encoder)
    with torch.no_grad():
        for value in blank.encoder.parameters():
            value.zero_()
    first, second = (tuned(each, from_scratch=True) for each in (trained, blank))
    assert same(copied(first.classifier), copied(second.classifier))
    assert not same(copied(tuned(trained).classifier), copied(tuned(blank).classifier))
    frozen = tuned(trained, from_scratch=True, how=dataclasses.replace(HOW, frozen=True))
    expected = make_untrained(RECIPE, GRAPHS, trained.info.features, device="cpu").embed(GRAPHS)
    torch.testing.assert_close(frozen.trained.embed(GRAPHS), expected, rtol=0, atol=0)


def test_from_scratch_is_recorded(trained, tmp_path):
    found = tuned(tuned(trained).trained, from_scratch=True)
    assert found.info.from_scratch
    assert found.trained.info.finetuned_on == (GRAPHS.fingerprint,)  # what the first one learned is gone
    found.save(tmp_path / "scratch")
    loaded = load_run(tmp_path / "scratch", device="cpu")
    assert not loaded.info.pretrained
    assert list(loaded.metrics) == []
    for use in (lambda: loaded.policy, lambda: loaded.drawn):
        with refused("augmentation"):
            use()
    assert not tuned(trained).info.from_scratch
    assert tuned(tuned(trained).trained, UNSEEN).trained.info.finetuned_on == (GRAPHS.fingerprint, UNSEEN.fingerprint)


def test_result_depends_on_the_seed(trained, finetuned):
    again, other = tuned(trained), tuned(trained, seed=1)
    assert same(copied(again.classifier), copied(finetuned.classifier))
    assert again.fit == finetuned.fit
    assert not same(copied(other.classifier), copied(finetuned.classifier))


def test_training_stops_after_patience(trained):
    # Steps too small to change a single validation score: the first epoch is never bettered.
    told = []
    how = Finetune(epochs=50, batch_size=10, learning_rate=1e-12, patience=3, frozen=True, standardise=True)
    found = tuned(trained, how=how, on_epoch=told.append)
    assert len(found.fit.epochs) == 1 + 3
    assert tuple(told) == found.fit.epochs
    assert len(tuned(trained, how=dataclasses.replace(how, patience=0, epochs=9)).fit.epochs) == 9


def rare(num_graphs, seed, apart=0.6):
    """Paths of four nodes with one attribute, ``apart`` higher in one graph out of ten."""
    classes = (np.arange(num_graphs) % 10 == 0).astype(int)
    first = np.arange(num_graphs) * 4
    noise = numpy_generator(seed, "noise").standard_normal(4 * num_graphs)
    return make_dataset(
        "rare",
        np.full(num_graphs, 4),
        (np.concatenate([first, first + 1, first + 2]), np.concatenate([first + 1, first + 2, first + 3])),
        node_attributes=noise + apart * np.repeat(classes, 4),
        graph_labels=np.array(["usual", "rare"])[classes].tolist(),
        report_directed=False,
    )


def test_class_weights_help_the_rare_class():
    learn, test = rare(400, seed=0), rare(600, seed=1)
    start = make_untrained(RECIPE, learn, device="cpu")
    found = {}
    for balanced in (True, False):
        how = Finetune(30, 64, 0.01, frozen=True, balanced=balanced, standardise=True)
        fitted = tuned(start, learn, how)
        assert fitted.classes == ("rare", "usual")
        predicted = np.array(fitted.classes)[fitted.predict_logits(test).argmax(dim=1).numpy()]
        truth = np.array(test.class_names)[test.classes]
        found[balanced] = [(predicted[truth == name] == name).mean() for name in fitted.classes]
    # The best there is: means of four draws, deviation 1/2, around 0.6 and 0. Cut in the middle, at 0.3, 73 % of either
    # class are found; cut where the whole is most often right, at 0.3 + ln(9) / 2.4 = 1.2, 11 % and 99 %.
    assert found[True] == pytest.approx([0.73, 0.73], abs=0.15)
    assert found[False] == pytest.approx([0.11, 0.99], abs=0.1)


def test_save_and_load(finetuned, folder):
    loaded = load_finetuned(folder, device="cpu")
    assert torch.equal(loaded.predict_logits(UNSEEN), finetuned.predict_logits(UNSEEN))
    for name in ("classes", "settings", "fit", "info"):
        assert getattr(loaded, name) == getattr(finetuned, name)
    assert loaded.trained.info == dataclasses.replace(finetuned.trained.info, finished=True)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["recipe.toml", "run.json", "metrics.jsonl", "weights.safetensors", FILE]
    )
    kinds = {name.partition(".")[0] for name in load_file(folder / "weights.safetensors")}
    assert kinds == {"encoder", "classifier"}


def test_folder_is_a_run_of_the_fine_tuned_encoder(trained, finetuned, folder):
    run = load_run(folder, device="cpu")
    assert torch.equal(run.embed(UNSEEN), finetuned.trained.embed(UNSEEN))
    assert not torch.allclose(run.embed(UNSEEN), trained.embed(UNSEEN))
    assert run.recipe == RECIPE
    assert run.metrics == trained.metrics
    np.testing.assert_array_equal(run.policy.values, trained.policy.values)


def test_record_describes_the_fine_tuning(trained):
    share = 0.5
    found = tuned(trained, GRAPHS.subset(np.arange(20)), validation_share=share, seed=4)
    info = found.info
    assert (info.data, info.seed, info.validation_share, info.fast) == ("synthetic", 4, share, False)
    assert info.fingerprint == GRAPHS.subset(np.arange(20)).fingerprint != GRAPHS.fingerprint
    assert info.graphs_per_class == {"0": 7, "1": 7, "2": 6}  # the classes take turns
    assert (info.num_train, info.num_validation) == (10, 10)
    assert info.seconds > 0
    assert {"joao", "torch"} <= info.versions.keys()


def test_only_present_classes_are_learned(trained):
    two = GRAPHS.subset(np.flatnonzero(GRAPHS.classes != 1))
    found = tuned(trained, two)
    assert found.classes == (0, 2)
    assert found.class_names == ("0", "2")
    assert found.predict_logits(GRAPHS).shape == (36, 2)


@pytest.mark.parametrize(
    ("names", "classes"),
    [(("-1", "0", "7"), (-1, 0, 7)), (("a", "b", "c"), ("a", "b", "c")), (("0", "01", "2"), ("0", "01", "2"))],
)
def test_classes_are_numeric_if_all_names_are(trained, names, classes, tmp_path):
    found = tuned(trained, dataclasses.replace(GRAPHS, class_names=names))
    assert found.classes == classes
    found.save(tmp_path / "tuned")
    assert load_finetuned(tmp_path / "tuned", device="cpu").classes == classes


def test_accuracy_compares_class_names(finetuned):
    probabilities = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.9, 0.0, 0.1]])
    four = GRAPHS.subset(np.arange(4))  # of classes 0, 1, 2, 0
    assert finetuned.accuracy(probabilities, four) == 1
    renamed = dataclasses.replace(four, class_names=("1", "0", "2"))
    assert finetuned.accuracy(probabilities, renamed) == 0.25  # the one of class 2
    strange = dataclasses.replace(four, class_names=("a", "b", "2"))
    assert finetuned.accuracy(probabilities, strange) is None  # it cannot predict a or b
    some = dataclasses.replace(renamed, classes=np.array([-1, 1, 2, -1]))
    assert finetuned.accuracy(probabilities, some) == 0.5  # of those with a label
    assert finetuned.accuracy(probabilities, dataclasses.replace(four, class_names=("a", "b", "c"))) is None
    assert finetuned.accuracy(probabilities, dataclasses.replace(four, classes=None, class_names=())) is None


def test_custom_encoder_is_fine_tuned(tmp_path):
    own = CustomParts(encoder=NodeSum())
    trained = pretrain(RECIPE, GRAPHS, custom=own, device="cpu")
    found = tuned(trained)
    found.save(tmp_path / "tuned")
    with refused(tmp_path / "tuned", "JOAOClassifier.load", "encoder=..."):
        load_finetuned(tmp_path / "tuned", device="cpu")
    loaded = load_finetuned(tmp_path / "tuned", device="cpu", encoder=NodeSum())
    assert torch.equal(loaded.predict_logits(UNSEEN), found.predict_logits(UNSEEN))
    with refused("fine-tuning", "encoder"):
        tuned(trained, from_scratch=True)


def test_fast_path_is_used_on_request(trained):
    assert tuned(trained, how=dataclasses.replace(HOW, epochs=1), fast=True).info.fast


@pytest.mark.parametrize(
    ("dataset", "options", "values"),
    [
        (dataclasses.replace(GRAPHS, classes=None, class_names=()), {}, ["synthetic", "label"]),
        (GRAPHS.subset(np.flatnonzero(GRAPHS.classes == 1)), {}, ["synthetic", "classes", 12]),
        (GRAPHS.subset(np.arange(3)), {}, ["3 classes", "validation"]),
        (GRAPHS, {"validation_share": 1.5}, ["validation", 1.5]),
        (random_graphs(12, num_node_labels=0), {}, ["synthetic", 0, "node labels", 1]),
        (GRAPHS, {"precision": "8"}, ["precision", "32-true", "bf16-mixed", "'8'"]),
        (GRAPHS, {"how": dataclasses.replace(HOW, learning_rate=1e30)}, ["nan", "learning rate", "1e+30"]),
    ],
)
def test_unlearnable_data_is_rejected(trained, dataset, options, values):
    with refused(*values):
        tuned(trained, dataset, **options)


def test_wrong_number_of_edge_attributes_is_rejected():
    recipe = make_recipe({"encoder": {"name": "convolutions", "convolution": "GATv2Conv"}, "training": {"epochs": 1}})
    trained = pretrain(recipe, random_graphs(8, num_edge_attributes=2), device="cpu")
    with refused("synthetic", 0, "edge attributes", 2):
        tuned(trained)


def test_pre_training_run_has_no_classifier(trained, tmp_path):
    trained.save(tmp_path / "run")
    with refused(f"joao finetune {tmp_path / 'run'}"):
        load_finetuned(tmp_path / "run", device="cpu")


def changed(**fields):
    return lambda text: json.dumps({**json.loads(text), **fields})


def changed_settings(text):
    fields = json.loads(text)
    return json.dumps({**fields, "settings": {**fields["settings"], "colour": "red"}})


@pytest.mark.parametrize(
    ("damage", "values"),
    [
        (lambda text: text[: len(text) // 2], [FILE]),
        (lambda text: "[]", [FILE]),
        (lambda text: "{}", [FILE, "'format'"]),
        (lambda text: text.replace('"kind": ', '"kind": "numbers",\n "kind": ', 1), [FILE]),
        (changed(format=FORMAT + 1), [FILE, f"format {FORMAT + 1}"]),
        (changed(classes=["a", "b"]), ["linear.weight", "[3, 24]", "[2, 24]"]),
        (changed(fit={"epochs": [], "chosen": 1}), [FILE, "epoch 1", "of 0"]),
        (changed(fit={"epochs": [{"loss": 1.0}], "chosen": 2}), [FILE, "epoch 2", "of 1"]),
        (changed(info={"data": "mine"}), [FILE, "'fingerprint'"]),
        (changed(settings={"epochs": "many"}), [FILE, "settings", "epochs", "'many'"]),
        (changed_settings, [FILE, "settings", "'colour'"]),
    ],
)
def test_damaged_finetune_json_is_rejected(folder, damage, values):
    path = folder / FILE
    path.write_text(damage(path.read_text()))
    with refused(folder, *values):
        load_finetuned(folder, device="cpu")


def test_damaged_weights_are_rejected(folder):
    path = folder / "weights.safetensors"
    weights = load_file(path)
    weights["classifier.linear.weight"][0, 0] = float("nan")
    save_file(weights, path)
    with refused("synthetic", "classifier"):
        load_finetuned(folder, device="cpu").predict_logits(UNSEEN)
    save_file({name: value for name, value in weights.items() if not name.startswith("classifier")}, path)
    with refused(folder, "linear.weight"):
        load_finetuned(folder, device="cpu")


def test_existing_folder_is_left_unchanged(finetuned, tmp_path):
    (tmp_path / "mine").write_text("precious")
    with refused(tmp_path):
        finetuned.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
