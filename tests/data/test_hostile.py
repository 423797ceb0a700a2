"""Files that were made to do harm end in one line, before they have taken memory or time."""

import gzip
import time
import tracemalloc
import zipfile
from contextlib import suppress

import pytest
from studies.hostile_files import FAULTS, Fault, archive, caused, repeated

from joao.core.errors import UserError
from joao.data import cache as _download
from joao.data import read
from joao.data.formats import text as _compressed
from joao.data.formats import text as _text

LEAST = 1 << 26  # bytes that are little enough


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_is_told_in_one_line(fault, monkeypatch):
    if fault.told.startswith("grows"):
        monkeypatch.setattr(_compressed, "ALWAYS_ALLOWED", 1 << 22)  # to save the time
    told, taken = caused(fault)
    assert fault.told in told
    assert "\n" not in told
    assert taken is None or taken < 8 * LEAST


def test_what_grows_within_bounds_is_read(monkeypatch, tmp_path):
    rows = b"g,a,b\n" * 100_000
    monkeypatch.setattr(_compressed, "ALWAYS_ALLOWED", len(rows) * 3 + 100)
    path = repeated("s.csv.gz", rows, 3, b"graph,source,target\n")(tmp_path)
    assert len(path.read_bytes()) * _compressed.MOST_GROWTH < len(rows) * 3
    assert len(read(path)) == 1
    monkeypatch.setattr(_compressed, "ALWAYS_ALLOWED", len(rows) * 3)
    with pytest.raises(UserError, match=r"s\.csv\.gz: cannot be read \(grows to more than 100 times"):
        read(path)


@pytest.mark.parametrize("word", ["1", "x", ""])
@pytest.mark.parametrize("header", ["smiles", "graph,source,target"])
def test_columns_without_number_take_no_more_than_their_time(header, word, tmp_path):
    number = 60_000  # of which pairs are too many to be compared in a minute
    names = ",".join(f"t{each}" for each in range(number))
    cells = "CCO" if header == "smiles" else "a,b,c"
    (tmp_path / "a.csv").write_text(f"{header},{names}\n{cells}{f',{word}' * number}\n")
    begun = time.process_time()
    with suppress(UserError):
        assert len(read(tmp_path / "a.csv")) == 1
    assert time.process_time() - begun < 15


def test_letters_beyond_a_molecule_take_no_more_memory_than_their_text(tmp_path):
    pytest.importorskip("rdkit")
    letters = 4_000_000
    (tmp_path / "a.smi").write_text("CCO\n" + "C" * letters + "\n")
    read(tmp_path / "a.smi")  # loads what it needs
    tracemalloc.start()
    try:
        assert len(read(tmp_path / "a.smi")) == 1
        assert tracemalloc.get_traced_memory()[1] < 6 * letters
    finally:
        tracemalloc.stop()


def test_a_line_without_end_is_not_waited_for(monkeypatch, tmp_path):
    monkeypatch.setattr(_text, "MOST_LINE", 1000)
    (tmp_path / "a.jsonl").write_text('{"edges": [], "num_nodes": 1}\n' + "[" * 5000)
    with pytest.raises(UserError, match=r"a\.jsonl:2: a line of more than 0 MB"):
        read(tmp_path / "a.jsonl")


def nameless(folder):
    """An archive with a name that begins with what ends one."""
    path = archive(folder, {"qx": b"", "s_A.txt": b""})
    path.write_bytes(path.read_bytes().replace(b"qx", b"\0x"))
    return path


def mangled(folder):
    """An archive that says that its names are UTF-8 and has some that are not."""
    path = archive(folder, {"é_A.txt": b"", "s_A.txt": b"1, 2\n"})
    path.write_bytes(path.read_bytes().replace("é_A".encode(), b"\xff_\xfeA"))
    return path


# What the fuzzer found, and what led there; each ended in another error before.
FOUND = (
    Fault("a name in an archive that is not UTF-8", mangled, "cannot be read"),
    Fault("a member without a name", nameless, "no file s_graph_indicator.txt"),
    Fault(
        "a name that is written in a roundabout way", lambda f: archive(f, {"./s_A.txt": b""}), "no file s_graph_ind"
    ),
)


@pytest.mark.parametrize("fault", FOUND, ids=lambda fault: fault.what)
def test_what_the_fuzzer_found(fault):
    told, _ = caused(fault)
    assert fault.told in told
    assert "\n" not in told


def test_an_archive_that_is_told_by_its_directory_alone(tmp_path, monkeypatch):
    """A file gives no more bytes than its archive says, so that a directory that understates does no harm."""
    path = archive(tmp_path, {"s_A.txt": b"1, 2\n" * 1000, "s_graph_indicator.txt": b"1\n1\n"})
    content = path.read_bytes()
    path.write_bytes(content.replace((5000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    with zipfile.ZipFile(path) as opened:
        assert opened.getinfo("s_A.txt").file_size == 10
    with pytest.raises(UserError, match="cannot be read"):
        read(path)


def test_downloads_are_https_alone(monkeypatch):
    assert _download.ADDRESS.startswith("file:")  # a test's; the package's own is below
    monkeypatch.setattr(_download, "SCHEMES", ("https",))
    with pytest.raises(UserError, match=r"ENZYMES.zip is not fetched: only https is safe"):
        _download.download("ENZYMES")
    with pytest.raises(UserError, match=r"^http://elsewhere/a.zip is not fetched"):
        _download._Redirects().redirect_request(None, None, 302, "", {}, "http://elsewhere/a.zip")


def test_what_was_downloaded_is_known_again(write_tu, monkeypatch, tmp_path):
    parts = {"A": "1, 2\n", "graph_indicator": "1\n1\n"}
    path = write_tu(parts, "zip", "ENZYMES", under=_download.cache_folder())
    assert len(read("ENZYMES")) == 1
    record = path.with_name("ENZYMES.zip.sha256")
    assert record.read_text().endswith("  ENZYMES.zip\n")
    whole = path.read_bytes()
    path.write_bytes(whole + b"x")
    with pytest.raises(UserError, match=r"is not the file that was downloaded first: .*remove .*ENZYMES\.zip\.sha256"):
        read("ENZYMES")
    path.unlink()  # what the server gives now must be the same, too
    offered = tmp_path / "nowhere" / "ENZYMES.zip"
    offered.parent.mkdir()
    offered.write_bytes(whole[:-2] + b"\1\0x")
    with pytest.raises(UserError, match="is not the file that was downloaded first"):
        read("ENZYMES")
    offered.write_bytes(whole)
    assert len(read("ENZYMES")) == 1


def test_a_download_has_an_end(monkeypatch, tmp_path):
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "ENZYMES.zip").write_bytes(gzip.compress(b"") * 100)
    monkeypatch.setattr(_download, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="gives more than 0 GB"):
        read("ENZYMES")
    assert list(_download.cache_folder().iterdir()) == []
