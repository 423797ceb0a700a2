"""The check of messages: whole words and numbers only."""

import pytest

from tests.messages import assert_mentions, mentions


@pytest.mark.parametrize("value", [1, "1", "graph", "graph 1", "'width'", "width", "share", "learning rate", 0.5, -3])
def test_whole_words_and_numbers_are_found(value):
    assert mentions("graph 1: 'width', test_share 0.5, learning rate -3.", value)


@pytest.mark.parametrize("text", ["10", "21", "1.5", "0.1", "-1", "1,000", "x1"])
def test_number_is_not_found_in_another_number(text):
    assert not mentions(f"got {text}", 1)


def test_word_is_not_found_in_another_word():
    assert not mentions("expected classes", "class")
    with pytest.raises(AssertionError):
        assert_mentions("graphs 10", "graphs", 1)
