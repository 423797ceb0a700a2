"""The budget of memory of an input."""

import pytest

from joao.core.errors import UserError
from joao.core.memory import GROWTH, Budget, memory_limit

GIGABYTE = 1 << 30


def test_the_default_is_a_gigabyte(monkeypatch):
    monkeypatch.delenv("JOAO_MEMORY", raising=False)
    assert memory_limit() == GIGABYTE


@pytest.mark.parametrize(
    ("text", "limit"), [("8G", 8 * GIGABYTE), ("500m", 500 << 20), ("1T", 1 << 40), ("", GIGABYTE)]
)
def test_the_limit_can_be_raised_and_lowered(text, limit, monkeypatch):
    monkeypatch.setenv("JOAO_MEMORY", text)
    assert memory_limit() == limit
    Budget("a.jsonl").take(limit, "nodes")
    with pytest.raises(UserError, match=r"a\.jsonl.*nodes"):
        Budget("a.jsonl").take(limit + 1, "nodes")


@pytest.mark.parametrize("text", ["much", "-1G", "1_0G", "1e3", "٣G", "8", "9" * 5000 + "G"])
def test_other_limits_are_refused(text, monkeypatch):
    monkeypatch.setenv("JOAO_MEMORY", text)
    with pytest.raises(UserError, match="JOAO_MEMORY"):
        memory_limit()


def test_draws_add_up(monkeypatch):
    monkeypatch.setenv("JOAO_MEMORY", "1G")
    budget = Budget("a.jsonl")
    budget.take(GIGABYTE - 1, "nodes")
    budget.take(1, "columns")
    with pytest.raises(UserError, match=r"JOAO_MEMORY=2G"):
        budget.take(1, "columns")


def test_a_large_input_may_take_a_multiple_of_its_size():
    budget = Budget("a.jsonl", input_bytes=GIGABYTE)
    budget.take(GROWTH * GIGABYTE, "nodes")
    with pytest.raises(UserError):
        budget.take(1, "nodes")
