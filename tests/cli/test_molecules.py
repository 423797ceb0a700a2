"""Tables of molecules on the command line, with rows that RDKit cannot parse. Expected values are written by hand."""

import csv
import gzip
import json
import lzma

import numpy as np
import pytest

from tests.cli.conftest import assert_noted, assert_refused, last_command
from tests.messages import assert_mentions

pytest.importorskip("rdkit")

from joao.data import read
from joao.runs.trained import load_run

TABLE = """smiles,name,toxic,logP,class
CCO,ethanol,0,-0.31,alcohol
[Na+].[Cl-],salt,1,,salt
C,methane,0,1.1,alkane
C1CC,open ring,0,1,none
F/C=C/F,trans,,0.7,alkene

N[C@@H](C)C(=O)O,"L-alanine, pure",0,-2.8,acid
[Pt+2],platinum,1,,metal
CCO,ethanol again,0,-0.3,alcohol
,nothing,1,2,
C(C)(C)(C)(C)(C)C,too many bonds,1,2,none
c1ccccc1,benzene,1,2.1,ring
"""
# Line numbers in the file of rows that RDKit cannot parse.
FAILURES = [("5", "open ring", "C1CC"), ("11", "nothing", ""), ("12", "too many bonds", "C(C)(C)(C)(C)(C)C")]
NAMES = ["ethanol", "salt", "methane", "open ring", "trans", "L-alanine, pure", "platinum", "ethanol again", "nothing"]
NAMES += ["too many bonds", "benzene"]
BLANK = [3, 8, 9]
QUICK = ("--epochs", 1, "--set", "encoder.width=16", "--set", "encoder.layers=2", "--device", "cpu")


@pytest.fixture
def table(tmp_path):
    (tmp_path / "tox.csv").write_text(TABLE)
    return "tox.csv"


@pytest.fixture(scope="module")
def run(tmp_path_factory, joao):
    """A run on the table."""
    folder = tmp_path_factory.mktemp("molecules")
    (folder / "tox.csv").write_text(TABLE)
    outcome = joao("pretrain", folder / "tox.csv", "--out", folder / "run", *QUICK)
    assert outcome.code == 0, outcome.err
    return folder / "run", outcome


def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_pretraining_lists_failures_and_uses_the_molecule_recipe(run):
    folder, outcome = run
    notes = outcome.err.splitlines()
    assert len(notes) == 2
    assert_mentions(notes[0], "joao: note: tox: ", "class")
    assert_mentions(notes[1], "joao: note: tox: ", "3 of 11", f"{folder}/failures.csv", "line 5", "'C1CC'")
    assert_mentions(outcome.out.splitlines()[0], "tox", " 8 ")
    header, *failures = rows(folder / "failures.csv")
    assert header == ["line", "name", "smiles", "reason"]
    assert [tuple(line[:3]) for line in failures] == FAILURES
    assert all(line[3] for line in failures)
    assert "C" in failures[2][3]  # the atom with too many bonds
    recipe = load_run(folder, device="cpu").recipe
    assert (recipe.features, recipe.encoder.name) == ("atoms", "molecule_gin")
    assert recipe.objective.options["temperature"] == 0.1
    assert (recipe.training.batch_size, recipe.training.learning_rate) == (256, 0.001)
    assert "joao finetune" in outcome.out.splitlines()[-2]


def test_embeddings_have_blank_rows_for_failures(joao, run, table, tmp_path):
    outcome = joao("embed", run[0], table, "--out", "e.csv")
    assert outcome.code == 0
    assert_mentions(outcome.err, "tox: ", "3 of 11", "e.csv.failures.csv")
    assert_mentions(outcome.out.splitlines()[0], "e.csv: ", "8", "16", "3")
    lines = rows("e.csv")[1:]
    assert [line[0] for line in lines] == NAMES
    blank = [number for number, line in enumerate(lines) if line[1:] == [""] * 16]
    assert blank == BLANK
    assert all("" not in line[1:] for number, line in enumerate(lines) if number not in BLANK)
    assert lines[0][1:] == lines[7][1:]  # ethanol twice
    assert [tuple(line[:3]) for line in rows("e.csv.failures.csv")[1:]] == FAILURES
    expected = load_run(run[0], device="cpu").embed(read(table)).numpy()
    found = np.array([line[1:] for number, line in enumerate(lines) if number not in BLANK], dtype=np.float64)
    np.testing.assert_array_equal(found.astype(np.float32), expected)


def test_embeddings_as_npz(joao, run, table):
    told = json.loads(joao("embed", run[0], table, "--out", "e.npz", "--json").out)
    assert told == {"file": "e.npz", "graphs": 8, "dimensions": 16, "blank": 3, "failures": "e.npz.failures.csv"}
    with np.load("e.npz", allow_pickle=False) as file:
        assert np.flatnonzero(np.isnan(file["embeddings"]).all(axis=1)).tolist() == BLANK
        assert file["graph_names"].tolist() == NAMES
        assert file["row"].tolist() == [number for number in range(11) if number not in BLANK]
        assert np.isfinite(file["embeddings"][file["row"]]).all()


def test_without_failures_there_is_no_failures_file(joao, run, tmp_path):
    (tmp_path / "a.smi").write_text("CCO\nC\n")
    outcome = joao("embed", run[0], "a.smi", "--out", "e.csv")
    assert (outcome.code, outcome.err) == (0, "")
    assert [line[0] for line in rows("e.csv")[1:]] == ["0", "1"]
    assert not (tmp_path / "e.csv.failures.csv").exists()


def test_named_columns_are_recorded(joao, tmp_path):
    text = "drug,number,key,label\nCCO,1,a,0\nCCN,2,b,1\nC,3,c,1.5\n"
    (tmp_path / "odd.csv").write_text(text)
    told = joao("pretrain", "odd.csv", "--out", "run", *QUICK)
    assert_refused(told, "joao: odd.csv:1: ", "'smiles'", "--smiles")
    outcome = joao("pretrain", "odd.csv", "--smiles", "drug", "--id", "key", "--out", "run", *QUICK)
    assert outcome.code == 0, outcome.err
    recipe = load_run(tmp_path / "run", device="cpu").recipe
    assert recipe.columns == {"smiles": "drug", "identifiers": "key"}
    assert joao("embed", "run", "odd.csv", "--smiles", "drug", "--id", "key", "--out", "e.csv").code == 0
    assert [line[0] for line in rows("e.csv")[1:]] == ["a", "b", "c"]
    facts = json.loads(joao("data", "odd.csv", "--smiles", "drug", "--task", "label", "--json").out)
    assert facts["tasks"] == {"label": {"mean": 0.833333, "least": 0, "most": 1.5, "missing": 0}}


def test_recipes_are_checked_before_the_data(joao):
    told = joao("pretrain", "absent.csv", "--out", "run", "--set", "encoder.widht=3")
    assert_refused(told, "joao: recipe: encoder: gin: ", "'widht'")
    told = joao("pretrain", "absent.csv", "--out", "run", "--set", "encoder.dropout=0.5")  # which molecules' has
    assert_refused(told, "joao: absent.csv: ")


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfsmiles,name\r\nCCO,a\r\n\r\nC,b\r\n",
        b'"smiles","name"\n"CCO","a"\n"C","b"\n',
        b"SMILES , Name\n CCO , a\nC,b",
        b"name,Canonical_SMILES\na,CCO\nb,C\n",
    ],
    ids=["BOM and Windows", "quotes", "spaces", "other names"],
)
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.xz"])
def test_encodings_and_compressions_of_a_table(joao, run, tmp_path, content, suffix):
    pack = {"csv": bytes, "csv.gz": gzip.compress, "csv.xz": lzma.compress}[suffix]
    (tmp_path / f"a.{suffix}").write_bytes(pack(content))
    (tmp_path / "plain.smi").write_text("CCO a\nC b\n")
    for name in (f"a.{suffix}", "plain.smi"):
        outcome = joao("embed", run[0], name, "--out", f"{name}.csv")
        assert (outcome.code, outcome.err) == (0, "")
    assert rows(f"a.{suffix}.csv") == rows("plain.smi.csv")


@pytest.mark.parametrize(
    ("name", "content", "values"),
    [
        ("a.csv", b"id,formula\n1,H2O\n", ["a.csv:1: ", "'smiles'"]),
        ("a.csv", b"smiles\n", ["a.csv: "]),
        ("a.csv", b"smiles,x\nxx,1\nyy,2\n", ["a.csv:2: ", "'xx'", "SMILES", "2"]),
        ("a.csv.xz", lzma.compress(b"smiles\n" + b"CCO\n" * 500)[:-12], ["a.csv.xz: "]),
        ("a.csv.gz", gzip.compress(b"smiles\n" + b"CCO\n" * 500, mtime=0)[:-12], ["a.csv.gz: "]),
        ("a.smi.gz", b"CCO\n", ["a.smi.gz: ", "gzipped"]),
        ("a.csv", b"smiles\n\xff\n", ["a.csv:2: ", "UTF-8", "0xff"]),
        ("a.csv", b"smiles,x\nC,1,5\n", ["a.csv:2: ", "3", "2"]),
    ],
)
@pytest.mark.parametrize("command", ["data", "pretrain"])
def test_unreadable_tables(joao, tmp_path, command, name, content, values):
    (tmp_path / name).write_bytes(content)
    outcome = joao(command, name, *(("--out", "run") if command == "pretrain" else ()))
    place, *others = values
    assert_refused(outcome, f"joao: {place}", *others)
    assert not (tmp_path / "run").exists()


def test_invalid_labels_are_errors_only_if_requested(joao, tmp_path):
    (tmp_path / "a.csv").write_text("smiles,x,y\nC,1,0\nCC,>10,1\nCCO,2,0\n")
    for command in (["pretrain", "a.csv", "--out", "r", *QUICK], ["embed", "r", "a.csv", "--out", "e.csv"]):
        assert_noted(joao(*command), "joao: note: a: ", "'x'", "line 3", "'>10'")
    assert len(rows("e.csv")) == 4
    assert list(json.loads(joao("data", "a.csv", "--json").out)["tasks"]) == ["y"]
    assert_refused(joao("data", "a.csv", "--task", "x"), "joao: a.csv:3: ", "'x'", "'>10'")


def test_description_of_a_table(joao, table):
    outcome = joao("data", table)
    lines = outcome.out.splitlines()
    assert lines[0].startswith("tox: 8 ")
    for values in (
        ["7", "SMILES"],
        ["atom", "3.25", "1", "6"],
        ["bond", "2.25", "0", "6"],
        ["toxic: ", "0: 4", "1: 3", "1"],
        ["logP: ", "0.0816667", "-2.8", "2.1", "2"],
    ):
        assert len([line for line in lines if all(value in line for value in values)]) == 1, values
    assert last_command(outcome) == ["pretrain", "tox.csv", "--out", "runs/tox"]
    facts = json.loads(joao("data", table, "--json").out)
    assert [(str(each["line"]), each["name"], each["text"]) for each in facts["failures"]] == FAILURES


def test_molecule_sets_by_name(joao, tmp_path, monkeypatch):
    (tmp_path / "root" / "molecules").mkdir(parents=True)
    (tmp_path / "root" / "molecules" / "small.csv.gz").write_bytes(gzip.compress(b"smiles\nCCO\nC\n"))
    (tmp_path / "root" / "molecules" / "README.md").write_text("")
    monkeypatch.setenv("JOAO_DATA", "root")
    assert json.loads(joao("data", "--json").out)["data"] == ["MUTAG", "small"]
    assert joao("data", "small").out.startswith("small: 2 molecules")


def test_several_tables_are_packed_into_one_file(joao, run, table, tmp_path):
    (tmp_path / "more.smi").write_text("CCC\nCCCC\n")
    outcome = joao("pack", table, "more.smi", "--out", "corpus.safetensors")
    assert outcome.code == 0, outcome.err
    size = (tmp_path / "corpus.safetensors").stat().st_size
    assert_mentions(outcome.out, "corpus.safetensors: ", "10", f"{size / 1e6:.1f} MB", f"{size / 10:.0f} bytes")
    assert last_command(outcome) == ["pretrain", "corpus.safetensors", "--out", "runs/corpus"]
    assert joao("pack", table, "more.smi", "--out", "bare.safetensors.xz", "--no-smiles", "--quiet").err == ""
    whole, bare = read(tmp_path / "corpus.safetensors"), read(tmp_path / "bare.safetensors.xz")
    assert whole.fingerprint == bare.fingerprint
    assert (whole.name, bare.name, len(whole.failures), bare.smiles) == ("corpus", "bare", 3, ())
    (tmp_path / table).unlink()
    assert joao("embed", run[0], "corpus.safetensors", "--out", "e.csv").code == 0
    assert [line[0] for line in rows("e.csv")[1:]] == [*NAMES, "", ""]
    assert joao("pretrain", "bare.safetensors.xz", "--out", "again", *QUICK).code == 0


def test_invalid_input_of_pack(joao, table, tmp_path):
    outcome = joao("pack", table, "MUTAG", "--out", "a.safetensors")
    assert outcome.code == 2
    assert_mentions(outcome.err.splitlines()[-1], "tox", "MUTAG", "molecules", "graphs")
    assert_refused(joao("pack", table, "--out", "a.zip"), "joao: a.zip: ", "'.zip'", ".safetensors")
    (tmp_path / "b.safetensors").write_bytes(b"not safetensors at all")
    assert_refused(joao("data", "b.safetensors"), "joao: b.safetensors: ")


def test_packed_scaffolds(joao, tmp_path):
    smiles = [f"{'C' * tail}C1{'C' * size}1" for size in range(2, 12) for tail in (1, 2)]
    lines = [f"{each},{number % 2}" for number, each in enumerate(smiles)]
    (tmp_path / "rings.csv").write_text("smiles,active\n" + "\n".join(lines) + "\n")
    outcome = joao("pack", tmp_path / "rings.csv", "--scaffolds", "--no-smiles", "--out", tmp_path / "r.safetensors")
    assert outcome.code == 0, outcome.err
    packed = read(tmp_path / "r.safetensors")
    assert packed.smiles == ()
    assert packed.groups.tolist() == [number // 2 for number in range(20)]
    outcome = joao("pack", "r.safetensors", "r.safetensors", "--out", "twice.safetensors")
    assert_noted(outcome, "joao: note: twice: ", "--scaffolds")
    assert read(tmp_path / "twice.safetensors").groups is None
    outcome = joao("pack", "MUTAG", "--scaffolds", "--out", tmp_path / "m.safetensors")
    assert_refused(outcome, "--scaffolds", "SMILES")


def test_an_interrupted_comparison_of_tasks_says_what_is_kept(joao, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("joao.comparison.table.run_table", interrupt)
    (tmp_path / "assays.csv").write_text("smiles,active\nCCO,1\nCCN,0\n")
    stopped = joao("compare", "assays.csv")
    assert stopped.code == 130
    assert_mentions(stopped.err, "Nothing", "--out")
    (tmp_path / "record.json").write_text("{}")  # as left by an earlier fit
    stopped = joao("compare", "assays.csv", "--out", "record.json")
    assert stopped.code == 130
    assert_mentions(stopped.err, "record.json")


def test_compare_predicts_the_tasks_of_a_table(joao, tmp_path):
    rings = ["c1ccccc1", "c1ccncc1", "C1CCCCC1", "C1CCNCC1", "c1ccsc1", "c1ccoc1"]
    lines = [
        f"{'C' * length}{ring},{int('n' in ring.lower())},{length},{part}"
        for ring in rings
        for length, part in ((1, "train"), (2, "train"), (3, "test"), (4, "train"))
    ]
    (tmp_path / "assays.csv").write_text("\n".join(["smiles,active,size,part", *lines]))
    options = ["--split", "part", "--epochs", 1, "--jobs", 1, "--device", "cpu"]
    outcome = joao("compare", "assays.csv", *options, "--out", "table.csv")
    assert outcome.code == 0
    assert_mentions(outcome.err, "size", "--task")
    assert_mentions(outcome.out, "24 molecules", "active", "6 molecules", "ROC-AUC", "ecfp", "ensemble", "3 seeds")
    assert last_command(outcome) == ["finetune", "molecules", "assays.csv", "--task", "active", "--out", "runs/mine"]
    header, *rows = (tmp_path / "table.csv").read_text().splitlines()
    assert header.split(",")[:2] == ["method", "roc_auc"]
    assert [row.split(",")[0] for row in rows][:3] == ["mean", "ecfp", "descriptors"]
    numbers = joao("compare", "assays.csv", "--task", "size", *options, "--json")
    record = json.loads(numbers.out)
    assert (record["kind"], record["tasks"]) == ("numbers", ["size"])
    assert set(record["methods"]["ecfp"]["metrics"]) == {"rmse", "mae", "spearman"}
    for wrong, values in (
        (["--split", "nosuch"], ["nosuch", "part"]),
        (["--methods", "joao"], ["--methods"]),
        (["--twins-together"], ["--twins-together"]),
        (["--scorer", "exact"], ["--scorer"]),
        (["--folds", 9, "--split", "scaffold"], ["6 scaffolds", "9 folds"]),
        (["--out", "table.csv"], ["table.csv"]),
        (["--model", "nosuch"], ["nosuch"]),
    ):
        refused = joao("compare", "assays.csv", *options, *wrong)
        assert refused.code == 2
        assert_mentions(refused.err.splitlines()[-1], *values)
