"""The official split and the words of names, by plain loops over their text."""

import os

import numpy as np
import pytest

from joao.data.formats.ogb import official_split
from joao.data.names import ogb_path
from repro.protocols.ogb.benchmark import read_words
from tests.data.refusals import refused

ROOT = os.environ.get("JOAO_DATA")


@pytest.mark.parametrize(("kind", "by"), [("ppa", "species"), ("code", "project"), ("mol", "scaffold")])
def test_parts_match_the_lines_of_the_files(kind, by, ogb_tables, write_ogb, tmp_path):
    tables = ogb_tables(kind)
    split = official_split(write_ogb(tmp_path / "x.zip", tables), 60)
    assert split.name == by
    for part, found in (("train", split.train), ("valid", split.validation), ("test", split.test)):
        assert found.tolist() == [int(line) for line in tables[f"split/{by}/{part}"].splitlines()]


def test_words_match_the_lines_of_the_files(ogb_tables, write_ogb, tmp_path):
    tables = ogb_tables("code")
    names = read_words(write_ogb(tmp_path / "x.zip", tables), 60)
    assert names == [line.split(" ") for line in tables["raw/graph-label"].splitlines()]
    with refused("raw/graph-label.csv.gz", 60, 61):
        read_words(tmp_path / "x.zip", 61)


@pytest.mark.parametrize(
    ("files", "values"),
    [
        ({"split/scaffold/test": "60\n"}, (60, 0, 59)),
        ({"split/scaffold/test": "-1\n"}, (-1, 0, 59)),
        ({"split/scaffold/test": ""}, ("'test'",)),
        ({"split/random/train": "1\n"}, ("random, scaffold", "train.csv.gz")),
        ({"split/scaffold/test": "one\n"}, ("split/scaffold/test.csv.gz", 1, "'one'")),
    ],
)
def test_invalid_split_is_rejected(files, values, ogb_tables, write_ogb, tmp_path):
    path = write_ogb(tmp_path / "x.zip", {**ogb_tables("mol"), **files})
    with refused("x.zip", *values):
        official_split(path, 60)


def test_graph_in_two_parts_is_rejected(ogb_tables, write_ogb, tmp_path):
    tables = ogb_tables("mol")
    first = tables["split/scaffold/train"].splitlines()[0]
    tables["split/scaffold/test"] += f"{first}\n"
    with refused("x.zip", int(first)):
        official_split(write_ogb(tmp_path / "x.zip", tables), 60)


@pytest.mark.skipif(ROOT is None, reason="JOAO_DATA is not set")
@pytest.mark.parametrize(("name", "sizes"), [("ogbg-molbbbp", (1631, 204, 204)), ("ogbg-molbace", (1210, 151, 152))])
def test_official_parts_contain_all_graphs(name, sizes):
    split = official_split(ogb_path(name, ROOT), sum(sizes))
    parts = (split.train, split.validation, split.test)
    assert tuple(map(len, parts)) == sizes
    assert np.sort(np.concatenate(parts)).tolist() == list(range(sum(sizes)))
