"""``joao reproduce``: records, and the table made of them."""

import copy
import inspect
import json
from functools import wraps
from pathlib import Path

import numpy as np
import pytest

from joao.core.errors import UserError
from joao.evaluation import svm
from repro.cli import protocols as commands
from repro.protocols.cells import Where
from repro.protocols.semi_supervised import run as few_labels
from repro.protocols.semi_supervised.table import HEADER
from repro.protocols.unsupervised import run as reproduce
from repro.protocols.unsupervised.run import Cell, compute_missing
from repro.tables import pages as results
from repro.tables import rows as tables

TABLE = copy.deepcopy(reproduce.grid())
FEW_LABELS = copy.deepcopy(few_labels.grid())

RESULTS = Path(__file__).parents[2] / "results"


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
    names = [*reproduce.REFERENCES, "uniform"]
    assert (first.code, first.err) == (0, "".join(f"joao: done: MUTAG {name} seed 0\n" for name in names))
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
    assert "Nothing is left to compute; with another --out it is computed anew." in third.out
    assert "Nothing is left" not in first.out


def test_variants_have_records_and_a_page_of_their_own(joao, short, tmp_path, monkeypatch):
    monkeypatch.setattr(svm, "C_GRID", (1.0,))
    arguments = ["reproduce", "unsupervised", "--only", "MUTAG", "--methods", "wl", "--out", "records"]
    assert joao(*arguments).code == 0
    table = (tmp_path / "records" / "table.md").read_text()
    assert not (tmp_path / "records" / "variants.md").exists()
    outcome = joao(*arguments, "--twins-together")
    assert "WL (subtree kernel), twins together" in outcome.out
    assert "Table of all records: records/variants.md" in outcome.out
    assert "| MUTAG | 188 | 24 (12.8 %) | 0 (0.0 %) |" in (tmp_path / "records" / "variants.md").read_text()
    assert (tmp_path / "records" / "table.md").read_text() == table


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
    for name in [*reproduce.REFERENCES, "uniform"]:
        path = tmp_path / "records" / "MUTAG" / f"{name}-0.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"cell": ')
    outcome = joao("reproduce", "unsupervised", "--only", "MUTAG", "--methods", "uniform", "--out", "records")
    assert outcome.code == 2
    assert "histogram-0.json: is not a record" in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.fixture
def short_few_labels(monkeypatch):
    """The semi-supervised tables with one seed, one epoch, a narrow encoder and more labels."""
    table = copy.deepcopy(FEW_LABELS)
    table["seeds"] = [0]
    table["recipe"]["encoder"] |= {"width": 4, "layers": 1}
    for training in (table["recipe"]["training"], *(row.get("training", {}) for row in table["methods"].values())):
        training |= {"epochs": 1, "learning_rate": 0.01}
    table["finetuning"] |= {"epochs": 1, "learning_rate": 0.01}
    table["tables"]["semi_supervised"]["columns"] = {"20": ["NCI1"], "50": ["NCI1", "PROTEINS", "github_stargazers"]}
    table["tables"]["strength"]["columns"] = {"20": ["NCI1"], "50": ["PROTEINS"]}
    monkeypatch.setattr(few_labels, "grid", lambda: table)
    return table


@pytest.fixture(scope="module")
def made_root(made_data):
    """Where NCI1 and PROTEINS are 30 made graphs."""
    return str(made_data("NCI1", "PROTEINS", num_graphs=30))


def test_few_labels_go_on_where_they_were(joao, short_few_labels, made_root, tmp_path):
    arguments = ["reproduce", "semi-supervised", "--methods", "joao,augmentations", "--data-root", made_root]
    arguments += ["--out", "records"]
    first = joao(*arguments)
    assert first.code == 0, first.err
    left_out = "joao: note: github_stargazers: is not at hand and is left out. Put it under --data-root."
    told, *done = first.err.splitlines()
    assert told == left_out
    encoders = [f"{name} {method}" for name in ("NCI1", "PROTEINS") for method in ("none", "joao", "augmentations")]
    assert sorted(done) == sorted(f"joao: done: {each} seed 0" for each in encoders)
    assert "9 cells, 0 done before. Records: records" in first.out  # three methods; NCI1 at two rates, PROTEINS at one
    assert "github" not in first.out
    written = [
        f"{name}/{method}-{rate}-0.json"
        for name, rate in (("NCI1", 20), ("NCI1", 50), ("PROTEINS", 50))
        for method in ("none", "joao", "augmentations")
    ]
    records = {name: tmp_path / "records" / name for name in written}
    assert set((tmp_path / "records").rglob("*.json")) == set(records.values())
    table = (tmp_path / "records" / "semi-supervised.md").read_text()

    lost = records.pop("NCI1/joao-50-0.json")
    before, times = json.loads(lost.read_text()), {path: path.stat().st_mtime_ns for path in records.values()}
    lost.unlink()
    second = joao(*arguments, "--json")
    assert second.code == 0, second.err
    assert {path: path.stat().st_mtime_ns for path in records.values()} == times
    assert json.loads(lost.read_text())["scores"] == before["scores"]
    assert (tmp_path / "records" / "semi-supervised.md").read_text() == table

    rows = json.loads(second.out)["rows"]
    assert len(rows) == 9
    for row in rows:
        assert list(row) == HEADER
        (method,) = [name for name in ("none", "joao", "augmentations") if tables.NAMES[name] == row["method"]]
        path = tmp_path / "records" / row["data"] / f"{method}-{row['labels'].removesuffix(' %')}-0.json"
        assert row["accuracy %"] == f"{100 * json.loads(path.read_text())['scores']['mean']:.2f}"
        assert " | ".join(row.values()) in table

    third = joao(*arguments, "--only", "NCI1", "--label-rate", "50 %,20")
    assert "6 cells, 6 done before." in third.out
    assert third.err == ""
    assert "PROTEINS" not in third.out
    fourth = joao(*arguments, "--only", "NCI1,PROTEINS", "--label-rate", "20")
    assert "3 cells, 3 done before." in fourth.out
    assert fourth.err == "joao: note: PROTEINS at 20 %: is not in the table and is left out.\n"
    last = third.out.splitlines()[-1]
    assert last.startswith("Next, with your own graphs: joao pretrain my_graphs.jsonl")


def test_strength_and_prior_share_the_cells_of_the_table(joao, short_few_labels, made_root, tmp_path):
    short_few_labels["tables"]["prior"]["columns"] = {"20": ["NCI1"]}
    common = ["--data-root", made_root, "--out", "records", "--only", "NCI1"]
    strength = joao("reproduce", "strength", *common, "--json")
    assert (strength.code, strength.err) == (0, "")
    rows = {row["method"]: row for row in json.loads(strength.out)["rows"]}
    assert {name: row["paper"] for name, row in rows.items()} == {
        "no pre-training": "",
        "JOAO": "61.77 ± 1.61",
        "JOAO, strength 0.25": "60.95 ± 0.55",
        "JOAOv2": "62.52 ± 1.16",
        "JOAOv2, strength 0.25": "61.67 ± 0.72",
    }
    strengths = {
        method: json.loads((tmp_path / f"records/NCI1/{method}-20-0.json").read_text())["recipe"]["augmentations"][0]
        for method in ("joao", "joao_stronger")
    }
    assert {method: part["strength"] for method, part in strengths.items()} == {"joao": 0.2, "joao_stronger": 0.25}
    prior = joao("reproduce", "prior", *common)
    assert prior.code == 0, prior.err
    assert "3 cells, 2 done before." in prior.out
    assert "JOAO, gamma = 0" in prior.out
    documents = {path.name for path in (tmp_path / "records").glob("*.md")}
    assert documents == {
        "semi-supervised.md",
        "overview.md",
        "strength.md",
        "prior.md",
    }  # none of 10 %, nothing learned


def test_pairs_are_drawn(joao, short_few_labels, made_root, tmp_path):
    short_few_labels["tables"]["pairs"]["columns"] = {"10": ["PROTEINS"]}
    short_few_labels["datasets"]["PROTEINS"]["max_degree"] = 5
    outcome = joao("reproduce", "pairs", "--data-root", made_root, "--out", "records", "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert len(list((tmp_path / "records" / "PROTEINS").iterdir())) == 27
    page = (tmp_path / "records" / "pairs.md").read_text()
    assert "| PROTEINS | " in page
    assert (tmp_path / "records" / "pairs-PROTEINS.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("semi-supervised", ["--label-rate", "x"], "joao: --label-rate x: must be whole percents such as 1,10."),
        ("semi-supervised", ["--label-rate", "1,-10"], "joao: --label-rate 1,-10: must be whole percents"),
        ("semi-supervised", ["--label-rate", "0.1"], "joao: --label-rate 0.1: must be whole percents"),
        ("semi-supervised", ["--label-rate", "5"], "joao: reproduce: unknown label rate '5'. Known: 1, 10."),
        (
            "semi-supervised",
            ["--only", "PROTIENS"],
            "joao: reproduce: unknown data set 'PROTIENS'. Did you mean 'PROTEINS'?",
        ),
        ("semi-supervised", ["--methods", "jao"], "joao: reproduce: unknown method 'jao'. Did you mean 'joao'?"),
        (
            "semi-supervised",
            ["--only", "PROTEINS", "--label-rate", "1"],
            "joao: reproduce: the table has no PROTEINS at 1 %.",
        ),
        ("strength", ["--only", "COLLAB"], "joao: reproduce: unknown data set 'COLLAB'."),
        ("prior", ["--only", "mutag"], "joao: reproduce: unknown data set 'mutag'."),
        ("pairs", ["--only", "DD"], "joao: reproduce: unknown data set 'DD'. Known: NCI1, PROTEINS."),
        ("prior", ["--device", "cpu", "--precision", "tf32"], "joao: precision: tf32 needs a GPU."),
        (
            "prior",
            ["--precision", "8"],
            "joao: precision: must be one of 32-true, tf32, bf16-mixed, 16-mixed, got '8'.",
        ),
        ("prior", ["--device", "tpu"], "joao: device: must be auto, cpu or cuda, got 'tpu'."),
        ("prior", ["--data-root", "nowhere"], "joao: data root: nowhere is not a folder."),
        ("prior", ["--out", "file"], "joao: file: cannot be made"),
        ("semi-supervised", ["--only", "github_stargazers"], "joao: reproduce: github_stargazers is not at hand"),
    ],
)
def test_wrong_words_about_few_labels(joao, tmp_path, command, arguments, message):
    (tmp_path / "file").write_text("precious")
    outcome = joao("reproduce", command, *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith(message)
    assert len(outcome.err.splitlines()) == 1
    assert (tmp_path / "file").read_text() == "precious"
    assert list(tmp_path.rglob("*.json")) == []


def test_a_damaged_record_of_few_labels_is_not_shown_as_a_result(joao, tmp_path):
    path = tmp_path / "records" / "NCI1" / "none-10-0.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"cell": ')
    outcome = joao("reproduce", "prior", "--out", "records")
    assert outcome.code == 2
    assert "none-10-0.json: is not a record" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_objectives_without_and_with_joao(joao, short):
    arguments = ["reproduce", "objectives", "--only", "MUTAG", "--methods", "uniform,joao", "--out", "records"]
    outcome = joao(*arguments, "--json")
    (row,) = json.loads(outcome.out)["rows"]
    assert (outcome.code, row["data"], row["objective"]) == (0, "MUTAG", "NT-Xent")
    assert "unknown method 'wl'" in joao("reproduce", "objectives", "--methods", "wl").err


def test_ogb_is_pretrained_finetuned_and_told(joao, tmp_path, monkeypatch, ogb_tables, write_ogb):
    from repro.protocols.ogb import run as ogb

    grid = copy.deepcopy(ogb.grid())
    grid["seeds"], grid["label_rates"] = [0], [50]
    family = grid["families"]["molecules"]
    family["encoder"] |= {"width": 8, "layers": 2}
    family["training"] |= {"epochs": 1}
    family["finetuning"] |= {"epochs": 1}
    monkeypatch.setattr(ogb, "grid", lambda: grid)
    write_ogb(tmp_path / "data/ogb/bace.zip", ogb_tables("mol"))
    arguments = ["reproduce", "ogb", "--methods", "joao", "--data-root", "data", "--out", "records"]
    outcome = joao(*arguments)
    assert (outcome.code, outcome.out.count("done before")) == (0, 1)
    assert "ogbg-ppa: is not at hand and is left out" in outcome.err
    assert "ROC-AUC" in outcome.out
    assert (tmp_path / "runs/ogb/ogbg-molbace/joao/weights.safetensors").exists()
    assert [path.name for path in sorted((tmp_path / "records/ogbg-molbace").iterdir())] == [
        "joao-50.json",
        "none-50.json",
    ]
    again = joao(*arguments, "--json")
    assert [row["method"] for row in json.loads(again.out)["rows"]] == ["no pre-training", "JOAO"]
    wrong = joao("reproduce", "ogb", "--only", "ogbg-ppa", "--data-root", "data")
    assert wrong.code == 2
    assert wrong.err.startswith("joao: ogbg-ppa: no such data set under data. Put OGB's own archive or folder")


def test_check_tells_what_differs_by_its_exit_code(joao, made_data, tmp_path):
    root = made_data("MUTAG", num_graphs=40)
    cell = Cell("MUTAG", "histogram", 0)
    list(compute_missing([cell], Where(tmp_path, data_root=str(root), device="cpu")))
    path = cell.path(tmp_path)
    held = joao("reproduce", "check", path, "--data-root", root)
    assert (held.code, held.err, held.out.splitlines()[-1]) == (0, "", "The record holds, bit for bit.")
    record = json.loads(path.read_text())
    record["data"]["fingerprint"] = "of other graphs"
    path.write_text(json.dumps(record))
    outcome = joao("reproduce", "check", path, "--data-root", root, "--json")
    assert outcome.code == 1
    told = json.loads(outcome.out)
    assert [each["what"] for each in told["findings"] if not each["holds"]] == ["graphs"]


def test_all_does_every_part_from_cheap_to_dear_and_tells_what_it_could_not(joao, monkeypatch):
    """The commands are stand-ins that take what the real ones take."""
    done = []

    def stand_in(function, name):
        @wraps(function)
        def note(**given):
            inspect.signature(function).bind(**given)
            done.append(name)
            if name == "semi-supervised":
                raise UserError("NCI1: is not here.")

        return note

    for command in commands.app.registered_commands:
        if command.name != "all":
            monkeypatch.setattr(command, "callback", stand_in(command.callback, command.name))

    outcome = joao("reproduce", "all", "--device", "cpu")
    few_labels = ["semi-supervised", "prior", "strength", "pairs"]
    assert done == ["unsupervised", "objectives", *few_labels, "figure-2", "figure-3", "ogb"]
    assert outcome.code == 2
    assert "semi-supervised: NCI1: is not here." in outcome.err
    assert "not done, for the reasons above: semi-supervised." in outcome.err

    done.clear()
    assert joao("reproduce", "all", "--parts", "transfer,figures", "--device", "cpu").code == 0
    assert done == ["figure-2", "figure-3", "transfer"]
    outcome = joao("reproduce", "all", "--parts", "tranfer")
    assert outcome.code == 2
    assert "unknown part 'tranfer'" in outcome.err


def test_results_are_made_again_from_records_alone(joao, tmp_path):
    folder = tmp_path / "results/transfer/bbbp"
    folder.mkdir(parents=True)
    record = json.loads((RESULTS / "transfer/bbbp/joao.json").read_text())
    (folder / "joao.json").write_text(json.dumps(record))
    page = tmp_path / "all.tex"
    outcome = joao("results", str(tmp_path / "results"), "--out", str(page), "--json")
    mean = f"{100 * np.mean(record['scores']['test']):.1f}"
    assert outcome.code == 0
    (table,) = [lines for title, lines in json.loads(outcome.out)["tables"].items() if title.startswith("Transfer:")]
    assert table[1][1].startswith(f"**{mean}** ±")
    assert rf"JOAO & \textbf{{{mean}}} $\pm$" in page.read_text()
    assert (tmp_path / "results/transfer/overview.md").exists()
    outcome = joao("results", str(tmp_path))
    assert outcome.code == 2
    assert "no records of 'joao reproduce' there" in outcome.err
