"""Every kind of wrong input ends in one clear line, exit code 2, and nothing half-written."""

import json
import shutil

import pytest

from joao.runs.folder import FORMAT

GRAPH = '{"edges": [[0, 1]], "num_nodes": 2}\n'


def tree(folder):
    return {path.relative_to(folder): path.is_dir() or path.read_bytes() for path in folder.rglob("*")}


def refused(outcome, message, folder, before):
    assert outcome.code == 2
    assert outcome.err.startswith("joao: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err
    assert tree(folder) == before


GRAPHS = {
    "wrong path": ("nowhere.jsonl", None, "nowhere.jsonl: no such file or folder."),
    "not a data set": ("MUTAGS", None, "MUTAGS: no such data set"),
    "almost a data set": ("mutag", None, "Did you mean 'MUTAG'?"),
    "empty jsonl": ("empty.jsonl", "", "empty: no graphs in it."),
    "empty csv": ("empty.csv", "", "empty.csv:1: neither a table of molecules, with a column 'smiles'"),
    "empty graphml": ("empty.graphml", "", "empty.graphml"),
    "empty zip": ("empty.zip", "", "empty.zip"),
    "zero graphs": ("zero.csv", "graph,source,target\n", "zero: no graphs in it."),
    "nodes that do not exist": (
        "edges.jsonl",
        GRAPH + '{"edges": [[0, 9]], "num_nodes": 2}\n',
        "edges.jsonl:2: edge [0, 9]",
    ),
    "NaN features": (
        "nan.jsonl",
        '{"edges": [], "node_attributes": [[NaN]]}\n' * 2,
        "nan: node attribute 0 of row 0 is nan.",
    ),
    "NaN weights": ("nan.csv", "graph,source,target,weight\na,1,2,nan\nb,1,2,1\n", "nan.csv:2: column 'weight': 'nan'"),
    "one graph": ("one.jsonl", GRAPH, "it needs two graphs or more, got one."),
    "a graph without nodes": ("none.jsonl", GRAPH + '{"edges": [], "num_nodes": 0}\n', "none.jsonl:2: 'num_nodes'"),
    "a missing column": ("column.csv", "graph,source\na,1\n", "column.csv:1: no column 'target'."),
    "not JSON": ("text.jsonl", "hello\n", "text.jsonl:1: not JSON"),
    "an unknown kind of file": ("notes.docx", "hello", "notes.docx: unknown kind of file."),
    "a name that is too long": ("x" * 300 + ".jsonl", None, "File name too long"),
    "no name": ("", None, "no data. Name a data set or a path"),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_graphs(joao, tmp_path, kind):
    name, content, message = GRAPHS[kind]
    if content is not None:
        (tmp_path / name).write_text(content)
    before = tree(tmp_path)
    refused(joao("pretrain", name, "--out", "runs/new", "--epochs", 1), message, tmp_path, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "epochs=3"], "recipe: unknown key 'epochs'. Did you mean 'training.epochs'?"),
        (["--set", "training.epoch=3"], "recipe: training: unknown key 'epoch'. Did you mean 'epochs'?"),
        (["--set", "training.epochs=many"], "epochs must be a whole number, got 'many'."),
        (["--set", "training.epochs"], "--set training.epochs: must have the form key=value"),
        (["--set", "encoder=gim"], "unknown encoder 'gim'. Did you mean 'gin'?"),
        (["--set", "strength=2"], "strength must be in [0, 1), got 2.0."),
        (["--set", "policy.gamma=nan"], "gamma must be a number, got nan."),
        (["--set", "policy.prior=[[1.0, 2.0], [3.0]]"], "prior"),
        (["--set", "features=labels"], "features 'labels' need node labels"),
        (["--set", "features=colour"], "unknown rule 'colour' for features."),
        (["--set", "max_degree=0"], "max_degree must be from 1 to"),
        (["--method", "simclr"], "unknown method 'simclr'."),
        (["--recipe", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["--recipe", "key.toml"], "key.toml: unknown key 'polcy'. Did you mean 'policy'?"),
        (["--recipe", "broken.toml"], "broken.toml: is not TOML"),
        (["--device", "gpu"], "device: must be auto, cpu or cuda, got 'gpu'."),
        (["--precision", "8"], "precision: must be one of"),
        (["--data-root", "nowhere"], "nowhere is not a folder"),
    ],
)
def test_options_of_pretrain(joao, labelled, tmp_path, arguments, message):
    (tmp_path / "key.toml").write_text("polcy = 'uniform'\n")
    (tmp_path / "broken.toml").write_text("[training\n")
    data = "UNKNOWN" if "--data-root" in arguments else labelled
    before = tree(tmp_path)
    refused(joao("pretrain", data, "--out", "runs/new", *arguments), message, tmp_path, before)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("full", "full: exists already."),
        ("file", "file: exists already."),
        ("file/run", "file/run: cannot be made"),
        ("x" * 300, "File name too long"),
        (None, "say where the run shall be written: --out RUN."),
    ],
)
def test_outputs_of_pretrain(joao, labelled, tmp_path, out, message):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    before = tree(tmp_path)
    arguments = [] if out is None else ["--out", out]
    refused(joao("pretrain", labelled, *arguments, "--epochs", 1), message, tmp_path, before)


def test_the_output_is_looked_at_before_the_graphs(joao, tmp_path):
    (tmp_path / "file").write_text("precious")
    before = tree(tmp_path)
    refused(joao("pretrain", "nowhere.jsonl", "--out", "file"), "file: exists already.", tmp_path, before)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("there.csv", "there.csv: exists already."),
        ("nowhere/new.npz", "its folder nowhere does not exist."),
        ("there.csv/new.npz", "its folder there.csv does not exist."),
        ("new.txt", "new.txt: unknown kind of file '.txt'. Use .npz or .csv."),
        ("new", "new: unknown kind of file ''. Use .npz or .csv."),
        ("x" * 300 + ".csv", "File name too long"),
    ],
)
def test_outputs_of_embed(joao, mutag_run, tmp_path, out, message):
    (tmp_path / "there.csv").write_text("precious")
    before = tree(tmp_path)
    refused(joao("embed", mutag_run, "MUTAG", "--out", out), message, tmp_path, before)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("there.csv", "there.csv: exists already."),
        ("nowhere/new.npz", "its folder nowhere does not exist."),
        ("new.txt", "new.txt: unknown kind of file '.txt'. Use .csv or .npz."),
    ],
)
def test_outputs_of_predict(joao, mutag_tuned, tmp_path, out, message):
    (tmp_path / "there.csv").write_text("precious")
    before = tree(tmp_path)
    refused(joao("predict", mutag_tuned, "MUTAG", "--out", out), message, tmp_path, before)


@pytest.mark.parametrize("out", ["full", "full/mine"])
def test_outputs_of_finetune(joao, mutag_run, tmp_path, out):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    before = tree(tmp_path)
    refused(joao("finetune", mutag_run, "nowhere.jsonl", "--out", out), f"{out}: exists already.", tmp_path, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--validation-share", "1.5"], "the share of validation graphs must be between 0 and 1, got 1.5."),
        (["--validation-share", "0"], "the share of validation graphs must be between 0 and 1, got 0.0."),
        (["--learning-rate", "0"], "learning_rate must be above 0, got 0.0."),
        (["--learning-rate", "1e30"], "the loss became"),
        (["--epochs", "0"], "Invalid value for '--epochs'"),
        (["--batch-size", "1"], "Invalid value for '--batch-size'"),
        (["--device", "gpu"], "device: must be auto, cpu or cuda, got 'gpu'."),
        (["--precision", "8"], "precision: must be one of"),
        (["--frozen", "--fast"], "the fast path is not possible: a frozen encoder needs none."),
    ],
)
def test_options_of_finetune(joao, mutag_run, tmp_path, arguments, message):
    outcome = joao("finetune", mutag_run, "MUTAG", "--out", "new", "--epochs", 3, *arguments)
    refused(outcome, message, tmp_path, {})


@pytest.mark.parametrize("out", ["there.json", "nowhere/new.json"])
def test_outputs_of_evaluate(joao, mutag_run, tmp_path, out):
    (tmp_path / "there.json").write_text("precious")
    before = tree(tmp_path)
    message = "exists already." if out == "there.json" else "its folder nowhere does not exist."
    refused(joao("evaluate", mutag_run, "MUTAG", "--out", out), message, tmp_path, before)


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
    "nowhere": (shutil.rmtree, "is not a run: there is no such folder."),
    "foreign": (lambda run: [path.unlink() for path in run.iterdir()], "is not a run: it has no run.json."),
    "truncated run.json": (truncate("run.json"), "run.json: is damaged or not of a run"),
    "truncated weights": (truncate("weights.safetensors"), "weights.safetensors: is damaged"),
    "truncated recipe": (truncate("recipe.toml"), "recipe.toml: is not TOML"),
    "truncated metrics": (truncate("metrics.jsonl"), "metrics.jsonl: cannot be read"),
    "no weights": (lambda run: (run / "weights.safetensors").unlink(), "weights.safetensors: cannot be read"),
    "no recipe": (lambda run: (run / "recipe.toml").unlink(), "recipe.toml: cannot be read"),
    "newer": (newer, "is newer than this version of joao knows."),
    "unfinished": (unfinished, "is not finished. Go on: joao pretrain --resume run"),
    "of another width": (wider, "run: its weights do not fit its recipe"),
}


@pytest.mark.parametrize("command", ["embed", "evaluate", "finetune", "predict"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_runs(joao, mutag_run, tmp_path, kind, command):
    damage, message = DAMAGES[kind]
    shutil.copytree(mutag_run, tmp_path / "run")
    damage(tmp_path / "run")
    before = tree(tmp_path)
    arguments = ["--folds", 2] if command == "evaluate" else ["--out", "new.csv"]
    refused(joao(command, "run", "MUTAG", *arguments), message, tmp_path, before)


@pytest.mark.parametrize(
    ("run", "message"), [("nowhere", "is not a run"), (".", "is not a run"), ("run", "there is nothing to resume")]
)
def test_resume(joao, mutag_run, tmp_path, run, message):
    shutil.copytree(mutag_run, tmp_path / "run")
    before = tree(tmp_path)
    outcome = joao("pretrain", "--resume", run)
    refused(outcome, message, tmp_path, before)
    assert outcome.out == ""


def class_sizes(*sizes):
    labels = [name for name, size in enumerate(sizes) for _ in range(size)]
    return "".join(json.dumps({"edges": [[0, 1]], "num_nodes": 2, "label": label}) + "\n" for label in labels)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (class_sizes(12, 4), "folds: class '1' has 4 graphs, fewer than the 10 folds. Use at most 4 folds"),
        (class_sizes(12, 1), "folds: class '1' has 1 graphs, fewer than the 10 folds. Leave the class out."),
        (class_sizes(12), "folds: 1 class among 12 graphs; scoring needs at least two."),
        (GRAPH * 12, "has no graph labels, so nothing can be scored."),
    ],
)
def test_classes(joao, tmp_path, content, message):
    (tmp_path / "few.jsonl").write_text(content)
    assert joao("pretrain", "few.jsonl", "--out", "run", "--epochs", 1).code == 0
    before = tree(tmp_path)
    refused(joao("evaluate", "run"), message, tmp_path, before)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (class_sizes(12), "few: one class only among 12 graphs; a classifier needs two or more."),
        (class_sizes(1, 1, 1), "labels: 3 labelled graphs of 3 classes leave none to choose the epoch with."),
        (GRAPH * 12, "few: no graph has a label. Label some"),
        (None, "few.jsonl: no such file or folder."),
    ],
)
def test_labels_to_learn_from(joao, labelled, tmp_path, content, message):
    assert joao("pretrain", labelled, "--out", "run", "--epochs", 1).code == 0
    if content is not None:
        (tmp_path / "few.jsonl").write_text(content)
    before = tree(tmp_path)
    refused(joao("finetune", "run", "few.jsonl", "--out", "new"), message, tmp_path, before)


def test_graphs_without_any_label_are_not_learned_from(joao, mutag_run, tmp_path):
    (tmp_path / "none.jsonl").write_text('{"edges": [], "node_labels": [1]}\n' * 2)
    message = "none: no graph has a label. Label some in the file or, in Python, give y."
    refused(joao("finetune", mutag_run, "none.jsonl", "--out", "new"), message, tmp_path, tree(tmp_path))


def test_a_score_needs_every_label(joao, mutag_run, tmp_path):
    lines = ['{"edges": [], "node_labels": [1], "label": 1}', '{"edges": [], "node_labels": [1]}']
    (tmp_path / "some.jsonl").write_text("\n".join(lines) + "\n")
    outcome = joao("evaluate", mutag_run, "some.jsonl")
    assert outcome.code == 2
    note, error = outcome.err.splitlines()
    assert note == "joao: note: some: 1 of 2 graphs have no label."
    assert error.startswith("joao: some: 1 of 2 graphs have no label; a score needs all.")


def test_a_run_without_a_classifier(joao, mutag_run, tmp_path):
    message = f"{mutag_run}: has no classifier; make one with 'joao finetune {mutag_run} DATA --out FOLDER'."
    refused(joao("predict", mutag_run, "MUTAG", "--out", "new.csv"), message, tmp_path, {})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate("finetune.json"), "finetune.json: is damaged or not of a fine-tuning"),
        (lambda run: (run / "finetune.json").write_text("{}"), "finetune.json: is damaged or not of a fine-tuning"),
        (wider, "run: its weights do not fit its recipe"),
    ],
)
def test_damaged_classifiers(joao, mutag_tuned, tmp_path, damage, message):
    shutil.copytree(mutag_tuned, tmp_path / "run")
    damage(tmp_path / "run")
    before = tree(tmp_path)
    refused(joao("predict", "run", "MUTAG", "--out", "new.csv"), message, tmp_path, before)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"edges": [], "node_labels": [[1, 2]]}', "2 columns of node labels; the features expect 1."),
        ('{"edges": [], "node_labels": ["C"]}', "are of another type than the known ones"),
        ('{"edges": [], "num_nodes": 1}', "0 columns of node labels; the features expect 1."),
    ],
)
def test_graphs_of_another_kind_than_the_runs(joao, mutag_run, mutag_tuned, tmp_path, content, message):
    (tmp_path / "other.jsonl").write_text(content)
    before = tree(tmp_path)
    refused(joao("embed", mutag_run, "other.jsonl", "--out", "new.csv"), message, tmp_path, before)
    refused(joao("predict", mutag_tuned, "other.jsonl", "--out", "new.csv"), message, tmp_path, before)


@pytest.mark.parametrize("options", [[], ["--from-scratch"]])
def test_labelled_graphs_of_another_kind_than_the_runs(joao, mutag_run, labelled, tmp_path, options):
    before = tree(tmp_path)
    message = "labelled: 0 columns of node labels; the features expect 1."
    refused(joao("finetune", mutag_run, labelled, "--out", "new", *options), message, tmp_path, before)


@pytest.mark.parametrize("arguments", [["data", "nowhere.zip"], ["data", "NOSET"], ["data", "."]])
def test_describing_what_is_not_there(joao, tmp_path, arguments):
    refused(joao(*arguments), "", tmp_path, tree(tmp_path))
