"""No test of the readers reaches the network, the user's cache or the data of the machine unless it says so."""

import warnings
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch-geometric warns about torch.jit when it is loaded
    import torch_geometric.data  # noqa: F401

from joao.data import Dataset
from joao.data import names as _download


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.delenv("JOAO_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JOAO_CACHE", "off")
    monkeypatch.setattr(_download, "ADDRESS", (tmp_path / "nowhere").as_uri() + "/{name}.zip")
    monkeypatch.setattr(_download, "SCHEMES", ("file",))


@pytest.fixture
def write_tu(tmp_path):
    """Writes the parts of a TU data set, by the ends of their names, to a folder or zip file; gives its path."""

    def write(parts, kind="folder", name="TINY", under=tmp_path) -> Path:
        files = {f"{name}_{part}.txt": text for part, text in parts.items()}
        if kind == "folder":
            folder = under / name
            folder.mkdir(parents=True)
            for file, text in files.items():
                (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
            return folder
        under.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(under / f"{name}.zip", "w", zipfile.ZIP_LZMA) as archive:
            for file, text in files.items():
                archive.writestr(file if kind == "flat zip" else f"{name}/{file}", text)
        return under / f"{name}.zip"

    return write


@pytest.fixture(scope="session")
def assert_equal():
    """Asserts that two data sets agree in every field, bit for bit and type for type."""

    def check(found, expected) -> None:
        for field in fields(Dataset):
            one, other = getattr(found, field.name), getattr(expected, field.name)
            assert type(one) is type(other), field.name
            if isinstance(one, np.ndarray):
                assert (one.dtype, one.shape) == (other.dtype, other.shape), field.name
                assert one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes(), (
                    field.name
                )
            else:
                assert one == other, field.name
        own = replace(expected)  # computes what follows from its edges anew
        assert found.fingerprint == own.fingerprint
        assert found.degrees.dtype == own.degrees.dtype
        assert found.degrees.tolist() == own.degrees.tolist()

    return check


@pytest.fixture
def neighbours():
    """The edges of graph ``index``, as a set of directed pairs, by a plain loop."""

    def of(dataset, index):
        first, last = dataset.first_edge[index], dataset.first_edge[index + 1]
        pairs = list(zip(dataset.source[first:last].tolist(), dataset.target[first:last].tolist(), strict=True))
        assert len(pairs) == len(set(pairs))
        return set(pairs)

    return of
