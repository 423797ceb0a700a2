"""Oracle: files put in known places, each with its own number of graphs to tell which one was read."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from joao.data import list_datasets, read
from joao.data import names as _download
from joao.data.formats import SUFFIXES
from joao.data.names import TU_DATASETS
from tests.data.refusals import refused


def parts(num_graphs):
    """Graphs of a single edge."""
    return {
        "A": "".join(f"{n},{n + 1}\n{n + 1},{n}\n" for n in range(1, 2 * num_graphs, 2)),
        "graph_indicator": "".join(f"{n}\n{n}\n" for n in range(1, num_graphs + 1)),
    }


@pytest.mark.parametrize("subfolder", ["", "tu", "tu_dev", "TUDataset"])
@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_name_is_found_under_the_root(write_tu, tmp_path, monkeypatch, subfolder, kind):
    root = tmp_path / "data"
    write_tu(parts(3), kind, "THREE", under=root / subfolder)
    assert len(read("THREE", root=root)) == 3
    assert list_datasets(root) == ["MUTAG", "THREE"]
    monkeypatch.setenv("JOAO_DATA", str(root))
    assert len(read("THREE")) == 3
    assert list_datasets() == ["MUTAG", "THREE"]


def test_raw_folder_of_torch_geometric_is_found(write_tu, tmp_path):
    write_tu(parts(2), name="raw", under=tmp_path / "data" / "TWO")
    for file in (tmp_path / "data" / "TWO" / "raw").iterdir():
        file.rename(file.with_name(file.name.replace("raw_", "TWO_")))
    assert len(read("TWO", root=tmp_path / "data")) == 2
    assert len(read(tmp_path / "data" / "TWO")) == 2


def test_search_order_is_root_package_cache(write_tu, tmp_path):
    write_tu(parts(4), "zip", "MUTAG", under=_download.download_folder())
    assert len(read("MUTAG")) == 188
    write_tu(parts(5), "zip", "MUTAG", under=tmp_path / "data")
    assert len(read("MUTAG", root=tmp_path / "data")) == 5


def test_local_folder_does_not_hide_a_known_data_set(write_tu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tu(parts(6), name="MINE")
    write_tu(parts(7), name="MUTAG")
    assert len(read("MINE")) == 6
    assert len(read("MUTAG")) == 188
    assert len(read("./MUTAG")) == 7


def test_read_returns_data_sets_and_reads_paths(write_tu):
    path = write_tu(parts(2), "zip")
    dataset = read(path)
    assert read(dataset) is dataset
    assert read(str(path)).fingerprint == dataset.fingerprint


@pytest.fixture
def server(monkeypatch):
    """A web server on this machine with the data sets in the dictionary it gives."""
    offered = {}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            content = offered.get(Path(self.path).stem)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setattr(_download, "ADDRESS", f"http://127.0.0.1:{running.server_port}/{{name}}.zip")
        monkeypatch.setattr(_download, "SCHEMES", ("http",))
        monkeypatch.setattr(_download, "TU_DATASETS", ("FAR", "MUTAG"))
        yield offered
        running.shutdown()
        thread.join()


def test_missing_data_set_is_downloaded_once(server, write_tu, tmp_path):
    server["FAR"] = write_tu(parts(3), "zip", "FAR", under=tmp_path / "elsewhere").read_bytes()
    assert len(read("FAR")) == 3
    assert sorted(file.name for file in _download.download_folder().iterdir()) == ["FAR.zip", "FAR.zip.sha256"]
    server.clear()
    assert len(read("FAR")) == 3
    assert list_datasets() == ["FAR", "MUTAG"]


def test_interrupted_download_leaves_no_files(server, write_tu, tmp_path):
    server["FAR"] = write_tu(parts(3), "zip", "FAR", under=tmp_path / "elsewhere").read_bytes()[:-30]
    with refused("FAR.zip"):
        read("FAR")
    assert list(_download.download_folder().iterdir()) == []


def test_unknown_name_gets_a_suggestion_and_a_folder(server, tmp_path):
    with refused("MUTGA", "'MUTAG'", "ROOT/MUTGA.zip", "JOAO_DATA", "--data-root"):
        read("MUTGA")
    with refused(f"{tmp_path}", "FAR.zip", 404):
        read("FAR", root=tmp_path)


def test_failed_download_names_the_reason():
    with refused("nowhere/ENZYMES.zip", "ROOT/ENZYMES.zip"):
        read("ENZYMES")


def test_errors_in_a_downloaded_data_set_name_its_source(server, write_tu, tmp_path):
    bad = write_tu(parts(2) | {"A": "1,9\n"}, "zip", "FAR", under=tmp_path / "elsewhere")
    server["FAR"] = bad.read_bytes()
    with refused("FAR.zip", "FAR_A.txt", 1, 9, 1, 4) as told:
        read("FAR")
    assert "ROOT/" not in str(told.value)


@pytest.mark.parametrize(("name", "meant"), [("mutag", "MUTAG"), ("nci-1", "NCI1"), ("IMDB_binary", "IMDB-BINARY")])
def test_misspelled_known_name_is_not_downloaded(monkeypatch, name, meant):
    monkeypatch.setattr(_download, "download", lambda _: pytest.fail("tried to download"))
    with refused(name, f"'{meant}'"):
        read(name)
    assert meant in TU_DATASETS


def test_link_to_nothing_is_not_suggested_for_itself(tmp_path):
    (tmp_path / "graphs.jsonl").symlink_to("elsewhere.jsonl")
    with refused("graphs.jsonl") as info:
        read(tmp_path / "graphs.jsonl")
    assert str(info.value).count("graphs.jsonl") == 1


def test_similar_local_name_is_suggested(write_tu, tmp_path):
    write_tu(parts(2), "zip", "my-molecules", under=tmp_path / "data")
    with refused("'my-molecules'"):
        read("my-molecule", root=tmp_path / "data")


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("", ()),
        ("absent.zip", ("absent.zip",)),
        ("absent/MUTAG", ("absent/MUTAG",)),
        (Path("MUTGA"), ("MUTGA",)),
        ("notes.txt", ("notes.txt", *SUFFIXES)),
        ("notes", ("notes", *SUFFIXES)),
        ("empty", ("empty", "NAME_A.txt", ".graphml")),
        ("absend.zip", ("absend.zip",)),
        ("note.txt", ("note.txt", "notes.txt")),
        ("sets/TINI", ("sets/TINI",)),
        ("tests_mine", ("tests_mine", "test_mine")),
        ("sets", ("sets", "NAME_A.txt", ".graphml", "sets/TINY")),
        ("sets/TINY/TINY_A.txt", ("TINY_A.txt", " sets/TINY")),
        ("roots", ("roots", "NAME_A.txt", ".graphml", "TINY", "root")),
        ("other.zip", ("other.zip", "NAME_A.txt", "TINY_B.txt")),
    ],
)
def test_invalid_paths_are_rejected(write_tu, tmp_path, monkeypatch, source, values):
    monkeypatch.chdir(tmp_path)
    for file in ("notes.txt", "notes"):
        Path(file).write_text("hello")
    Path("empty").mkdir()
    Path("test_mine").mkdir()
    write_tu(parts(2), "folder", under=tmp_path / "sets")
    write_tu(parts(2), "zip", under=tmp_path / "roots")
    write_tu({"B": "1"}, "zip").rename("other.zip")
    with refused(*values) as told:
        read(source)
    if source in ("absend.zip", "sets/TINI"):  # with nothing near it
        assert not any(
            name in str(told.value) for name in ("notes", "empty", "test_mine", "other.zip", "roots", "TINY")
        )


def test_root_that_is_not_a_folder_is_rejected(monkeypatch):
    with refused("root", "absent"):
        read("MUTAG", root="absent")
    monkeypatch.setenv("JOAO_DATA", "gone")
    with refused("JOAO_DATA", "gone"):
        list_datasets()


def test_listing_and_reading_do_not_import_torch():
    program = "import sys, joao.data as d; d.list_datasets(); d.read('MUTAG'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_unknown_names_are_never_sent_to_a_server(server, monkeypatch):
    server["CCO"] = b"asked for"
    monkeypatch.setattr(_download, "download", lambda _: pytest.fail("asked a server"))
    with refused("CCO", "ROOT/CCO.zip"):
        read("CCO")
