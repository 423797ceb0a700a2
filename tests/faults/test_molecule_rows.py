"""Rows of a table of molecules: whatever is in one, the others are read, and soon."""

from __future__ import annotations

import pytest

import joao
from tests.faults.harness import assert_refused_or_read, call, run

pytest.importorskip("rdkit")

# Atoms that no periodic table has, in the several ways to write them.
UNKNOWN_ATOMS = ["[#119]", "[#200]", "C[#119]C", "[#119H4]", "[2#119]", "[#119+]", "[Xx]", "[#0]", "[#999999999999]"]


@pytest.mark.parametrize("bad", UNKNOWN_ATOMS)
def test_one_bad_row_does_not_end_the_table(bad, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(f"smiles,y\nCCO,1\n{bad},0\nc1ccccc1,1\n")

    def read():
        dataset = joao.read(path)
        assert {0, 2} <= {*(range(3) if dataset.row_of_graph is None else dataset.row_of_graph.tolist())}
        assert all(failure.row == 1 and failure.line == 3 and failure.reason for failure in dataset.failures)
        assert len(dataset) + len(dataset.failures) == 3

    ended = call(read)
    assert ended.code == 0, ended.err
    assert run("data", path).code == 0


def test_one_bad_row_does_not_end_a_list(tmp_path):
    ended = call(lambda: joao.JOAO(epochs=1, device="cpu").fit(["CCO", "[#119]", "c1ccccc1", "CCN"]))
    assert_refused_or_read(ended)
    assert ended.code == 0, ended.err


# Molecules that RDKit needs minutes for: 42,000 aromatic atoms in many rings, or in one.
SLOW = {
    "rings": "c1ccccc1" * 7_000,
    "one ring": "c1" + "c" * 41_998 + "1",
    "chain of rings": "c1ccc2ccccc2c1" + "-c1ccccc1" * 6_900,
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_large_aromatic_molecule_is_read_or_refused_soon(kind, tmp_path):
    path = tmp_path / "large.csv"
    path.write_text(f"smiles\nCCO\n{SLOW[kind]}\nc1ccccc1\n")
    ended = run("data", path)
    assert ended.code == 0, (ended.code, ended.seconds, ended.err[-500:])
