"""Oracle: RDKit's own writer of SDF, and the same molecules as SMILES."""

import gzip

import numpy as np
import pytest

import joao
from joao.core.errors import UserError
from joao.data.formats.smiles import iterate_molecule_table, read_molecule_table
from tests.messages import assert_mentions

Chem = pytest.importorskip("rdkit.Chem")

SMILES = ("CCO", "C/C=C/C", "C/C=C\\C", "C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", "[Cl-].[Na+]", "[O-][N+](=O)c1ccccc1")
BAD = (
    "pentavalent\n\n\n  2  1  0  0  0  0\n"
    + "    0.0  0.0  0.0 C   0  0\n" * 2
    + "  1  2  5\nM  END\n> <logP>\n7\n\n$$$$\n"
)


def molecules():
    for number, text in enumerate(SMILES):
        molecule = Chem.MolFromSmiles(text)
        molecule.SetProp("_Name", f"m{number}")
        molecule.SetProp("logP", str(number / 4))
        molecule.SetProp("comment", "several\nlines")
        molecule.SetProp("SMILES", "not this one")
        if number % 2:
            molecule.SetProp("active", str(number % 3 % 2))
        yield molecule


@pytest.fixture
def sdf(tmp_path):
    path = tmp_path / "library.sdf"
    with Chem.SDWriter(str(path)) as writer:
        for molecule in molecules():
            writer.write(molecule)
    return path


def assert_same_graphs(one, other):
    assert one.smiles == other.smiles
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("suffix", [".sdf", ".sdf.gz"])
def test_records_equal_their_smiles(sdf, tmp_path, suffix):
    path = tmp_path / f"other{suffix}"
    path.write_bytes(gzip.compress(sdf.read_bytes()) if suffix == ".sdf.gz" else sdf.read_bytes())
    dataset = joao.read(path)
    assert_same_graphs(dataset, joao.read([Chem.CanonSmiles(text) for text in SMILES]))
    assert dataset.graph_names == tuple(f"m{number}" for number in range(len(SMILES)))
    assert dataset.target_names == ("logP", "active")
    expected = [[number / 4, number % 3 % 2 if number % 2 else np.nan] for number in range(len(SMILES))]
    assert np.array_equal(dataset.targets, np.array(expected, dtype=np.float32), equal_nan=True)
    assert_mentions(dataset.notices[0], "comment")


def test_records_that_cannot_be_parsed_are_listed(sdf):
    lines = sdf.read_text().count("\n")
    sdf.write_text(sdf.read_text() + "nothing\n$$$$\n" + BAD)
    dataset = joao.read(sdf)
    assert len(dataset) == len(SMILES)
    assert [(each.row, each.line, each.name) for each in dataset.failures] == [
        (len(SMILES), lines + 1, "nothing"),
        (len(SMILES) + 1, lines + 3, "pentavalent"),
    ]
    assert not {each.reason for each in dataset.failures} & {"", "empty"}


def test_pieces_are_the_whole_table(sdf):
    sdf.write_text(BAD + sdf.read_text() + BAD)
    whole, pieces = read_molecule_table(sdf), list(iterate_molecule_table(sdf, size=2, skip=1))
    assert [text for piece in pieces for text in piece.smiles] == list(whole.smiles[1:])
    assert np.array_equal(np.concatenate([piece.labels for piece in pieces]), whole.labels[1:], equal_nan=True)
    assert [line for piece in pieces for line in piece.reasons] == list(whole.reasons)[1:]


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ("", ["empty"]),
        ("\n\n", ["empty"]),
        (BAD, ["structure", "1"]),
        ("a\n$$$$\n> <x>\n1\n> <x>\n2\n$$$$\n", ["'x'"]),
        (
            "many\n\n\n  0  0  0     0  0            999 V3000\nM  V30 BEGIN CTAB\nM  V30 COUNTS 42000 0 0 0 0\n",
            ["42000"],
        ),
    ],
)
def test_invalid_files(tmp_path, content, values):
    (tmp_path / "a.sdf").write_text(content)
    with pytest.raises(UserError) as caught:
        joao.read(tmp_path / "a.sdf")
    assert_mentions(str(caught.value), *values)


def test_many_different_properties_are_within_the_budget(tmp_path):
    text = "".join(f"m\n\n\n  0  0  0\nM  END\n> <p{number}>\n1\n\n$$$$\n" for number in range(20_000))
    (tmp_path / "a.sdf").write_text(text)
    with pytest.raises(UserError) as caught:
        joao.read(tmp_path / "a.sdf")
    assert_mentions(str(caught.value), "20000", "JOAO_MEMORY")


def test_columns_and_smiles(sdf):
    dataset = joao.read(sdf, identifiers="active", tasks=["logP"])
    assert (dataset.graph_names[1], dataset.target_names) == ("1", ("logP",))
    with pytest.raises(UserError):
        joao.read(sdf, smiles="SMILES")


def test_rdkit_molecules(sdf):
    molecule = Chem.AddHs(Chem.MolFromSmiles("CCO"))
    given = [*molecules(), None, molecule]
    dataset = joao.read(given)
    assert_same_graphs(
        dataset, joao.read([*(Chem.CanonSmiles(text) for text in SMILES), "[H]OC([H])([H])C([H])([H])[H]"])
    )
    assert [each.row for each in dataset.failures] == [len(SMILES)]
    assert_same_graphs(joao.read(Chem.SDMolSupplier(str(sdf))), joao.read(sdf))
    encoder = joao.load("molecules", device="cpu")
    assert np.array_equal(encoder.transform([*molecules()]), encoder.transform(list(joao.read(sdf).smiles)))
    for wrong in (molecule, [molecule, "CCO"]):
        with pytest.raises(UserError):
            joao.read(wrong)
    model = joao.JOAOClassifier("molecules", epochs=1, frozen=True, device="cpu").fit(
        [*molecules()] * 3, [0, 1] * 10 + [0]
    )
    assert model.predict_proba([molecule]).shape == (1, 2)


def test_latin_1_is_read_line_by_line(sdf, tmp_path):
    text = sdf.read_text().replace("m2\n", "Säure µ\n").replace("several\n", "größer\n")
    paths = [tmp_path / f"{name}.sdf" for name in ("latin", "utf", "both")]
    paths[0].write_bytes(text.encode("latin-1"))
    paths[1].write_bytes(text.encode())
    paths[2].write_bytes(text.replace("m3\n", "日本\n").encode().replace("Säure µ".encode(), b"S\xe4ure \xb5"))
    latin, utf, both = map(joao.read, paths)
    assert latin.graph_names == utf.graph_names
    assert latin.graph_names[2] == both.graph_names[2] == "Säure µ"
    assert both.graph_names[3] == "日本"
    assert latin.smiles == utf.smiles == both.smiles == joao.read(sdf).smiles
