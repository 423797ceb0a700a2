"""Invalid input gives a one-line error and exit code 2, and leaves no partial output."""

import errno
import json
import os
import shutil

import pytest

from joao.core.files import already_exists
from joao.runs.folder import FORMAT
from tests.cli.conftest import assert_refused
from tests.messages import assert_mentions

GRAPH = '{"edges": [[0, 1]], "num_nodes": 2}\n'


def tree(folder):
    return {path.relative_to(folder): path.is_dir() or path.read_bytes() for path in folder.rglob("*")}


def refused(outcome, values, folder, before):
    assert_refused(outcome, *values)
    assert tree(folder) == before


GRAPHS = {
    "wrong path": ("nowhere.jsonl", None, ["joao: nowhere.jsonl: "]),
    "not a data set": ("MUTAGS", None, ["joao: MUTAGS: ", "ROOT/MUTAGS.zip", "--data-root"]),
    "almost a data set": ("mutag", None, ["joao: mutag: ", "'MUTAG'"]),
    "empty jsonl": ("empty.jsonl", "", ["joao: empty.jsonl: "]),
    "empty csv": ("empty.csv", "", ["joao: empty.csv:1: ", "'smiles'"]),
    "empty graphml": ("empty.graphml", "", ["empty.graphml"]),
    "empty zip": ("empty.zip", "", ["empty.zip"]),
    "zero graphs": ("zero.csv", "graph,source,target\n", ["joao: zero.csv: "]),
    "nodes that do not exist": (
        "edges.jsonl",
        GRAPH + '{"edges": [[0, 9]], "num_nodes": 2}\n',
        ["joao: edges.jsonl:2: ", "[0, 9]"],
    ),
    "NaN features": ("nan.jsonl", '{"edges": [], "node_attributes": [[NaN]]}\n' * 2, ["joao: nan.jsonl:1: ", "'NaN'"]),
    "NaN weights": (
        "nan.csv",
        "graph,source,target,weight\na,1,2,nan\nb,1,2,1\n",
        ["joao: nan.csv:2: ", "'weight'", "'nan'"],
    ),
    "one graph": ("one.jsonl", GRAPH, ["graphs"]),
    "a graph without nodes": (
        "none.jsonl",
        GRAPH + '{"edges": [], "num_nodes": 0}\n',
        ["joao: none.jsonl:2: ", "'num_nodes'"],
    ),
    "a missing column": ("column.csv", "graph,source\na,1\n", ["joao: column.csv:1: ", "'target'"]),
    "an unknown key": (
        "key.jsonl",
        '{"num_nodes": 2, "edge": [[0, 1]]}\n',
        ["joao: key.jsonl:1: ", "'edge'", "'edges'", " num_nodes,"],
    ),
    "not JSON": ("text.jsonl", "hello\n", ["joao: text.jsonl:1: ", "JSON"]),
    "an unknown kind of file": ("notes.docx", "hello", ["joao: notes.docx: "]),
    "a name that is too long": ("x" * 300 + ".jsonl", None, [306, 255]),
    "no name": ("", None, ["joao pretrain DATA --out RUN"]),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_invalid_graphs(joao, tmp_path, kind):
    name, content, values = GRAPHS[kind]
    if content is not None:
        (tmp_path / name).write_text(content)
    before = tree(tmp_path)
    outcome = joao("pretrain", name, "--out", "runs/new", "--epochs", 1)
    refused(outcome, values, tmp_path, before)
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--set", "epochs=3"], ["recipe: ", "'epochs'", "'training.epochs'"]),
        (["--set", "training.epoch=3"], ["recipe: training: ", "'epoch'", "'epochs'"]),
        (["--set", "training.epochs=many"], ["epochs", "'many'"]),
        (["--set", "training.epochs"], ["--set training.epochs: ", "key=value"]),
        (["--set", "encoder=gim"], ["encoder", "'gim'", "'gin'"]),
        (["--set", "strength=2"], ["strength", "[0, 1)", "2.0"]),
        (["--set", "policy.gamma=nan"], ["gamma", "nan"]),
        (["--set", "policy.prior=[[1.0, 2.0], [3.0]]"], ["prior"]),
        (["--set", "features=labels"], ["features", "'labels'"]),
        (["--set", "features=colour"], ["features", "'colour'"]),
        (["--set", "max_degree=0"], ["max_degree", "1", "0"]),
        (["--method", "simclr"], ["method", "'simclr'", "joao"]),
        (["--objective", "nt_cent"], ["--objective nt_cent: ", "'nt_xent'"]),
        (["--set", "encoder.width=0"], ["Gin: ", "width", "0"]),
        (["--recipe", "nowhere.toml"], ["nowhere.toml: "]),
        (["--recipe", "key.toml"], ["key.toml: ", "'polcy'", "'policy'"]),
        (["--recipe", "broken.toml"], ["broken.toml: ", "TOML"]),
        (["--device", "gpu"], ["device: ", "auto", "cpu", "cuda", "'gpu'"]),
        (["--precision", "8"], ["precision: ", "32-true", "'8'"]),
        (["--data-root", "nowhere"], ["nowhere"]),
    ],
)
def test_invalid_options_of_pretrain(joao, labelled, tmp_path, arguments, values):
    (tmp_path / "key.toml").write_text("polcy = 'uniform'\n")
    (tmp_path / "broken.toml").write_text("[training\n")
    data = "UNKNOWN" if "--data-root" in arguments else labelled
    before = tree(tmp_path)
    outcome = joao("pretrain", data, "--out", "runs/new", *arguments)
    refused(outcome, values, tmp_path, before)
    assert outcome.out == ""


def test_unknown_objectives_list_those_that_compare_views(joao, labelled, tmp_path):
    outcome = joao("pretrain", labelled, "--out", "new", "--objective", "foo")
    refused(outcome, ["foo", "nt_xent", "barlow_twins"], tmp_path, tree(tmp_path))
    assert "info_graph" not in outcome.err


@pytest.mark.parametrize(
    ("out", "values"),
    [
        ("full", ["joao: full: "]),
        ("file", ["joao: file: "]),
        ("file/run", ["joao: file/run: "]),
        ("x" * 300, [os.strerror(errno.ENAMETOOLONG)]),
        (None, ["--out RUN"]),
    ],
)
def test_invalid_outputs_of_pretrain(joao, labelled, tmp_path, out, values):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    before = tree(tmp_path)
    arguments = [] if out is None else ["--out", out]
    refused(joao("pretrain", labelled, *arguments, "--epochs", 1), values, tmp_path, before)


def test_the_output_is_checked_before_the_graphs(joao, tmp_path):
    (tmp_path / "file").write_text("precious")
    before = tree(tmp_path)
    refused(joao("pretrain", "nowhere.jsonl", "--out", "file"), ["joao: file: "], tmp_path, before)


@pytest.mark.parametrize(
    ("out", "values"),
    [
        ("there.csv", ["joao: there.csv: "]),
        ("nowhere/new.npz", ["joao: nowhere/new.npz: "]),
        ("there.csv/new.npz", ["joao: there.csv/new.npz: "]),
        ("new.txt", ["joao: new.txt: ", "'.txt'", ".npz", ".csv"]),
        ("x" * 300 + ".csv", [os.strerror(errno.ENAMETOOLONG)]),
    ],
)
def test_invalid_outputs_of_embed(joao, mutag_run, tmp_path, out, values):
    (tmp_path / "there.csv").write_text("precious")
    before = tree(tmp_path)
    refused(joao("embed", mutag_run, "MUTAG", "--out", out), values, tmp_path, before)


@pytest.mark.parametrize(
    ("out", "values"),
    [
        ("there.csv", ["joao: there.csv: "]),
        ("nowhere/new.npz", ["joao: nowhere/new.npz: "]),
        ("new.txt", ["joao: new.txt: ", "'.txt'", ".csv", ".npz"]),
    ],
)
def test_invalid_outputs_of_predict(joao, mutag_tuned, tmp_path, out, values):
    (tmp_path / "there.csv").write_text("precious")
    before = tree(tmp_path)
    refused(joao("predict", mutag_tuned, "MUTAG", "--out", out), values, tmp_path, before)


@pytest.mark.parametrize("out", ["full", "full/mine"])
def test_invalid_outputs_of_finetune(joao, mutag_run, tmp_path, out):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    before = tree(tmp_path)
    refused(joao("finetune", mutag_run, "nowhere.jsonl", "--out", out), [f"joao: {out}: "], tmp_path, before)


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--validation-share", "1.5"], ["validation", "1.5"]),
        (["--validation-share", "0"], ["validation", "0.0"]),
        (["--learning-rate", "0"], ["--learning-rate", "0.0"]),
        (["--learning-rate", "1e30"], ["loss", "1e+30"]),
        (["--epochs", "0"], ["'--epochs'"]),
        (["--batch-size", "1"], ["'--batch-size'"]),
        (["--device", "gpu"], ["device: ", "auto", "cpu", "cuda", "'gpu'"]),
        (["--precision", "8"], ["precision: ", "32-true", "'8'"]),
        (["--frozen", "--fast"], ["fast", "frozen"]),
    ],
)
def test_invalid_options_of_finetune(joao, mutag_run, tmp_path, arguments, values):
    outcome = joao("finetune", mutag_run, "MUTAG", "--out", "new", "--epochs", 3, *arguments)
    refused(outcome, values, tmp_path, {})


@pytest.mark.parametrize("out", ["there.json", "nowhere/new.json"])
def test_invalid_outputs_of_evaluate(joao, mutag_run, tmp_path, out):
    (tmp_path / "there.json").write_text("precious")
    before = tree(tmp_path)
    refused(joao("evaluate", mutag_run, "MUTAG", "--out", out), [f"joao: {out}: "], tmp_path, before)


def truncate(name):
    def damage(run):
        path = run / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def newer(run):
    fields = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**fields, "format": FORMAT + 1}))


def unfinished(run):
    fields = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**fields, "finished": False}))


def wider(run):
    recipe = (run / "recipe.toml").read_text()
    assert recipe.count("width = 32\n") == 1
    (run / "recipe.toml").write_text(recipe.replace("width = 32\n", "width = 40\n"))


DAMAGES = {
    "nowhere": (shutil.rmtree, ["joao: run: "]),
    "foreign": (lambda run: [path.unlink() for path in run.iterdir()], ["joao: run: ", "run.json"]),
    "truncated run.json": (truncate("run.json"), ["joao: run/run.json: "]),
    "truncated weights": (truncate("weights.safetensors"), ["joao: run/weights.safetensors: "]),
    "truncated recipe": (truncate("recipe.toml"), ["joao: run/recipe.toml: ", "TOML"]),
    "truncated metrics": (truncate("metrics.jsonl"), ["joao: run/metrics.jsonl line "]),
    "no weights": (
        lambda run: (run / "weights.safetensors").unlink(),
        ["joao: run/weights.safetensors: ", os.strerror(errno.ENOENT)],
    ),
    "no recipe": (lambda run: (run / "recipe.toml").unlink(), ["joao: run/recipe.toml: "]),
    "newer": (newer, ["joao: run/run.json: ", FORMAT + 1]),
    "unfinished": (unfinished, ["joao: run: ", "joao pretrain --resume run"]),
    "of another width": (wider, ["joao: run: ", "40"]),
}


@pytest.mark.parametrize("command", ["embed", "evaluate", "finetune", "predict"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_runs(joao, mutag_run, tmp_path, kind, command):
    damage, values = DAMAGES[kind]
    shutil.copytree(mutag_run, tmp_path / "run")
    damage(tmp_path / "run")
    before = tree(tmp_path)
    arguments = ["--folds", 2] if command == "evaluate" else ["--out", "new.csv"]
    refused(joao(command, "run", "MUTAG", *arguments), values, tmp_path, before)


@pytest.mark.parametrize(
    ("run", "values"),
    [("nowhere", ["joao: nowhere: ", "joao pretrain"]), (".", ["joao: .: ", "run.json"]), ("run", ["joao: run: "])],
)
def test_resume(joao, mutag_run, tmp_path, run, values):
    shutil.copytree(mutag_run, tmp_path / "run")
    before = tree(tmp_path)
    outcome = joao("pretrain", "--resume", run)
    refused(outcome, values, tmp_path, before)
    assert outcome.out == ""


def class_sizes(*sizes):
    labels = [name for name, size in enumerate(sizes) for _ in range(size)]
    return "".join(json.dumps({"edges": [[0, 1]], "num_nodes": 2, "label": label}) + "\n" for label in labels)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (class_sizes(12, 4), ["joao: folds: ", "'1'", "10", "4"]),
        (class_sizes(12, 1), ["joao: folds: ", "'1'", "10"]),
        (class_sizes(12), ["joao: folds: ", "12"]),
        (GRAPH * 12, ["joao: few: ", "joao embed"]),
    ],
)
def test_evaluate_needs_enough_graphs_per_class(joao, tmp_path, content, values):
    (tmp_path / "few.jsonl").write_text(content)
    assert joao("pretrain", "few.jsonl", "--out", "run", "--epochs", 1).code == 0
    before = tree(tmp_path)
    refused(joao("evaluate", "run"), values, tmp_path, before)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (class_sizes(12), ["joao: few.jsonl: ", "12"]),
        (class_sizes(1, 1, 1), ["labels", "3"]),
        (GRAPH * 12, ["joao: few.jsonl: ", "y."]),
        (None, ["joao: few.jsonl: "]),
    ],
)
def test_finetune_needs_enough_labels(joao, labelled, tmp_path, content, values):
    assert joao("pretrain", labelled, "--out", "run", "--epochs", 1).code == 0
    if content is not None:
        (tmp_path / "few.jsonl").write_text(content)
    before = tree(tmp_path)
    refused(joao("finetune", "run", "few.jsonl", "--out", "new"), values, tmp_path, before)


def test_finetune_needs_labels(joao, mutag_run, tmp_path):
    (tmp_path / "none.jsonl").write_text('{"edges": [], "node_labels": [1]}\n' * 2)
    refused(joao("finetune", mutag_run, "none.jsonl", "--out", "new"), ["joao: none.jsonl: "], tmp_path, tree(tmp_path))


def test_evaluate_needs_two_classes(joao, mutag_run, tmp_path):
    lines = ['{"edges": [], "node_labels": [1], "label": 1}', '{"edges": [], "node_labels": [1]}']
    (tmp_path / "some.jsonl").write_text("\n".join(lines) + "\n")
    outcome = joao("evaluate", mutag_run, "some.jsonl")
    assert outcome.code == 2
    note, error = outcome.err.splitlines()
    assert_mentions(note, "joao: note: some: ", "1 of 2")
    assert_mentions(error, "two classes", "1 graph")


def test_predict_without_a_model(joao, tmp_path):
    outcome = joao("predict", "nowhere", "MUTAG", "--out", "new.csv")
    refused(outcome, ["joao: nowhere: ", "joao finetune"], tmp_path, {})
    assert "pretrain" not in outcome.err


def test_predict_needs_a_fine_tuned_run(joao, mutag_run, tmp_path):
    values = [f"joao: {mutag_run}: ", f"joao finetune {mutag_run} "]
    refused(joao("predict", mutag_run, "MUTAG", "--out", "new.csv"), values, tmp_path, {})


@pytest.mark.parametrize(
    ("damage", "values"),
    [
        (truncate("finetune.json"), ["joao: run/finetune.json: "]),
        (lambda run: (run / "finetune.json").write_text("{}"), ["joao: run/finetune.json: "]),
        (wider, ["joao: run: "]),
    ],
)
def test_damaged_classifiers(joao, mutag_tuned, tmp_path, damage, values):
    shutil.copytree(mutag_tuned, tmp_path / "run")
    damage(tmp_path / "run")
    before = tree(tmp_path)
    refused(joao("predict", "run", "MUTAG", "--out", "new.csv"), values, tmp_path, before)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ('{"edges": [], "node_labels": [[1, 2]]}', ["joao: other.jsonl: ", "2", " 1"]),
        ('{"edges": [], "node_labels": ["C"]}', ["joao: other.jsonl: ", "'C'"]),
        ('{"edges": [], "num_nodes": 1}', ["joao: other.jsonl: ", "0", " 1"]),
    ],
)
def test_graphs_of_another_kind(joao, mutag_run, mutag_tuned, tmp_path, content, values):
    (tmp_path / "other.jsonl").write_text(content)
    before = tree(tmp_path)
    refused(joao("embed", mutag_run, "other.jsonl", "--out", "new.csv"), values, tmp_path, before)
    refused(joao("predict", mutag_tuned, "other.jsonl", "--out", "new.csv"), values, tmp_path, before)


@pytest.mark.parametrize("options", [[], ["--from-scratch"]])
def test_labelled_graphs_of_another_kind(joao, mutag_run, labelled, tmp_path, options):
    before = tree(tmp_path)
    values = [f"joao: {labelled}: ", "0", " 1"]
    refused(joao("finetune", mutag_run, labelled, "--out", "new", *options), values, tmp_path, before)


@pytest.mark.parametrize(
    "arguments", [["data", "nowhere.zip"], ["data", "NOSET"], ["data", "."], ["data", "/dev/null"]]
)
def test_data_sets_that_do_not_exist(joao, tmp_path, arguments):
    outcome = joao(*arguments)
    refused(outcome, arguments[1:], tmp_path, tree(tmp_path))
    assert os.strerror(errno.ENOTDIR) not in outcome.err


@pytest.mark.parametrize("command", [["report", "x"], ["pack", "MUTAG"]])
def test_outputs_of_another_type(joao, tmp_path, command):
    refused(joao(*command, "--out", "new.txt"), ["joao: new.txt: ", "'.txt'"], tmp_path, {})


@pytest.mark.parametrize(
    "command", [["pretrain", "MUTAG"], ["embed", "x", "y"], ["finetune", "x", "y"], ["pack", "MUTAG"], ["export", "x"]]
)
def test_every_command_has_the_same_words_for_an_output_that_exists(joao, tmp_path, command):
    suffix = {"embed": ".csv", "pack": ".safetensors", "export": ".safetensors"}.get(command[0], "")
    out = tmp_path / f"there{suffix}"
    out.write_text("precious")
    expected = f"joao: {already_exists(out)}\n"
    assert joao(*command, "--out", out).err == expected
    assert out.read_text() == "precious"
