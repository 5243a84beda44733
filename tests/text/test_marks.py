"""Entities marked inline, by offsets or by names, and their ordered pairs."""

import re
from itertools import pairwise, permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from erda.errors import DataError
from erda.text.keys import ordered_pairs
from erda.text.marks import Mark, example_from_marks, example_from_text, example_to_marks
from erda.text.sentences import tokens_of
from erda.types import Entity, Span


def words(text: str) -> list[str]:
    return [text[a:b] for a, b in tokens_of(text)]


@given(st.text(max_size=30), st.data())
def test_character_offsets_find_the_same_words(text: str, data: st.DataObject) -> None:
    a, b, c, d = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=4, max_size=4)))
    swapped = data.draw(st.booleans())
    head, tail = (Mark(c, d), Mark(a, b)) if swapped else (Mark(a, b), Mark(c, d))
    if not (text[a:b].strip() and text[c:d].strip()):
        with pytest.raises(DataError):
            example_from_text(text, head, tail)
        return
    example = example_from_text(text, head, tail)
    assert "".join(example.tokens) == "".join(text.split())
    for entity, mark in ((example.head, head), (example.tail, tail)):
        mention = text[mark.start : mark.end]
        assert "".join(example.tokens[entity.span.start : entity.span.end]) == "".join(mention.split())
        assert entity.name == mention.strip()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (Mark(-1, 3), "head span (-1, 3) starts before the first character."),
        (Mark(2, 2), "head span (2, 2) is empty; an entity has at least one character."),
        (Mark(0, 99), "head span (0, 99) ends after the last character (17 characters)."),
        (Mark(3, 4), "head span (3, 4) covers no word."),
        (Mark(9, 14), "head span (9, 14) overlaps tail span (13, 17); mark two separate mentions."),
        (Mark(13, 17), "head span (13, 17) overlaps tail span (13, 17)"),
    ],
)
def test_invalid_offsets(head: Mark, message: str) -> None:
    text = "Ann then saw Oslo"
    with pytest.raises(DataError, match=re.escape(message)):
        example_from_text(text, head, Mark(13, 17))


def test_inline_marks() -> None:
    example = example_from_marks(
        "{{Oslo}}'s mayor, [[Ann  Lee]], left the U.S.", relation="mayor_of", id="x", source="s"
    )
    assert example.tokens == ("Oslo", "'s", "mayor", ",", "Ann", "Lee", ",", "left", "the", "U.S.")
    assert (example.head, example.tail) == (Entity("Ann  Lee", Span(4, 6)), Entity("Oslo", Span(0, 1)))
    assert (example.relation, example.id, example.source) == ("mayor_of", "x", "s")
    assert example_to_marks(example) == "{{Oslo}} 's mayor , [[Ann Lee]] , left the U.S."
    brackets = example_from_marks("[[x [1]]] and {{ {y} }}")
    assert (brackets.head.name, brackets.tail.name) == ("x [1]", "{y}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ann left Oslo.", "no head is marked; put the first entity in [[ ]] and the second in {{ }}, once each."),
        ("", "no head is marked"),
        ("[[Ann]] left Oslo.", "no tail is marked; put"),
        ("[[Ann left {{Oslo}}.", "'{{' at character 11 stands inside the head; close the head first"),
        ("[[Ann]] left {{Oslo.", "'{{' is never closed; write '}}' where the tail ends."),
        ("[[Ann {{Lee}} ]] left", "'{{' at character 6 stands inside the head"),
        ("[[Ann {{Lee]] left}}", "'{{' at character 6 stands inside the head"),
        ("[[Ann [[Lee]] ]] {{Oslo}}", "'[[' at character 6 stands inside the head"),
        ("[[ ]] left {{Oslo}}", "the head marks no word; put"),
        ("[[]] left {{Oslo}}", "the head marks no word; put"),
        ("[[Ann]] and [[Bob]] left {{Oslo}}", "'[[' at character 12 marks a second head; put"),
        ("[[Ann]] left {{Oslo}} for {{Bergen}}", "'{{' at character 26 marks a second tail; put"),
        ("[[Ann}} left {{Oslo]]", "'}}' at character 5 closes no tail: the head ends with ']]'"),
        ("Ann]] left {{Oslo}}", "']]' at character 3 closes no head: nothing is open; put"),
    ],
)
def test_invalid_inline_marks(text: str, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        example_from_marks(text)


@given(st.text(alphabet="aB[]{} .'U1é", min_size=1, max_size=20), st.data())
def test_marked_text_is_read_back(text: str, data: st.DataObject) -> None:
    a, b, c, d = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=4, max_size=4)))
    assume(text[a:b].strip() and text[c:d].strip())
    example = example_from_text(text, Mark(c, d), Mark(a, b))
    again = example_from_marks(example_to_marks(example))
    assert again.tokens == example.tokens
    assert (again.head.span, again.tail.span) == (example.head.span, example.tail.span)
    assert example_to_marks(again) == example_to_marks(example)


@given(st.lists(st.integers(0, 12), min_size=2, max_size=12), st.integers(0, 9))
def test_ordered_pairs_are_all_pairs_closest_first(cuts: list[int], most: int) -> None:
    spans = [Span(a, b) for a, b in pairwise(sorted(set(cuts)))]
    tokens = [str(i) for i in range(13)]
    entities = [Entity(f"e{span.start}", span) for span in spans]
    pairs = ordered_pairs(tokens, entities[::-1], source="s")
    found = [(one.head, one.tail) for one in pairs.examples]
    assert sorted(found, key=str) == sorted(permutations(entities, 2), key=str)
    gaps = [max(h.span.start, t.span.start) - min(h.span.end, t.span.end) for h, t in found]
    assert gaps == sorted(gaps)
    assert all(one.tokens == tuple(tokens) and one.source == "s" for one in pairs.examples)
    bounded = ordered_pairs(tokens, entities, most=most, source="s")
    assert bounded.examples == pairs.examples[:most]
    assert bounded.n_left_out == max(0, len(found) - most)


def test_overlapping_mentions_form_no_pair_and_repeated_mentions_count_once() -> None:
    tokens = ["The", "University", "of", "Oslo", "lies", "in", "Oslo"]
    whole, part, word = (
        Entity("University of Oslo", Span(1, 4)), Entity("Oslo", Span(3, 4)), Entity("University", Span(1, 2))
    )  # fmt: skip
    assert ordered_pairs(tokens, [whole, part]).examples == ()
    pairs = ordered_pairs(tokens, [whole, part, word, Entity("oslo", Span(6, 7))])
    assert {(one.head, one.tail) for one in pairs.examples} == {(word, part), (part, word)}
    assert pairs.n_entities == 3
