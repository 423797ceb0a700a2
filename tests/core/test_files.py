"""A file is there whole or not at all, and a place that cannot be written to is told before any work."""

import errno
import json
import os
import re
import stat
import time
from pathlib import Path

import pytest

import joao
from joao.core.files import (
    check_new_file,
    make_folder,
    open_regular,
    parse_json,
    read_regular,
    temporary_path,
    write_file,
    write_json,
)
from tests.messages import refused


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_replaces_nothing(tmp_path):
    path = tmp_path / "file"

    def content():
        path.write_text("of another process")  # after every check that could be made before
        yield b"ours"

    with refused(path):
        write_file(path, content(), new=True)
    assert path.read_text() == "of another process"
    assert entries(tmp_path) == ["file"]
    path.unlink()
    write_file(path, "ours", new=True)
    assert path.read_text() == "ours"
    assert entries(tmp_path) == ["file"]


def test_a_new_file_is_written_without_hard_links(tmp_path, monkeypatch):
    def refuse(*names):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    write_file(tmp_path / "file", "ours", new=True)
    assert (tmp_path / "file").read_text() == "ours"
    assert entries(tmp_path) == ["file"]


def test_a_hard_link_in_the_place_of_the_temporary_file_is_not_written_to(tmp_path):
    """A stranger may have placed it, or a process was killed just after it had given a new file its name."""
    (tmp_path / "thesis").write_text("years of work")
    os.link(tmp_path / "thesis", temporary_path(tmp_path / "file"))
    write_file(tmp_path / "file", "new")
    assert (tmp_path / "thesis").read_text() == "years of work"
    assert entries(tmp_path) == ["file", "thesis"]


def test_a_repeated_key_is_found_quickly():
    """Comparing every key with every other takes minutes here."""
    keys = [f'"k{number}":0' for number in range(200_000)]
    started = time.process_time()
    with pytest.raises(ValueError, match="'k199999'"):
        parse_json(f"{{{','.join(keys)},{keys[-1]}}}")
    assert time.process_time() - started < 5


@pytest.mark.parametrize("content", ["naïve\n", b"\x00\xff", ""])
def test_content_arrives_and_nothing_else_is_left(tmp_path, content):
    write_file(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert entries(tmp_path) == ["file"]


def test_an_existing_file_is_replaced(tmp_path):
    (tmp_path / "file").write_text("long, old content")
    write_file(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "ordinary").write_text("")
    write_file(tmp_path / "ours", "")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ordinary", "ours")]
    assert modes[0] == modes[1]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("old")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with refused(tmp_path / "file", os.strerror(errno.ENOSPC)):
        write_file(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old"
    assert entries(tmp_path) == ["file"]


def test_the_temporary_file_of_a_killed_process_is_used_again(tmp_path):
    temporary_path(tmp_path / "file").write_text("half of a very long text")
    write_file(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert entries(tmp_path) == ["file"]


def test_an_interruption_leaves_no_temporary_file(tmp_path):
    def pieces():
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "file", pieces())
    assert entries(tmp_path) == []


def test_concurrent_writes_of_one_file_do_not_mix(tmp_path):
    def pieces():
        yield b"outer, first half, "
        write_file(tmp_path / "file", "inner")
        assert (tmp_path / "file").read_text() == "inner"
        yield b"second half"

    write_file(tmp_path / "file", pieces())
    assert (tmp_path / "file").read_text() == "outer, first half, second half"
    assert entries(tmp_path) == ["file"]


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path):
    (tmp_path / "ours").write_text("years of work")
    temporary_path(tmp_path / "file").symlink_to(tmp_path / "ours")
    write_file(tmp_path / "file", "new")
    assert (tmp_path / "ours").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "new"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("place", ["nowhere/file", "occupied/file", "folder"])
def test_a_place_that_cannot_be_written_to(tmp_path, place):
    (tmp_path / "occupied").write_text("a file, not a folder")
    (tmp_path / "folder").mkdir()
    with refused(tmp_path / place):
        write_file(tmp_path / place, "text")
    assert entries(tmp_path) == ["folder", "occupied"]


def test_json_is_read_back_and_refuses_what_json_has_not(tmp_path):
    value = {"a": [1, 0.1, None, "ü"]}
    write_json(tmp_path / "value.json", value)
    assert json.loads((tmp_path / "value.json").read_text(encoding="utf-8")) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "nan.json", float("nan"))
    assert entries(tmp_path) == ["value.json"]


def test_folders_are_made_with_those_above(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_below_a_file_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with refused(tmp_path / "file" / "folder", os.strerror(errno.ENOTDIR)):
        make_folder(tmp_path / "file" / "folder")


def test_check_new_file_accepts_a_new_path_and_writes_nothing(tmp_path):
    check_new_file(tmp_path / "file")
    assert entries(tmp_path) == []


def test_check_new_refuses(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with refused(tmp_path / "file"):
        check_new_file(tmp_path / "file")
    with refused(tmp_path / "nowhere" / "file"):
        check_new_file(tmp_path / "nowhere" / "file")
    # Whoever runs the tests may be allowed to write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with refused(tmp_path / "other"):
        check_new_file(tmp_path / "other")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_regular_files_are_read(kind, tmp_path):
    path = tmp_path / "input"
    {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": os.mkdir}[kind](path)
    for read in (open_regular, read_regular):
        with pytest.raises(OSError, match=r"regular|directory"):
            read(path)


def test_a_regular_file_is_read_also_through_a_link(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file") == read_regular(tmp_path / "link") == b"content"


# Files of the package and of the system; a path whose kind was looked at before.
OTHER_OPENERS = {
    "config/methods.py": 1,
    "core/provenance.py": 3,
    "data/cache.py": 1,
    "report/rendering.py": 1,
    "report/scores.py": 1,
    "runs/folder.py": 1,
    "data/shards/shards.py": 1,
}


def test_everything_else_is_opened_by_open_regular():
    package = Path(joao.__file__).parent
    opener = re.compile(r'\.open\("rb"\)|\.read_bytes\(|\.read_text\(|safe_open\(|\.from_file\(|torch\.load\(path')
    found = {path: len(opener.findall(path.read_text(encoding="utf-8"))) for path in package.rglob("*.py")}
    assert {path.relative_to(package).as_posix(): count for path, count in found.items() if count} == OTHER_OPENERS
