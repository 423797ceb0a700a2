"""Several pre-trainings per method: drawing the corpus, and runs that stop and resume, on a few made molecules."""

import copy
import time
from functools import partial

import numpy as np
import pytest

from joao.core.errors import Interrupted
from joao.core.files import make_folder
from joao.data import read_whole
from joao.runs.trained import load_run
from repro.protocols.transfer import run as transfer
from repro.protocols.transfer.overlap import canonical, molecules_of_test
from repro.studies import transfer_repeats as repeats

pytest.importorskip("rdkit")
GRID = transfer.grid()
RINGS = [f"C1{'C' * size}{atom}1" for size in range(1, 8) for atom in "CNS"]
LABELLED = [f"{'C' * tail}{ring}{'O' * (number % 2)}" for tail in (1, 2) for number, ring in enumerate(RINGS)]
METHODS = ["attr_masking", "joao"]


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """A small grid, and the folder that ``prepare`` wrote for it."""
    grid = copy.deepcopy(GRID)
    grid["datasets"] = {"bace": {}}
    grid["recipe"]["encoder"] |= {"width": 8, "layers": 2}
    grid["recipe"]["training"] |= {"batch_size": 8}
    grid["finetuning"] |= {"epochs": 2}
    grid["repeats"] |= {"methods": METHODS, "datasets": ["bace"], "molecules": 30, "epochs": 2}
    grid["repeats"] |= {"pretrainings": [0, 1], "seeds": [0, 1]}
    monkeypatch.setattr(transfer, "grid", lambda: grid)
    folder = tmp_path / "raw" / "molecules"
    make_folder(folder)
    lines = [f"{smiles},{int('O' in smiles)}" for smiles in LABELLED]
    (folder / "bace.csv").write_text("smiles,active\n" + "\n".join(lines) + "\n")
    for name in grid["corpus"]["sources"]:
        (folder / f"{name}.csv").write_text("smiles\n" + "\n".join(LABELLED) + "\n")
    repeats.prepare(tmp_path / "data", str(folder.parent))
    return tmp_path


def options(folder):
    return repeats.RunOptions(folder / "out", str(folder / "data"), "cpu", encoders=folder / "encoders")


def test_corpus_excludes_test_molecules(prepared):
    raw = str(prepared / "raw")
    tests = {canonical(each, stereo=False) for each in molecules_of_test("bace", raw)}
    drawn = repeats.draw_corpus(raw)
    assert len(drawn) == 30
    assert drawn.fingerprint == read_whole(repeats.CORPUS, str(prepared / "data")).fingerprint
    # Again, by hand: the same order of rows, RDKit alone.
    order = repeats.numpy_generator(0, "transfer repeats").permutation(2 * len(LABELLED))
    rows = [(LABELLED * 2)[each] for each in order]
    expected = [each for each in rows if canonical(each, stereo=False) not in tests][:30]
    assert drawn.fingerprint == read_whole(expected).fingerprint


def test_cells_are_computed_once_from_packed_files(prepared):
    assert repeats.run(options(prepared), METHODS, repeats.settings()["datasets"], jobs=1, finetune_jobs=1)
    file = repeats.record_file(prepared / "out")
    found = {method: file[f"bace/{method}"] for method in METHODS}
    for record in found.values():
        assert record["scores"]["pretraining"] == [0, 0, 1, 1]
        assert record["scores"]["seed"] == [0, 1, 0, 1]
        assert all(0 <= score <= 1 for name in ("test", "last_test") for score in record["scores"][name])
        assert len({facts["weights"] for facts in record["corpus"]}) == 2
        assert {facts["molecules"] for facts in record["corpus"]} == {30}
    # One fit by the protocol of the table, from the same pre-training.
    raw = read_whole("bace", str(prepared / "raw"))
    trained = load_run(repeats.encoder_folder(("joao", 1), prepared / "encoders"), device="cpu")
    transfer.grid()["seeds"] = [0, 1]
    one = transfer.compute(transfer.Cell("bace", "joao"), raw, trained, device="cpu")
    assert one["split_hash"] == found["joao"]["split_hash"]
    for name in ("epoch", "validation", "test", "last_test"):
        assert np.allclose(one["scores"][name], found["joao"]["scores"][name][2:])
    before = file.path.read_text()
    assert repeats.run(options(prepared), METHODS, repeats.settings()["datasets"], jobs=1, finetune_jobs=1)
    assert file.path.read_text() == before


def test_stopped_run_resumes(prepared):
    with pytest.raises(Interrupted):
        repeats.pretrain_one(options(prepared), ("joao", 0), stop_at=time.time() - 1)
    assert not repeats.run(
        options(prepared),
        METHODS,
        repeats.settings()["datasets"],
        jobs=1,
        finetune_jobs=1,
        stop_at=time.time() - 1,
    )
    make_folder(prepared / "encoders" / "joao-1")
    (prepared / "encoders" / "joao-1" / "recipe.toml").write_text("a run that was killed while it began")
    assert repeats.missing_cells(prepared / "out", METHODS, repeats.settings()["datasets"]) == [
        ("bace", method) for method in METHODS
    ]
    assert repeats.run(options(prepared), ["attr_masking"], repeats.settings()["datasets"], jobs=1, finetune_jobs=1)
    assert repeats.missing_cells(prepared / "out", METHODS, repeats.settings()["datasets"]) == [("bace", "joao")]
    assert repeats.run(options(prepared), METHODS, repeats.settings()["datasets"], jobs=1, finetune_jobs=1)
    assert repeats.missing_cells(prepared / "out", METHODS, repeats.settings()["datasets"]) == []


def test_parallel_fits_equal_sequential_fits(prepared, monkeypatch):
    transfer.grid()["finetuning"]["dropout"] = 0.0  # which is drawn for all fits together
    for seed in (0, 1):
        repeats.pretrain_one(options(prepared), ("joao", seed))
    dataset = read_whole("bace", str(prepared / "data"))

    def record_of_joao():
        folders = {seed: repeats.encoder_folder(("joao", seed), prepared / "encoders") for seed in (0, 1)}
        encoders = {seed: load_run(folder, device="cpu") for seed, folder in folders.items()}
        return repeats.compute(("bace", "joao"), dataset, encoders, "cpu", "32-true")

    one = record_of_joao()
    monkeypatch.setattr(repeats, "Finetuning", partial(repeats.Finetuning, fast=True))
    other = record_of_joao()
    assert (one["fine-tuned"], other["fine-tuned"]) == ("one after another", "4 fits side by side")
    for name in ("validation", "test", "last_test"):
        assert np.allclose(one["scores"][name], other["scores"][name], atol=1e-3)
    assert one["scores"]["epoch"] == other["scores"]["epoch"]
