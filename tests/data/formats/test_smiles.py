"""Oracle: the small tables here, read by eye, and what the data's own page says of the real ones."""

import csv
import gzip
import lzma
import os
import subprocess
import sys
import tracemalloc
from datetime import date
from pathlib import Path

import numpy as np
import pytest

import joao
from joao.core.errors import UserError
from joao.data.formats.smiles import Columns, MoleculeTable, iterate_molecule_table, read_molecule_table
from tests.data.refusals import assert_told, refused

ROOT = os.environ.get("JOAO_DATA")
needs_data = pytest.mark.skipif(ROOT is None, reason="JOAO_DATA is not set")

TABLE = """name,split,SMILES,toxic,logP,notes
ethanol,train,CCO,0,-0.31,
benzene,train, c1ccccc1 ,,2.13,"a ring, flat"
,test,[Na+].[Cl-],1,NA,
"""


@pytest.fixture
def write(tmp_path):
    def to(text, name="tox.csv"):
        content = text if isinstance(text, bytes) else text.encode()
        if name.endswith(".gz"):
            content = gzip.compress(content)
        elif name.endswith(".xz"):
            content = lzma.compress(content)
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return to


def cells(table):
    """Labels as lists, None where nothing was measured."""
    return [[None if np.isnan(cell) else round(float(cell), 4) for cell in row] for row in table.labels]


@pytest.mark.parametrize("name", ["tox.csv", "tox.csv.gz", "tox.csv.xz"])
def test_table_with_all_kinds_of_columns(write, name):
    table = read_molecule_table(write(TABLE, name))
    assert (table.name, len(table.smiles)) == ("tox", 3)
    assert table.smiles == ("CCO", "c1ccccc1", "[Na+].[Cl-]")
    assert table.identifiers == ("ethanol", "benzene", "line 4")  # whose cell is empty
    assert table.tasks == ("toxic", "logP")
    assert table.labels.dtype == np.float32
    assert cells(table) == [[0, -0.31], [None, 2.13], [1, None]]
    assert table.ignored == ("split", "notes")


@pytest.mark.parametrize("header", ["smiles", "SMILES", "Canonical_Smiles", "mol", "\ufeffsmiles", " smiles "])
def test_smiles_column_is_found_by_any_known_name(write, header):
    table = read_molecule_table(write(f"{header}\r\nCCO\r\n\r\nCCO\r\n"))
    assert (table.smiles, table.identifiers, table.tasks, table.ignored) == (("CCO", "CCO"), (), (), ())
    assert table.labels.shape == (2, 0)


def test_known_names_have_a_fixed_priority(write):
    table = read_molecule_table(write("mol,smiles,cid,id,x\nO,C,7,8,1\n"))
    assert (table.smiles, table.identifiers, table.tasks, table.ignored) == (("C",), ("8",), ("x",), ("mol", "cid"))


def test_columns_can_be_given(write):
    path = write("num,drug,key,a,b,text\n1,CCO,k1,1,,x\n2,O,k2,0,5,2\n")
    table = read_molecule_table(path, Columns(smiles="drug", identifiers="key", tasks=("b", "a")))
    assert (table.smiles, table.identifiers, table.tasks) == (("CCO", "O"), ("k1", "k2"), ("b", "a"))
    assert cells(table) == [[None, 1], [5, 0]]
    assert table.ignored == ("num", "text")
    assert read_molecule_table(path, Columns(smiles="drug", tasks=())).tasks == ()


def test_empty_task_is_kept_only_if_named(write):
    path = write("smiles,a,b\nC,,1\nO,,0\n")
    assert (read_molecule_table(path).tasks, read_molecule_table(path).ignored) == (("b",), ("a",))
    assert cells(read_molecule_table(path, Columns(tasks=("a", "b")))) == [[None, 1], [None, 0]]


def test_pandas_index_column_is_not_a_task(write):
    table = read_molecule_table(write(",smiles,y\n0,C,1\n1,O,0\n"))
    assert (table.tasks, table.ignored) == (("y",), ("column 1",))


@pytest.mark.parametrize("word", ["", " ", "NaN", "na", "N/A", "None", "null", "?"])
def test_all_spellings_of_missing_values(write, word):
    assert cells(read_molecule_table(write(f"smiles,y,z\nC,{word},1\nO,1.5e0,{word}\n"))) == [[None, 1], [1.5, None]]


def test_true_and_false_are_one_and_zero(write):
    table = read_molecule_table(write("smiles,y,z,text\nC,True,1,yes\nO,,0.5,true\nN,FALSE,false,no\n"))
    assert (table.tasks, table.ignored) == (("y", "z"), ("text",))
    assert cells(table) == [[1, 1], [None, 0.5], [0, 0]]
    assert cells(read_molecule_table(write("smiles,y\nC,true\n"), Columns(tasks=("y",)))) == [[1]]


@pytest.mark.parametrize("values", [[">10", "5.1"], ["5.1", ">10"]])
def test_the_cell_that_is_not_a_number_is_named_wherever_it_is(write, values):
    table = read_molecule_table(write(f"smiles,y,text\nC,{values[0]},a\nO,{values[1]},b\n"))
    assert (table.tasks, table.ignored) == ((), ("y", "text"))
    assert table.rejected.keys() == {"y"}
    assert_told(table.rejected["y"], f"line {2 + values.index('>10')}", "'>10'")


@pytest.mark.parametrize("group", [5_000, 100_000])
def test_memory_of_parquet_does_not_grow_with_its_rows(tmp_path, group):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = 100_000
    columns = {"smiles": ["C"] * rows, "id": [os.urandom(20).hex() for _ in range(rows)]}
    parquet.write_table(arrow.table(columns), tmp_path / "m.parquet", row_group_size=group)
    tracemalloc.start()
    read = sum(len(table.smiles) for table in iterate_molecule_table(tmp_path / "m.parquet", 1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == rows
    assert peak < (tmp_path / "m.parquet").stat().st_size / 2


def test_parquet_columns_of_odd_types(tmp_path):
    """Oracle: the values in Python."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    codes = arrow.array([b"\xff\x00", None])
    columns = {"active": [True, None], "bits": codes, "codes": codes.dictionary_encode(), "deep": [[1], [2]]}
    columns |= {"half": arrow.array(np.array([1.5, 2], dtype=np.float16)), "day": [date(2026, 1, 1)] * 2}
    parquet.write_table(arrow.table({"smiles": [b"CCO", b"\xff"], **columns}), tmp_path / "odd.parquet")
    table = read_molecule_table(tmp_path / "odd.parquet")
    assert table.smiles == ("CCO", "\ufffd")
    assert (table.tasks, table.ignored) == (("active", "half"), ("bits", "codes", "day"))
    assert cells(table) == [[1, 1.5], [None, 2]]
    parquet.write_table(arrow.table({"SMILES": [["C"]], "active": [1]}), tmp_path / "deep.parquet")
    for given in (None, "SMILES"):
        with refused("deep.parquet", "SMILES", "text"):
            read_molecule_table(tmp_path / "deep.parquet", Columns(smiles=given))
    parquet.write_table(arrow.table({"SMILES": [["C"]], "drug": ["CC"]}), tmp_path / "other.parquet")
    assert read_molecule_table(tmp_path / "other.parquet", Columns(smiles="drug")).smiles == ("CC",)


def test_task_column_that_starts_with_missing_values(write):
    rows = "".join(f"C,{'' if row < 3000 else row}\n" for row in range(3002))
    table = read_molecule_table(write(f"smiles,y\n{rows}"))
    assert np.isnan(table.labels[:3000]).all()
    assert table.labels[3000:, 0].tolist() == [3000, 3001]


def test_empty_smiles_keeps_its_row(write):
    assert read_molecule_table(write("smiles,y\n,1\nC,0\n")).smiles == ("", "C")


def test_random_labels_match_a_plain_loop(write):
    random = np.random.default_rng(0)
    text = [[random.choice(["", "0", "1", "0.0", "1.0", "-2.5e-3", "nan"]) for _ in range(7)] for _ in range(2500)]
    text[0] = ["0"] * 7
    body = "".join(f"C,{','.join(row)}\n" for row in text)
    table = read_molecule_table(write(f"smiles,{','.join('abcdefg')}\n{body}"))
    expected = [[float(cell) if cell else np.nan for cell in row] for row in text]
    np.testing.assert_array_equal(table.labels, np.array(expected, dtype=np.float32))


@pytest.mark.parametrize("name", ["zinc.smi", "zinc.smi.gz", "zinc.smi.xz"])
@pytest.mark.parametrize(
    ("text", "identifiers"),
    [
        ("CCO\nc1ccccc1\n", ()),
        ("smiles\nCCO\nc1ccccc1\n", ()),
        ("CCO ethyl alcohol\n\nc1ccccc1\tbenzene\n", ("ethyl alcohol", "benzene")),
        ("CCO\nc1ccccc1 benzene\n", ("line 1", "benzene")),
        ("SMILES zinc_id\nCCO Z1\nc1ccccc1 Z2\n", ("Z1", "Z2")),
        ("smiles\tname\nCCO\tethyl alcohol\nc1ccccc1\t\n", ("ethyl alcohol", "line 3")),
        ("smiles name\nCCO ethyl alcohol\nc1ccccc1 b\n", ("ethyl alcohol", "b")),
    ],
)
def test_smi_files(write, name, text, identifiers):
    table = read_molecule_table(write(text, name))
    assert (table.name, table.smiles, table.identifiers) == ("zinc", ("CCO", "c1ccccc1"), identifiers)
    assert (table.tasks, table.ignored) == ((), ())


def test_smi_file_with_a_header_has_tasks(write):
    table = read_molecule_table(write("id\tsmiles\ty\nA\tCCO\t1\nB\tC\t\n", "some.smi"))
    assert (table.smiles, table.identifiers, cells(table)) == (("CCO", "C"), ("A", "B"), [[1], [None]])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", ()),
        ("\n\n", ()),
        ("smiles,y\n", ()),
        ("CCO,1\nC,0\n", (1, "CCO, 1", "'smiles'", ".smi")),
        ("smiles,y,y\nC,1,1\n", (1, "'y'")),
        ('smiles,y,z\nC,1,2\n"O\nN",1\n', (4, 2, 3)),
        ("smiles,y\nC,1\n\nO,1,2\n", (4, 3, 2)),
        ('smiles,y\nC,"1"x\n', (2, "','")),
        (b"smiles,y\nC,\xff\n", (2, "UTF-8", "0xff")),
    ],
)
def test_errors_name_the_line(write, text, values):
    with refused("tox.csv", *values):
        read_molecule_table(write(text))


def test_short_rows_are_filled_up_and_empty_cells_beyond_the_header_dropped(write):
    path = write("smiles,y,id,note\r\nC,1,a,x\r\nO,2\r\nN,3,c,,,\r\nF,4,d\r\n")
    table = read_molecule_table(path)
    assert (table.smiles, table.identifiers, cells(table)) == (
        ("C", "O", "N", "F"),
        ("a", "line 3", "c", "d"),
        [[1], [2], [3], [4]],
    )
    assert table.short_lines == (3, 5)
    notices = joao.read(path).notices
    assert_told(notices[0], "2 rows", "line 3")
    assert [piece.short_lines for piece in iterate_molecule_table(path, 2)] == [(3,), (5,)]
    assert not any("filled" in notice for notice in joao.read(write("smiles,y\nC,1,\n")).notices)


def test_decimal_commas_are_named(write):
    table = read_molecule_table(write("smiles;y;z\nC;;1\nO;-2,5;2\n"))
    assert table.tasks == ("z",)
    assert_told(table.rejected["y"], "line 3", "-2,5", "point")


@pytest.mark.parametrize("num_before", [1, 3000])
@pytest.mark.parametrize("cell", ["active", ">10", "inf", "-inf", "1e39", "1_0"])
def test_column_with_text_is_a_task_only_if_named(write, cell, num_before):
    path = write('smiles,"z\ny",x\n' + "C,1,2\n" * num_before + f"O,,\nN,{cell},\nN,0,5\n")
    table = read_molecule_table(path)
    line = num_before + 4  # the header takes two
    assert (table.tasks, table.ignored) == (("x",), ("z y",))
    assert [*table.rejected] == ["z y"]
    assert_told(table.rejected["z y"], line, f"'{cell}'")
    assert len(table.smiles) == len(table.labels) == num_before + 3
    assert cells(table)[-3:] == [[None], [None], [5]]
    assert read_molecule_table(path, Columns(tasks=["x"])).rejected == {}
    with refused("tox.csv", line, "'z y'", f"'{cell}'"):
        read_molecule_table(path, Columns(tasks=["x", "z y"]))


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"smiles": "smile"}, (1, "'smile'", "'smiles'")),
        ({"identifiers": "key"}, (1, "'key'", "smiles, x, text")),
        ({"tasks": ("x", "z")}, (1, "'z'", "smiles, x, text")),
        ({"tasks": ("text",)}, (2, "'text'", "'a'")),
        ({"tasks": ("x", "x")}, (1, "tasks")),
        ({"tasks": ("smiles",)}, (1, "tasks", "SMILES")),
        ({"identifiers": "smiles"}, (1, "'smiles'", "identifiers")),
    ],
)
def test_unknown_columns_are_rejected(write, options, values):
    with refused("tox.csv", *values):
        read_molecule_table(write("smiles,x,text\nC,1,a\n"), Columns(**options))


def test_other_files_are_rejected(write, tmp_path):
    with refused("tox.mol2", ".csv, .csv.gz", ".smi"):
        read_molecule_table(write("C", "tox.mol2"))
    with refused("gone.csv"):
        read_molecule_table(tmp_path / "gone.csv")
    assert read_molecule_table(write("smiles id\nC 1\nO\n", "some.smi")).identifiers == ("1", "line 3")


@pytest.mark.parametrize("name", ["tox.csv.gz", "tox.csv.xz"])
@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:-9], lambda whole: b"plain text", lambda whole: whole[:40] + b"?" * 9 + whole[49:]]
)
def test_damaged_file_is_rejected(write, name, damage):
    path = write(TABLE, name)
    path.write_bytes(damage(path.read_bytes()))
    with refused(name):
        read_molecule_table(path)


@pytest.mark.parametrize("name", ["tox.csv", "tox.csv.gz", "tox.csv.xz", "tox.smi"])
def test_damaged_bytes_raise_only_user_errors(write, name):
    random = np.random.default_rng(0)
    path = write(TABLE if "csv" in name else TABLE.replace(",", "\t"), name)
    whole = path.read_bytes()
    refusals = []
    for _ in range(200):
        content = bytearray(whole[: random.integers(len(whole) // 2, len(whole) + 1)])
        for position in random.integers(len(content), size=random.integers(1, 5)):
            content[position] = random.choice([random.integers(256), *b'0,\n"-.\t '])
        path.write_bytes(content)
        try:
            assert isinstance(read_molecule_table(path), MoleculeTable)
        except UserError as error:
            refusals.append(str(error))
    assert len(refusals) > 20
    assert [refusal for refusal in refusals if "\n" in refusal] == []


# molecules, tasks, and positive, negative and missing labels
MOLECULENET = {
    "bace": (1513, 1, (691, 822, 0)),
    "bbbp": (2039, 1, (1560, 479, 0)),
    "clintox": (1478, 2, (1496, 1460, 0)),
    "hiv": (41127, 1, (1443, 39684, 0)),
    "muv": (93087, 17, (489, 249397, 1332593)),
    "sider": (1427, 27, (21868, 16661, 0)),
    "tox21": (7831, 12, (5862, 72084, 16026)),
    "toxcast": (8576, 617, (126651, 1407009, 3757732)),
}


LARGE = ("muv", "toxcast")


@needs_data
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in MOLECULENET]
)
def test_moleculenet_tables_have_the_published_counts(name):
    num, tasks, counts = MOLECULENET[name]
    path = Path(ROOT) / "molecules" / f"{name}.csv.gz"
    table = read_molecule_table(path)
    assert (len(table.smiles), len(table.tasks), table.identifiers, table.ignored) == (num, tasks, (), ())
    assert ((table.labels == 1).sum(), (table.labels == 0).sum(), np.isnan(table.labels).sum()) == counts
    with gzip.open(path, "rt", newline="") as stream:
        assert table.smiles == tuple(row[0] for row in csv.reader(stream))[1:]


@needs_data
@pytest.mark.slow
def test_two_million_rows_need_little_memory():
    program = (
        "import sys; from pathlib import Path; from joao.data.formats.smiles import read_molecule_table;"
        "table = read_molecule_table(Path(sys.argv[1]));"
        "peak = Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0];"
        "sys.stdout.write(f'{len(table.smiles)} {table.ignored} {peak}')"
    )
    path = Path(ROOT) / "molecules" / "zinc_moses.csv.xz"
    answer = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    *found, peak = answer.stdout.split()
    assert found == ["1936962", "('SPLIT',)"]
    assert int(peak) * 1024 < 4.5e8
