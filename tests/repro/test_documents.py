"""README and documents: generated pages and blocks are up to date, links resolve, commands exist, code runs."""

import pkgutil
import re

import pytest
from typer.main import get_command

from joao.cli.main import app as joao_app
from repro.cli.main import app as repro_app
from repro.documents import generate
from repro.protocols import gamma
from repro.protocols.ogb import run as ogb
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.transfer import run as transfer
from repro.protocols.unsupervised import run as unsupervised
from repro.record_files import RECORDS

ROOT = generate.ROOT
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def test_generated_pages_and_blocks_are_up_to_date(usual_forests):
    assert [str(path.relative_to(ROOT)) for path in generate.outdated()] == [], "run: python -m repro docs"


def test_links_resolve():
    missing = []
    for document in DOCUMENTS:
        prose = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)#]+)", prose):
            if "://" not in link and not (document.parent / link).exists():
                missing.append((document.name, link))
    assert missing == []


def test_commands_in_the_readme_exist():
    for program, app in (("joao", joao_app), ("python -m repro", repro_app)):
        named = set(re.findall(rf"(?:^|`){program} ([a-z][\w-]*)", README, re.MULTILINE))
        assert named
        assert named <= set(get_command(app).commands)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", ["paper-to-code", "deviations", "protocols"])
def test_python_names_in_documents_exist(page):
    names = set(re.findall(r"`((?:joao|repro)(?:\.\w+)+)`", (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")))
    assert names
    for name in names:
        pkgutil.resolve_name(name)


def test_python_example_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    exec(compile(code, "README.md", "exec"), {})
    accuracy = capsys.readouterr().out.splitlines()[-1]
    assert 0.665 < float(accuracy) <= 1  # better than the majority class
    assert (tmp_path / "runs/first/weights.safetensors").exists()


@pytest.mark.parametrize(
    "protocol", [unsupervised, semi_supervised, transfer, ogb, gamma], ids=lambda each: each.__name__
)
def test_every_record_is_of_the_current_recipe(protocol, usual_forests):
    cells = [protocol.Cell(**record["cell"]) for record in protocol.record_file(RECORDS).read()]
    assert cells
    assert all(protocol.is_done(cell, RECORDS) for cell in cells)


def test_no_record_or_page_is_empty():
    files = [path for folder in (RECORDS, generate.RESULTS) for path in folder.rglob("*") if path.is_file()]
    assert [path.name for path in files if not path.stat().st_size] == []


def test_every_generated_page_has_a_summary_and_every_summary_a_page(monkeypatch):
    names = {path.relative_to(generate.RESULTS).with_suffix("").as_posix() for path in generate.RESULTS.rglob("*.md")}
    assert set(generate.SUMMARIES) == names
    assert generate.with_summary("controls", "# Title\n\nrest\n").splitlines()[::2] == [
        "# Title",
        generate.SUMMARIES["controls"],
        "rest",
    ]
    monkeypatch.delitem(generate.SUMMARIES, "controls")
    with pytest.raises(generate.UserError, match="controls"):
        generate.with_summary("controls", "# Title\n\nrest\n")


def test_outdated_block_is_found_and_unknown_block_is_rejected(monkeypatch, tmp_path):
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setitem(generate.BLOCKS, "answer", lambda: "42")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- generated: answer -->\n41\n<!-- end generated -->\nafter\n")
    assert generate.pages_with_blocks() == {
        page: "before\n<!-- generated: answer -->\n42\n<!-- end generated -->\nafter\n"
    }
    page.write_text("<!-- generated: nothing -->\n<!-- end generated -->\n")
    with pytest.raises(generate.UserError, match="nothing"):
        generate.pages_with_blocks()
