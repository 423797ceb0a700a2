"""Which documents a folder of semi-supervised records gets, and of which records each is made."""

import html

import numpy as np

from joao.config.recipe import POOL
from repro.protocols.semi_supervised.run import PAIRS, Cell, record_file
from repro.tables.names import NAMES
from repro.tables.pages import write_all, write_pages
from tests.messages import assert_mentions, refused
from tests.repro.records import remove


def write(records, *cells, accuracy=0.5):
    """A record for each cell; each seed a point better than the last."""
    for cell in cells:
        content = {
            "cell": vars(cell),
            "scores": {"accuracy": [accuracy + cell.seed / 100]},
            "split_hash": f"{cell.seed} {cell.label_rate}",
            "precision": "32-true",
        }
        if cell.method in ("joao", "joaov2"):
            drawn = np.arange(25).reshape(5, 5) if cell.label_rate == 10 else np.eye(5, dtype=int)
            content["policy"] = {"augmentations": list(POOL), "drawn": drawn.tolist()}
        record_file(records).write(content)


def table(path):
    """The cells of every line of a document's tables."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def names(folder):
    return {path.name for path in (folder / "semi-supervised").glob("*")}


def write_semi_supervised(folder):
    return write_pages("semi-supervised", folder, folder)


def test_every_table_has_its_records_in_grid_order(tmp_path):
    methods = ("joao_without_prior", "joao_stronger", "joao", "none")
    write(tmp_path, *(Cell("NCI1", method, seed, rate) for method in methods for seed in (1, 0) for rate in (10, 1)))
    write(tmp_path, Cell("COLLAB", "joao", 0, 10), Cell("PROTEINS", "joao", 0, 10))
    assert list(write_semi_supervised(tmp_path).lines) == [NAMES["none"], NAMES["joao"]]
    assert names(tmp_path) == {"semi-supervised.md", "overview.md", "strength.md", "prior.md", "learned.md"}

    shown = {
        name: [line[:5] for line in table(tmp_path / f"semi-supervised/{name}.md")[2:]]
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
        assert f"`python -m repro {command}`" in (tmp_path / f"semi-supervised/{name}.md").read_text()
    papers = {name: table(tmp_path / f"semi-supervised/{name}.md")[3][6] for name in ("semi-supervised", "strength")}
    assert papers == {"semi-supervised": "61.97 ± 0.72", "strength": "61.77 ± 1.61"}
    assert [line[0] for line in table(tmp_path / "semi-supervised/overview.md")[2:]] == [none, joao]
    # Of one label rate: (0 + 6 + 12 + 18 + 24) / 300 of the views are the same twice.
    assert [
        [*line[:2], line[-1]] for line in table(tmp_path / "semi-supervised/learned.md") if line[1:2] == [joao]
    ] == [*(["NCI1", joao, "0.20"], ["PROTEINS", joao, "0.20"], ["COLLAB", joao, "0.20"])]


def test_complete_pairs_have_a_figure(tmp_path):
    seed = {method: Cell("PROTEINS", method, 0, 10) for method in ("none", "joao", *PAIRS)}
    for number, cell in enumerate(seed.values()):
        write(tmp_path, cell, accuracy=0.5 + number / 100)
    key = seed.popitem()[1].key
    last = record_file(tmp_path)[key]
    remove(record_file(tmp_path), key)
    write_semi_supervised(tmp_path)
    assert "pairs.md" not in names(tmp_path)
    record_file(tmp_path).write(last)
    write_semi_supervised(tmp_path)
    assert {"pairs.md", "pairs-PROTEINS.png"} <= names(tmp_path)
    text = (tmp_path / "semi-supervised/pairs.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| PROTEINS | +1.00 (p = 0.02) | 1 | ")]
    assert_mentions(line, "identity + identity", "+26.00", "0.080")
    assert "(pairs-PROTEINS.png)" in text
    assert "node_drop+node_drop" not in (tmp_path / "semi-supervised/semi-supervised.md").read_text()


def test_folder_without_records_gets_no_pages(tmp_path):
    assert write_semi_supervised(tmp_path) is None
    assert names(tmp_path) == set()


def test_one_page_with_all_tables(tmp_path):
    write(tmp_path, Cell("NCI1", "none", 0, 10))
    for kind, beginning in ((".md", "## "), (".tex", r"\begin{table}"), (".html", "<!doctype html>")):
        page = tmp_path / f"all{kind}"
        sections = write_all(tmp_path, tmp_path, page)
        assert [type(each).__name__ for each in sections] == ["Findings", "Overview", "Times"]
        text = html.unescape(page.read_text(encoding="utf-8"))
        assert text.startswith(beginning)
        assert_mentions(text, *(each.title for each in sections))
    with refused(tmp_path / "all.pdf", ".md, .tex, .html"):
        write_all(tmp_path, tmp_path, tmp_path / "all.pdf")
    with refused(tmp_path / "nowhere", "python -m repro"):
        write_all(tmp_path / "nowhere", tmp_path)


def test_file_that_is_not_a_record_is_rejected(tmp_path):
    write(tmp_path, Cell("NCI1", "none", 0, 10))
    with record_file(tmp_path).path.open("a") as file:
        file.write("{}\n")
    with refused(record_file(tmp_path).path, "line 2"):
        write_semi_supervised(tmp_path)
    assert names(tmp_path) == set()
