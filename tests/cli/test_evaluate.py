"""``joao evaluate``: the score of a run and of its baselines."""

import json
import shutil

from joao.config.recipe import make_recipe
from tests.cli.conftest import assert_refused

RECORDS = ("evaluation", "evaluation-2")


def test_a_second_record_gets_a_number(joao, mutag_run, tmp_path):
    shutil.copytree(mutag_run, tmp_path / "run")
    outcome = joao("evaluate", "run", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    first, second = (json.loads((tmp_path / "run" / f"{name}.json").read_text()) for name in RECORDS)
    assert json.loads(outcome.out) == second
    for key in ("run", "untrained", "histogram", "gain over untrained", "chance", "data", "recipe"):
        assert first[key] == second[key]
    assert make_recipe(second["recipe"]) == make_recipe({"data": "MUTAG"})
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
