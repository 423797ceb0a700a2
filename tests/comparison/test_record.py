"""The record of a comparison. Oracles: the scorer itself, the statistics themselves, and a count of what is done."""

import json
import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from joao.baselines import BASELINES, Baseline
from joao.comparison import methods as processes
from joao.comparison.methods import Task
from joao.comparison.record import Plan, compute, missing_seeds, start_record
from joao.comparison.summary import record_verdict, rows
from joao.config.recipe import make_recipe
from joao.core.errors import UserError
from joao.data.refinement import find_twins
from joao.data.synthetic import random_graphs
from joao.evaluation import svm
from joao.evaluation.embeddings import evaluate_embeddings
from joao.evaluation.statistics import paired_gain
from tests.executed import execute
from tests.messages import refused

WHOLE_GRID = svm.C_GRID
PLAN = Plan(("joao", "untrained", "histogram"), partitions=2, folds=3, epochs=1, device="cpu")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(svm, "C_GRID", (1.0,))


@pytest.fixture(scope="module")
def graphs():
    return random_graphs(24, mean_nodes=6, seed=5)


class Counting(Baseline):
    """The number of nodes; remembers how often it was fitted."""

    fitted: ClassVar = []

    def learn(self, graphs):
        self.fitted.append(len(graphs))

    def rows(self, graphs):
        return np.diff(graphs.first_node)[:, None].astype(float)


class Random(Counting):
    def __init__(self, *, seed=0):
        self.seed = seed

    def rows(self, graphs):
        return np.random.default_rng(self.seed).standard_normal((len(graphs), 2))


class Failing(Baseline):
    error = UserError("failing: cannot do this.")

    def rows(self, graphs):
        raise self.error


@pytest.fixture(autouse=True)
def own(monkeypatch):
    monkeypatch.setattr(Counting, "fitted", [])
    for name, member in (("counting", Counting), ("random", Random), ("failing", Failing)):
        monkeypatch.setitem(BASELINES, name, member)


def test_scores_are_those_of_the_scorer(graphs):
    record = compute(graphs, PLAN)
    alone = evaluate_embeddings(BASELINES["histogram"]().fit_transform(graphs), graphs.classes, **SCORING)
    parts = alone.to_json()["partitions"]
    pieces = record["methods"]["histogram"]["seeds"]
    for part in parts:
        assert {key: pieces[str(part["partition"])][key] for key in part} == part
    assert record["fold hashes"] == [part["fold_hash"] for part in parts]
    assert record["chance"] == max(np.bincount(graphs.classes)) / 24
    assert make_recipe(record["methods"]["joao"]["settings"]).training.epochs == 1
    first, second = (record["methods"]["joao"]["seeds"][seed] for seed in "01")
    assert first["seconds"] != second["seconds"]
    assert record["versions"]["joao"]
    assert record["command"]
    json.dumps(record, allow_nan=False)


def test_twins_together(graphs, tmp_path):
    twice = graphs[np.r_[0:24, 0:24]]
    together = np.r_[0:24, 0:24]
    plan = replace(PLAN, methods=("histogram",), twins_together=True)
    record = compute(twice, plan, tmp_path / "record.json")
    rows = BASELINES["histogram"]().fit_transform(twice)
    parts = evaluate_embeddings(rows, twice.classes, **SCORING, groups=together).to_json()["partitions"]
    assert record["fold hashes"] == [part["fold_hash"] for part in parts]
    pieces = record["methods"]["histogram"]["seeds"]
    assert [pieces[seed]["accuracies"] for seed in "01"] == [part["accuracies"] for part in parts]
    with refused(tmp_path / "record.json", "protocol"):
        compute(twice, replace(plan, twins_together=False), tmp_path / "record.json")


SCORING = {"partitions": range(2), "num_folds": 3}


def test_rows_and_verdict_are_those_of_the_statistics(graphs):
    record = compute(graphs, replace(PLAN, methods=("histogram", "joao", "counting", "untrained")))
    table = rows(record)
    assert [(row.method, row.kind) for row in table] == [
        ("joao", "pre-trained"),
        ("counting", "baseline"),
        ("histogram", "cheap baseline"),
        ("untrained", "cheap baseline"),
    ]
    found = {
        name: np.array([entry["seeds"][seed]["accuracies"] for seed in "01"])
        for name, entry in record["methods"].items()
    }
    for row in table:
        by_partition = found[row.method].mean(axis=1)
        assert row.accuracy == pytest.approx(by_partition.mean())
        assert row.deviation == pytest.approx(np.std(by_partition, ddof=1))
        assert row.gain == (None if row.method == "untrained" else paired_gain(found[row.method], found["untrained"]))
        pieces = record["methods"][row.method]["seeds"].values()
        assert row.seconds == pytest.approx(np.mean([piece["seconds"] for piece in pieces]))
        assert row.peak_bytes == max(piece["peak bytes"] for piece in pieces)
    verdict = record_verdict(record)
    assert verdict.tried == (1, 2)
    assert set(verdict.over) == {"histogram", "untrained"}
    assert record["verdict"]["sentence"] == str(verdict)


@pytest.mark.slow
def test_deterministic_methods_are_computed_once(graphs):
    compute(graphs, replace(PLAN, methods=("counting",), partitions=3))
    assert Counting.fitted == [24]
    record = compute(graphs, replace(PLAN, methods=("random",), partitions=3))
    assert Counting.fitted == [24] * 4
    rows_of_seed = np.random.default_rng(2).standard_normal((24, 2))
    alone = evaluate_embeddings(rows_of_seed, graphs.classes, partitions=[2], num_folds=3)
    assert record["methods"]["random"]["seeds"]["2"]["accuracies"] == alone.accuracies[0]


def test_record_is_continued(graphs, tmp_path):
    out = tmp_path / "record.json"
    told = []
    plan = replace(PLAN, methods=("counting", "random"))

    class Enough(Exception):
        pass

    def stop_after_three(done):
        told.append((done.method, done.score["seed"]))
        if len(told) == 3:
            raise Enough

    with pytest.raises(Enough):
        compute(graphs, plan, out, stop_after_three)
    assert told == [("counting", 0), ("random", 0), ("counting", 1)]
    assert missing_seeds(start_record(graphs, plan, out)) == {"random": [1]}
    record = compute(graphs, plan, out, lambda done: told.append((done.method, done.score["seed"])))
    assert told[3:] == [("random", 1)]
    assert json.loads(out.read_text()) == json.loads(json.dumps(record))

    def scores(record):
        return {
            name: [seed["accuracies"] for seed in entry["seeds"].values()] for name, entry in record["methods"].items()
        }

    assert scores(record) == scores(compute(graphs, plan))
    more = compute(graphs, replace(plan, methods=("untrained", "counting"), partitions=1), out)
    assert [row["method"] for row in more["rows"]] == ["counting", "untrained"]
    assert set(json.loads(out.read_text())["methods"]) == {"counting", "random", "untrained"}


def test_record_of_another_comparison_is_not_continued(graphs, tmp_path):
    out = tmp_path / "record.json"
    compute(graphs, replace(PLAN, methods=("untrained",), partitions=1), out)
    kept = out.read_text()
    with refused(out, "folds"):
        compute(graphs, replace(PLAN, methods=("untrained",), folds=4), out)
    relabelled = replace(graphs, classes=np.roll(graphs.classes, 1))
    with refused(out, "data"):
        compute(relabelled, replace(PLAN, methods=("untrained",)), out)
    with refused(out, "untrained", "--epochs"):
        compute(graphs, replace(PLAN, methods=("untrained",), epochs=2), out)
    assert out.read_text() == kept
    out.write_text('{"protocol": {"name": "unsupervised"}}')
    with refused(out, "'joao compare'"):
        compute(graphs, PLAN, out)


@pytest.mark.slow
def test_failing_method_does_not_stop_the_others(graphs, tmp_path, monkeypatch):
    out, plan = tmp_path / "record.json", replace(PLAN, methods=("failing", "untrained", "joao"))
    record = compute(graphs, plan, out)
    by_name = {row.method: row for row in rows(record)}
    assert by_name["failing"].failure == str(Failing.error)
    assert by_name["failing"].accuracy is None
    assert by_name["untrained"].accuracy is not None
    monkeypatch.setitem(BASELINES, "failing", Counting)
    assert not any(row.failure for row in rows(compute(graphs, plan, out)))
    monkeypatch.setitem(BASELINES, "failing", Failing)
    with refused("compare", f"failing: {Failing.error}"):
        compute(graphs, replace(PLAN, methods=("failing",)))
    monkeypatch.setattr(Failing, "error", MemoryError())
    assert "memory" in rows(compute(graphs, plan))[1].failure
    monkeypatch.setattr(Failing, "error", ZeroDivisionError("a fault"))
    with pytest.raises(ZeroDivisionError):
        compute(graphs, plan)


@pytest.mark.slow
def test_separate_processes_give_the_same_scores_and_report_failures(graphs):
    plan = replace(PLAN, methods=("attr_masking", "ldp"), partitions=1, jobs=2)
    record = compute(graphs, plan)
    first, second = rows(record)
    assert "atoms" in first.failure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svm, "C_GRID", WHOLE_GRID)
        embeddings = BASELINES["ldp"]().fit_transform(graphs)
        alone = evaluate_embeddings(embeddings, graphs.classes, partitions=[0], num_folds=3)
    assert record["methods"]["ldp"]["seeds"]["0"]["accuracies"] == alone.accuracies[0]
    assert second.accuracy == alone.mean


@pytest.mark.parametrize(("code", "end"), [("os._exit(0)", "code 0"), ("os.kill(os.getpid(), 9)", "SIGKILL")])
def test_process_that_dies(monkeypatch, code, end):
    """The others go on, one after the other."""
    monkeypatch.setattr(processes, "pickle_call", lambda run, task: pickle.dumps((execute, (task.code,))))
    good = "connection.send({'seed': 0})\nconnection.send(None)"
    tasks = [SimpleNamespace(method=name, code=good, own=None, seeds=[0]) for name in "abc"]
    tasks[1].code = f"connection.send({{'seed': 1}})\nimport os\n{code}"
    found = list(processes.run_in_processes(tasks, 2))
    scores = {done.method: done.score for done in found if done.score is not None}
    assert scores == {"a": {"seed": 0}, "b": {"seed": 1}, "c": {"seed": 0}}
    (failed,) = [done for done in found if done.score is None]
    assert failed.method == "b"
    assert end in failed.failure


@pytest.mark.parametrize(
    ("error", "expected"),
    [("", None), ("UserError('cannot.')", "cannot."), ("MemoryError()", "memory"), ("1 / 0", None)],
)
def test_failures_of_a_process(monkeypatch, error, expected):
    monkeypatch.setattr(processes, "pickle_call", lambda run, task: pickle.dumps((execute, (task.code,))))
    code = "from joao.core.errors import UserError\nconnection.send({'seed': 0})\n"
    code += {"": "connection.send(None)", "1 / 0": "1 / 0"}.get(error, f"raise {error}")
    doing = processes.run_in_processes([SimpleNamespace(method="joao", code=code, own=None, seeds=[0])], 1)
    assert next(doing).score == {"seed": 0}
    if error == "1 / 0":
        with pytest.raises(processes.MethodError, match="joao") as raised:
            next(doing)
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        return
    failures = [done.failure for done in doing]
    assert len(failures) == (expected is not None)
    assert all(expected in failure for failure in failures)


def test_messages_of_a_process(monkeypatch, graphs):
    sent = []
    parent = SimpleNamespace(send=sent.append, recv=lambda: sent.append("waited"))
    monkeypatch.setattr(processes, "score_seeds", lambda task, on_step: iter([{"seed": seed} for seed in task.seeds]))
    processes._run_task(parent, Task("joao", [0, 1], graphs))
    assert sent == [{"seed": 0}, "waited", {"seed": 1}, None]


def test_interrupted_comparison_has_the_finished_partitions(graphs, tmp_path):
    out, told, shown = tmp_path / "record.json", [], []
    plan = replace(PLAN, methods=("counting", "random", "failing"), partitions=3)

    def stop_in_the_third(done):
        told.append(done)
        if len(told) == 6:
            raise KeyboardInterrupt

    record = compute(graphs, plan, out, stop_in_the_third, lambda record: shown.append(rows(record)))
    assert [done.score["seed"] if done.score else None for done in told] == [0, 0, None, 1, 1, 2]
    assert record["partitions"] == 2
    assert "2 of 3" in record["interrupted"]
    assert [len(part) for part in shown] == [3, 3]
    less = compute(graphs, replace(plan, partitions=2))
    numbers = [[(row.method, row.accuracy, row.deviation, row.gain) for row in part] for part in (rows(less), shown[1])]
    assert numbers[0] == numbers[1]
    assert json.loads(out.read_text())["rows"] == json.loads(json.dumps(record["rows"]))
    whole = compute(graphs, plan, out)  # continues
    assert whole["partitions"] == 3
    assert "interrupted" not in whole

    def stop_at_once(done):
        raise KeyboardInterrupt

    nothing = compute(graphs, plan, tmp_path / "nothing.json", stop_at_once)
    assert (nothing["partitions"], nothing["fold hashes"]) == (0, [])
    assert "0 of 3" in nothing["interrupted"]
    assert [row.accuracy for row in rows(nothing)] == [None] * len(nothing["compared"])
    assert record_verdict(nothing) is None
    told.clear()
    rest = compute(graphs, plan, tmp_path / "nothing.json", told.append)  # the first seed was kept
    assert sorted((done.method, done.score["seed"]) for done in told if done.score) == [
        *(("counting", 1), ("counting", 2), ("random", 0), ("random", 1), ("random", 2))
    ]
    assert rest["partitions"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [None, 2])
def test_steps_inside_a_seed(graphs, jobs):
    """Each method says its epochs and folds in order, in this process and in others."""
    plan, steps = replace(PLAN, methods=("graphcl", "wl"), epochs=2, jobs=jobs), []
    compute(graphs, plan, on_step=steps.append)
    folds = [f"fold {number} of 3" for number in (1, 2, 3)]
    for seed in (0, 1):
        said = {name: [step.state for step in steps if step[:2] == (name, seed)] for name in plan.methods}
        assert said["graphcl"] == ["embedding", "epoch 1 of 2", "epoch 2 of 2", *folds]
        assert said["wl"] == (folds if seed else ["embedding", *folds])  # its rows are the same for all seeds
        shares = [step.share for step in steps if step[:2] == ("graphcl", seed)]
        assert shares == pytest.approx([0, 1 / 4, 1 / 2, 4 / 6, 5 / 6, 1])


def test_graphs_without_a_label_are_seen_but_not_scored(graphs):
    labelled = np.flatnonzero(np.arange(24) % 4 != 3)
    classes = np.where(np.isin(np.arange(24), labelled), graphs.classes, -1)
    record = compute(replace(graphs, classes=classes), replace(PLAN, methods=("counting",), twins_together=True))
    assert Counting.fitted == [24]
    assert (record["data"]["graphs"], record["data"]["labelled"]) == (24, 18)
    nodes = np.diff(graphs.first_node)[labelled, None].astype(float)
    alone = evaluate_embeddings(nodes, graphs.classes[labelled], **SCORING, groups=find_twins(graphs.subset(labelled)))
    assert [record["methods"]["counting"]["seeds"][seed]["accuracies"] for seed in "01"] == alone.accuracies


def test_linear_scorer_is_recorded_and_not_mixed(graphs, tmp_path):
    plan, out = replace(PLAN, methods=("counting",), scorer="linear"), tmp_path / "record.json"
    record = compute(graphs, plan, out)
    assert "1,000" in record["protocol"]["scorer"]
    nodes = np.diff(graphs.first_node)[:, None].astype(float)
    alone = evaluate_embeddings(nodes, graphs.classes, **SCORING, scorer="linear")
    assert [record["methods"]["counting"]["seeds"][seed]["accuracies"] for seed in "01"] == alone.accuracies
    with refused(out, "protocol"):
        compute(graphs, replace(plan, scorer="exact"), out)
    with refused("auto", "'quick'"):
        replace(plan, scorer="quick")


@pytest.mark.parametrize(("option", "value"), [("partitions", 0), ("epochs", 0), ("jobs", 0)])
def test_nonsense(option, value):
    with refused("compare", option, 1, 0):
        replace(PLAN, **{option: value})


def test_data_that_cannot_be_scored(graphs):
    with refused(graphs.name, "labels"):
        compute(replace(graphs, classes=None, class_names=()), PLAN)
    with refused("folds", 1, 24):
        compute(replace(graphs, classes=np.zeros(24, dtype=np.int64)), PLAN)
    rare = np.array([1] + [0] * 23)
    with refused("folds", 1, "3 folds"):
        compute(replace(graphs, classes=rare), PLAN)
