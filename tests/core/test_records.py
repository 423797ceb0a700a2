"""Strict JSON, and records whose types are checked."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joao.core.errors import UserError
from joao.core.files import MOST_LEVELS, parse_json
from joao.core.registry import make_record

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    LEAVES | ANY_TEXT, lambda each: st.lists(each, max_size=4) | st.dictionaries(ANY_TEXT, each, max_size=4)
)


@given(VALUES, st.booleans())
def test_json_is_read_as_by_the_standard_library(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_json(text) == parse_json(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '[{"b": {"a": 1, "c": 2, "a": 3}}]',
        "[NaN]",
        "-Infinity",
        "1e400",
        "[-1E+400]",
        f"{2**63}",
        f"[[-{2**63 + 1}]]",
        "9" * 5000,
        "1" * 400 + ".0",
        r'"\ud800"',
        r'{"\uDFFF": 1}',
        '"\ud800"',
        b'"\xff"',
        "[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1),
        '{"a":' * (MOST_LEVELS + 1) + "1" + "}" * (MOST_LEVELS + 1),
        "[1,[2]," * 100_000,
        "[" * 100_000,
        "",
        "{",
        "01",
        "'a'",
        "[1] 2",
    ],
)
def test_ambiguous_json_is_rejected(text):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


@pytest.mark.parametrize(
    "text", ["[" * MOST_LEVELS + "]" * MOST_LEVELS, f"[{-(2**63)}, {2**63 - 1}]", "0." + "1" * 400]
)
def test_limits_are_inclusive(text):
    assert parse_json(text) == json.loads(text)


@dataclass(frozen=True)
class Inside:
    share: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outside:
    count: int
    label: int | str
    is_done: bool
    table: list[list[float]] | None
    by_name: Mapping[str, Sequence[int]]
    parts: tuple[Inside, ...] = ()
    anything: Mapping[str, Any] = field(default_factory=dict)


RECORD = Outside(3, "a", False, [[1.0]], {"x": [1, 2]}, (Inside(0.5, ("b",)), Inside(1.0)), {"y": [None]})


def test_records_survive_a_round_trip():
    assert make_record(Outside, parse_json(json.dumps(asdict(RECORD))), "place") == RECORD


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        *(
            ((name,), wrong)
            for name in ("count", "is_done", "by_name", "parts", "anything")
            for wrong in (None, 1.5, "1")
        ),
        (("count",), True),
        (("is_done",), 1),
        (("label",), None),
        (("label",), 1.5),
        (("table",), [["1"]]),
        (("table",), [1.0]),
        (("table",), {"a": [1.0]}),
        (("by_name", "x"), [1, "2"]),
        (("by_name", "x"), {"1": 2}),
        (("parts", 1, "share"), "0.5"),
        (("parts", 1, "names"), [1]),
        (("parts", 1), 3),
        (("anything",), [1]),
    ],
)
def test_wrong_types_are_named(path, wrong):
    values = place = json.loads(json.dumps(asdict(RECORD)))
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = wrong
    with pytest.raises(UserError) as raised:
        make_record(Outside, values, "place")
    assert all(str(key).strip(string.digits) in str(raised.value) for key in path)


def test_missing_and_unknown_keys_are_named():
    values = asdict(RECORD)
    with pytest.raises(UserError, match="'colour'"):
        make_record(Outside, {**values, "colour": 1}, "place")
    assert make_record(Outside, {**values, "colour": 1}, "place", allow_unknown=True) == RECORD
    del values["label"]
    with pytest.raises(UserError, match="'label'"):
        make_record(Outside, values, "place")
