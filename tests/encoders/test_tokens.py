"""Marks enclose the right pieces for any words; shortened sentences keep both entities."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import marked_examples, sentence

from erda.encoders.layers import load_tokenizer
from erda.encoders.tokens import MARKS, MarkedTokenizer, cut
from erda.encoders.weights import find_model
from erda.text.marks import example_from_marks, example_to_marks
from erda.text.sentences import words_before, words_of
from erda.types import Example


@cache
def tokenizer_of(mode: str, **limit: int) -> MarkedTokenizer:
    return load_tokenizer(find_model("minilm"), mode=mode, **limit)


def spelled(tokenizer: MarkedTokenizer, ids: np.ndarray) -> list[str]:
    names = {row: piece for piece, row in tokenizer._backend.get_vocab().items()}
    return [
        names.get(int(id), MARKS[int(id) - tokenizer.vocab_size] if id >= tokenizer.vocab_size else "?") for id in ids
    ]


@pytest.mark.parametrize(
    ("mode", "text", "spans", "expected", "places"),
    [
        ("paper", "The capital is Berlin", [(3, 4), (1, 2)], "[CLS] the @ capital @ is # berlin # [SEP]", (6, 2)),
        ("markers", "a [SEP] # b", [(0, 1), (3, 4)], "[CLS] [E1] a [/E1] [ sep ] # [E2] b [/E2] [SEP]", (1, 8)),
    ],
)
def test_marks_of_both_modes(
    mode: str, text: str, spans: list[tuple[int, int]], expected: str, places: tuple[int, int]
) -> None:
    (pieces,) = tokenizer_of(mode).encode([sentence(text, *spans)])
    assert " ".join(spelled(tokenizer_of(mode), pieces.ids)) == expected
    assert pieces.places == places
    assert tokenizer_of("markers").mark_origins == tokenizer_of("paper").marks


ANY_WORD = st.one_of(
    st.text(max_size=8),
    st.text(alphabet=st.characters(categories=["Cs", "Mn", "Zs", "Cf", "So", "Lo"]), max_size=3),
    st.sampled_from(["", " ", "\u200b", "\x00", "#", "@", "[SEP]", "[E1]", "unthinkable", "New York", "naïve", "北京"]),
)


def word_pieces(tokenizer: MarkedTokenizer, word: str) -> list[int]:
    """The slow way: one word at a time, without a cache."""
    clean = words_of(word.encode("utf-8", "replace").decode("utf-8"))
    return tokenizer._backend.encode(clean, is_pretokenized=True, add_special_tokens=False).ids


ODD_WORD = st.sampled_from(["Obama's", "Mr.", "J.", "U.S.", "20th", "4×400", "10€", "father-in-law"])


@given(marked_examples(ODD_WORD | st.text(alphabet="aB1é\u0301.,'’s²-_€", min_size=1, max_size=6)))
def test_a_sentence_has_the_same_pieces_and_places_as_tokens_and_as_marked_text(example: Example) -> None:
    marked = example_from_marks(example_to_marks(example))
    one, two = tokenizer_of("markers").encode([example, marked])
    assert (one.ids.tolist(), one.places) == (two.ids.tolist(), two.places)
    assert words_before(example) == words_before(marked)


@given(marked_examples(ANY_WORD), st.sampled_from(["paper", "markers"]))
@settings(max_examples=60)
def test_marks_enclose_the_entities(example: Example, mode: str) -> None:
    tokenizer = tokenizer_of(mode)
    expected: list[int] = [tokenizer.cls_id]
    starts: dict[str, int] = {}
    for place, word in enumerate(example.tokens):
        for role, entity, mark in (("head", example.head, 0), ("tail", example.tail, 2)):
            if entity.span.start == place:
                starts[role] = len(expected)
                expected.append(tokenizer.marks[mark])
                if not any(word_pieces(tokenizer, example.tokens[i]) for i in range(place, entity.span.end)):
                    expected.append(tokenizer.unk_id)
        expected += word_pieces(tokenizer, word)
        for entity, mark in ((example.head, 1), (example.tail, 3)):
            if entity.span.end == place + 1:
                expected.append(tokenizer.marks[mark])
    expected.append(tokenizer.sep_id)
    (pieces,) = tokenizer.encode([example])
    assert pieces.ids.tolist() == expected
    assert pieces.places == (starts["head"], starts["tail"])


@given(marked_examples(ANY_WORD, part_size=12))
@settings(max_examples=60)
def test_a_shortened_sentence_keeps_both_entities_and_their_marks(example: Example) -> None:
    (whole,) = tokenizer_of("markers").encode([example])
    short = tokenizer_of("markers", max_pieces=24)
    (pieces,) = short.encode([example])
    assert len(pieces) <= 24
    assert len(pieces) == min(len(whole), 24)
    open_head, close_head, open_tail, close_tail = range(short.vocab_size, short.vocab_size + 4)
    assert pieces.ids[0] == short.cls_id
    assert pieces.ids[-1] == short.sep_id
    for start, opening, closing, whole_start in (
        (pieces.places[0], open_head, close_head, whole.places[0]),
        (pieces.places[1], open_tail, close_tail, whole.places[1]),
    ):
        assert pieces.ids[start] == opening
        inside = pieces.ids[start + 1 : pieces.ids.tolist().index(closing)].tolist()
        assert inside
        assert inside == whole.ids[whole_start + 1 : whole_start + 1 + len(inside)].tolist()
    assert (pieces.places[0] < pieces.places[1]) == (whole.places[0] < whole.places[1])


@pytest.mark.parametrize(
    ("parts", "room", "kept"),
    [
        (["abcdef", "H", "", "T", "uvwxyz"], 6, ["ef", "H", "", "T", "uv"]),
        (["abc", "HH", "klmnopq", "T", "xyz"], 8, ["bc", "HH", "kq", "T", "x"]),  # a tie: the left piece
        (["abc", "HHHH", "k", "TTTT", "x"], 6, ["", "HHH", "", "TTT", ""]),
        (["abc", "H", "k", "TTTTTTT", "x"], 6, ["", "H", "", "TTTTT", ""]),
        (["abc", "HHHHHHH", "k", "T", "x"], 6, ["", "HHHHH", "", "T", ""]),
        (["abc", "H", "k", "T", "x"], 2, ["", "H", "", "T", ""]),
    ],
)
def test_cut(parts: list[str], room: int, kept: list[str]) -> None:
    shortened = cut([[ord(letter) for letter in part] for part in parts], room)
    assert ["".join(map(chr, part)) for part in shortened] == kept


def test_blanked_entities_become_one_mask_token() -> None:
    tokenizer = tokenizer_of("markers")
    example = sentence("Marie Curie was born in Warsaw", (0, 2), (5, 6))
    both, tail_only, reverse = tokenizer.encode(
        [example, example, sentence("Marie Curie was born in Warsaw", (5, 6), (0, 2))],
        blanked=[(True, True), (False, True), (True, False)],
    )
    assert spelled(tokenizer, both.ids)[1:4] == ["[E1]", "[MASK]", "[/E1]"]
    assert spelled(tokenizer, tail_only.ids)[2:4] == ["marie", "cu"]
    assert spelled(tokenizer, tail_only.ids)[tail_only.places[1] + 1] == "[MASK]"
    assert spelled(tokenizer, reverse.ids)[reverse.places[0] + 1] == "[MASK]"
    assert spelled(tokenizer, reverse.ids)[reverse.places[1] + 1] == "marie"
    assert "[MASK]" not in spelled(tokenizer, tokenizer.encode([example])[0].ids)


def test_plain_texts() -> None:
    tokenizer = tokenizer_of("markers")
    one, empty, long = tokenizer.encode_texts(["place of birth", "", "word " * 9_000])
    assert spelled(tokenizer, one.ids) == ["[CLS]", "place", "of", "birth", "[SEP]"]
    assert spelled(tokenizer, empty.ids) == ["[CLS]", "[SEP]"]
    assert len(long) == 512
    assert one.places == (0, 0)


def test_keys_depend_on_pieces_and_marks_only() -> None:
    tokenizer = tokenizer_of("paper")
    there = sentence("Berlin is in Germany", (0, 1), (3, 4))
    back = sentence("Berlin is in Germany", (3, 4), (0, 1))
    again = sentence("berlin is in germany", (0, 1), (3, 4), relation="capital")
    keys = [pieces.key for pieces in tokenizer.encode([there, back, again])]
    assert keys[0] == keys[2] != keys[1]
