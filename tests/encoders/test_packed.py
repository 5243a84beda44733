"""Batches of packed sentences equal the output of the tokenizer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import LETTERS, SENTENCES, WORDS, build_model, marked_examples, sentence

from erda.encoders.layers import load_tokenizer
from erda.encoders.packed import AS_IT_IS, MASKED, SOMETHING, WHOLE, PackedSentences, SentenceBatches, Shown
from erda.errors import ModelError


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    kinds = ("bert", "mpnet")
    folders = {kind: build_model(tmp_path_factory.mktemp(kind), kind, n_layers=1) for kind in kinds}
    return {
        (kind, limit): load_tokenizer(folder, mode="markers", max_pieces=limit)
        for kind, folder in folders.items()
        for limit in (0, 12)
    }


def packed(tokenizer, examples):
    vocabulary = np.array(tokenizer.vocabulary)
    parts = (PackedSentences.of(some, tokenizer, vocabulary) for some in (examples[:2], examples[2:]))
    return PackedSentences.joined([*parts])


def assembled(batches, shown, n_chunks=2):
    """Piece ids without padding and places of the marks, in the order of `shown`."""
    chunks, place = batches.chunks(shown, n_chunks)
    found = [
        (ids[: int(n)].tolist(), tuple(where.tolist()))
        for chunk in chunks
        for ids, n, where in zip(*chunk, strict=True)
    ]
    return [found[i] for i in place.tolist()]


MARKED = marked_examples(st.sampled_from([*WORDS, "unheard", LETTERS[:5], "\u200b"]), part_size=8)


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
@settings(max_examples=50)
@given(examples=st.lists(MARKED, min_size=1, max_size=6), data=st.data())
def test_batches_equal_the_output_of_the_tokenizer(tokenizers, kind, examples, data):
    tokenizer = tokenizers[kind, 0]
    flags = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=len(examples), max_size=len(examples))
    blanked = data.draw(flags)
    batches = SentenceBatches(packed(tokenizers["bert", 0], examples), tokenizer, "cpu")
    rows = np.arange(len(examples))
    shown = Shown(rows, np.where(blanked, MASKED, AS_IT_IS), np.full((len(rows), 2), WHOLE))
    expected = tokenizer.encode(examples, blanked=blanked)
    if max(map(len, tokenizer.encode(examples))) < tokenizer.limit:  # batches shorten before they mask
        assert assembled(batches, shown) == [(one.ids.tolist(), one.places) for one in expected]


def test_long_sentences_are_shortened_around_their_entities(tokenizers):
    tokenizer = tokenizers["bert", 12]
    batches = SentenceBatches(packed(tokenizer, SENTENCES), tokenizer, "cpu")
    found = assembled(batches, Shown.whole(np.arange(len(SENTENCES))))
    assert found == [(one.ids.tolist(), one.places) for one in tokenizer.encode(SENTENCES)]
    assert max(len(ids) for ids, _ in found) == 12


def test_a_cropped_sentence_keeps_the_words_between_the_entities(tokenizers):
    tokenizer = tokenizers["bert", 0]
    long = sentence("the queen of france was born in berlin , a city in germany .", (3, 4), (7, 8))
    batches = SentenceBatches(packed(tokenizer, [SENTENCES[0], long]), tokenizer, "cpu")
    shown = Shown(np.array([1, 1]), np.array([[MASKED, MASKED], [SOMETHING, SOMETHING]]), np.array([[0, 0], [2, 1]]))
    (masked, _), (worded, places) = assembled(batches, shown, 1)
    texts = dict(enumerate([*tokenizer.vocabulary, "[E1]", "[/E1]", "[E2]", "[/E2]"]))
    something = texts[tokenizer.pieces_of("something")[0]]
    between = ["was", "born", "in"]
    assert [texts[i] for i in masked] == [
        "[CLS]", "[E1]", "[MASK]", "[/E1]", *between, "[E2]", "[MASK]", "[/E2]", "[SEP]"
    ]  # fmt: skip
    assert [texts[i] for i in worded] == [
        "[CLS]", "queen", "of", "[E1]", something, "[/E1]", *between, "[E2]", something, "[/E2]", ",", "[SEP]"
    ]  # fmt: skip
    assert places == (3, 9)


def test_take_selects_rows(tokenizers):
    tokenizer = tokenizers["bert", 0]
    whole = packed(tokenizer, SENTENCES)
    rows = np.array([4, 0, 0, 3])
    some = SentenceBatches(whole.take(rows), tokenizer, "cpu")
    expected = assembled(SentenceBatches(whole, tokenizer, "cpu"), Shown.whole(rows))
    assert assembled(some, Shown.whole(np.arange(4))) == expected
    assert len(whole.take(rows[:0])) == 0


def test_another_vocabulary_is_rejected(tokenizers):
    tokenizer = tokenizers["bert", 0]
    found = packed(tokenizer, SENTENCES)
    found.vocabulary[found.pieces[3]] = "else"
    with pytest.raises(ModelError, match="another tokenizer: the model has no word piece 'else'"):
        SentenceBatches(found, tokenizer, "cpu")
