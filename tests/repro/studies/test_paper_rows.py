"""The order of the tasks, what is skipped, and the records."""

import copy

import pytest

from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.unsupervised import run as unsupervised
from repro.studies import paper_rows

NAMES = ("COLLAB", "NCI1")


@pytest.fixture
def short(monkeypatch, tmp_path, one_c):
    """Two seeds, one epoch, narrow encoders, and no records of the repository."""
    monkeypatch.setattr(paper_rows, "RECORDS", tmp_path / "repository")
    for module in (semi_supervised, unsupervised):
        table = copy.deepcopy(module.grid())
        table["seeds"] = [0, 1]
        table["recipe"]["training"]["epochs"] = 1
        table["recipe"]["encoder"] |= {"width": 4, "layers": 1}
        if module is semi_supervised:
            table["finetuning"]["epochs"] = 2
            table["tables"]["semi_supervised"]["columns"] = {"50": list(NAMES)}
        monkeypatch.setattr(module, "grid", lambda table=table: table)


def test_unordered_pairs_of_both_sets_come_before_reversed_ones():
    tasks = paper_rows.pair_tasks(paper_rows.SLOW_FIRST)
    assert len(set(tasks)) == 50
    assert {task.seed for task in tasks} == {0}
    unordered = [frozenset(semi_supervised.PAIRS[task.method]) for task in tasks[:30]]
    assert [task.dataset for task in tasks[:30]] == ["COLLAB", "REDDIT-BINARY"] * 15
    assert unordered[::2] == unordered[1::2]
    assert len(set(unordered)) == 15


def test_all_columns_of_the_paper_are_computed():
    augmentations = paper_rows.augmentation_tasks(paper_rows.SLOW_FIRST)
    assert {(cell.dataset, cell.label_rate) for work in augmentations for cell in work.cells()} == {
        *(("NCI1", 1), ("COLLAB", 1)),
        *((name, 10) for name in ("NCI1", "PROTEINS", "DD", "COLLAB", "REDDIT-BINARY", "REDDIT-MULTI-5K")),
    }
    assert len(augmentations) == 6 * 5
    mvgrl = paper_rows.mvgrl_tasks(paper_rows.SLOW_FIRST)
    assert {(cell.dataset, cell.seed) for cell in mvgrl} == {
        (name, seed) for name in unsupervised.grid()["datasets"] for seed in range(5)
    }


def test_second_run_computes_only_missing_cells(short, made_data, tmp_path, capsys):
    root, out = made_data(*NAMES, num_graphs=30), tmp_path / "out"
    arguments = [str(out), "--data-root", str(root), "--data", ",".join(NAMES), "--device", "cpu"]
    paper_rows.main([*arguments, "--parts", "augmentations,mvgrl"])
    made = semi_supervised.record_file(out).read()
    pools = {"COLLAB": ["node_drop", "subgraph", "edge_perturb", "attribute_mask"], "NCI1": ["node_drop", "subgraph"]}
    assert len(made) == len(unsupervised.record_file(out).read()) == 4
    for record in made:
        assert record["cell"]["method"] == "augmentations"
        assert record["finetuning"]["augmented"] == pools[record["cell"]["dataset"]]
    for record in unsupervised.record_file(out).read():
        assert "MultiViewNtXent" in record["custom"]["objective"]
    capsys.readouterr()
    paper_rows.main([*arguments, "--parts", "augmentations,mvgrl"])
    assert capsys.readouterr().out.startswith("0 of 8 ")
    assert semi_supervised.record_file(out).read() == made
