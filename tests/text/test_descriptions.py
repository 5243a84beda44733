"""Descriptions with several lines, and the patterns among them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erda.errors import DataError
from erda.text.descriptions import meaning_of, patterns_of, tidy_description

DESCRIPTION = "the person who began it\n[[X]] was set up by {{Y}}.\nan organisation"


def test_lines_with_marks_are_patterns() -> None:
    assert patterns_of(DESCRIPTION) == ["[[X]] was set up by {{Y}}."]
    assert meaning_of(DESCRIPTION) == "the person who began it an organisation"


def test_repeated_lines_and_patterns_go() -> None:
    patterns = ["[[X]] made {{Y}}.", "[[A B]] made {{C}}.", "{{X}} made [[Y]].", "[[X]] made {{Y}}."]
    tidy = tidy_description("\n".join(["the maker", *patterns, "the  maker"]))
    assert tidy == "the maker\n[[X]] made {{Y}}.\n{{X}} made [[Y]]."


def test_a_pattern_with_one_mark_is_refused() -> None:
    with pytest.raises(DataError, match=r"line '\[\[X\]\] was set up\.': no tail is marked"):
        tidy_description("fine\n[[X]] was set up.")


@given(st.text(st.characters(exclude_characters="[]{}", exclude_categories=["Cs"])))
def test_text_without_marks_is_all_meaning(text: str) -> None:
    tidy = tidy_description(text)
    assert patterns_of(tidy) == []
    assert tidy_description(tidy) == tidy
    assert meaning_of(tidy) == " ".join(tidy.splitlines())
