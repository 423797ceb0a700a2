"""Files of tensors are read back as they were written, or told to be damaged in one line."""

import errno
import hashlib
import json
import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from joao.runs.folder import CHECKSUM_KEY, checksum, read_tensors, write_tensors
from tests.messages import refused

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(3), "none": torch.zeros(0, 4)}


def test_what_was_written_is_read(tmp_path):
    write_tensors(tmp_path / "t.safetensors", TENSORS)
    found = read_tensors(tmp_path / "t.safetensors", checked=True)
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in TENSORS.items())


@pytest.mark.parametrize(
    "other",
    [{"a": TENSORS["a"].view(3, 2)}, {"a": TENSORS["a"].int()}, {"a": TENSORS["a"] + 1}, {"c": TENSORS["a"]}],
    ids=["shape", "type", "values", "name"],
)
def test_the_checksum_is_of_all_that_tensors_are(other):
    assert checksum({"a": TENSORS["a"]}) != checksum(other)


def test_files_of_earlier_versions_stay_readable(tmp_path):
    """What the checksum is of, and where it is, does not change."""
    digest = hashlib.sha256()
    for name, told in (
        ("a", b"a torch.float32 [2, 3] "),
        ("b", b"b torch.int64 [] "),
        ("none", b"none torch.float32 [0, 4] "),
    ):
        digest.update(told + TENSORS[name].numpy().tobytes())
    assert checksum(dict(reversed(TENSORS.items()))) == digest.hexdigest()
    write_tensors(tmp_path / "t.safetensors", TENSORS)
    with safe_open(tmp_path / "t.safetensors", "pt") as file:
        assert file.metadata() == {"joao.checksum": digest.hexdigest()}


def test_a_file_of_somebody_else_has_no_checksum_and_is_read_where_it_need_not(tmp_path):
    save_file(TENSORS, tmp_path / "t.safetensors")
    assert torch.equal(read_tensors(tmp_path / "t.safetensors")["a"], TENSORS["a"])
    with refused(tmp_path / "t.safetensors"):
        read_tensors(tmp_path / "t.safetensors", checked=True)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with refused(tmp_path / "t.safetensors", os.strerror(errno.ENOENT)):
        read_tensors(tmp_path / "t.safetensors")


def header(metadata, **entry):
    """A file of one tensor, or of none, that says of itself what one likes."""
    text = json.dumps({"__metadata__": metadata} | ({"a": entry} if entry else {})).encode()
    return len(text).to_bytes(8, "little") + text + bytes(entry["data_offsets"][1] if entry else 0)


@pytest.mark.parametrize(
    "content",
    [
        header({CHECKSUM_KEY: "x"}, dtype="BF16", shape=[2], data_offsets=[0, 4]),  # numpy has none
        header({}, dtype="F4", shape=[8], data_offsets=[0, 4]),  # nor has torch
        header({}, dtype="F32", shape=[0, 2**63], data_offsets=[0, 0]),
        header({}, dtype="F32", shape=[2**40], data_offsets=[0, 4]),
        header(None),
        header({CHECKSUM_KEY: 3}),
        header({CHECKSUM_KEY: "x"}),
        (10**18).to_bytes(8, "little") + b"{}",
    ],
    ids=["bf16", "f4", "too many", "too few bytes", "no metadata", "a number", "another checksum", "a long header"],
)
def test_what_nobody_wrote_is_told_in_one_line(content, tmp_path):
    (tmp_path / "t.safetensors").write_bytes(content)
    with refused(tmp_path / "t.safetensors"):
        read_tensors(tmp_path / "t.safetensors", checked=True)
