"""Oracle: files put in known places, each with its own number of graphs to tell which one was read."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from joao.core.errors import UserError
from joao.data import cache as _download
from joao.data import listing, read, sources
from joao.data.sources import WELL_KNOWN


def parts(num_graphs):
    """Graphs of a single edge."""
    return {
        "A": "".join(f"{n},{n + 1}\n{n + 1},{n}\n" for n in range(1, 2 * num_graphs, 2)),
        "graph_indicator": "".join(f"{n}\n{n}\n" for n in range(1, num_graphs + 1)),
    }


@pytest.mark.parametrize("subfolder", ["", "tu", "tu_dev", "TUDataset"])
@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_a_name_is_found_under_the_root(write_tu, tmp_path, monkeypatch, subfolder, kind):
    root = tmp_path / "data"
    write_tu(parts(3), kind, "THREE", under=root / subfolder)
    assert len(read("THREE", root=root)) == 3
    assert listing(root) == ["MUTAG", "THREE"]
    monkeypatch.setenv("JOAO_DATA", str(root))
    assert len(read("THREE")) == 3
    assert listing() == ["MUTAG", "THREE"]


def test_the_raw_folder_of_torch_geometric_is_found(write_tu, tmp_path):
    write_tu(parts(2), name="raw", under=tmp_path / "data" / "TWO")
    for file in (tmp_path / "data" / "TWO" / "raw").iterdir():
        file.rename(file.with_name(file.name.replace("raw_", "TWO_")))
    assert len(read("TWO", root=tmp_path / "data")) == 2
    assert len(read(tmp_path / "data" / "TWO")) == 2


def test_the_root_comes_before_the_package_and_the_package_before_the_cache(write_tu, tmp_path):
    write_tu(parts(4), "zip", "MUTAG", under=_download.cache_folder())
    assert len(read("MUTAG")) == 188
    write_tu(parts(5), "zip", "MUTAG", under=tmp_path / "data")
    assert len(read("MUTAG", root=tmp_path / "data")) == 5


def test_a_bare_name_may_be_a_folder_here_but_not_hide_a_data_set(write_tu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tu(parts(6), name="MINE")
    write_tu(parts(7), name="MUTAG")
    assert len(read("MINE")) == 6
    assert len(read("MUTAG")) == 188
    assert len(read("./MUTAG")) == 7


def test_a_data_set_is_returned_and_paths_are_read(write_tu):
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
        monkeypatch.setattr(sources, "WELL_KNOWN", ("FAR", "MUTAG"))
        yield offered
        running.shutdown()
        thread.join()


def test_a_set_found_nowhere_is_downloaded_once(server, write_tu, tmp_path):
    server["FAR"] = write_tu(parts(3), "zip", "FAR", under=tmp_path / "elsewhere").read_bytes()
    assert len(read("FAR")) == 3
    assert sorted(file.name for file in _download.cache_folder().iterdir()) == ["FAR.zip", "FAR.zip.sha256"]
    server.clear()
    assert len(read("FAR")) == 3
    assert listing() == ["FAR", "MUTAG"]


def test_a_download_cut_short_leaves_nothing(server, write_tu, tmp_path):
    server["FAR"] = write_tu(parts(3), "zip", "FAR", under=tmp_path / "elsewhere").read_bytes()[:-30]
    with pytest.raises(UserError, match=r"FAR.zip did not give a whole zip file"):
        read("FAR")
    assert list(_download.cache_folder().iterdir()) == []


def test_an_unknown_name_is_told_with_the_nearest_and_a_place_for_a_copy(server, tmp_path):
    with pytest.raises(UserError, match=r"^MUTGA: no such data set .* is no well-known one.*") as told:
        read("MUTGA")
    assert "Did you mean 'MUTAG'?" in str(told.value)
    assert "ROOT/MUTGA.zip, with ROOT given by JOAO_DATA or --data-root" in str(told.value)
    assert "\n" not in str(told.value)
    with pytest.raises(UserError, match=rf"no such data set under {tmp_path}, and .* answered 404"):
        read("FAR", root=tmp_path)


def test_without_a_network_the_reason_is_told():
    with pytest.raises(UserError, match=r"ENZYMES.zip could not be fetched \(.*\). A copy can be put at ROOT/ENZ"):
        read("ENZYMES")


def test_faults_inside_a_downloaded_set_are_told_as_such(server, write_tu, tmp_path):
    bad = write_tu(parts(2) | {"A": "1,9\n"}, "zip", "FAR", under=tmp_path / "elsewhere")
    server["FAR"] = bad.read_bytes()
    with pytest.raises(UserError, match=r"FAR.zip: FAR_A.txt line 1: there is no node 9; nodes run from 1 to 4.$"):
        read("FAR")


@pytest.mark.parametrize(("name", "meant"), [("mutag", "MUTAG"), ("nci-1", "NCI1"), ("IMDB_binary", "IMDB-BINARY")])
def test_another_spelling_of_a_known_name_is_not_downloaded(monkeypatch, name, meant):
    monkeypatch.setattr(_download, "download", lambda _: pytest.fail("tried to download"))
    with pytest.raises(UserError, match=rf"Did you mean '{meant}'\?"):
        read(name)
    assert meant in WELL_KNOWN


def test_a_name_near_a_local_one_is_suggested(write_tu, tmp_path):
    write_tu(parts(2), "zip", "my-molecules", under=tmp_path / "data")
    with pytest.raises(UserError, match=r"Did you mean 'my-molecules'\?"):
        read("my-molecule", root=tmp_path / "data")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", r"an empty name"),
        ("absent.zip", r"absent.zip: no such file or folder"),
        ("absent/MUTAG", r"absent/MUTAG: no such file or folder"),
        (Path("MUTGA"), r"MUTGA: no such file or folder"),
        ("notes.txt", r"notes.txt: unknown kind of file. Known: .zip, .graphml, .csv"),
        ("notes", r"notes: unknown kind of file"),
        ("empty", r"empty: a folder without NAME_A.txt or .graphml files.$"),
        ("absend.zip", r"absend.zip: no such file or folder.$"),
        ("note.txt", r"note.txt: no such file or folder. Did you mean notes.txt\?$"),
        ("sets/TINI", r"sets/TINI: no such file or folder.$"),
        ("tests_mine", r"tests_mine: no such data set .* Did you mean test_mine\?"),
        ("sets", r"sets: a folder without NAME_A.txt or .graphml files. Give one of the folders in it: sets/TINY.$"),
        ("sets/TINY/TINY_A.txt", r"TINY_A.txt: one of several files of a data set. Give their folder: sets/TINY$"),
        ("roots", r"roots: a folder without .* To read one of TINY, give its name and this folder as root"),
        ("other.zip", r"other.zip: expected one file NAME_A.txt of a TU data set, found TINY_B.txt"),
    ],
)
def test_wrong_paths_are_told(write_tu, tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    for file in ("notes.txt", "notes"):
        Path(file).write_text("hello")
    Path("empty").mkdir()
    Path("test_mine").mkdir()
    write_tu(parts(2), "folder", under=tmp_path / "sets")
    write_tu(parts(2), "zip", under=tmp_path / "roots")
    write_tu({"B": "1"}, "zip").rename("other.zip")
    with pytest.raises(UserError, match=message):
        read(source)


def test_a_root_that_is_no_folder_is_told(monkeypatch):
    with pytest.raises(UserError, match=r"data root: absent is not a folder"):
        read("MUTAG", root="absent")
    monkeypatch.setenv("JOAO_DATA", "gone")
    with pytest.raises(UserError, match=r"JOAO_DATA: gone is not a folder"):
        listing()


def test_listing_and_reading_do_not_wait_for_torch():
    program = "import sys, joao.data as d; d.listing(); d.read('MUTAG'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_name_that_is_not_well_known_is_never_told_to_a_server(server, monkeypatch):
    server["CCO"] = b"asked for"
    monkeypatch.setattr(_download, "download", lambda _: pytest.fail("asked a server"))
    with pytest.raises(UserError, match=r"CCO: no such data set .*, and it is not looked for elsewhere"):
        read("CCO")
