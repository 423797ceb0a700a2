"""What is left of a training that is stopped, fails or cannot write, and that it can go on from there."""

import errno
import multiprocessing
import os
import re
from types import SimpleNamespace

import pytest
import torch

from joao.config.recipe import make_recipe
from joao.core.errors import Interrupted, UserError, WriteError
from joao.data.synthetic import random_graphs
from joao.runs import pretraining as keeping
from joao.runs.folder import Run
from joao.runs.pretraining import pretrain
from joao.runs.trained import load_run
from joao.training.pretrain import Pretraining
from tests.messages import assert_mentions, refused

GRAPHS = random_graphs(14, mean_nodes=6, seed=1)
RECIPE = make_recipe({"encoder": {"width": 4, "layers": 2}, "training": {"epochs": 4, "batch_size": 4}})  # 16 steps


class Countdown:
    """Asks to stop when it is asked for the n-th time; the first is before the first step."""

    def __init__(self, number):
        self.left = number

    def __call__(self):
        self.left -= 1
        return self.left <= 0


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def untimed(metrics):
    return [(each.epoch, each.loss, each.probabilities, each.pair_losses, each.drawn) for each in metrics]


@pytest.fixture(scope="module")
def undisturbed():
    return pretrain(RECIPE, GRAPHS, device="cpu")


@pytest.mark.parametrize("asked", [1, 2, 4, 5, 11])
def test_stopping_saves_the_state(tmp_path, undisturbed, asked):
    folder = tmp_path / "run"
    with refused(f"step {asked - 1}", f"joao pretrain --resume {folder}", error=Interrupted):
        pretrain(RECIPE, GRAPHS, folder=folder, device="cpu", should_stop=Countdown(asked))
    assert Run.open(folder).read_checkpoint()["position"].tolist() == [(asked - 1) // 4, asked - 1]
    resumed = pretrain(RECIPE, GRAPHS, folder=folder, resume=True, device="cpu")
    assert same(resumed.weights, undisturbed.weights)
    assert untimed(resumed.metrics) == untimed(undisturbed.metrics)


def test_stopping_after_the_last_epoch_has_no_effect(tmp_path, undisturbed):
    trained = pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu", should_stop=Countdown(17))
    assert same(trained.weights, undisturbed.weights)


def test_checkpoints_are_written_inside_an_epoch_by_time(tmp_path, monkeypatch):
    clock, written = [0.0], []
    monkeypatch.setattr(keeping.time, "monotonic", lambda: clock[0])
    write = Run.write_checkpoint

    def note(run, tensors):
        written.append(int(tensors["position"][1]))
        write(run, tensors)

    def one_minute_a_step():
        clock[0] += 60
        return False

    monkeypatch.setattr(Run, "write_checkpoint", note)
    options = {"checkpoint_every": 3, "checkpoint_minutes": 5, "should_stop": one_minute_a_step}
    pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu", **options)
    # A minute before the first step and after each: after five, steps 5 and 10; step 12 ends the third epoch.
    assert written == [0, 5, 10, 12]


def diverge_in(step, monkeypatch):
    """The training gets a weight that is no number by that step."""
    follow = Pretraining._update_copy

    def spoil(training, progress):
        follow(training, progress)
        if training.step == step - 1:
            next(training.model.parameters()).data.fill_(torch.nan)

    monkeypatch.setattr(Pretraining, "_update_copy", spoil)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("step", "minutes", "values", "kept"),
    [
        (6, 10, ["nan", "step 7", "epoch 2"], 4),
        (6, 0, ["mlps.0.0.weight", "step 6"], 5),
        (16, 10, ["nan", "step 16", "epoch 4"], 12),
    ],
)
def test_last_finite_state_is_kept(tmp_path, monkeypatch, undisturbed, fast, step, minutes, values, kept):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        diverge_in(step, patch)
        options = {"checkpoint_every": 1, "checkpoint_minutes": minutes, "fast": fast}
        with refused("training", *values, "learning rate", 0.01, f"step {kept}", f"joao pretrain --resume {folder}"):
            pretrain(RECIPE, GRAPHS, folder=folder, device="cpu", **options)
    resumed = pretrain(RECIPE, GRAPHS, folder=folder, resume=True, device="cpu")
    assert fast or same(resumed.weights, undisturbed.weights)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory."),
    ],
)
@pytest.mark.parametrize("after", [0, 6])
def test_out_of_memory_suggests_smaller_batches(tmp_path, monkeypatch, error, after):
    def full(training, progress):
        if training.step == after:
            raise error

    monkeypatch.setattr(Pretraining, "_update_copy", full)
    with refused("memory", f"step {after + 1}", "4 graphs", "--set training.batch_size=2") as raised:
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu", checkpoint_every=1)
    assert re.search(r"\b4 graphs", str(raised.value))
    assert (tmp_path / "run").exists() == (after > 0)
    for value in ("step 4", f"joao pretrain --resume {tmp_path / 'run'}"):
        assert (value in str(raised.value)) == (after > 0)
    if after:
        assert f" {Run.open(tmp_path / 'run').resume_hint()}" in str(raised.value)


def test_suggested_batch_size_is_half(monkeypatch):
    def full(training, progress):
        raise MemoryError

    monkeypatch.setattr(Pretraining, "_update_copy", full)
    recipe = make_recipe({"encoder": {"width": 4, "layers": 2}, "training": {"epochs": 4, "batch_size": 6}})
    with refused("--set training.batch_size=3", "--set encoder.width=...") as raised:
        pretrain(recipe, GRAPHS, device="cpu")
    assert "--resume" not in str(raised.value)  # nothing was written


@pytest.mark.parametrize(
    ("error", "values"),
    [(WriteError("no room."), ["no room.", "step 12", "joao pretrain --resume"]), (RuntimeError("a bug"), ["a bug"])],
)
def test_unwritable_final_weights_leave_the_last_checkpoint(tmp_path, monkeypatch, undisturbed, error, values):
    def fail(run, weights):
        raise error

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", fail)
        with refused(*values, error=type(error)) as raised:
            pretrain(RECIPE, GRAPHS, folder=folder, device="cpu", checkpoint_every=1)
    assert isinstance(error, WriteError) or raised.value is error
    assert same(pretrain(RECIPE, GRAPHS, folder=folder, resume=True, device="cpu").weights, undisturbed.weights)


def test_final_weights_are_checked(tmp_path, monkeypatch):
    run = Pretraining.run

    def spoiled_at_the_end(training, after_step):
        yield from run(training, after_step)
        next(training.model.parameters()).data.fill_(torch.nan)

    monkeypatch.setattr(Pretraining, "run", spoiled_at_the_end)
    with refused("mlps.0.0.weight", "step 16", "step 12", "joao pretrain --resume"):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu", checkpoint_every=1)
    assert not Run.open(tmp_path / "run").info.finished


@pytest.mark.parametrize("steps", [2, 4, 6])  # an epoch has four steps
def test_stopping_without_a_folder_returns_the_encoder_of_the_checkpoint(tmp_path, steps):
    with refused(f"step {steps}", error=Interrupted):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu", should_stop=Countdown(steps + 1))
    saved = Run.open(tmp_path / "run").read_checkpoint()
    trained = pretrain(RECIPE, GRAPHS, device="cpu", should_stop=Countdown(steps + 1))
    weights = [name for name in trained.weights if name.startswith("encoder.")]
    assert weights
    assert all(torch.equal(trained.weights[name], saved[f"model/{name}"]) for name in weights)
    assert trained.recipe.training.epochs == len(trained.metrics) == -(-steps // 4)
    drawn = [sum(map(sum, epoch.drawn)) for epoch in trained.metrics]
    assert drawn == [len(GRAPHS)] * (steps // 4) + [4 * (steps % 4)] * (steps % 4 > 0)
    assert not trained.encoder.training
    trained.save(tmp_path / "partial")
    loaded = load_run(tmp_path / "partial", device="cpu")
    assert loaded.metrics == trained.metrics
    assert torch.equal(loaded.embed(GRAPHS), trained.embed(GRAPHS))


def test_stopping_before_the_first_step_without_a_folder():
    with refused("step 0", error=Interrupted):
        pretrain(RECIPE, GRAPHS, device="cpu", should_stop=lambda: True)


def test_several_processes_check_for_a_due_checkpoint_every_16_steps(monkeypatch):
    """The first one has the clock. Here it stands still, and then a minute is over."""
    asked, kept, clock = [], [], [0.0]

    class Stand:
        """A training of 40 steps in one of two processes."""

        step, epoch, schedule = 0, 0, SimpleNamespace(epochs=1)
        group = SimpleNamespace(broadcast=lambda wish: asked.append((Stand.step, bool(wish[""]))) or wish)

        def run(self, after_step):
            for Stand.step in range(1, 41):
                clock[0] = 60.0 * (Stand.step > 20)
                after_step()
            yield from ()

        def check(self):
            pass

    monkeypatch.setattr(keeping, "capture_state", lambda training: training.step)
    monkeypatch.setattr(keeping.time, "monotonic", lambda: clock[0])
    run = SimpleNamespace(write_checkpoint=kept.append)
    list(keeping.Checkpointer(Stand(), run, every=5, minutes=1, should_stop=lambda: False).train())
    assert asked == [(16, False), (32, True)]
    assert kept == [32]


def test_out_of_memory_before_the_first_checkpoint_leaves_nothing(tmp_path, monkeypatch):
    def full(training):
        raise MemoryError

    monkeypatch.setattr("joao.runs.pretraining.capture_state", full)
    with pytest.raises(MemoryError):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_other_errors_are_not_changed(tmp_path, monkeypatch):
    def fail(training, progress):
        raise RuntimeError("a bug")

    monkeypatch.setattr(Pretraining, "_update_copy", fail)
    with pytest.raises(RuntimeError, match=r"^a bug$"):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "run", device="cpu")
    assert list(tmp_path.iterdir()) == []


def limited(folder, limit, told):
    """Pre-trains where no file may become larger than ``limit`` bytes, as on a disk that is full."""
    import resource

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        pretrain(RECIPE, GRAPHS, folder=folder, device="cpu", checkpoint_every=1)
    except WriteError as error:
        told.send(str(error))
    else:
        told.send("")


def in_a_fork(function, *arguments):
    """What ``function`` sends from a process that starts with all modules loaded."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=function, args=(*arguments, there))
    process.start()
    there.close()
    told = here.recv()
    process.join()
    return told


def test_full_disk_leaves_the_last_checkpoint(tmp_path, undisturbed):
    """Optimiser states come with the first step, so the first checkpoint is smaller than the others."""
    with pytest.raises(Interrupted):
        pretrain(RECIPE, GRAPHS, folder=tmp_path / "young", device="cpu", should_stop=Countdown(1))
    (first,) = Run.open(tmp_path / "young").checkpoints()
    folder = tmp_path / "run"
    told = in_a_fork(limited, folder, first.stat().st_size + 100)
    assert "\n" not in told
    assert_mentions(told, folder / "checkpoint-000000000004.safetensors", os.strerror(errno.EFBIG))
    assert_mentions(told, "step 0", f"joao pretrain --resume {folder}")
    assert not list(folder.glob(".*"))
    resumed = pretrain(RECIPE, GRAPHS, folder=folder, resume=True, device="cpu")
    assert same(resumed.weights, undisturbed.weights)


def test_disk_full_from_the_start_leaves_nothing(tmp_path):
    assert_mentions(in_a_fork(limited, tmp_path / "run", 10), tmp_path / "run", os.strerror(errno.EFBIG))
    assert list(tmp_path.iterdir()) == []


def begin_together(folder, resume, gate, told):
    torch.set_num_threads(1)
    gate.wait()
    try:
        pretrain(RECIPE, GRAPHS, folder=folder, resume=resume, device="cpu", checkpoint_minutes=0)
        told.put("")
    except UserError as error:
        told.put(str(error))


@pytest.mark.parametrize("resume", [False, True])
def test_two_processes_cannot_write_the_same_folder(tmp_path, undisturbed, resume):
    context = multiprocessing.get_context("fork")
    for attempt in range(3):
        folder = tmp_path / f"run{attempt}"
        if resume:
            with pytest.raises(Interrupted):
                pretrain(RECIPE, GRAPHS, folder=folder, device="cpu", should_stop=Countdown(3))
        gate, told = context.Barrier(2), context.Queue()
        processes = [context.Process(target=begin_together, args=(folder, resume, gate, told)) for _ in range(2)]
        for process in processes:
            process.start()
        answers = sorted(told.get(timeout=60) for _ in processes)
        for process in processes:
            process.join()
        assert answers[0] == ""
        assert_mentions(answers[1], folder)
        assert same(Run.open(folder).weights(), undisturbed.weights)


def test_run_in_use_is_not_resumed(tmp_path):
    folder, refusals = tmp_path / "run", []

    def meddle(metrics):
        with refused(folder, "process") as refusal:
            pretrain(RECIPE, GRAPHS, folder=folder, resume=True, device="cpu")
        refusals.append(refusal)

    pretrain(RECIPE, GRAPHS, folder=folder, device="cpu", on_epoch=meddle)
    assert len(refusals) == 4
