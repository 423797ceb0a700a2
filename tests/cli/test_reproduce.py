"""``joao reproduce``: records, and the table made of them."""

import copy
import json

import pytest

from joao.reporting import results, tables
from joao.reproduce import unsupervised as reproduce

TABLE = copy.deepcopy(reproduce.grid())


@pytest.fixture
def short(monkeypatch):
    """The table with one seed and one epoch."""
    table = copy.deepcopy(TABLE)
    table["seeds"] = [0]
    table["recipe"]["training"]["epochs"] = 1
    for module in (reproduce, results):
        monkeypatch.setattr(module, "grid", lambda: table)


def test_records_and_table_go_on_where_they_were(joao, short, tmp_path):
    arguments = ["reproduce", "unsupervised", "--only", "MUTAG", "--methods", "uniform", "--out", "records"]
    first = joao(*arguments)
    assert (first.code, first.err) == (0, "")
    names = [*reproduce.BASELINES, "uniform"]
    assert f"{len(names)} cells, 0 done before." in first.out
    paths = {name: tmp_path / "records" / "MUTAG" / f"{name}-0.json" for name in names}
    times = {name: path.stat().st_mtime_ns for name, path in paths.items() if name != "uniform"}
    table = (tmp_path / "records" / "table.md").read_text()

    paths["uniform"].unlink()
    second = joao(*arguments, "--json")
    assert {name: paths[name].stat().st_mtime_ns for name in times} == times
    assert (tmp_path / "records" / "table.md").read_text() == table

    rows = json.loads(second.out)["rows"]
    shown = {name: next(row for row in rows if row["method"] == tables.NAMES[name]) for name in names}
    for name, row in shown.items():
        score = json.loads(paths[name].read_text())["scores"]["mean"]
        assert row["accuracy %"] == f"{100 * score:.2f}"
        assert " | ".join(row.values()) in table
    assert "done before" not in second.out

    third = joao(*arguments)
    assert f"{len(names)} cells, {len(names)} done before." in third.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "mutag"], "joao: reproduce: unknown data set 'mutag'. Did you mean 'MUTAG'?"),
        (["--methods", "joao,jao"], "joao: reproduce: unknown method 'jao'. Did you mean 'joao'?"),
        (["--only", "MUTAG", "--out", "file"], "joao: file: cannot be made"),
        (["--only", "NCI1", "--data-root", "nowhere"], "joao: data root: nowhere is not a folder."),
    ],
)
def test_wrong_words(joao, short, tmp_path, arguments, message):
    (tmp_path / "file").write_text("precious")
    outcome = joao("reproduce", "unsupervised", *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith(message)
    assert len(outcome.err.splitlines()) == 1
    assert (tmp_path / "file").read_text() == "precious"
    assert list(tmp_path.rglob("*.json")) == []


def test_a_damaged_record_is_not_shown_as_a_result(joao, short, tmp_path):
    for name in [*reproduce.BASELINES, "uniform"]:
        path = tmp_path / "records" / "MUTAG" / f"{name}-0.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"cell": ')
    outcome = joao("reproduce", "unsupervised", "--only", "MUTAG", "--methods", "uniform", "--out", "records")
    assert outcome.code == 2
    assert "histogram-0.json: is not a record" in outcome.err
    assert len(outcome.err.splitlines()) == 1
