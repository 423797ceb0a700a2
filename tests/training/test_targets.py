"""Targets of molecules. Oracles: RDKit directly, loops over cells, a sum written out, and the plain path."""

import math
import sys
from dataclasses import replace
from statistics import mean

import numpy as np
import pytest
import torch

from joao.config.builder import CustomParts, build_method
from joao.config.recipe import Schedule, make_recipe, target_weights
from joao.data import make_store, read
from joao.data.features import Features
from joao.data.formats.packed import write_packed
from joao.data.molecules import to_ogb_codes
from joao.runs.pretraining import pretrain
from joao.training.checkpoint import capture_state, restore_state
from joao.training.fast import batches
from joao.training.pretrain import Pretraining
from joao.training.targets import make_targets, masked_error
from tests.messages import refused

Chem = pytest.importorskip("rdkit.Chem")
SMILES = ["CCO", "c1ccccc1", "CC(=O)[O-].[Na+]", "C[C@H](N)C(=O)O", "[Og]", "CCN", "CCCCCCCCO", "O=C=O"]
BOTH = {"contrastive": 1.0, "descriptors": 1.0, "ecfp": 1.0}


@pytest.fixture(scope="module")
def molecules():
    return read(SMILES)


def recipe_of(targets, **training):
    training = {"epochs": 2, "batch_size": 4, **training}
    encoder = {"name": "molecule_gine", "width": 8, "layers": 2}
    return make_recipe({"encoder": encoder, "targets": targets, "training": training}, kind="molecules")


def test_values_are_those_of_rdkit(molecules):
    from rdkit.Chem import Descriptors
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    targets = make_targets(molecules, BOTH)
    graphs = torch.tensor([6, 0, 3])
    found = targets.values(graphs)
    raw = np.array([[f(Chem.MolFromSmiles(text)) for _, f in Descriptors.descList] for text in SMILES], dtype=float)
    for column in range(raw.shape[1]):
        known = raw[:, column][np.isfinite(raw[:, column])]
        clipped = np.clip(raw[:, column], *np.percentile(known, [0.5, 99.5]))
        deviation = clipped[np.isfinite(clipped)].std() or 1
        expected = np.clip((clipped - clipped[np.isfinite(clipped)].mean()) / deviation, -5, 5)
        assert np.allclose(found["descriptors"][:, column], expected[graphs], atol=1e-3, equal_nan=True)
    generator = GetMorganGenerator(radius=2, fpSize=2048)
    logs = np.log1p([generator.GetCountFingerprintAsNumPy(Chem.MolFromSmiles(text)) for text in SMILES])
    expected = (logs - logs.mean(0)) / np.maximum(logs.std(0), 0.1)
    assert np.allclose(found["ecfp"], expected[graphs], atol=1e-4)


def test_masked_error_is_a_loop_over_known_cells():
    torch.manual_seed(0)
    predicted, wanted = torch.randn(4, 5), torch.randn(4, 5)
    wanted[1, 2] = wanted[3, 0] = math.nan
    squares = [
        (predicted[i, j] - wanted[i, j]).item() ** 2 for i in range(4) for j in range(5) if not wanted[i, j].isnan()
    ]
    assert masked_error(predicted, wanted).item() == pytest.approx(sum(squares) / len(squares))
    predicted.requires_grad_()
    masked_error(predicted, wanted).backward()
    assert predicted.grad[1, 2] == 0
    assert predicted.grad.isfinite().all()
    assert masked_error(predicted, torch.full((4, 5), math.nan)) == 0


def test_loss_is_the_weighted_sum_of_the_targets(molecules):
    targets = make_targets(molecules, {"contrastive": 3.0, "descriptors": 0.5, "ecfp": 2.0})
    graphs, columns = torch.tensor([1, 4]), sum(targets.sizes.values())
    predicted, wanted = torch.linspace(-1, 1, 2 * columns).view(2, columns), targets.values(graphs)
    first = targets.sizes["descriptors"]
    expected = 0.5 * masked_error(predicted[:, :first], wanted["descriptors"])
    expected += 2 * masked_error(predicted[:, first:], wanted["ecfp"])
    assert targets.loss(predicted, graphs).item() == pytest.approx(expected.item(), rel=1e-5)


def test_training_lowers_the_loss_and_the_policy_learns_only_from_views(molecules):
    both = pretrain(recipe_of(BOTH, epochs=8), molecules, device="cpu")
    only = pretrain(recipe_of({"contrastive": 0, "ecfp": 1}, epochs=8), molecules, device="cpu", precision="bf16-mixed")
    assert both.metrics[0].pair_losses is not None
    assert only.metrics[0].pair_losses is None  # nothing to learn the policy from
    assert only.metrics[-1].loss < only.metrics[0].loss
    assert np.allclose(only.policy.values, 1 / 25)
    assert not both.info.fast


def test_weight_zero_is_as_if_the_target_did_not_exist(molecules):
    one, other = (
        pretrain(recipe_of(given), molecules, device="cpu").embed(molecules)
        for given in ({"ecfp": 1, "descriptors": 0}, ["ecfp"])
    )
    assert torch.equal(one, other)


def test_statistics_are_those_of_unchanged_graphs(molecules):
    """With views of other graphs the running means would differ from those without a contrastive loss."""
    means = []
    for weight in (0, 1e-9):
        recipe = recipe_of({"contrastive": weight, "ecfp": 1}, epochs=1, batch_size=8, learning_rate=1e-12)
        means.append(pretrain(recipe, molecules, device="cpu").encoder.norms[0].running_mean)
    assert torch.allclose(*means, atol=1e-6)


def test_cache_is_used_and_damage_is_noticed(tmp_path, monkeypatch, molecules):
    from joao.training import targets as module

    monkeypatch.setenv("JOAO_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_MIN_CACHED", 2)
    before = make_targets(molecules, BOTH)
    [file] = (tmp_path / "packed").glob("targets-*")
    calls = []
    monkeypatch.setattr(
        module, "molecule_columns", lambda *args, **options: calls.append(1) or columns(*args, **options)
    )
    columns = __import__("joao.baselines.forests", fromlist=[""]).molecule_columns
    after = make_targets(molecules, BOTH)
    assert not calls
    assert torch.equal(before.count, after.count)
    file.write_bytes(file.read_bytes()[:100])
    assert torch.equal(make_targets(molecules, BOTH).column, before.column)
    assert calls


def test_weights_from_text_list_and_table():
    assert target_weights("ecfp,contrastive=0", "r") == {"contrastive": 0, "ecfp": 1}
    assert target_weights(["descriptors"], "r") == {"contrastive": 1, "descriptors": 1}
    assert target_weights({}, "r") == {}
    for given, words in (("nonsense", ["nonsense"]), ("ecfp=-1", ["ecfp", "-1"]), ("contrastive", ["ecfp"]), (3, [3])):
        with refused("r", *words):
            target_weights(given, "r")


def test_graphs_without_smiles_are_refused(molecules):
    with refused("MUTAG", "SMILES", "ecfp"):
        pretrain(make_recipe({"targets": ["ecfp"]}), read("MUTAG"), device="cpu")
    bare = replace(molecules, smiles=())
    with refused("SMILES"):
        make_targets(bare, BOTH)
    with refused("devices"):
        pretrain(recipe_of(["ecfp"]), molecules, device="cpu", devices=2)


def test_cosine_decay_rises_and_falls_to_zero():
    rates = [Schedule(decay="cosine", learning_rate=2.0).learning_rate_at(step / 100) for step in range(101)]
    assert rates[0] == 0
    assert rates[5] == max(rates) == pytest.approx(1 + math.cos(math.pi * 0.05))
    assert rates[100] == pytest.approx(0)
    assert "decay" not in make_recipe({}).table()["training"]


def test_targets_are_kept_in_the_recipe():
    made = recipe_of("descriptors,ecfp=0.5")
    assert make_recipe(made.table()).targets == {"contrastive": 1, "descriptors": 1, "ecfp": 0.5}
    summed = make_recipe({"encoder": {"name": "molecule_gine", "readout": "sum"}}, kind="molecules")
    assert make_recipe(summed.table()).encoder == summed.encoder  # not its default, so it must be written


@pytest.fixture
def make_training(molecules):
    def make(weights, fast, pool=None, compiled=None, **schedule):
        recipe = recipe_of(weights, **schedule)
        store = make_store(molecules, Features.from_dataset(molecules, recipe.features))
        method = build_method(recipe, store, CustomParts(augmentations=pool))
        if not weights:
            return Pretraining(store, method, recipe.training, fast=fast, compiled=compiled)
        targets = make_targets(molecules, recipe.targets)
        targets.descriptors[::3, ::2] = math.nan  # every second value of every third molecule is missing
        return Pretraining(store, method, recipe.training, fast=fast, compiled=compiled, targets=targets)

    return make


WEIGHTS = pytest.mark.parametrize("weights", [{"contrastive": 0, "ecfp": 1, "descriptors": 2}, BOTH, {"ecfp": 0.5}])


@WEIGHTS
def test_a_fast_step_has_the_gradients_and_statistics_of_a_plain_step(weights, make_training, certain_pool):
    found = []
    for fast in (False, True):
        training = make_training(weights, fast, certain_pool)
        assert (training.is_fast, training.is_compiled) == (fast, False)
        training.model.train()
        training.steps.train(next(training._batches("batches"))[1], torch.tensor([[0, 1]]))
        gradients = {name: each.grad for name, each in training.model.named_parameters() if each.grad is not None}
        found.append((training.steps.loss_sum, gradients, dict(training.model.named_buffers())))
    (plain, *expected), (fast, *own) = found
    torch.testing.assert_close(fast, plain)
    for one, other in zip(own, expected, strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            torch.testing.assert_close(one[name], value, rtol=1e-4, atol=2e-5, msg=name)


@WEIGHTS
@pytest.mark.parametrize("decay", ["none", "cosine"])
def test_the_fast_path_matches_the_plain_path(weights, decay, make_training, certain_pool):
    found = []
    for fast in (False, True):
        training = make_training(weights, fast, certain_pool, epochs=4, decay=decay, learning_rate=1e-4)
        epochs = list(training.run())
        found.append(([each.loss for each in epochs], [each.pair_losses for each in epochs]))
        assert (epochs[-1].pair_losses is None) == (weights.get("contrastive") == 0)
    plain, fast = found
    assert fast[0] == pytest.approx(plain[0], rel=1e-3, abs=1e-3)  # a sum of losses of both signs
    if plain[1][0] is not None:
        torch.testing.assert_close(torch.tensor(fast[1]), torch.tensor(plain[1]), rtol=1e-3, atol=1e-3)


def test_batches_that_do_not_fit_take_plain_steps(make_training, certain_pool, monkeypatch):
    monkeypatch.setattr(batches, "buffer_capacity", lambda sizes, count: int(mean(sizes.elements()) * count))
    plain, fast = (make_training(BOTH, fast, certain_pool, epochs=4, learning_rate=1e-4) for fast in (False, True))
    fits = [batch.fits for _ in range(4) for _, batch in fast._batches("batches")]
    assert 0 < sum(fits) < len(fits)
    fast.generators["batches"].set_state(plain.generators["batches"].get_state())
    losses = [[each.loss for each in training.run()] for training in (plain, fast)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize("weights", [{"contrastive": 0, "ecfp": 1}, BOTH])
def test_the_fast_path_resumes_bit_for_bit_inside_an_epoch(weights, make_training):
    class Stop(Exception):
        pass

    def stop_after_third_step():
        if first.step == 3:
            raise Stop

    settings = {"epochs": 4, "decay": "cosine"}
    undisturbed = make_training(weights, True, **settings)
    losses = [each.loss for each in undisturbed.run()]
    first = make_training(weights, True, **settings)
    with pytest.raises(Stop):
        list(first.run(stop_after_third_step))
    second = make_training(weights, True, **settings)
    restore_state(second, capture_state(first))
    assert [each.loss for each in second.run()] == losses[1:]
    for one, other in zip(second.model.state_dict().values(), undisturbed.model.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_a_learning_rate_that_a_replay_reads_is_changed_in_place(make_training):
    training = make_training(BOTH, True, decay="cosine")
    [group] = training.optimiser.param_groups
    rate = group["lr"] = torch.tensor(1.0)
    training._set_learning_rate(0.25)
    assert group["lr"] is rate
    assert rate == 0.25


def test_obstacles_to_the_fast_path_are_named(make_training, molecules):
    with refused("Gine", "fast"):
        recipe = make_recipe({"encoder": "gine", "features": "labels", "targets": ["ecfp"]}, kind="molecules")
        pretrain(recipe, molecules, device="cpu", fast=True)
    for options in ({"weights": BOTH}, {"weights": {}, "decay": "cosine"}):
        with refused("compiled core", "targets", "learning rate"):
            make_training(fast=None, compiled=True, **options)


def test_low_precision_stays_near_full_precision(molecules):
    recipe = recipe_of({"contrastive": 0, "ecfp": 1})
    full, low = (
        [epoch.loss for epoch in pretrain(recipe, molecules, device="cpu", precision=each, fast=True).metrics]
        for each in ("32-true", "bf16-mixed")
    )
    assert full != low
    assert low == pytest.approx(full, rel=0.05)


def test_packed_codes_and_cached_targets_need_no_rdkit(molecules, tmp_path, monkeypatch):
    from joao.training import targets as module

    monkeypatch.setenv("JOAO_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_MIN_CACHED", 2)
    recipe = recipe_of(BOTH)
    expected = pretrain(recipe, molecules, device="cpu")
    write_packed(tmp_path / "molecules.safetensors", to_ogb_codes(molecules))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "rdkit", None)
        packed = read(tmp_path / "molecules.safetensors")
        trained = pretrain(recipe, packed, device="cpu")
        assert torch.equal(trained.embed(packed), expected.embed(packed))
    assert packed.kind == "ogb_molecules"
    assert torch.equal(trained.embed(molecules), expected.embed(molecules))
