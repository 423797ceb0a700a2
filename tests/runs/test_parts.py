"""Embeddings and predictions in Parquet parts. Oracles: all rows at once, and an undisturbed folder."""

import csv
import json
import os
import shutil
import signal
import warnings

import numpy as np
import pytest

import joao
from joao.core import engines
from joao.data.formats.smiles import Columns
from joao.data.molecules import ReadOptions
from joao.data.shards.writer import BlockSource, pack_shards
from joao.runs import parts
from joao.runs.finetuning import finetune
from joao.runs.trained import load_run
from joao.training.finetune import Finetune
from tests.messages import assert_mentions, notice, refused

pytest.importorskip("rdkit")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SMILES = ["CCO", "c1ccccc1", "C(", "CC(=O)O", "CCN", "C1CCCCC1", "CCOC(C)=O", "CF", "", "x", "no", "CCCl", "N", "CS"]


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A small encoder of molecules."""
    folder = tmp_path_factory.mktemp("parts") / "run"
    encoder = {"name": "molecule_gin", "width": 8, "layers": 2}
    joao.JOAO(epochs=1, encoder=encoder, device="cpu").fit(["CCO", "c1ccccc1", "CC(=O)O", "CCN"]).save(folder)
    return folder


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "molecules.csv"
    path.write_text("id,smiles,value\n" + "".join(f"m{row},{text},{row}\n" for row, text in enumerate(SMILES)))
    return path


def write(table, run, folder, part_rows=4, **options):
    sources = parts.open_sources(table, Columns(tasks=()))
    return parts.write_parts(
        sources, parts.load_model(run, "embed"), folder, part_rows=part_rows, device="cpu", **options
    )


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def embeddings_of(rows):
    """The column of embeddings, NaN for null."""
    found = rows["embedding"].to_pylist()
    width = len(next(row for row in found if row is not None))
    return np.array([[np.nan] * width if row is None else row for row in found], dtype=np.float32)


def test_rows_are_those_of_all_molecules_at_once(table, run, tmp_path):
    written = write(table, run, tmp_path / "out")
    rows = parquet.read_table(tmp_path / "out")
    assert rows["row"].to_pylist() == list(range(len(SMILES)))
    assert rows["id"].to_pylist() == [f"m{row}" for row in range(len(SMILES))]
    dataset = joao.read(table)
    expected = dataset.in_rows(load_run(run, device="cpu").embed(dataset).numpy())
    np.testing.assert_allclose(embeddings_of(rows), expected, rtol=1e-5, atol=1e-6)
    bad = [row for row, text in enumerate(SMILES) if text in ("C(", "", "x", "no")]
    assert np.flatnonzero(np.isnan(embeddings_of(rows)[:, 0])).tolist() == bad
    assert (len(written), written.num_failures, len(written.parts), written.computed) == (len(SMILES), len(bad), 4, 4)
    with (tmp_path / "out/_failures.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert [(int(each["line"]), each["name"], each["smiles"]) for each in listed] == [
        (row + 2, f"m{row}", SMILES[row]) for row in bad
    ]
    manifest = json.loads((tmp_path / "out/_manifest.json").read_text())
    assert manifest["complete"]
    assert [(each["first_row"], each["rows"]) for each in manifest["parts"]] == [(0, 4), (4, 4), (8, 4), (12, 2)]


def test_a_part_without_any_molecule(run, tmp_path):
    path = tmp_path / "m.smi"
    path.write_text("CC\nx\ny\nz\nN\n")
    write(path, run, tmp_path / "out", part_rows=2)
    assert np.isnan(embeddings_of(parquet.read_table(tmp_path / "out"))[:, 0]).tolist() == [
        False,
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_an_interrupted_call_goes_on_and_ends_with_the_same_bytes(table, run, tmp_path, stop_after):
    write(table, run, tmp_path / "whole")

    def stop(done, rows):
        if done == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(table, run, tmp_path / "out", on_part=stop)
    assert len(list((tmp_path / "out").glob("part-*"))) == stop_after
    (tmp_path / "out/.part-000002.parquet.joao-0").write_bytes(b"half of a par")
    assert write(table, run, tmp_path / "out").computed == 4 - stop_after
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert write(table, run, tmp_path / "out").computed == 0


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: os.truncate(path, 100)])
def test_a_lost_or_damaged_part_is_written_again(table, run, tmp_path, damage):
    write(table, run, tmp_path / "out")
    whole = contents(tmp_path / "out")
    damage(tmp_path / "out/part-000001.parquet")
    assert write(table, run, tmp_path / "out").computed == 1
    assert contents(tmp_path / "out") == whole


def test_a_part_of_another_input_is_computed_again(table, run, tmp_path):
    write(table, run, tmp_path / "out")
    whole = contents(tmp_path / "out")
    other = tmp_path / "other.csv"
    other.write_text(table.read_text().replace("CCO", "CCS"))
    write(other, run, tmp_path / "others")
    shutil.copy(tmp_path / "others/part-000000.parquet", tmp_path / "out")
    assert write(table, run, tmp_path / "out").computed == 1
    assert contents(tmp_path / "out") == whole


def test_a_part_under_the_name_of_another_is_named_until_it_is_removed(table, run, tmp_path):
    write(table, run, tmp_path / "out")
    whole = contents(tmp_path / "out")
    wrong = tmp_path / "out/part-000001.parquet"
    shutil.copy(tmp_path / "out/part-000002.parquet", wrong)
    with refused(wrong.name, 4, "Remove it"):
        write(table, run, tmp_path / "out")
    wrong.unlink()
    write(table, run, tmp_path / "out")
    assert contents(tmp_path / "out") == whole


def test_a_file_that_would_be_read_with_the_parts_is_named_until_it_is_removed(table, run, tmp_path):
    write(table, run, tmp_path / "out")
    for name in ("part-000001 (copy).parquet", "part-000004.parquet"):
        shutil.copy(tmp_path / "out/part-000001.parquet", tmp_path / "out" / name)
        with refused(name, "Remove it"):
            write(table, run, tmp_path / "out")
        (tmp_path / "out" / name).unlink()
    assert write(table, run, tmp_path / "out").computed == 0


def test_a_part_that_is_not_in_the_folder_in_the_end_is_named(table, run, tmp_path):
    """Such as one that a worker of a killed command, started with other things, has replaced."""
    write(table, run, tmp_path / "whole")
    other = tmp_path / "other.csv"
    other.write_text(table.read_text().replace("CS", "CCS"))
    write(other, run, tmp_path / "others")
    lost, foreign = tmp_path / "out/part-000003.parquet", tmp_path / "others/part-000003.parquet"
    for lose in (lost.unlink, lambda: shutil.copy(foreign, lost)):
        with refused(lost.name):
            write(table, run, tmp_path / "out", on_part=lambda done, rows, lose=lose: lose() if done == 4 else None)
        assert not json.loads((tmp_path / "out/_manifest.json").read_text())["complete"]
        assert write(table, run, tmp_path / "out").computed == 1
        assert contents(tmp_path / "out") == contents(tmp_path / "whole")
        shutil.rmtree(tmp_path / "out")


def test_long_texts_of_failures_are_cut_so_that_parts_can_be_read(run, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "_FAILURE_LETTERS", 1000)
    path = tmp_path / "m.csv"
    path.write_text("id,smiles\n" + "".join(f"m{row}{'-' * 50},{'C(' * 5000}\n" for row in range(40)) + "good,CC\n")
    write(path, run, tmp_path / "out", part_rows=100)
    assert parquet.read_metadata(tmp_path / "out/part-000000.parquet").serialized_size < 20_000
    with (tmp_path / "out/_failures.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert [int(each["line"]) for each in listed] == list(range(2, 42))
    assert {len(each["name"]) for each in listed} == {len(each["smiles"]) for each in listed} == {25}
    assert all(each["smiles"] == f"{'C(' * 11}..." for each in listed)


def test_of_several_tables_some_may_be_empty(table, run, tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    for name in ("a.csv", "c.csv"):
        (folder / name).write_text("smiles\n")
    with refused("rows"):
        write(folder, run, tmp_path / "nothing")
    with refused(folder.name, "rows"):
        joao.embed(folder, run, device="cpu")
    shutil.copy(table, folder / "b.csv")
    assert len(write(folder, run, tmp_path / "out")) == len(SMILES)
    with refused("a.csv"):
        write(folder / "a.csv", run, tmp_path / "one")


def test_tables_of_a_folder_in_any_case_and_a_notice_about_the_rest(table, run, tmp_path):
    folder = tmp_path / "tables"
    (folder / "more").mkdir(parents=True)
    for name in ("a.csv", "B.CSV", "more/c.csv", "_SUCCESS", ".part.crc"):
        shutil.copy(table, folder / name)
    with notice("tables", "more"):
        assert len(joao.embed(folder, run, device="cpu")) == 2 * len(SMILES)
    shutil.rmtree(folder / "more")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        joao.embed(folder, run, device="cpu")


def test_another_input_model_or_setting_is_refused(table, run, tmp_path):
    write(table, run, tmp_path / "out")
    before = contents(tmp_path / "out")
    with refused("out", "part_rows", 4, 5):
        write(table, run, tmp_path / "out", part_rows=5)
    with refused("out", "model"):
        write(table, "molecules", tmp_path / "out")
    table.write_text(table.read_text().replace("CCO", "CCS"))
    with refused("out", "input", "molecules.csv"):
        write(table, run, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").write_text("mine")
    with refused("full"):
        write(table, run, tmp_path / "full")
    assert contents(tmp_path / "full") == {"thesis.txt": b"mine"}
    with refused("part_rows", 0):
        write(table, run, tmp_path / "new", part_rows=0)


def test_a_folder_without_parts_can_be_started_with_other_things(run, tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("smiles\n")
    with refused("m.csv"):
        write(path, run, tmp_path / "out")
    path.write_text("smiles\nCC\n")
    assert write(path, run, tmp_path / "out").computed == 1


def test_no_part_is_made_from_an_input_that_changed_while_it_was_read(run, tmp_path):
    table, before, after = tmp_path / "m.csv", "smiles\n" + "CCO\n" * 4000, "smiles\n" + "CCS\n" * 4000
    table.write_text(before)
    write(table, run, tmp_path / "whole", part_rows=1000)
    for number, changed in enumerate([after, before[:8007], before + "CC\n"]):
        out = tmp_path / f"out{number}"
        with refused("m.csv"):
            write(table, run, out, part_rows=1000, on_part=lambda done, rows, text=changed: table.write_text(text))
        assert not json.loads((out / "_manifest.json").read_text())["complete"]
        table.write_text(before)
        write(table, run, out, part_rows=1000)
        assert contents(out) == contents(tmp_path / "whole")


def test_two_calls_at_once_are_refused(table, run, tmp_path):
    def again(done, rows):
        with refused("out"):
            write(table, run, tmp_path / "out")

    assert write(table, run, tmp_path / "out", on_part=again).computed == 4


def test_the_rows_at_which_a_worker_dies_are_named(table, run, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "_PartWriter", _DeadlyWriter)
    with refused("rows 8 to 11", "SIGKILL"):
        write(table, run, tmp_path / "out", workers=2)


class _DeadlyWriter(parts._PartWriter):
    def __call__(self, block):
        if block.number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(block)


def test_several_processes_write_the_same_bytes(table, run, tmp_path):
    write(table, run, tmp_path / "one")
    write(table, run, tmp_path / "two", workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_csv_parquet_shards_and_a_folder_of_tables_give_the_same_rows(table, run, tmp_path):
    cells = list(csv.reader(table.read_text().splitlines()))
    columns = {name: [row[number] for row in cells[1:]] for number, name in enumerate(cells[0])}
    columns["value"] = [float(value) for value in columns["value"]]
    columns["nested"] = [[1, 2]] * len(SMILES)
    parquet.write_table(pyarrow.table(columns), tmp_path / "molecules.parquet", row_group_size=5)
    folder = tmp_path / "tables"
    folder.mkdir()
    for number, first in enumerate((0, 4, 12)):
        lines = table.read_text().splitlines()
        rows = lines[1:][first : (4, 12, 99)[number]]
        (folder / f"t{number}.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    pack_shards([BlockSource(table, None, Columns(), ReadOptions())], tmp_path / "m.joao", "m", shard_graphs=8)
    found = {}
    for name in ("molecules.csv", "molecules.parquet", "tables", "m.joao"):
        write(tmp_path / name, run, tmp_path / f"{name}.out")
        found[name] = parquet.read_table(tmp_path / f"{name}.out").replace_schema_metadata()
        assert found[name].equals(found["molecules.csv"]), name
    # As every reader of tables sees it.
    read = joao.read(tmp_path / "molecules.parquet")
    assert read.target_names == ("value",)
    np.testing.assert_array_equal(read.targets, joao.read(table).targets)
    assert read.failures[0].line == 3


def test_graphs_of_other_formats(tmp_path):
    joao.JOAO(epochs=1, device="cpu").fit(joao.read("MUTAG")).save(tmp_path / "run")
    written = write("MUTAG", tmp_path / "run", tmp_path / "out", part_rows=50)
    expected = load_run(tmp_path / "run", device="cpu").embed(joao.read("MUTAG")).numpy()
    rows = parquet.read_table(tmp_path / "out")
    np.testing.assert_allclose(embeddings_of(rows), expected, rtol=1e-5, atol=1e-4)
    assert (len(written), rows["id"].null_count) == (188, 188)


def test_in_memory_without_a_folder(table, run, tmp_path):
    write(table, run, tmp_path / "out")
    expected = embeddings_of(parquet.read_table(tmp_path / "out"))
    found = joao.embed(table, run, part_rows=4, device="cpu")
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(joao.embed(SMILES, run, device="cpu"), expected, rtol=1e-5, atol=1e-6)
    assert len(joao.embed([table, table], run, device="cpu")) == 2 * len(SMILES)
    assert joao.embed(table, run, tmp_path / "out", part_rows=4, device="cpu").computed == 0


def test_the_callable_class_for_batches(run):
    embedder = joao.Embedder(run, column="s", device="cpu")
    batch = embedder({"s": np.array(["CCO", None, "x"], dtype=object), "y": np.arange(3)})
    np.testing.assert_allclose(batch["embedding"][:1], joao.load(run, device="cpu").transform(["CCO"]), rtol=1e-6)
    assert np.isnan(batch["embedding"][1:]).all()
    assert batch["y"].tolist() == [0, 1, 2]
    with refused("s", "smiles"):
        embedder({"smiles": ["C"]})
    assert embedder({"s": []})["embedding"].shape == (0, batch["embedding"].shape[1])


@pytest.mark.parametrize("kind", ["arrow", "pandas", "pandas with NA", "empty arrow", "empty pandas"])
def test_batches_of_the_callable_class_may_be_tables(run, kind):
    cells = [] if "empty" in kind else ["CCO", None, "x"]
    columns = {"smiles": cells, "y": list(range(len(cells)))}
    if "arrow" in kind:
        batch = pyarrow.table({"smiles": pyarrow.array(cells, pyarrow.string()), "y": columns["y"]})
    else:
        pandas = pytest.importorskip("pandas")
        batch = pandas.DataFrame(columns, index=range(7, 7 + len(cells)))
        batch["smiles"] = batch["smiles"].astype("string" if "NA" in kind else object)
    embedder = joao.Embedder(run, device="cpu")
    found, expected = embedder(batch), embedder(columns)
    np.testing.assert_array_equal(found["embedding"], expected["embedding"])
    assert found["y"].tolist() == columns["y"]
    assert found.keys() == {"smiles", "y", "embedding"}
    with refused("smiles", "y"):
        embedder(batch[["y"]] if "pandas" in kind else batch.select(["y"]))


@pytest.mark.parametrize("kind", ["classes", "binary", "numbers"])
def test_predictions(table, run, tmp_path, kind):
    trained = load_run(run, device="cpu")
    if kind == "classes":
        joao.JOAO(epochs=1, device="cpu").fit(joao.read("MUTAG")).save(tmp_path / "mutag")
        trained, dataset = load_run(tmp_path / "mutag", device="cpu"), joao.read("MUTAG")
        source = "MUTAG"
    else:
        source = tmp_path / "labelled.csv"
        label = (lambda row: row % 2) if kind == "binary" else (lambda row: row / 7)
        source.write_text("smiles,y\n" + "".join(f"{'C' * (row % 5 + 1)}O,{label(row)}\n" for row in range(40)))
        dataset = joao.read(source)
    tuned = finetune(trained, dataset, Finetune(epochs=1), split="random", device="cpu")
    tuned.save(tmp_path / "tuned")
    model = parts.load_model(tmp_path / "tuned", "predict")
    parts.write_parts(
        parts.open_sources(source, Columns(tasks=())), model, tmp_path / "out", part_rows=30, device="cpu"
    )
    rows, expected = parquet.read_table(tmp_path / "out"), tuned.predict(dataset).numpy()
    names = {"classes": ["p_-1", "p_1"], "binary": ["p_y"], "numbers": ["y"]}[kind]
    assert rows.column_names == ["row", "id", *(["predicted"] if kind == "classes" else []), *names]
    for column, name in enumerate(names):
        np.testing.assert_allclose(rows[name].to_numpy(), expected[:, column], rtol=1e-4, atol=1e-5)
    if kind == "classes":
        assert rows["predicted"].to_pylist() == [("-1", "1")[number] for number in expected.argmax(axis=1)]


def test_damaged_parquet_is_one_line(tmp_path):
    path = tmp_path / "m.parquet"
    parquet.write_table(pyarrow.table({"smiles": ["C", "N"] * 500}), path)
    whole = path.read_bytes()
    for content in (b"", b"PAR1", whole[:-20], whole[:40] + bytes(40) + whole[80:]):
        path.write_bytes(content)
        with refused("m.parquet"):
            joao.read(path)
    parquet.write_table(pyarrow.table({"formula": ["C"]}), path)
    with refused("m.parquet", "formula", "smiles"):
        joao.read(path)


def test_unknown_engine():
    with refused("engine", "rey", "ray"):
        engines.check_engine("rey")
    with pytest.raises(joao.UserError) as caught:
        list(engines.map_on("slurm", abs, [1]))
    assert_mentions(str(caught.value), "slurm", "local")
