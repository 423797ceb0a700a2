"""Oracle: the SMILES here, read by eye, and RDKit's own count of atoms."""

import subprocess
import sys

import numpy as np
import pytest

import joao
from joao.data import read
from joao.data.formats.smiles import read_molecule_table
from joao.data.molecules import make_molecules
from tests.data.refusals import assert_told, refused

SMILES = ["CCO", "C1CC", "c1ccccc1", None, "[Na+].[Cl-]", float("nan"), "C"]


@pytest.fixture(autouse=True)
def rdkit():
    return pytest.importorskip("rdkit")


def test_smiles_in_memory():
    dataset = read(SMILES)
    assert dataset.kind == "molecules"
    assert dataset.smiles == ("CCO", "c1ccccc1", "[Na+].[Cl-]", "C")
    assert np.diff(dataset.first_node).tolist() == [3, 6, 2, 1]
    assert dataset.node_labels[:3].tolist() == [[5, 0], [5, 0], [7, 0]]
    assert dataset.row_of_graph.tolist() == [0, 2, 4, 6]
    assert [(each.row, each.text) for each in dataset.failures] == [(1, "C1CC"), (3, ""), (5, "")]
    assert {dataset.source.dtype, dataset.target.dtype, dataset.node_labels.dtype, dataset.edge_attr.dtype} == {
        np.dtype(np.uint8)
    }
    assert dataset.featuriser.startswith("codes 1, RDKit ")


def test_arrays_and_series_of_text():
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(SMILES, index=[9, 3, 5, 1, 0, 2, 4])
    for given in (np.array(SMILES, dtype=object), series, tuple(SMILES)):
        assert read(given).fingerprint == read(SMILES).fingerprint
    assert read(np.array(["CCO", "C"])).num_nodes == 4


def test_values_of_graphs_follow_the_rows_of_the_source():
    dataset = read(SMILES)
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    nan = np.nan
    expected = [[0, 1], [nan, nan], [2, 3], [nan, nan], [4, 5], [nan, nan], [6, 7]]
    np.testing.assert_array_equal(dataset.in_rows(values), expected)
    assert read(["C", "CC", "C", "O"]).in_rows(values) is values
    part = dataset[[2, 0]]
    assert (part.smiles, part.failures) == (("[Na+].[Cl-]", "CCO"), ())
    np.testing.assert_array_equal(part.in_rows(values[:2]), values[:2])
    named = make_molecules("named", ["C", "x", "CC"], ["a", "b", "c"])
    assert (named.graph_names, named.row_names) == (("a", "c"), ("a", "b", "c"))


def test_repeated_molecules_are_kept():
    assert read(["C"] * 5).smiles == ("C",) * 5


def test_invalid_smiles_give_no_graphs_and_cannot_be_trained_on():
    assert len(read(["MUTAG"])) == 0
    with refused(1, 0, "'MUTAG'", "SMILES"):
        joao.JOAO().fit(["MUTAG"])
    with refused("graphs[0]", "'C'", "SMILES"):
        read(["C", 3])


def test_number_of_processes_does_not_change_the_result(tmp_path, monkeypatch):
    monkeypatch.setattr("joao.data.molecules._MIN_MOLECULES_PER_PROCESS", 600)
    path = tmp_path / "a.smi"
    path.write_text("".join(f"{'C' * (1 + number % 40)} n{number}\n" for number in range(1300)))
    told = []
    one, two = read(path), read(path, jobs=2, on_rows=lambda done, total: told.append((done, total)))
    assert (one.fingerprint, one.graph_names) == (two.fingerprint, two.graph_names)
    assert told == [(512, 1300), (512, 1300), (276, 1300)]


def test_column_options_require_a_table(tmp_path):
    for source in ("MUTAG", read("MUTAG"), ["C"]):
        with refused():
            read(source, smiles="x")
    with refused("MUTAG", ".csv", ".smi"):
        read("MUTAG", smiles="x")
    with refused("tasks", "['a']"):
        read("MUTAG", tasks="a")


def test_edge_list_is_distinguished_from_a_table_of_molecules(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("graph,source,target,smiles\n1,2,3,4\n")
    assert read(path).kind == "graphs"
    path.write_text("graph,source,target,smiles\n1,2,3,C\n")
    assert read(path, smiles="smiles").kind == "molecules"


def test_missing_rdkit_names_the_package_to_install(tmp_path):
    (tmp_path / "a.smi").write_text("C\n")
    program = f"import sys; sys.modules['rdkit'] = None; import joao; joao.read({str(tmp_path / 'a.smi')!r})"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert_told(told.stderr.splitlines()[-1], "UserError: ", "pip install rdkit")


def test_text_after_a_smiles_gives_a_notice_but_an_extension_does_not():
    dataset = read(["CCO ethanol", "c1ccccc1", "CC\tethane, too", "C |^1:0|", "no molecule"])
    assert np.diff(dataset.first_node).tolist() == [3, 6, 2, 1]
    [notice] = dataset.notices
    assert_told(notice, "SMILES", 2, 4, "'CCO ethanol'")
    assert read(["CCO", " CC "]).notices == ()


def test_text_after_a_smiles_in_a_table_is_part_of_its_notices(tmp_path):
    (tmp_path / "m.csv").write_text("id,smiles,y\na,CCO ethanol,1\n,CC,x\n")
    dataset = read(tmp_path / "m.csv")
    about_column, about_text = dataset.notices
    assert_told(about_column, "'y'", "'x'", 3)
    assert_told(about_text, "SMILES", 1, 2, "'CCO ethanol'")
    assert dataset.graph_names == ("a", "line 3")


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_separators_and_spaced_column_names(tmp_path, separator):
    rows = [["Compound ID", "SMILES", "pIC50, nM"], ["A-1", "CCO", "6.5"], ["A-2", "c1ccccc1", ""]]
    lines = [separator.join(f'"{cell}"' if separator in cell else cell for cell in row) for row in rows]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    table = read_molecule_table(tmp_path / "table.csv")
    assert table.identifiers == ("A-1", "A-2")
    assert table.tasks == ("pIC50, nM",)
    assert table.labels[:, 0].tolist() == pytest.approx([6.5, np.nan], nan_ok=True)
