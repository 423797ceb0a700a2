"""Which documents a folder of semi-supervised records gets, and of which records each is made."""

import html
import json

import numpy as np

from joao.config.recipe import POOL
from repro.protocols.semi_supervised.run import PAIRS, Cell
from repro.tables.names import NAMES
from repro.tables.pages import write_all, write_semi_supervised
from tests.messages import assert_mentions, refused


def write(records, *cells, accuracy=0.5):
    """A record for each cell; each seed a point better than the last."""
    for cell in cells:
        path = cell.path(records)
        path.parent.mkdir(exist_ok=True)
        content = {
            "cell": vars(cell),
            "scores": {"accuracy": [accuracy + cell.seed / 100]},
            "split_hash": f"{cell.seed} {cell.label_rate}",
            "precision": "32-true",
        }
        if cell.method in ("joao", "joaov2"):
            drawn = np.arange(25).reshape(5, 5) if cell.label_rate == 10 else np.eye(5, dtype=int)
            content["policy"] = {"augmentations": list(POOL), "drawn": drawn.tolist()}
        path.write_text(json.dumps(content))


def table(path):
    """The cells of every line of a document's tables."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def names(folder):
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_every_table_has_its_own_records_in_the_order_of_the_recipe(tmp_path):
    methods = ("joao_without_prior", "joao_stronger", "joao", "none")
    write(tmp_path, *(Cell("NCI1", method, seed, rate) for method in methods for seed in (1, 0) for rate in (10, 1)))
    write(tmp_path, Cell("COLLAB", "joao", 0, 10), Cell("PROTEINS", "joao", 0, 10))
    assert list(write_semi_supervised(tmp_path).lines) == [NAMES["none"], NAMES["joao"]]
    assert names(tmp_path) == {"semi-supervised.md", "overview.md", "strength.md", "prior.md", "learned.md"}

    shown = {
        name: [line[:5] for line in table(tmp_path / f"{name}.md")[2:]]
        for name in ("semi-supervised", "strength", "prior")
    }
    joao, none, two = NAMES["joao"], NAMES["none"], ["50.50 ± 0.71", "2"]
    assert shown["semi-supervised"] == [
        ["NCI1", "1 %", none, *two],
        ["NCI1", "1 %", joao, *two],
        ["NCI1", "10 %", none, *two],
        ["NCI1", "10 %", joao, *two],
        ["PROTEINS", "10 %", joao, "50.00", "1"],
        ["COLLAB", "10 %", joao, "50.00", "1"],
    ]
    assert shown["strength"] == [
        ["NCI1", "1 %", none, *two],
        ["NCI1", "1 %", joao, *two],
        ["NCI1", "1 %", NAMES["joao_stronger"], *two],
        ["PROTEINS", "10 %", joao, "50.00", "1"],
    ]
    assert shown["prior"] == [
        ["NCI1", "10 %", none, *two],
        ["NCI1", "10 %", joao, *two],
        ["NCI1", "10 %", NAMES["joao_without_prior"], *two],
        ["PROTEINS", "10 %", joao, "50.00", "1"],
    ]
    for name, command in (("semi-supervised", "semi-supervised"), ("overview", "semi-supervised"), ("prior", "prior")):
        assert f"`joao reproduce {command}`" in (tmp_path / f"{name}.md").read_text()
    papers = {name: table(tmp_path / f"{name}.md")[3][6] for name in ("semi-supervised", "strength")}
    assert papers == {"semi-supervised": "61.97 ± 0.72", "strength": "61.77 ± 1.61"}
    assert [line[0] for line in table(tmp_path / "overview.md")[2:]] == [none, joao]
    # Of one label rate: (0 + 6 + 12 + 18 + 24) / 300 of the views are the same twice.
    assert [[*line[:2], line[-1]] for line in table(tmp_path / "learned.md") if line[1:2] == [joao]] == [
        *(["NCI1", joao, "0.20"], ["PROTEINS", joao, "0.20"], ["COLLAB", joao, "0.20"]),
    ]


def test_complete_pairs_are_drawn(tmp_path):
    seed = {method: Cell("PROTEINS", method, 0, 10) for method in ("none", "joao", *PAIRS)}
    for number, cell in enumerate(seed.values()):
        write(tmp_path, cell, accuracy=0.5 + number / 100)
    last = seed.popitem()[1].path(tmp_path)
    content = last.read_text()
    last.unlink()
    write_semi_supervised(tmp_path)
    assert "pairs.md" not in names(tmp_path)
    last.write_text(content)
    write_semi_supervised(tmp_path)
    assert {"pairs.md", "pairs-PROTEINS.png"} <= names(tmp_path)
    text = (tmp_path / "pairs.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| PROTEINS | +1.00 (p = 0.02) | 1 | ")]
    assert_mentions(line, "identity + identity", "+26.00", "0.080")
    assert "(pairs-PROTEINS.png)" in text
    assert "node_drop+node_drop" not in (tmp_path / "semi-supervised.md").read_text()


def test_a_folder_without_records_gets_nothing(tmp_path):
    assert write_semi_supervised(tmp_path) is None
    assert names(tmp_path) == set()


def test_one_page_of_all_tables(tmp_path):
    (tmp_path / "semi-supervised").mkdir()
    write(tmp_path / "semi-supervised", Cell("NCI1", "none", 0, 10))
    for kind, beginning in ((".md", "## "), (".tex", r"\begin{table}"), (".html", "<!doctype html>")):
        page = tmp_path / f"all{kind}"
        sections = write_all(tmp_path, page)
        assert [type(each).__name__ for each in sections] == ["Findings", "Overview", "Times"]
        text = html.unescape(page.read_text(encoding="utf-8"))
        assert text.startswith(beginning)
        assert_mentions(text, *(each.title for each in sections))
    with refused(tmp_path / "all.pdf", ".md, .tex, .html"):
        write_all(tmp_path, tmp_path / "all.pdf")
    with refused(tmp_path / "nowhere", "'joao reproduce'"):
        write_all(tmp_path / "nowhere")


def test_a_file_that_is_no_record(tmp_path):
    write(tmp_path, Cell("NCI1", "none", 0, 10))
    (tmp_path / "NCI1" / "stray.json").write_text("{}")
    with refused(tmp_path / "NCI1" / "stray.json"):
        write_semi_supervised(tmp_path)
    assert names(tmp_path) == set()
