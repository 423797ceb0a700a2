"""``joao evaluate``: the score of a run and of its baselines."""

import json

from joao.config.recipe import make_recipe
from joao.report.scores import _read_record
from joao.runs import scoring
from tests.cli.conftest import assert_refused
from tests.messages import assert_mentions

RECORDS = ("evaluation", "evaluation-2")


def test_a_second_record_gets_a_number(joao, labelled, tmp_path, one_partition):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    for _ in RECORDS:
        outcome = joao("evaluate", "run", "--folds", 2, "--json")
        assert (outcome.code, outcome.err) == (0, "")
    first, second = (json.loads((tmp_path / "run" / f"{name}.json").read_text()) for name in RECORDS)
    assert json.loads(outcome.out) == second
    for key in ("run", "untrained", "histogram", "gain over untrained", "chance", "data", "recipe"):
        assert first[key] == second[key]
    assert make_recipe(second["recipe"]) == make_recipe({"data": labelled, "training": {"epochs": 1}})
    assert second["command"].split()[:3] == ["joao", "evaluate", "run"]


def test_shuffled_labels_and_another_record_path(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    options = ["--shuffle-labels", "--unscaled", "--twins-together", "--folds", 4]
    outcome = joao("evaluate", "run", *options, "--out", "mine.json")
    assert (outcome.code, outcome.err) == (0, "")
    assert "shuffled" in outcome.out.lower()
    record = json.loads((tmp_path / "mine.json").read_text())
    assert "folds" in record["protocol"]  # only where twins are kept together
    assert record["protocol"]["labels"] == "shuffled"
    assert record["run"]["standardise"] is False
    assert [len(part["accuracies"]) for part in record["run"]["partitions"]] == [4] * 5
    assert not (tmp_path / "run" / "evaluation.json").exists()


def test_quiet_writes_the_record(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    outcome = joao("evaluate", "run", labelled, "--folds", 2, "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["data"]["graphs"] == 24


def test_a_run_without_recorded_data(joao, labelled, tmp_path):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    path = tmp_path / "run" / "recipe.toml"
    path.write_text(path.read_text().replace(f'data = "{labelled}"', 'data = ""'))
    assert_refused(joao("evaluate", "run"), "joao: run: ", f"joao evaluate {path.parent.name} DATA")


def test_half_of_the_labels(joao, labelled, tmp_path):
    lines = (tmp_path / labelled).read_text().splitlines()
    for number in range(12):
        lines[number] = json.dumps({**json.loads(lines[number]), "label": None})
    (tmp_path / "half.jsonl").write_text("\n".join(lines))
    joao("pretrain", "half.jsonl", "--out", "run", "--epochs", 1)
    outcome = joao("evaluate", "run", "--folds", 3, "--scorer", "linear")
    assert outcome.code == 0
    record = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert (record["data"]["graphs"], record["data"]["labelled"]) == (24, 12)
    assert_mentions(outcome.out, "24 graphs", "12", record["protocol"]["scorer"])


def test_interrupted_after_a_partition(joao, labelled, tmp_path, monkeypatch):
    joao("pretrain", labelled, "--out", "run", "--epochs", 1)
    real, partitions = scoring.evaluate_embeddings, []

    def stops(*arguments, **options):
        partitions.extend(options["partitions"])
        if partitions[-1] == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(scoring, "evaluate_embeddings", stops)
    outcome = joao("evaluate", "run", "--folds", 2, "--out", "mine.json")
    assert outcome.code == 130
    assert_mentions(outcome.err.splitlines()[-1], "2 of 5", "mine.json")
    assert_mentions(outcome.out, "2 partitions", "accuracy %")
    record = json.loads((tmp_path / "mine.json").read_text())
    assert [len(record[name]["partitions"]) for name in ("run", "untrained", "histogram")] == [2, 2, 2]
    assert _read_record(tmp_path / "mine.json") == record  # the report page reads it
    partitions[:] = [2]
    monkeypatch.setattr(scoring, "evaluate_embeddings", lambda *_, **__: stops(partitions=[2]))
    outcome = joao("evaluate", "run", "--folds", 2, "--out", "none.json")
    assert outcome.code == 130
    assert not (tmp_path / "none.json").exists()
