"""The commands of ``python -m repro`` that compute tables: records, and the pages made of them."""

import copy
import inspect
import json
import re
from functools import wraps

import numpy as np
import pytest

from joao.core.errors import UserError
from joao.evaluation import svm
from repro.cli import protocols as commands
from repro.protocols.cells import RunOptions
from repro.protocols.semi_supervised import run as few_labels
from repro.protocols.semi_supervised.table import HEADER
from repro.protocols.transfer import run as transfer
from repro.protocols.unsupervised import run as reproduce
from repro.protocols.unsupervised.run import Cell, compute_missing
from repro.record_files import RECORDS
from repro.tables import pages as results
from repro.tables import rows as tables
from tests.cli.conftest import assert_noted, assert_refused
from tests.messages import assert_mentions
from tests.repro.records import remove

TABLE = copy.deepcopy(reproduce.grid())
FEW_LABELS = copy.deepcopy(few_labels.grid())


@pytest.fixture
def short(monkeypatch):
    """The table with one seed and one epoch."""
    table = copy.deepcopy(TABLE)
    table["seeds"] = [0]
    table["recipe"]["training"]["epochs"] = 1
    for module in (reproduce, results):
        monkeypatch.setattr(module, "grid", lambda: table)


def cells(outcome):
    """How many cells had a record before, and how many there are, by the first line."""
    return sorted(int(number) for number in re.findall(r"\d+", outcome.out.splitlines()[0])[:2])


@pytest.mark.slow
def test_unsupervised_resumes(repro, short, tmp_path):
    arguments = ["unsupervised", "--only", "MUTAG", "--methods", "uniform", "--out", "records"]
    first = repro(*arguments)
    names = [*reproduce.REFERENCES, "uniform"]
    assert first.code == 0
    for line, name in zip(first.err.splitlines(), names, strict=True):
        assert_mentions(line, "joao: ", f"MUTAG {name} ")
    assert cells(first) == [0, len(names)]
    file = reproduce.record_file(tmp_path / "records")
    before = file.path.read_text().splitlines()
    table = (tmp_path / "records/unsupervised/table.md").read_text()

    remove(file, "MUTAG/uniform-0")
    second = repro(*arguments, "--json")
    assert len(set(before) & set(file.path.read_text().splitlines())) == len(names) - 1
    assert (tmp_path / "records/unsupervised/table.md").read_text() == table

    rows = json.loads(second.out)["rows"]
    shown = {name: next(row for row in rows if row["method"] == tables.NAMES[name]) for name in names}
    for name, row in shown.items():
        score = file[f"MUTAG/{name}-0"]["scores"]["mean"]
        assert row["accuracy %"] == f"{100 * score:.2f}"
        assert " | ".join(row.values()) in table

    third = repro(*arguments)
    assert cells(third) == [len(names), len(names)]
    assert_mentions(third.out.splitlines()[0], "--out")
    assert "--out" not in first.out.splitlines()[0]


@pytest.mark.slow
def test_variants_have_separate_records_and_pages(repro, short, tmp_path, monkeypatch):
    monkeypatch.setattr(svm, "C_GRID", (1.0,))
    arguments = ["unsupervised", "--only", "MUTAG", "--methods", "wl", "--out", "records"]
    assert repro(*arguments).code == 0
    table = (tmp_path / "records/unsupervised/table.md").read_text()
    assert not (tmp_path / "records/unsupervised/variants.md").exists()
    outcome = repro(*arguments, "--twins-together")
    assert_mentions(outcome.out, tables.row_name("wl-twins"), "records/unsupervised/variants.md")
    assert "| MUTAG | 188 | 24 (12.8 %) | 0 (0.0 %) |" in (tmp_path / "records/unsupervised/variants.md").read_text()
    assert (tmp_path / "records/unsupervised/table.md").read_text() == table


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--only", "mutag"], ["'mutag'", "'MUTAG'"]),
        (["--methods", "joao,jao"], ["'jao'", "'joao'"]),
        (["--only", "MUTAG", "--out", "file"], ["file: "]),
        (["--only", "NCI1", "--data-root", "nowhere"], ["nowhere"]),
    ],
)
def test_invalid_options_of_unsupervised(repro, short, tmp_path, arguments, values):
    (tmp_path / "file").write_text("precious")
    assert_refused(repro("unsupervised", *arguments), *values)
    assert (tmp_path / "file").read_text() == "precious"
    assert list(tmp_path.rglob("*.jsonl")) == []


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


def test_semi_supervised_resumes(repro, short_few_labels, made_root, tmp_path):
    arguments = ["semi-supervised", "--methods", "joao,augmentations", "--data-root", made_root]
    arguments += ["--out", "records"]
    first = repro(*arguments)
    assert first.code == 0, first.err
    told, *done = first.err.splitlines()
    assert_mentions(told, "joao: note: github_stargazers: ", "--data-root")
    encoders = [f"{name} {method}" for name in ("NCI1", "PROTEINS") for method in ("none", "joao", "augmentations")]
    assert len(done) == len(encoders)
    assert [each for each in encoders if not any(f" {each} " in line for line in done)] == []
    assert cells(first) == [0, 9]  # three methods; NCI1 at two rates, PROTEINS at one
    assert "github" not in first.out
    written = [
        f"{name}/{method}-{rate}-0"
        for name, rate in (("NCI1", 20), ("NCI1", 50), ("PROTEINS", 50))
        for method in ("none", "joao", "augmentations")
    ]
    file = few_labels.record_file(tmp_path / "records")
    assert sorted(file.key(record) for record in file.read()) == sorted(written)
    table = (tmp_path / "records/semi-supervised/semi-supervised.md").read_text()

    before, lines = file["NCI1/joao-50-0"], file.path.read_text().splitlines()
    remove(file, "NCI1/joao-50-0")
    second = repro(*arguments, "--json")
    assert second.code == 0, second.err
    assert len(set(lines) & set(file.path.read_text().splitlines())) == len(written) - 1
    assert file["NCI1/joao-50-0"]["scores"] == before["scores"]
    assert (tmp_path / "records/semi-supervised/semi-supervised.md").read_text() == table

    rows = json.loads(second.out)["rows"]
    assert len(rows) == 9
    for row in rows:
        assert list(row) == HEADER
        (method,) = [name for name in ("none", "joao", "augmentations") if tables.NAMES[name] == row["method"]]
        record = file[f"{row['data']}/{method}-{row['labels'].removesuffix(' %')}-0"]
        assert row["accuracy %"] == f"{100 * record['scores']['mean']:.2f}"
        assert " | ".join(row.values()) in table

    third = repro(*arguments, "--only", "NCI1", "--label-rate", "50 %,20")
    assert cells(third) == [6, 6]
    assert third.err == ""
    assert "PROTEINS" not in third.out
    fourth = repro(*arguments, "--only", "NCI1,PROTEINS", "--label-rate", "20")
    assert cells(fourth) == [3, 3]
    assert_noted(fourth, "PROTEINS", "20 %")
    assert_mentions(third.out.splitlines()[-1], "joao pretrain my_graphs.jsonl")


def test_strength_and_prior_share_the_cells_of_the_table(repro, short_few_labels, made_root, tmp_path):
    short_few_labels["tables"]["prior"]["columns"] = {"20": ["NCI1"]}
    common = ["--data-root", made_root, "--out", "records", "--only", "NCI1"]
    strength = repro("strength", *common, "--json")
    assert (strength.code, strength.err) == (0, "")
    rows = {row["method"]: row for row in json.loads(strength.out)["rows"]}
    assert {name: row["paper"] for name, row in rows.items()} == {
        tables.NAMES["none"]: "",
        tables.NAMES["joao"]: "61.77 ± 1.61",
        tables.NAMES["joao_stronger"]: "60.95 ± 0.55",
        tables.NAMES["joaov2"]: "62.52 ± 1.16",
        tables.NAMES["joaov2_stronger"]: "61.67 ± 0.72",
    }
    strengths = {
        method: few_labels.record_file(tmp_path / "records")[f"NCI1/{method}-20-0"]["recipe"]["augmentations"][0]
        for method in ("joao", "joao_stronger")
    }
    assert {method: part["strength"] for method, part in strengths.items()} == {"joao": 0.2, "joao_stronger": 0.25}
    prior = repro("prior", *common)
    assert prior.code == 0, prior.err
    assert cells(prior) == [2, 3]
    assert_mentions(prior.out, tables.NAMES["joao_without_prior"])
    documents = {path.name for path in (tmp_path / "records/semi-supervised").glob("*.md")}
    assert documents == {
        "semi-supervised.md",
        "overview.md",
        "strength.md",
        "prior.md",
    }  # none of 10 %, nothing learned


@pytest.mark.slow
def test_pairs_have_a_figure(repro, short_few_labels, made_root, tmp_path):
    short_few_labels["tables"]["pairs"]["columns"] = {"10": ["PROTEINS"]}
    short_few_labels["datasets"]["PROTEINS"]["max_degree"] = 5
    outcome = repro("pairs", "--data-root", made_root, "--out", "records", "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert len(few_labels.record_file(tmp_path / "records").read()) == 27
    page = (tmp_path / "records/semi-supervised/pairs.md").read_text()
    assert "| PROTEINS | " in page
    assert (tmp_path / "records/semi-supervised/pairs-PROTEINS.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("command", "arguments", "values"),
    [
        ("semi-supervised", ["--label-rate", "x"], ["--label-rate x: ", "1,10"]),
        ("semi-supervised", ["--label-rate", "1,-10"], ["--label-rate 1,-10: ", "1,10"]),
        ("semi-supervised", ["--label-rate", "0.1"], ["--label-rate 0.1: ", "1,10"]),
        ("semi-supervised", ["--label-rate", "5"], ["'5'", "1, 10"]),
        ("semi-supervised", ["--only", "PROTIENS"], ["'PROTIENS'", "'PROTEINS'"]),
        ("semi-supervised", ["--methods", "jao"], ["'jao'", "'joao'"]),
        ("semi-supervised", ["--only", "PROTEINS", "--label-rate", "1"], ["PROTEINS", "1 %"]),
        ("strength", ["--only", "COLLAB"], ["'COLLAB'", "NCI1, PROTEINS"]),
        ("prior", ["--only", "mutag"], ["'mutag'", "NCI1, PROTEINS"]),
        ("pairs", ["--only", "DD"], ["'DD'", "NCI1, PROTEINS"]),
        ("prior", ["--device", "cpu", "--precision", "tf32"], ["precision: ", "tf32", "GPU", "32-true"]),
        ("prior", ["--precision", "8"], ["precision: ", "32-true, tf32, bf16-mixed, 16-mixed", "'8'"]),
        ("prior", ["--device", "tpu"], ["device: ", "auto", "cpu", "cuda", "'tpu'"]),
        ("prior", ["--data-root", "nowhere"], ["nowhere"]),
        ("prior", ["--out", "file"], ["file: "]),
        ("semi-supervised", ["--only", "github_stargazers"], ["github_stargazers.zip", "--data-root"]),
    ],
)
def test_invalid_options_of_semi_supervised(repro, tmp_path, command, arguments, values):
    (tmp_path / "file").write_text("precious")
    assert_refused(repro(command, *arguments), *values)
    assert (tmp_path / "file").read_text() == "precious"
    assert list(tmp_path.rglob("*.jsonl")) == []


@pytest.mark.slow
def test_objectives_with_and_without_joao(repro, short):
    arguments = ["objectives", "--only", "MUTAG", "--methods", "uniform,joao", "--out", "records"]
    outcome = repro(*arguments, "--json")
    (row,) = json.loads(outcome.out)["rows"]
    assert (outcome.code, row["data"], row["objective"]) == (0, "MUTAG", "NT-Xent")
    assert_refused(repro("objectives", "--methods", "wl"), "'wl'", "uniform, joao")


def test_ogb_is_pretrained_finetuned_and_printed(repro, tmp_path, monkeypatch, ogb_tables, write_ogb):
    from repro.protocols.ogb import run as ogb

    grid = copy.deepcopy(ogb.grid())
    grid["seeds"], grid["label_rates"] = [0], [50]
    family = grid["families"]["molecules"]
    family["encoder"] |= {"width": 8, "layers": 2}
    family["training"] |= {"epochs": 1}
    family["finetuning"] |= {"epochs": 1}
    monkeypatch.setattr(ogb, "grid", lambda: grid)
    write_ogb(tmp_path / "data/ogb/bace.zip", ogb_tables("mol"))
    arguments = ["ogb", "--methods", "joao", "--data-root", "data", "--out", "records"]
    outcome = repro(*arguments)
    assert (outcome.code, cells(outcome)) == (0, [0, 2])
    assert_mentions(outcome.err, "joao: note: ogbg-ppa: ", "ROOT/ogb")
    assert "ROC-AUC" in outcome.out
    assert (tmp_path / "runs/ogb/ogbg-molbace/joao/weights.safetensors").exists()
    assert [record["cell"]["method"] for record in ogb.record_file(tmp_path / "records").read()] == ["joao", "none"]
    again = repro(*arguments, "--json")
    assert [row["method"] for row in json.loads(again.out)["rows"]] == [tables.NAMES[name] for name in ("none", "joao")]
    wrong = repro("ogb", "--only", "ogbg-ppa", "--data-root", "data")
    assert_refused(wrong, "ogbg-ppa: ", "ogbg_ppa.zip", "ROOT/ogb", "--data-root")


def test_check_reports_differences_by_its_exit_code(repro, made_data, tmp_path, one_c):
    root = made_data("MUTAG", num_graphs=40)
    cell = Cell("MUTAG", "histogram", 0)
    list(compute_missing([cell], RunOptions(tmp_path, data_root=str(root), device="cpu")))
    arguments = ["check", cell.key, "--records", tmp_path, "--data-root", root]
    held = repro(*arguments)
    assert (held.code, held.err) == (0, "")
    assert held.out.count("│ holds │") >= 3
    record = copy.deepcopy(reproduce.record_file(tmp_path)[cell.key])
    record["data"]["fingerprint"] = "of other graphs"
    reproduce.record_file(tmp_path).write(record)
    outcome = repro(*arguments, "--json")
    assert outcome.code == 1
    told = json.loads(outcome.out)
    assert [each["what"] for each in told["findings"] if not each["holds"]] == ["graphs"]


def test_all_runs_every_part_and_reports_failures(repro, monkeypatch):
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

    outcome = repro("all", "--device", "cpu")
    few_labels = ["semi-supervised", "prior", "strength", "pairs"]
    assert done == ["unsupervised", "objectives", *few_labels, "figure-2", "figure-3", "ogb"]
    assert outcome.code == 2
    note, error = outcome.err.splitlines()
    assert_mentions(note, "joao: note: semi-supervised: NCI1: ")
    assert_mentions(error, "repro: all: ", "semi-supervised")

    done.clear()
    assert repro("all", "--parts", "transfer,figures", "--device", "cpu").code == 0
    assert done == ["figure-2", "figure-3", "transfer"]
    assert_refused(repro("all", "--parts", "tranfer"), "--parts tranfer: ", "'transfer'")


def test_tables_are_rebuilt_from_records(repro, tmp_path):
    record = transfer.record_file(RECORDS)["bbbp/joao"]
    transfer.record_file(tmp_path / "records").write(record)
    page = tmp_path / "all.tex"
    outcome = repro("tables", str(tmp_path / "records"), "--out", str(page), "--json")
    mean, last = (f"{100 * np.mean(record['scores'][kind]):.1f}" for kind in ("test", "last_test"))
    assert outcome.code == 0
    (table,) = [lines for title, lines in json.loads(outcome.out)["tables"].items() if title.startswith("Transfer:")]
    assert [line[1].partition(" ±")[0] for line in table[1:]] == [f"**{last}**", f"**{mean}**"]
    assert rf"JOAO, epoch by validation & \textbf{{{mean}}} $\pm$" in page.read_text()
    assert (tmp_path / "records/transfer/overview.md").exists()
    assert_refused(
        repro("tables", str(tmp_path)), f"repro: {tmp_path}: ", "python -m repro", tmp_path / "transfer.jsonl"
    )
