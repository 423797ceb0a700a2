"""Oracle: the source read whole."""

import gzip
import json
import lzma
from itertools import islice

import pytest

from joao.data import read
from joao.data.dataset import concatenate_datasets
from joao.data.formats import smiles
from joao.data.formats.jsonl import iterate_jsonl, read_jsonl
from joao.data.formats.smiles import Columns, iterate_molecule_table, read_molecule_table
from joao.data.formats.text import table_rows
from joao.data.molecules import ReadOptions
from joao.data.shards import writer as pieces_module
from joao.data.shards.writer import BlockSource, slice_rows
from tests.data.refusals import refused

TABLE = "id,smiles,toxic,late,words\n" + "".join(
    f"m{row},{text},{row % 2 if row % 3 else ''},{'' if row < 8 else row},w{row}\n"
    for row, text in enumerate(["CCO", "C", "bad", "c1ccccc1", "[Na]", "CN", "worse", "CC", "O", "N", "CF", "C=C"])
)


def written(folder, name, text=TABLE):
    content = text.encode()
    packing = {".gz": gzip.compress, ".xz": lzma.compress}.get(name[-3:], bytes)
    (folder / name).write_bytes(packing(content))
    return folder / name


def all_of(source, size, rows=0, columns=None):
    return list(BlockSource(str(source), None, columns or Columns(), ReadOptions()).after(rows, size))


@pytest.mark.parametrize("name", ["m.csv", "m.csv.gz", "m.csv.xz"])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_table_in_pieces_equals_the_whole_table(tmp_path, name, size, assert_equal):
    pytest.importorskip("rdkit")
    path = written(tmp_path, name)
    found = all_of(path, size)
    assert all(0 < len(piece) <= size for piece in found)
    assert_equal(concatenate_datasets(found), read(path))


def test_list_of_smiles_in_pieces(tmp_path, assert_equal):
    pytest.importorskip("rdkit")
    path = written(tmp_path, "m.smi", "CCO ethanol\nC methane\n\nbad name\nCN methylamine\n")
    assert_equal(concatenate_datasets(all_of(path, 2)), read(path))


@pytest.mark.parametrize("rows", [1, 5, 11, 12])
def test_table_starting_at_a_row(tmp_path, rows):
    pytest.importorskip("rdkit")
    path = written(tmp_path, "m.csv")
    whole = read(path)
    expected = [name for row, name in zip(whole.row_of_graph, whole.graph_names, strict=True) if row >= rows]
    assert [name for piece in all_of(path, 5, rows) for name in piece.graph_names] == expected


def test_all_pieces_have_the_tasks_of_the_table(tmp_path):
    path = written(tmp_path, "m.csv", TABLE + "m12,CO,0,>9,w\n")
    whole = read_molecule_table(path)
    pieces = list(iterate_molecule_table(path, 4))
    assert [len(piece.smiles) for piece in pieces] == [4, 4, 4, 1]
    assert whole.tasks == ("toxic",)
    for piece in pieces:
        assert (piece.tasks, piece.ignored, piece.rejected) == (whole.tasks, whole.ignored, whole.rejected)
    assert [line for piece in pieces for line in piece.lines.tolist()] == whole.lines.tolist()
    named = list(iterate_molecule_table(written(tmp_path, "m.csv"), 5, columns=Columns(tasks=["late"])))
    assert named[0].labels.shape == (5, 1)
    assert named[2].labels.tolist() == [[10.0], [11.0]]


def test_at_most_one_piece_of_rows_is_in_memory(tmp_path, monkeypatch):
    path = written(tmp_path, "m.csv")
    taken = []

    def counted(path):
        for row in table_rows(path):
            taken.append(row)
            yield row

    monkeypatch.setattr(smiles, "table_rows", counted)
    pieces = iterate_molecule_table(path, 3, columns=Columns(tasks=[]))
    assert len(next(pieces).smiles) == 3
    assert len(taken) == 4  # with the header
    next(pieces)
    assert len(taken) == 7


def test_unparsable_rows_belong_to_a_neighbouring_piece(tmp_path):
    pytest.importorskip("rdkit")
    path = written(tmp_path, "m.smi", "bad\nworse\nC\nbad\nworse\nCC\nbad\nworse\n")
    pieces = all_of(path, 1)
    assert [(len(piece), len(piece.failures)) for piece in pieces] == [(1, 4), (1, 2)]
    assert [each.line for piece in pieces for each in piece.failures] == [1, 2, 4, 5, 7, 8]
    none = written(tmp_path, "n.smi", "bad\nworse\n")
    with refused("n.smi", 1, "'bad'", "SMILES", 2):
        all_of(none, 1)


@pytest.mark.parametrize("text", ["", "smiles\n"])
def test_empty_tables(tmp_path, text):
    path = written(tmp_path, "e.csv", text)
    with refused("e.csv"):
        list(iterate_molecule_table(path, 3))


def test_json_lines_in_pieces(tmp_path, assert_equal):
    graphs = [{"edges": [[0, 1], [1, 2]], "num_nodes": 3 + k % 4, "label": f"c{k % 3}"} for k in range(11)]
    path = written(tmp_path, "g.jsonl", "\n".join(map(json.dumps, graphs)) + "\n")
    whole = read_jsonl(path)
    pieces = list(iterate_jsonl(path, 4))
    assert [len(piece) for piece in pieces] == [4, 4, 3]
    assert_equal(concatenate_datasets(pieces), whole)
    assert [len(piece) for piece in iterate_jsonl(path, 4, 9)] == [2]
    assert list(iterate_jsonl(path, 4, 11)) == []
    with refused("e"):
        list(iterate_jsonl(written(tmp_path, "e.jsonl", ""), 4))


def test_json_lines_are_not_read_ahead(tmp_path, monkeypatch):
    path = written(tmp_path, "g.jsonl", '{"edges": [], "num_nodes": 1}\n' * 5 + "not JSON\n")
    assert [len(piece) for piece in islice(iterate_jsonl(path, 2), 2)] == [2, 2]
    with refused("g.jsonl", 6, "JSON"):
        list(iterate_jsonl(path, 2))


def test_other_sources_are_sliced(tmp_path):
    whole = read("MUTAG")
    pieces = all_of("MUTAG", 50)
    assert [len(piece) for piece in pieces] == [50, 50, 50, 38]
    assert concatenate_datasets(pieces).fingerprint == whole.fingerprint
    assert [len(piece) for piece in all_of("MUTAG", 50, 150)] == [38]


def test_rows_match_a_hand_computation():
    pytest.importorskip("rdkit")
    dataset = read(["C", "bad", "CC", "worse", "CCC"])
    part = slice_rows(dataset, 1, 4)
    assert (len(part), part.row_of_graph.tolist()) == (1, [1])
    assert [(each.row, each.text) for each in part.failures] == [(0, "bad"), (2, "worse")]
    assert pieces_module.slice_rows(dataset, 4, 5).row_of_graph is None
