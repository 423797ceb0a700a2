"""README and documents say what is so."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEVIATIONS = (ROOT / "docs/deviations.md").read_text(encoding="utf-8")
KINDS = ("best epoch by test", "chosen by validation")  # of results/published-epoch.json
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document):
    prose = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#]+)\)", prose)
    missing = [link for link in links if not link.startswith("http") and not (document.parent / link).exists()]
    assert missing == []


def table_lines(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def test_the_readme_shows_the_overviews_of_the_records():
    pages = [
        ROOT / "results" / protocol / "overview.md" for protocol in ("unsupervised", "semi-supervised", "transfer")
    ]
    results = README[README.index("## Results") : README.index("## Speed")]
    assert table_lines(results) == [line for page in pages for line in table_lines(page.read_text(encoding="utf-8"))]


def test_the_readme_shows_the_comparison_of_the_record():
    from joao.comparison.table import Comparison, closing_lines, heading, table_lines

    shown = README[README.index("## Does pre-training help") : README.index("## Ten lines")]
    comparison = Comparison(json.loads((ROOT / "results/compare/mutag.json").read_text(encoding="utf-8")))
    for line in [heading(comparison), *closing_lines(comparison)]:
        assert line in shown
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in shown.splitlines() if "│" in line]
    assert cells == table_lines(comparison)


def test_every_make_target_of_the_readme_exists_and_is_explained():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"(?:^|`)make\b *([a-z]*)", README, re.MULTILINE)
    assert "setup" in named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        assert re.search(rf'@echo ".*\bmake {target} ', makefile), target


@pytest.fixture(scope="module")
def frozen_rows():
    """The rows of the unsupervised table by method and data set."""
    from repro.protocols.unsupervised.run import read_record
    from repro.protocols.unsupervised.table import rows

    records = [read_record(path) for path in (ROOT / "results/unsupervised").glob("*/*.json")]
    found = rows([each for each in records if not (each["cell"]["inductive"] or each["cell"].get("twins_together"))])
    return {(row.method, row.dataset): row for row in found}


def test_what_the_readme_says_of_frozen_embeddings(frozen_rows):
    from repro.protocols.unsupervised.run import grid

    table, sets = frozen_rows, list(grid()["datasets"])
    means = [f"{np.mean([table[method, name].mean for name in sets]):.1f}" for method in ("joao", "joaov2")]
    assert f"JOAO has {means[0]} and JOAOv2 {means[1]} (paper: 74.8 and 75.0" in README

    def less(method):
        """By how much a method is below the paper, and the paper's deviation, where it is."""
        rows_of = [table[method, name] for name in sets]
        return {row.dataset: (row.paper.mean - row.mean, row.paper.std) for row in rows_of if row.mean < row.paper.mean}

    assert {name: round(by, 2) for name, (by, _) in less("joao").items()} == {"REDDIT-MULTI-5K": 0.04}
    assert set(less("joaov2")) == {"NCI1", "DD", "MUTAG"}
    assert all(by < deviation for by, deviation in less("joaov2").values())

    def gain(name):
        """JOAO's over the stronger untrained form."""
        stronger = max(("untrained", "untrained_initial"), key=lambda form: table[form, name].mean)
        return table["joao", name].gains[stronger]

    clear = {name: f"{gain(name).mean:+.2f}" for name in sets if gain(name).low > 0}
    assert clear == {"REDDIT-BINARY": "+3.15", "COLLAB": "+1.24"}
    for method, name in (("wl", "DD"), ("wl", "IMDB-BINARY"), ("histogram", "IMDB-BINARY")):
        assert table[method, name].mean >= table["joao", name].mean
    on_collab = {method: row.mean for (method, name), row in table.items() if name == "COLLAB"}
    del on_collab["joao_default"]
    first = sorted(on_collab, key=on_collab.get)[:-5:-1]
    assert first == ["histogram", "graph2vec", "wl", "ldp"]
    assert (
        "the histogram ({:.1f}), graph2vec ({:.1f}), the WL kernel ({:.1f}) and local degree profiles ({:.1f})".format(
            *(on_collab[method] for method in first)
        )
        in " ".join(README.split())
    )


def test_what_the_readme_says_of_the_default(frozen_rows):
    from repro.protocols.unsupervised.run import grid

    default = {name: frozen_rows["joao_default", name].mean for name in grid()["datasets"]}
    assert f"`JOAO()` as it comes, one configuration for all data, has {np.mean(list(default.values())):.1f}" in README
    gains = {name: f"{default[name] - frozen_rows['joao', name].mean:+.1f}" for name in default}
    for name in ("COLLAB", "IMDB-BINARY", "REDDIT-BINARY", "REDDIT-MULTI-5K"):
        assert f"{name} ({gains[name]})" in README
    less = {name: frozen_rows["joaov2", name].paper.mean - mean for name, mean in default.items()}
    assert {name: f"{by:.1f}" for name, by in less.items() if by > 0} == {"REDDIT-MULTI-5K": "2.0"}
    assert "on all sets but the last, where it is 2.0 below" in " ".join(README.split())


def test_what_the_readme_says_of_the_studies():
    """By the intervals that their pages show."""

    def intervals(line):
        return [(float(low), float(high)) for low, high in re.findall(r"\(([+-][\d.]+) to ([+-][\d.]+)\)", line)]

    def apart(line):
        return sum(low > 0 or high < 0 for low, high in intervals(line))

    controls, factors, variants = (
        [line for line in (ROOT / "results" / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
        for page in ("controls.md", "factors.md", "unsupervised/variants.md")
    )
    assert sum(len(intervals(line)) for line in controls) == 8 * 4
    assert not any(map(apart, controls))
    found = {line.split(" | ")[0].strip("| "): apart(line) for line in factors}
    assert {name.split(",")[0].split(" (")[0] for name, number in found.items() if number > 1} == {
        "no pre-training",
        "features: degree",
    }
    changes = {}
    for line in variants:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[1] == "JOAO" and len(cells) == 7:
            changes[cells[0]] = [float(cell.split()[0]) for cell in (cells[4], cells[6]) if cell]
    assert {name: found for name, found in changes.items() if max(map(abs, found)) >= 1} == {"COLLAB": [-2.15, 0.60]}
    assert [len(found) for found in changes.values()] == [2] * 8
    assert "by less than a point, but for COLLAB (-2.15)" in README
    twins = next(line for line in variants if line.startswith("| COLLAB | JOAO | +")).split(" | ")[3]
    assert f"over the untrained encoder, {twins} (" in README


@pytest.fixture(scope="module")
def few_label_records():
    from repro.protocols.semi_supervised.run import grid, read_record

    records = [read_record(path) for path in (ROOT / "results/semi-supervised").glob("*/*.json")]
    order = list(grid()["datasets"])
    return sorted(records, key=lambda record: order.index(record["cell"]["dataset"]))


def test_what_the_readme_says_of_few_labels(few_label_records):
    from repro.protocols.semi_supervised.pairs import agreements
    from repro.protocols.semi_supervised.table import rows

    table = {(row.method, row.label_rate, row.dataset): row for row in rows(few_label_records)}

    def at_ten(method):
        return [row for key, row in table.items() if key[:2] == (method, 10) and row.paper]

    def gaining(method):
        *names, last = [row.dataset for row in at_ten(method) if row.gain.low > 0]
        return f"{', '.join(names)} and {last}"

    def below(method):
        misses = [row.paper.mean - row.mean for row in at_ten(method)]
        return f"{min(misses):.2f} to {max(misses):.2f}"

    def gain(method, rate, dataset):
        return f"{table[method, rate, dataset].gain.mean:+.2f}"

    def miss(method):
        row = table[method, 1, "COLLAB"]
        return f"{row.paper.mean - row.mean:.2f}"

    assert all(table[method, rate, "NCI1"].gain.mean < 0 for method in ("joao", "joaov2") for rate in (1, 10))
    sentences = [
        f"by a 95 % interval that excludes 0, on {gaining('joao')}; JOAOv2 on {gaining('joaov2')}.",
        f"where GAE ({gain('gae', 10, 'NCI1')}) and Infomax ({gain('infomax', 10, 'NCI1')}) do.",
        f"no pre-training by {below('none')} points, JOAO by {below('joao')}, JOAOv2 by {below('joaov2')}.",
        f"on COLLAB JOAO gains {gain('joao', 1, 'COLLAB')} and JOAOv2 {gain('joaov2', 1, 'COLLAB')} points",
        f"they are {miss('joao')} and {miss('joaov2')} below the paper's figures.",
    ]
    for dataset, found in agreements(few_label_records).items():
        assert found.num_seeds == 5
        sentences.append(f"{found.correlation.value:+.2f} on {dataset} (p = {found.correlation.p_value:.2f})")
    for method, other in (("joao", "joao_stronger"), ("joaov2", "joaov2_stronger"), ("joao", "joao_without_prior")):
        for (name, rate, dataset), row in table.items():
            if name == other:
                own = table[method, rate, dataset]
                assert abs(row.mean - own.mean) < own.std  # "by less than their deviation over seeds"
    said = " ".join(README.split())
    assert [sentence for sentence in sentences if sentence not in said] == []


def test_what_the_documents_say_of_the_published_rule():
    rows = json.loads((ROOT / "results/published-epoch.json").read_text(encoding="utf-8"))["rows"]
    best, ours = ({key: 100 * np.mean(row[kind]) for key, row in rows.items()} for kind in KINDS)
    adds = {key: f"{best[key] - ours[key]:.2f}" for key in rows}
    said = " ".join(README.split())
    assert (
        f"adds {adds['NCI1|none']} (no pre-training) to {adds['NCI1|joao']} points (JOAO) on NCI1 and "
        f"{adds['PROTEINS|none']} (no pre-training) to {adds['PROTEINS|graphcl']} (GraphCL) on PROTEINS"
    ) in said
    assert f"no pre-training has {best['NCI1|none']:.2f} on NCI1" in said
    assert f"and JOAO {best['NCI1|joao']:.2f} (paper" in said
    deviation = next(line for line in DEVIATIONS.splitlines() if line.startswith("| 19 |"))
    for name in ("NCI1", "PROTEINS"):
        keys = [f"{name}|{method}" for method in ("none", "graphcl", "joao")]
        assert f"{', '.join(adds[key] for key in keys)} points on {name}" in deviation
        to_last = [best[key] - 100 * np.mean(rows[key]["last epoch"]) for key in keys]
        assert f"{min(to_last):.2f} to {max(to_last):.2f} on {name}" in deviation


def test_the_documents_of_the_records_are_up_to_date(tmp_path):
    from repro.tables.pages import write_results

    folder, copy = ROOT / "results/unsupervised", tmp_path / "unsupervised"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.md"))
    write_results(copy)
    made, kept = ({path.name for path in each.iterdir() if path.is_file()} for each in (copy, folder))
    assert made == kept
    for name in made:
        assert (copy / name).read_text() == (folder / name).read_text(), name


def test_the_documents_of_the_semi_supervised_records_are_up_to_date(tmp_path):
    from repro.tables.pages import write_semi_supervised

    folder, copy = ROOT / "results/semi-supervised", tmp_path / "semi-supervised"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.md", "*.png"))
    write_semi_supervised(copy)
    made, kept = ({path.name for path in each.iterdir() if path.is_file()} for each in (copy, folder))
    assert made == kept
    for name in made:
        if name.endswith(".md"):
            assert (copy / name).read_text() == (folder / name).read_text(), name


@pytest.mark.parametrize("name", ["findings", "times"])
def test_what_is_made_of_all_records_is_up_to_date(name, tmp_path):
    from repro.tables.pages import write_findings, write_times
    from repro.tables.records import READERS

    for protocol in READERS:
        (tmp_path / protocol).symlink_to(ROOT / "results" / protocol)
    {"findings": write_findings, "times": write_times}[name](tmp_path)
    made, kept = ((folder / f"{name}.md").read_text(encoding="utf-8") for folder in (tmp_path, ROOT / "results"))
    assert made == kept


def test_every_semi_supervised_record_is_of_the_recipe_as_it_is():
    from repro.protocols.semi_supervised.run import Cell, is_done, read_record

    folder = ROOT / "results/semi-supervised"
    for path in sorted(folder.glob("*/*.json")):
        cell = Cell(**read_record(path)["cell"])
        assert cell.path(folder) == path
        assert is_done(cell, folder)


CPU_COST = ["--data", "DHFR", "--features", "labels", "--candidates", "default,width_128", "--seeds", "2"]


@pytest.mark.parametrize(
    ("study", "page", "more"),
    [
        ("learned_table", "learned-table", []),
        ("controls", "controls", []),
        ("factors", "factors", []),
        ("defaults", "defaults", ["--data", "MSRC_9"]),
        ("defaults", "defaults-cpu", CPU_COST),
        ("scorers", "scorers", ["--data", ""]),
    ],
)
def test_the_page_of_a_study_is_that_of_its_records(study, page, more, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "repro/studies")
    records = [] if study == "learned_table" else [str(ROOT / "results" / page)]
    monkeypatch.setattr(sys, "argv", [f"{study}.py", *records, str(tmp_path / "page.md"), *more])
    runpy.run_path(str(ROOT / f"repro/studies/{study}.py"), run_name="__main__")
    assert (tmp_path / "page.md").read_text() == (ROOT / f"results/{page}.md").read_text()


def test_the_lines_of_python_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    exec(compile(code, "README.md", "exec"), {})
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["node_drop", "subgraph", "edge_perturb", "attribute_mask", "identity"]
    assert 0.665 < float(shown[-1]) <= 1  # better than answering always the same
    assert (tmp_path / "runs/mutag/weights.safetensors").exists()


def test_every_command_of_the_readme_exists():
    from typer.main import get_command

    from joao.cli.main import app

    named = set(re.findall(r"^joao (\w+)", README, re.MULTILINE))
    assert named
    assert named <= set(get_command(app).commands)


def test_the_tables_of_the_benchmarks_are_up_to_date(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmark_tables.py", str(tmp_path / "tables.md")])
    runpy.run_path(str(ROOT / "repro/studies/benchmark_tables.py"), run_name="__main__")
    assert (tmp_path / "tables.md").read_text() == (ROOT / "results/benchmarks/tables.md").read_text()


def test_the_page_on_performance_shows_the_benchmarks():
    tables = (ROOT / "results/benchmarks/tables.md").read_text(encoding="utf-8").splitlines()
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8").splitlines()
    shown = [line for line in page if line.startswith("| ") or (line.startswith("- ") and ": " in line)]
    assert len(shown) > 60
    assert [line for line in shown if line not in tables] == []


def test_no_result_is_empty():
    assert [path.name for path in (ROOT / "results").rglob("*") if path.is_file() and not path.stat().st_size] == []


@pytest.mark.parametrize("protocol", ["ogb", "transfer"])
def test_the_documents_of_the_records_of_few_files_are_up_to_date(protocol, tmp_path):
    from repro.tables import pages as results

    folder, copy = ROOT / "results" / protocol, tmp_path / protocol
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.md"))
    getattr(results, f"write_{protocol}")(copy)
    for name in ("table.md", "overview.md"):
        assert (copy / name).read_text() == (folder / name).read_text(), name


def test_every_ogb_record_is_of_the_recipe_as_it_is():
    from repro.protocols.ogb.run import Cell, cells, is_done, read_record

    folder = ROOT / "results/ogb"
    found = [Cell(**read_record(path)["cell"]) for path in sorted(folder.glob("*/*.json"))]
    assert set(found) == set(cells(["ogbg-molbbbp", "ogbg-molbace"]))
    assert all(is_done(cell, folder) for cell in found)


def test_what_the_readme_says_of_ogb():
    from repro.protocols.ogb.run import read_record
    from repro.protocols.ogb.table import rows

    table = rows([read_record(path) for path in sorted((ROOT / "results/ogb").glob("*/*.json"))])
    gains = [row.gain for row in table if row.method != "none"]
    assert {row.num_seeds for row in table} == {3}
    assert len(gains) == 12
    assert all(gain.low < 0 for gain in gains)
    assert "no row gains over no pre-training by an interval that excludes 0" in README


def test_the_page_on_reports_shows_the_record_of_their_size():
    study = runpy.run_path(str(ROOT / "repro/studies/report_page.py"))
    record = json.loads((ROOT / "results/report-page.json").read_text(encoding="utf-8"))
    page = (ROOT / "results/report-page.md").read_text(encoding="utf-8")
    assert page == study["page_of"](record)
    assert (record["graphs"], record["epochs"]) == (4110, 100)
    assert max(row["bytes"] for row in record["rows"]) < 1_000_000
    shown = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    assert "\n".join(table_lines(page)) in shown


def test_every_transfer_record_is_of_the_recipe_as_it_is():
    from repro.protocols.transfer.run import Cell, cells, is_done, is_forest, read_record

    folder = ROOT / "results/transfer"
    found = [Cell(**read_record(path)["cell"]) for path in sorted(folder.glob("*/*.json"))]
    assert {cell for cell in cells() if not is_forest(cell.method)} <= set(found)
    assert all(is_done(cell, folder) for cell in found)


def test_what_the_readme_says_of_transfer():
    from repro.protocols.transfer.run import grid, read_record
    from repro.protocols.transfer.table import rows

    sets = list(grid()["datasets"])
    records = [read_record(path) for path in (ROOT / "results/transfer").glob("*/*.json")]
    table = {(row.method, row.dataset): row for row in rows(records)}

    def average(method, figure="mean"):
        return round(float(np.mean([getattr(table[method, name], figure) for name in sets])), 1)

    means = {method: average(method) for method in grid()["methods"] if (method, "toxcast") in table}
    assert f"JOAO has {means['joao']} and JOAOv2 {means['joaov2']} (paper: 71.9 and 72.1)" in README
    assert f"Without pre-training it is {means['none']} (67.0)" in README
    assert f"JOAO has {average('joao', 'last_mean')} and JOAOv2 {average('joaov2', 'last_mean')}" in README
    clintox = table["joaov2", "clintox"]
    assert f"JOAOv2 has {clintox.mean:.1f} there by the chosen epoch and {clintox.last_mean:.1f} by the last" in README
    bace = [table[method, "bace"] for method in ("joao", "joaov2")]
    below = [f"{row.paper.mean - row.mean:.1f}" for row in bace]
    assert f"BACE is below by {below[0]} and {below[1]} points" in README
    proper = dict(zip(sets, ["BBBP", "Tox21", "ToxCast", "SIDER", "ClinTox", "MUV", "HIV", "BACE"], strict=True))
    for method, beginning in (("joao", "excludes 0, on "), ("joaov2", "; JOAOv2 on ")):
        names = [proper[name] for name in sets if table[method, name].gain.low > 0]
        assert f"{beginning}{', '.join(names[:-1])} and {names[-1]}" in README
    forests = ("ecfp", "joao_ecfp")
    encoders = [method for method in grid()["methods"] if method not in forests]
    done = [name for name in sets if ("ecfp", name) in table]
    best = {name: max(table[method, name].mean for method in encoders) for name in done}
    names = [proper[name] for name in done if table["ecfp", name].mean > best[name]]
    assert f"has a higher mean than every one of these encoders on {', '.join(names[:-1])} and {names[-1]}**" in README
    assert means["ecfp"] > max(means[method] for method in encoders)
    both = [name for name in done if ("joao_ecfp", name) in table]
    assert len(both) >= 6
    assert all(table["joao_ecfp", name].mean < table["ecfp", name].mean for name in both)
    trained = {method: mean for method, mean in means.items() if method not in forests}
    assert sorted(trained, key=trained.get)[-2:] == ["graphcl", "attr_masking"]
    assert f"{trained['attr_masking']}, then GraphCL with its fixed pool, {trained['graphcl']}" in README


def test_the_page_on_strengths_has_the_figures_of_the_table():
    lines = (ROOT / "results/unsupervised/strengths.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][2:]
    average = next(line for line in cells if line[0].startswith("average"))
    said = f"learned strengths have {average[2]} on average and JOAO at 0.2 has {average[1]}"
    assert said in " ".join((ROOT / "docs/strengths.md").read_text(encoding="utf-8").split())
    intervals = [re.search(r"\((\S+) to (\S+)\)", line[3]) for line in cells if line is not average]
    assert len(intervals) == 8
    assert all(float(each[1]) < 0 < float(each[2]) for each in intervals)


def test_the_readme_shows_what_the_quickstart_recorded():
    record = json.loads((ROOT / "results/quickstart/evaluation.json").read_text(encoding="utf-8"))
    shown = README[README.index("`make quickstart` takes") : README.index("and draws the augmentation pairs")]
    for name in ("histogram", "untrained_initial", "untrained", "run"):
        assert f"{100 * record[name]['mean']:.2f} ± {100 * record[name]['std']:.2f}" in shown
        gain = record.get(f"gain over {name}")
        ends = gain and [f"{100 * gain[key]:+.2f}" for key in ("mean", "low", "high")]
        assert not ends or "{} points (95 % interval {} to {})".format(*ends) in shown
    assert f"{100 * record['chance']:.2f}" in shown


def test_what_the_page_on_performance_says_beside_its_tables():
    page = " ".join((ROOT / "docs/performance.md").read_text(encoding="utf-8").split())
    nci1 = json.loads((ROOT / "results/benchmarks/cpu-1-thread.json").read_text())["settings"][0]["workloads"][0]
    parts = ("gather a batch", "node_drop", "subgraph", "edge_perturb", "attribute_mask")
    assert nci1["name"] == "NCI1"
    said = "a batch takes {:.2f} ms, NodeDrop {:.2f}, Subgraph {:.2f}, EdgePert {:.2f} and AttrMask {:.2f} on NCI1"
    assert said.format(*(nci1["parts"][part]["ms"]["median"] for part in parts)) in page
    card = json.loads((ROOT / "results/benchmarks/gpu-h200-tf32.json").read_text())["settings"][0]
    work = next(each for each in card["workloads"] if each["name"] == "molecules")["work of a step"]["JOAO"]
    assert f"{work['flop'] / 1e9:.1f} GFLOP and {work['bytes'] / 1e9:.2f} GB at least" in page
    rates = card["roof"]
    assert f"at {rates['GFLOP/s'] / 1000:.0f} TFLOP/s and copies at {rates['GB/s'] / 1000:.1f} TB/s" in page
    fits = [
        json.loads((ROOT / f"results/semi-supervised/NCI1/none-10-{seed}.json").read_text())["seconds of fine-tuning"]
        for seed in range(5)
    ]
    first, second, third, fourth, fifth = (f"{each:.1f}" for each in fits)
    assert f"took {first}, {second}, {third}, {fourth} and {fifth} s for five seeds" in page


def test_the_decision_on_defaults_shows_its_studies():
    def table(page, heading):
        lines = (ROOT / "results" / page).read_text(encoding="utf-8").split(f"## {heading}")[1].split("\n## ")[0]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table_lines(lines)]
        return {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[2:]}

    gains = table("defaults.md", "Difference to the default")
    on_gpu, on_cpu = (table(page, "Without labels, and cost") for page in ("defaults.md", "defaults-cpu.md"))
    decision = (ROOT / "docs/decisions/0005-defaults.md").read_text(encoding="utf-8")
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in table_lines(decision)][2:]
    assert len(shown) == 6
    for name, gain, gpu, cpu in shown:
        assert (gain, gpu) == (gains[name]["all"], on_gpu[name]["times as long"])
        assert cpu == on_cpu.get(name, {}).get("times as long", "")

    def satisfies(name):
        found = re.match(r"(\S+) \((\S+) to", gains[name]["all"])
        return found and float(found[1]) >= 1 and float(found[2]) > 0 and float(on_gpu[name]["times as long"]) <= 2

    best = [name for name in gains if satisfies(name)]
    assert len(best) == 3
    assert all(name.startswith("width 128") for name in best)
    assert "three candidates satisfy the rule, all of width 128" in decision
    controls = [name for name in gains if name.startswith(("no pre-training", "nothing but the seed"))]
    assert (len(gains) - len(controls), len(controls)) == (22, 4)
    assert "22 candidates, three encoders without pre-training and another seed" in decision
    assert {row["of"] for row in gains.values()} == {"15"}
    assert not {"log inside", "log-degree", "width 128, log inside", "log of all readouts inside"} & set(best)
    last = (ROOT / "results/defaults.md").read_text(encoding="utf-8").strip().splitlines()[-1]
    numbers = re.findall(r"[+-]\d\.\d\d", last)
    said = "{} for the loss on held-out graphs, {} for alignment, {} for uniformity and {} for the effective rank"
    assert said.format(*numbers) in " ".join(decision.split())


def test_the_decision_on_scorers_shows_its_record():
    page = (ROOT / "results/scorers.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table_lines(page)][2:]
    decision = " ".join((ROOT / "docs/decisions/0012-machines-side-by-side.md").read_text(encoding="utf-8").split())
    differ = [row[0] for row in rows if int(row[7])]
    assert f"{10 * len(rows) - sum(int(row[7]) for row in rows)} of {10 * len(rows)} folds" in decision
    assert f"two folds, on {' and '.join(differ)}, differ" in decision
    assert all(row[8] == "0" for row in rows)
    least, most = (choose(rows, key=lambda row: int(row[4])) for choose in (min, max))
    assert f"{least[4]} ({least[0]}) to {most[4]} times ({most[0]})" in decision


def test_what_the_page_on_exports_says_of_the_model_of_the_package():
    folder = ROOT / "src/joao/pretrained"
    page = " ".join((ROOT / "docs/pretrained.md").read_text(encoding="utf-8").split())
    change = re.search(r"changes embeddings by (up to \S+ of their length)", (folder / "molecules.md").read_text())[1]
    size = f"{(folder / 'molecules.safetensors').stat().st_size / 1e6:.1f} MB"
    assert f"a file of {size}, by {change}" in page
    assert page.count(size) == 2


def test_the_page_on_objectives_shows_the_record_of_their_pair_losses():
    study = runpy.run_path(str(ROOT / "repro/studies/pair_losses.py"))
    record = json.loads((ROOT / "results/pair-losses.json").read_text(encoding="utf-8"))
    page = (ROOT / "results/pair-losses.md").read_text(encoding="utf-8")
    assert page == study["page"](record)
    assert "\n".join(table_lines(page)) in (ROOT / "docs/objectives.md").read_text(encoding="utf-8")
