import pytest

from repro.documents import generate as g
from repro.record_files import RECORDS
from repro.studies.common import read_record
from repro.tables.pages import PAGES, combined_page, combined_sections


def same(name, text):
    assert (g.RESULTS / name).read_text() == text


@pytest.mark.parametrize("name", g._ONE_RECORD)
def test_one(name):
    same(f"{name}.md", g._ONE_RECORD[name](read_record(name)))


@pytest.mark.parametrize("name", g._TABLES)
def test_table(name):
    same(f"{name}.md", g._TABLES[name]())


@pytest.mark.parametrize("name", PAGES)
def test_protocol(name):
    for k, t in PAGES[name](RECORDS).texts.items():
        same(f"{name}/{k}", t)


def test_combined():
    for k, s in combined_sections(RECORDS).items():
        same(k, combined_page(s))
