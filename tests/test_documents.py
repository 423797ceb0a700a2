"""README and documents say what is so."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document):
    links = re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8"))
    missing = [link for link in links if not link.startswith("http") and not (document.parent / link).exists()]
    assert missing == []


def test_the_readme_shows_the_overview_of_the_records():
    overview = (ROOT / "results/unsupervised/overview.md").read_text(encoding="utf-8")
    expected = [line for line in overview.splitlines() if line.startswith("|")]
    results = README[README.index("## Results") : README.index("## How it is honest")]
    assert [line for line in results.splitlines() if line.startswith("|")] == expected


def test_the_documents_of_the_records_are_up_to_date(tmp_path):
    from joao.reporting.results import write_results

    copy = tmp_path / "unsupervised"
    shutil.copytree(ROOT / "results/unsupervised", copy)
    write_results(copy)
    for name in ("table.md", "overview.md", "learned.md"):
        assert (copy / name).read_text() == (ROOT / "results/unsupervised" / name).read_text()


def test_the_documents_of_the_semi_supervised_records_are_up_to_date(tmp_path):
    from joao.reporting.results import write_semi_supervised

    folder, copy = ROOT / "results/semi-supervised", tmp_path / "semi-supervised"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.md", "*.png"))
    write_semi_supervised(copy)
    made, kept = ({path.name for path in each.iterdir() if path.is_file()} for each in (copy, folder))
    assert made == kept
    for name in made:
        if name.endswith(".md"):
            assert (copy / name).read_text() == (folder / name).read_text(), name


def test_every_semi_supervised_record_is_of_the_recipe_as_it_is():
    from joao.reproduce.semi_supervised import Cell, is_done, read_record

    folder = ROOT / "results/semi-supervised"
    for path in sorted(folder.glob("*/*.json")):
        cell = Cell(**read_record(path)["cell"])
        assert cell.path(folder) == path
        assert is_done(cell, folder)


def test_the_study_of_the_learned_table_is_up_to_date(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["learned_table.py", str(tmp_path / "study.md")])
    runpy.run_path(str(ROOT / "studies/learned_table.py"), run_name="__main__")
    assert (tmp_path / "study.md").read_text() == (ROOT / "results/learned-table.md").read_text()


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
    runpy.run_path(str(ROOT / "studies/benchmark_tables.py"), run_name="__main__")
    assert (tmp_path / "tables.md").read_text() == (ROOT / "results/benchmarks/tables.md").read_text()


def test_the_page_on_performance_shows_the_benchmarks():
    tables = (ROOT / "results/benchmarks/tables.md").read_text(encoding="utf-8").splitlines()
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8").splitlines()
    shown = [line for line in page if line.startswith("| ") or (line.startswith("- ") and ": " in line)]
    assert len(shown) > 60
    assert [line for line in shown if line not in tables] == []


def test_no_result_is_empty():
    assert [path.name for path in (ROOT / "results").rglob("*") if path.is_file() and not path.stat().st_size] == []
