"""What the policies learned, as tables over seeds."""

import numpy as np
import pytest

from repro.protocols.unsupervised.run import record_file
from repro.tables.learned import learned_markdown, learned_tables
from repro.tables.names import NAMES
from repro.tables.pages import write_pages
from tests.messages import assert_mentions

POOL = ["node_drop", "identity"]


def record(seed, drawn, method="joao", dataset="MUTAG"):
    return {
        "cell": {"dataset": dataset, "method": method, "seed": seed, "inductive": False},
        "policy": {"augmentations": POOL, "drawn": drawn},
    }


RECORDS = [record(0, [[8, 0], [0, 0]]), record(1, [[1, 1], [1, 1]]), record(0, [[0, 3], [1, 0]], dataset="NCI1")]


def test_seeds_have_equal_weight():
    tables = learned_tables(RECORDS)
    assert list(tables) == [("MUTAG", "joao"), ("NCI1", "joao")]
    # Seed 0: all in the first pair; seed 1: a quarter each.
    np.testing.assert_allclose(tables["MUTAG", "joao"].values, [[0.625, 0.125], [0.125, 0.125]])
    assert tables["NCI1", "joao"]["node_drop", "identity"] == 0.75
    assert tables["NCI1", "joao"].names == tuple(POOL)


@pytest.mark.parametrize("method", ["uniform", "graphcl", "untrained"])
def test_methods_that_do_not_learn_have_no_table(method):
    assert learned_tables([record(0, [[1, 0], [0, 0]], method)]) == {}
    assert learned_markdown([record(0, [[1, 0], [0, 0]], method)]) == ""


def test_learned_tables_have_a_page(tmp_path):
    scores = {"partitions": [{"fold_hash": "a", "accuracies": [0.5, 1.0]}]}
    machine = {"device": "cpu", "processor": "P"}
    record_file(tmp_path).write({**RECORDS[0], "scores": scores, "machine": machine})
    write_pages("unsupervised", tmp_path, tmp_path)
    assert learned_markdown(RECORDS[:1]) in (tmp_path / "unsupervised/learned.md").read_text(encoding="utf-8")


def test_markdown_matches_a_hand_computation():
    lines = learned_markdown(RECORDS).splitlines()
    # MUTAG: node_drop makes 0.75 of first and of second views, and 0.625 + 0.125 are the same twice.
    assert f"| MUTAG | {NAMES['joao']} | 0.75 | 0.25 | 0.75 |" in lines
    # NCI1: 0.75 of first views, 0.25 of second views; never the same twice.
    assert f"| NCI1 | {NAMES['joao']} | 0.50 | 0.50 | 0.00 |" in lines
    pairs = lines[lines.index(f"## MUTAG, {NAMES['joao']}") :]
    assert pairs[2:6] == [
        "| first \\ second | node_drop | identity |",
        "| --- | --- | --- |",
        "| **node_drop** | 0.625 | 0.125 |",
        "| **identity** | 0.125 | 0.125 |",
    ]


def test_strengths_next_to_a_pool_without_strengths():
    members = ["node_drop(strength=0.1)", "node_drop(strength=0.3)", "identity"]
    drawn = [[1, 0, 1], [0, 4, 0], [0, 2, 0]]
    of_strengths = record(0, drawn, method="joao_strengths")
    of_strengths["policy"]["augmentations"] = members
    lines = learned_markdown([RECORDS[0], of_strengths]).splitlines()
    # Of 8 draws: node_drop twice in 5, and 0.1 makes 2 first views and 1 second view of all 16.
    assert f"| MUTAG | {NAMES['joao_strengths']} | 0.81 | 0.19 | 0.62 |" in lines
    at = lines.index(f"| MUTAG | {NAMES['joao_strengths']} | node_drop |  | 0.188 | 0.625 |")
    assert_mentions(lines[at - 2], "0.1 |", "0.3 |")
    assert lines[at : at + 2] == [
        f"| MUTAG | {NAMES['joao_strengths']} | node_drop |  | 0.188 | 0.625 |",
        f"| MUTAG | {NAMES['joao_strengths']} | identity | 0.188 |  |  |",
    ]
    assert "| **node_drop** | 0.625 | 0.125 |" in lines
    assert "0.188" not in learned_markdown(RECORDS)
