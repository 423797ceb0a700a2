"""A comparison as text. Oracle: lines written by hand from a record written by hand."""

import csv
import json

import pytest

import joao
from joao.comparison import record as recording
from joao.comparison.table import FILE_TYPES, HEADER, Comparison, check_out, closing_lines, heading, table_lines
from joao.core import progress
from joao.data.synthetic import random_graphs
from joao.evaluation import svm
from tests.messages import assert_mentions, notice, refused


def entry(kind, accuracies, seconds=2.5, peak=3_000_000):
    seeds = {
        str(seed): {"accuracies": part, "fold_hash": "abc"[seed], "seconds": seconds, "peak bytes": peak}
        for seed, part in enumerate(accuracies)
    }
    return {"kind": kind, "settings": {}, "seeds": seeds}


@pytest.fixture
def record():
    return {
        "data": {"name": "rings", "graphs": 40, "classes": 2},
        "folds": 2,
        "protocol": {"name": "comparison"},
        "partitions": 2,
        "fold hashes": ["a", "b"],
        "chance": 0.5,
        "compared": ["joao", "gl", "untrained", "wl"],
        "machine": {"device": "cpu"},
        "methods": {
            "joao": entry("pre-trained", [[0.8, 0.9], [0.85, 0.85]], seconds=1234.5, peak=1_234_000_000),
            "gl": {"kind": "baseline", "settings": {}, "seeds": {}, "failure": "too large."},
            "untrained": entry("cheap baseline", [[0.6, 0.7], [0.65, 0.65]]),
            "wl": entry("cheap baseline", [[0.5, 0.5], [0.5, 0.5]], seconds=0.001, peak=None),
        },
    }


def test_the_table(record):
    # joao: all differences are 0.2, so that their interval is a point; and the partitions' means are all equal.
    # wl: differences -.1, -.2 and -.15, -.15 with variances .005 and 0; 4.302653 * sqrt(.0025 / 2) = .1521.
    assert table_lines(Comparison(record)) == [
        ["joao", "85.00 ± 0.00", "+20.00 (+20.00 to +20.00)", "1,234", "1,234"],
        ["gl", "failed", "", "", ""],
        ["untrained", "65.00 ± 0.00", "", "2.5", "3"],
        ["wl", "50.00 ± 0.00", "-15.00 (-30.21 to +0.21)", "<0.01", ""],
        ["chance", "50.00", "", "", ""],
    ]


def test_the_words_below_it(record):
    lines = closing_lines(Comparison(record))
    assert_mentions(lines[0], "gl", "too large.")
    assert_mentions(lines[2], "joao", "95 %")
    assert lines[3].split(maxsplit=1) == ["untrained", "+20.00 (+20.00 to +20.00)"]
    verdict = str(Comparison(record).verdict)
    assert verdict[1:] in lines[5]
    assert_mentions(verdict, "rings", "joao", "20.00", 2, "untrained", "95 %")
    assert len(lines) == 7  # of several baselines the best was picked, which has a line
    record["compared"] = ["joao", "untrained"]
    alone = Comparison(record)
    assert str(alone.verdict)[1:] in closing_lines(alone)[-1]
    record["compared"] = ["wl", "untrained"]
    assert Comparison(record).verdict is None
    assert not any("GPU" in line for line in closing_lines(Comparison(record)))
    record["machine"]["device"] = "cuda"
    assert "GPU" in closing_lines(Comparison(record))[0]


def test_it_prints_as_a_table_that_fits_a_narrow_terminal(record):
    text = repr(Comparison(record)).splitlines()
    assert_mentions(text[0], "rings", "40 graphs", "2 classes", "2 folds")
    assert text[2].split() == " ".join(HEADER).split()
    assert text[3].split()[:2] == ["joao", "85.00"]
    assert max(map(len, text[2:8])) <= 80
    assert str(Comparison(record).verdict)[1:] in "\n".join(text)


def test_numbers_in_full_precision(record):
    frame = Comparison(record).to_pandas()
    assert list(frame.index) == ["joao", "gl", "untrained", "wl"]
    assert frame.loc["joao", "accuracy"] == pytest.approx(0.85)
    assert frame.loc["wl", "gain_low"] == pytest.approx(-0.3021, abs=1e-4)
    assert frame.loc["gl", "failure"] == "too large."
    assert frame["accuracy"].isna().tolist() == [False, True, False, False]
    lines = list(csv.DictReader(Comparison(record).to_csv().splitlines()))
    assert [line["method"] for line in lines] == list(frame.index)
    assert float(lines[3]["gain_low"]) == frame.loc["wl", "gain_low"]
    assert lines[1]["accuracy"] == ""


NASTY = "a_b & 5 % <i> | \\x $ {c} # ~ ^ [d](e)\x1b[2J"


@pytest.fixture
def nasty(record):
    record["methods"][NASTY] = record["methods"].pop("gl") | {"kind": "own", "failure": "no <b> & _"}
    record["compared"][1] = NASTY
    return Comparison(record)


def test_files_escape_names(nasty, tmp_path):
    texts = {suffix: write(nasty) for suffix, write in FILE_TYPES.items()}
    assert not any("\x1b" in text for text in texts.values())
    assert json.loads(texts[".json"]) == nasty.record
    row = next(line for line in texts[".tex"].splitlines() if line.startswith("a"))
    assert row.startswith(r"a\_b \& 5 \% \textless{}i\textgreater{} \textbar{} \textbackslash{}x \$ \{c\} \# ")
    assert row.count(" & ") == 4
    assert texts[".tex"].count(r"\begin{tabular}") == 1
    row = next(line for line in texts[".md"].splitlines() if line.startswith("| a"))
    assert row.count(" | ") == 4
    assert "<i>" not in texts[".md"] + texts[".html"]
    assert "a_b &amp; 5 % &lt;i&gt;" in texts[".html"]
    assert "script" not in texts[".html"]
    assert nasty._repr_html_() == nasty.to_html()


def test_picture(record):
    figure = Comparison(record).plot()
    left, right = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["joao", "untrained", "wl"]
    points = [line.get_xdata()[0] for line in right.lines if line.get_marker() not in ("None", "|", "")]
    assert points == pytest.approx([20.0, -15.0])


def test_output_files(tmp_path):
    check_out(tmp_path / "new.tex")
    (tmp_path / "old.tex").touch()
    with refused("old.tex"):
        check_out(tmp_path / "old.tex")
    for name in ("cmp.docx", "cmp"):
        with refused(name, *FILE_TYPES):
            check_out(tmp_path / name)
    with refused("cmp.docx"):
        joao.compare("MUTAG", "wl", out=tmp_path / "cmp.docx")


def test_partial_labels_and_scorer_are_said(record):
    record["data"]["labelled"] = 30
    record["protocol"]["scorer"] = "linear scorer (1,000 landmarks)"
    record["interrupted"] = "after 2 of 5 partitions"
    assert_mentions(heading(Comparison(record)), "40 graphs", 30, "(1,000 landmarks)", "2 of 5")


def test_interrupted_before_the_first_partition(monkeypatch, tmp_path):
    def stops(tasks, on_step):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(recording, "run_here", stops)
    graphs = random_graphs(24, mean_nodes=6, seed=5)
    with notice("0 of 2"):
        found = joao.compare(
            graphs, ["untrained", "wl", "ldp", "histogram"], partitions=2, folds=3, out=tmp_path / "table.csv"
        )
    assert not (tmp_path / "table.csv").exists()
    assert found.verdict is None
    assert "0 of 2" in repr(found)
    assert [line[0] for line in table_lines(found)] == ["chance"]
    found.plot()


def test_what_is_computed_is_shown_inside_a_seed(monkeypatch, caplog):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(svm, "C_GRID", (1.0,))
    graphs = random_graphs(24, mean_nodes=6, seed=5)
    with caplog.at_level("INFO", "joao"), notice("wl"):
        joao.compare(graphs, ["graphcl"], partitions=1, folds=3, epochs=2, device="cpu")
    *lines, last = [line for line in caplog.messages if "graphcl, seed 0: " in line]
    assert [line.rsplit(": ", 1)[1] for line in lines] == [
        *("embedding", "epoch 1 of 2", "epoch 2 of 2", "fold 1 of 3", "fold 2 of 3", "fold 3 of 3")
    ]
    # Seeds of graphcl and the cheap baselines; the first is finished with its last fold.
    assert [" 1 of 5" in line for line in [*lines, last]] == [False] * 5 + [True] * 2
    assert all(" 0 of 5" in line for line in lines[:5])


@pytest.mark.slow
def test_compare_in_python(monkeypatch, tmp_path):
    monkeypatch.setattr(svm, "C_GRID", (1.0,))
    graphs = random_graphs(24, mean_nodes=6, seed=5)
    options = {"partitions": 1, "folds": 3, "epochs": 1, "device": "cpu", "out": tmp_path / "record.json"}
    with notice("wl, ldp"):
        found = joao.compare(graphs, "graphcl, untrained, histogram", **options)
    assert [row.method for row in found.rows] == ["graphcl", "untrained", "histogram", "wl", "ldp"]
    assert str(found.verdict) in json.dumps(found.to_json(), ensure_ascii=False)
    assert json.loads((tmp_path / "record.json").read_text()) == json.loads(json.dumps(found.to_json()))
    assert found.rows[0].deviation is None
