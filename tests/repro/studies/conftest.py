"""Lets studies write into the folder of a test."""

import pytest

from repro.studies import common


@pytest.fixture
def own_folders(monkeypatch, tmp_path):
    """Records and pages of studies are read from and written to ``tmp_path``."""
    monkeypatch.setattr(common, "RECORDS", tmp_path)
    monkeypatch.setattr(common, "PAGES", tmp_path)
    return tmp_path
