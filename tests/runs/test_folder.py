"""A run folder is written whole, read back as it was, and told apart from anything else."""

import dataclasses
import errno
import hashlib
import json
import math
import os
from itertools import product

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save, save_file

from joao.config.recipe import make_recipe
from joao.core.errors import WriteError
from joao.data.features import Features
from joao.runs.folder import (
    CHECKSUM_KEY,
    FORMAT,
    Run,
    RunInfo,
    check_new_folder,
    checksum,
    claim_folder,
    format_epoch,
    lock_run,
    parse_epoch,
    read_tensors,
    write_tensors,
)
from joao.training.metrics import EpochMetrics
from tests.messages import notice, refused

RECIPE = make_recipe({"data": "TINY", "training": {"epochs": 3}})
INFO = RunInfo(
    data="TINY",
    fingerprint="0123456789abcdef",
    num_graphs=7,
    pool=("node_drop", "identity"),
    num_features=3,
    num_edge_features=1,
    features=Features("labels", vocabulary=(("C", "N"), ("O",)), max_degree=9),
    versions={"joao": "1"},
    machine={"cores": 2, "gpu": None},
    precision="bf16-mixed",
    own={"encoder": "Mine()"},
    finetuned_on=("fedcba9876543210",),
)
WEIGHTS = {"encoder.w": torch.tensor([[1.5, -0.0], [1e-40, 3.0]]), "heads.n": torch.tensor(3)}


def epoch(number):
    return EpochMetrics(
        epoch=number,
        loss=0.1 + 0.2 * number,
        probabilities=[[1 / 3, 2 / 3], [0.0, 0.0]],
        pair_losses=None if number == 1 else [[1.0, 2.0], [3.0, 1e-17]],
        drawn=[[7, 0], [0, 0]],
        seconds=0.5,
        graphs_per_second=14.0,
    )


@pytest.fixture
def unfinished(tmp_path):
    run = Run.create(tmp_path / "run", RECIPE, INFO)
    for number in (1, 2):
        run.append(epoch(number))
    run.write_checkpoint({"position": torch.tensor([2, 20]), "policy": torch.eye(2)})
    return run


@pytest.fixture
def finished(unfinished):
    unfinished.append(epoch(3))
    return unfinished.finish(WEIGHTS)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read_everything(folder):
    run = Run.open(folder)
    return run.metrics(), run.weights()


def test_open_returns_what_create_wrote(tmp_path):
    Run.create(tmp_path / "new" / "run", RECIPE, INFO)
    opened = Run.open(tmp_path / "new" / "run")
    assert opened.info == INFO
    assert opened.recipe == RECIPE
    assert opened.metrics(0) == []
    assert sorted(contents(opened.folder)) == ["metrics.jsonl", "recipe.toml", "run.json"]


def test_empty_folder_is_accepted(tmp_path):
    (tmp_path / "run").mkdir()
    assert Run.create(tmp_path / "run", RECIPE, INFO).folder == tmp_path / "run"


def test_finishing_writes_exact_weights_and_removes_the_checkpoint(finished):
    assert sorted(contents(finished.folder)) == ["metrics.jsonl", "recipe.toml", "run.json", "weights.safetensors"]
    opened = Run.open(finished.folder)
    assert opened.info == finished.info == dataclasses.replace(INFO, finished=True)
    assert opened.metrics() == [epoch(1), epoch(2), epoch(3)]
    weights = opened.weights()
    assert set(weights) == set(WEIGHTS)
    for name, value in WEIGHTS.items():
        assert weights[name].dtype == value.dtype
        assert weights[name].numpy().tobytes() == value.numpy().tobytes()


def test_one_line_per_epoch_with_all_metrics(finished):
    lines = (finished.folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [dataclasses.asdict(epoch(number)) for number in (1, 2, 3)]


def test_unfinished_run_has_no_weights(unfinished):
    with refused(f"joao pretrain --resume {unfinished.folder}"):
        Run.open(unfinished.folder).weights()


def test_checkpoint_round_trips_and_later_epochs_are_truncated(unfinished):
    unfinished.append(epoch(3))
    with (unfinished.folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "lo')  # the process ended here
    tensors = Run.open(unfinished.folder).read_checkpoint()
    assert tensors["position"].tolist() == [2, 20]
    assert torch.equal(tensors["policy"], torch.eye(2))
    assert Run.open(unfinished.folder).metrics(2) == [epoch(1), epoch(2)]
    assert len((unfinished.folder / "metrics.jsonl").read_text().splitlines()) == 2


def state(epoch, step):
    return {"position": torch.tensor([epoch, step]), "policy": torch.full((2,), float(step))}


def test_newest_checkpoints_are_kept(unfinished):
    for step in (21, 9999, 10000):
        unfinished.write_checkpoint(state(2, step))
    assert [int(path.stem.split("-")[1]) for path in unfinished.checkpoints()] == [10000, 9999]
    assert unfinished.read_checkpoint()["position"].tolist() == [2, 10000]


def flip_last_byte(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def forget_checksum(path):
    """As a file of tensors that nobody of joao wrote."""
    path.write_bytes(save(state(2, 30)))


@pytest.mark.parametrize("damage", [flip_last_byte, cut, forget_checksum])
def test_older_checkpoint_replaces_a_damaged_one(unfinished, damage):
    unfinished.write_checkpoint(state(2, 30))
    newest, older = unfinished.checkpoints()
    damage(newest)
    (unfinished.folder / f".{newest.name}.half").write_bytes(b"of a process that was killed")
    with notice(newest, older.name):
        assert unfinished.read_checkpoint()["position"].tolist() == [2, 20]
    # What is damaged must not pass for the newest again.
    assert [path.name for path in unfinished.folder.glob("*checkpoint*")] == [older.name]


def test_checkpoint_with_missing_epochs_is_skipped(unfinished):
    unfinished.write_checkpoint(state(3, 30))
    with notice("metrics.jsonl", "3 epochs", "checkpoint-000000000020.safetensors"):
        assert unfinished.read_checkpoint()["position"].tolist() == [2, 20]


def test_changed_weights_are_rejected(finished):
    flip_last_byte(finished.folder / "weights.safetensors")
    with refused(finished.folder / "weights.safetensors"):
        finished.weights()


def test_only_an_unfinished_run_is_discarded(unfinished, finished):
    before = contents(finished.folder)
    with pytest.raises(AssertionError):
        finished.discard()
    assert contents(finished.folder) == before
    (finished.folder / "mine.txt").write_text("precious")
    (finished.folder / "csv").mkdir()
    (finished.folder / "csv/metrics.csv").write_text("loss")
    unfinished.discard()
    assert sorted(contents(finished.folder)) == ["mine.txt"]


def test_failed_creation_leaves_nothing(tmp_path, monkeypatch):
    def full(run, tensors):
        raise WriteError("cannot be written (No space left on device).")

    monkeypatch.setattr(Run, "write_checkpoint", full)
    with pytest.raises(WriteError):
        Run.create(tmp_path / "run", RECIPE, INFO, state(0, 0))
    assert contents(tmp_path) == {}


def test_a_claimed_folder_belongs_to_one_process(tmp_path):
    folder = tmp_path / "run"
    with claim_folder(folder):
        with refused(folder), claim_folder(folder):
            pass
        with refused(folder, "run.json"):
            Run.open(folder)
        Run.create(folder, RECIPE, INFO, claimed=True)
    assert Run.open(folder).info == INFO
    assert not list(folder.glob(".*"))
    with refused(folder), claim_folder(folder):
        pass


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_claim_that_fails_leaves_nothing(error, tmp_path):
    def fail():
        with claim_folder(tmp_path / "run"):
            Run(tmp_path / "run", RECIPE, INFO).write_checkpoint(state(0, 0))
            raise error

    with pytest.raises(error):
        fail()
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("others", [(), ("mine.txt",)])
def test_what_a_killed_process_left_is_removed_and_nothing_else(others, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (".run.json.joao-0", ".weights.safetensors.joao-1", "recipe.toml", "finetune.json", *others):
        (folder / name).write_text("half")
    if others:
        with refused(folder):
            Run.create(folder, RECIPE, INFO)
        assert sorted(contents(folder)) == ["mine.txt"]
    else:
        assert Run.create(folder, RECIPE, INFO).info == INFO
        assert sorted(contents(folder)) == ["metrics.jsonl", "recipe.toml", "run.json"]


def test_a_recipe_alone_is_not_taken_for_the_rest_of_a_run(tmp_path):
    (tmp_path / "recipe.toml").write_text("precious")
    with refused(tmp_path):
        Run.create(tmp_path, RECIPE, INFO)
    assert contents(tmp_path) == {"recipe.toml": b"precious"}


@pytest.mark.parametrize("place", ["csv", "tensorboard", "csv/metrics.csv", "metrics.jsonl"])
def test_a_run_with_links_is_not_resumed(place, unfinished, tmp_path):
    (tmp_path / "ours").mkdir()
    path = unfinished.folder / place
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "ours")
    with refused(path), lock_run(unfinished.folder):
        pass


def test_epochs_are_not_appended_through_a_link(unfinished, tmp_path):
    path = unfinished.folder / "metrics.jsonl"
    path.rename(tmp_path / "ours")
    path.symlink_to(tmp_path / "ours")
    before = (tmp_path / "ours").read_bytes()
    with refused(path):
        unfinished.append(epoch(3))
    assert (tmp_path / "ours").read_bytes() == before


def test_finished_run_is_not_resumed(finished):
    with refused(finished.folder):
        finished.read_checkpoint()


def test_run_without_checkpoint_is_not_resumed(tmp_path):
    run = Run.create(tmp_path / "run", RECIPE, INFO)
    with refused(run.folder, "checkpoint"):
        run.read_checkpoint()


@pytest.mark.parametrize("name", ["checkpoint-000000000020.safetensors", "weights.safetensors"])
@pytest.mark.parametrize("left", [0, 4, 20, -1])
def test_truncated_tensors(name, left, unfinished, request):
    run = unfinished if name.startswith("checkpoint") else request.getfixturevalue("finished")
    path = run.folder / name
    path.write_bytes(path.read_bytes()[:left])
    before = contents(run.folder)
    with refused(path):
        run.read_checkpoint() if name.startswith("checkpoint") else run.weights()
    assert contents(run.folder) == before


@pytest.mark.parametrize("position", [[], [math.nan, 3.0], None])
def test_checkpoint_without_position_is_rejected(unfinished, position):
    tensors = state(2, 20)
    del tensors["position"]
    write_tensors(
        unfinished.checkpoints()[0], tensors if position is None else {**tensors, "position": torch.tensor(position)}
    )
    with refused(unfinished.folder / "checkpoint-000000000020.safetensors"):
        unfinished.read_checkpoint()


@pytest.mark.parametrize("left", [0, 1, 30, -3])
def test_truncated_run_json(left, finished):
    path = finished.folder / "run.json"
    path.write_bytes(path.read_bytes()[:left])
    with refused(finished.folder / "run.json"):
        Run.open(finished.folder)


@pytest.mark.parametrize("content", ["{}", "[]", "3", '{"format": 1}', '{"format": "one"}', '{"format": null}'])
def test_foreign_run_json_is_rejected(content, finished):
    (finished.folder / "run.json").write_text(content)
    with refused(finished.folder / "run.json"):
        Run.open(finished.folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"format": 1', f'"format": {"9" * 5000}'),  # more digits than Python converts
        ('"format": 1', '"format": 1.0'),
        ('"format": 1', '"format": true'),
        ('"finished": true', '"finished": false, "finished": true'),
        ('"num_graphs": ', '"num_graphs": 1, "num_graphs": '),
        ('"command": "', '"command": "\\ud800'),
        ('"fast": false', '"fast": 0'),
    ],
)
def test_run_json_that_has_several_meanings_is_rejected(old, new, finished):
    path = finished.folder / "run.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with refused(path):
        Run.open(finished.folder)


def test_newer_format_is_rejected_and_unknown_fields_are_ignored(finished):
    path = finished.folder / "run.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "added later": 1}))
    assert Run.open(finished.folder).info == finished.info
    path.write_text(json.dumps({**fields, "format": FORMAT + 1}))
    with refused(path, f"format {FORMAT + 1}"):
        Run.open(finished.folder)


def test_number_of_features_must_match_the_encoder(finished):
    path = finished.folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_features": 4}))
    with refused(path, "3 columns", 4):
        Run.open(finished.folder)


def test_open_rejects_missing_folders_and_other_files(tmp_path):
    (tmp_path / "file").write_text("")
    for place, command in (("nowhere", "joao pretrain"), ("file", "joao export")):
        with refused(tmp_path / place, command):
            Run.open(tmp_path / place)
    with refused(tmp_path, "run.json", "joao pretrain"):
        Run.open(tmp_path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "recipe.toml", "run.json", "weights.safetensors"])
def test_missing_files_are_named(name, finished):
    (finished.folder / name).unlink()
    with refused(finished.folder, name):
        read_everything(finished.folder)


@pytest.mark.parametrize("damage", ["", "{", "[1]", "3", '{"epoch": 1}', "\x00"])
def test_damaged_line_of_metrics_is_rejected(damage, finished):
    path = finished.folder / "metrics.jsonl"
    first, _, third = path.read_text().splitlines()
    path.write_text("\n".join([first, damage, third]))
    with refused(path):
        finished.metrics()


@pytest.mark.parametrize("kept", [[], [0], [0, 1], [0, 2], [1, 0, 2]])
def test_metrics_without_an_epoch_are_rejected(kept, finished):
    path = finished.folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[number] for number in kept))
    with refused(path, "3 epochs"):
        finished.metrics()


def test_folder_with_other_files_is_left_unchanged(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("precious")
    with refused(tmp_path / "run"):
        Run.create(tmp_path / "run", RECIPE, INFO)
    assert contents(tmp_path / "run") == {"mine.txt": b"precious"}


def test_error_for_an_unfinished_run_suggests_resuming(unfinished):
    with refused(f"{unfinished.folder}: ", f"joao pretrain --resume {unfinished.folder}"):
        check_new_folder(unfinished.folder)


def test_error_for_a_finished_run_does_not_suggest_resuming(finished):
    with refused(finished.folder) as told:
        check_new_folder(finished.folder)
    assert "--resume" not in str(told.value)


def test_run_is_not_overwritten(finished):
    before = contents(finished.folder)
    with refused(finished.folder):
        Run.create(finished.folder, RECIPE, INFO)
    assert contents(finished.folder) == before


@pytest.mark.parametrize("place", ["file", "file/run", "file/deep/run"])
def test_file_instead_of_a_folder_is_rejected(place, tmp_path):
    (tmp_path / "file").write_text("precious")
    with refused(tmp_path / place):
        Run.create(tmp_path / place, RECIPE, INFO)
    assert contents(tmp_path) == {"file": b"precious"}


def test_unwritable_folder_is_rejected(tmp_path, monkeypatch):
    # Whoever runs the tests may be allowed to write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with refused(tmp_path / "new" / "run", f" {tmp_path}"):
        check_new_folder(tmp_path / "new" / "run")
    assert contents(tmp_path) == {}


def test_unwritable_epoch_is_reported(unfinished):
    (unfinished.folder / "metrics.jsonl").unlink()
    (unfinished.folder / "metrics.jsonl").mkdir()
    with refused(unfinished.folder / "metrics.jsonl", os.strerror(errno.EISDIR)):
        unfinished.append(epoch(3))


NO_NUMBERS = (None, "1", [], {}, [1.0], math.nan, -math.inf, 10**30)
NO_TABLES = (0.5, [], [[]], [[1.0, 2.0]], [[1, 2], [3]], [[1, 2, 3]] * 2, [["1", "2"]] * 2, [[None, 1]] * 2, {})


@pytest.mark.parametrize("number", [1, 2])  # without and with losses of pairs
def test_epoch_line_round_trip(number):
    assert format_epoch(epoch(number)).count("\n") == 1
    assert parse_epoch(format_epoch(epoch(number)), 2, 7) == epoch(number)


NO_COUNTS = (None, [[-1, 8], [0, 0]], [[6.5, 0.5], [0, 0]], [[6, 0], [0, 0]])
NO_DISTRIBUTIONS = (
    *([[math.nan, 1.0]] * 2, [[2 / 3, 4 / 3], [0, 0]], [[0.0] * 2] * 2),
    *([[-0.5, 1.5], [0.0, 0.0]], [[1e300] * 2] * 2),
)


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (("epoch", "loss", "seconds", "graphs_per_second"), NO_NUMBERS),
        (("probabilities", "pair_losses", "drawn"), NO_TABLES),
        (("probabilities",), NO_DISTRIBUTIONS),
        (("drawn",), NO_COUNTS),
    ],
)
def test_parse_epoch_rejects_wrong_values(names, values):
    for name, wrong in product(names, values):
        with pytest.raises((ValueError, TypeError)):
            parse_epoch(json.dumps({**vars(epoch(2)), name: wrong}), 2, 7)


def test_parse_epoch_rejects_tables_of_another_pool():
    with pytest.raises(ValueError, match="3"):
        parse_epoch(format_epoch(epoch(2)), 3, 7)


TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(3), "none": torch.zeros(0, 4)}


def test_tensor_file_round_trip(tmp_path):
    write_tensors(tmp_path / "t.safetensors", TENSORS)
    found = read_tensors(tmp_path / "t.safetensors", checked=True)
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in TENSORS.items())


@pytest.mark.parametrize(
    "other",
    [{"a": TENSORS["a"].view(3, 2)}, {"a": TENSORS["a"].int()}, {"a": TENSORS["a"] + 1}, {"c": TENSORS["a"]}],
    ids=["shape", "type", "values", "name"],
)
def test_checksum_depends_on_name_type_shape_and_values(other):
    assert checksum({"a": TENSORS["a"]}) != checksum(other)


def test_files_of_earlier_versions_stay_readable(tmp_path):
    """The bytes that are hashed and the metadata key of the checksum must not change."""
    digest = hashlib.sha256()
    for name, header in (
        ("a", b"a torch.float32 [2, 3] "),
        ("b", b"b torch.int64 [] "),
        ("none", b"none torch.float32 [0, 4] "),
    ):
        digest.update(header + TENSORS[name].numpy().tobytes())
    assert checksum(dict(reversed(TENSORS.items()))) == digest.hexdigest()
    write_tensors(tmp_path / "t.safetensors", TENSORS)
    with safe_open(tmp_path / "t.safetensors", "pt") as file:
        assert file.metadata() == {"joao.checksum": digest.hexdigest()}


def test_file_without_a_checksum_is_read_unless_checked(tmp_path):
    save_file(TENSORS, tmp_path / "t.safetensors")
    assert torch.equal(read_tensors(tmp_path / "t.safetensors")["a"], TENSORS["a"])
    with refused(tmp_path / "t.safetensors"):
        read_tensors(tmp_path / "t.safetensors", checked=True)


def test_missing_tensor_file_is_rejected(tmp_path):
    with refused(tmp_path / "t.safetensors", os.strerror(errno.ENOENT)):
        read_tensors(tmp_path / "t.safetensors")


def tensor_file(metadata, **entry):
    """Make a file with any metadata and the header of at most one tensor."""
    text = json.dumps({"__metadata__": metadata} | ({"a": entry} if entry else {})).encode()
    return len(text).to_bytes(8, "little") + text + bytes(entry["data_offsets"][1] if entry else 0)


@pytest.mark.parametrize(
    "content",
    [
        tensor_file({CHECKSUM_KEY: "x"}, dtype="BF16", shape=[2], data_offsets=[0, 4]),  # unknown to numpy
        tensor_file({}, dtype="F4", shape=[8], data_offsets=[0, 4]),  # unknown to torch
        tensor_file({}, dtype="F32", shape=[0, 2**63], data_offsets=[0, 0]),
        tensor_file({}, dtype="F32", shape=[2**40], data_offsets=[0, 4]),
        tensor_file(None),
        tensor_file({CHECKSUM_KEY: 3}),
        tensor_file({CHECKSUM_KEY: "x"}),
        (10**18).to_bytes(8, "little") + b"{}",
    ],
    ids=["bf16", "f4", "too many", "too few bytes", "no metadata", "a number", "another checksum", "a long header"],
)
def test_invalid_tensor_file_gets_a_one_line_error(content, tmp_path):
    (tmp_path / "t.safetensors").write_bytes(content)
    with refused(tmp_path / "t.safetensors"):
        read_tensors(tmp_path / "t.safetensors", checked=True)
