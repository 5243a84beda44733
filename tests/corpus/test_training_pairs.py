"""Training sentences, their pairs, and the batches of a training."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_corpus import erda_corpus, random_rows, toy_store
from toy_pairs import batches_of, toy_rows, toy_sentences, write_tagged

from erda.corpus.exclude import Excluded
from erda.corpus.training_batches import NONE, mine_pairs
from erda.corpus.training_pairs import PairRows, Provenance, pair_place, read_pair_rows
from erda.encoders.layers import load_tokenizer
from erda.encoders.packed import AS_IT_IS, MASKED, SOMETHING, WHOLE, PackedSentences
from erda.errors import DataError, SettingsError
from erda.files import read_arrays, write_arrays
from erda.types import Entity, Example, Span


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load_tokenizer(folder, mode="markers")


def example(head: str, tail: str, *, head_id: str | None = None) -> Example:
    return Example((head, "met", tail), Entity(head, Span(0, 1), head_id), Entity(tail, Span(2, 3)))


def everything(rows: PairRows) -> np.ndarray:
    return np.arange(len(rows))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40), st.integers(0, 9), st.data())
def test_pairs_share_two_entities_and_negatives_exactly_one(entities, seed, data):
    head, tail = np.array(entities, np.int32).reshape(-1, 2).T
    empty = PackedSentences(np.empty(0), np.empty((len(head), 5)), np.empty(len(head), bool), np.array([]))
    rows = PairRows(
        empty, head, tail, np.zeros(len(head), np.uint32), np.zeros(len(head), np.int32), (), Provenance({})
    )
    among = np.array(data.draw(st.lists(st.integers(0, len(head) - 1), unique=True)) if len(head) else [], np.int64)
    pairs = mine_pairs(rows, among, seed=seed)
    groups = {key: [row for row in among if entities[row] == key] for key in {*entities}}
    assert len(pairs) == sum(len(group) // 2 for group in groups.values())
    shown = [*pairs.first, *pairs.second]
    assert len({*shown}) == len(shown)
    assert {*shown} <= {*among}
    for first, second, negative in zip(pairs.first, pairs.second, pairs.negative, strict=True):
        assert entities[first] == entities[second]
        if negative != NONE:
            assert negative in among
            assert (head[first] == head[negative]) != (tail[first] == tail[negative])
        else:
            assert all((head[first] == head[row]) == (tail[first] == tail[row]) for row in among)


def test_the_same_pairs_are_held_out_of_every_file(folder, tmp_path):
    examples = toy_sentences(300)
    rows = toy_rows(folder, tmp_path / "rows.jsonl", examples)
    training, held_out = rows.split(0.2)
    assert 0.1 < len(held_out) / len(examples) < 0.3
    assert not {*rows.pair[training]} & {*rows.pair[held_out]}
    backwards = toy_rows(folder, tmp_path / "again.jsonl", examples[::-1])
    again = len(examples) - 1 - backwards.split(0.2)[1]
    assert {*again} == {*held_out}
    assert len(rows.split(0.0)[1]) == 0
    assert pair_place("~a", "~b") != pair_place("~b", "~a")


def test_packed_rows_load(folder, tokenizer, tmp_path):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", [*toy_sentences(30), example("lonely", "pair")])
    assert (len(rows), rows.n_links) == (91, 30)
    rows.save(tmp_path / "pairs.npz")
    again = read_pair_rows([tmp_path / "pairs.npz"], tokenizer)
    assert again.digest == rows.digest
    assert again.made_of == rows.made_of
    assert [*again.made_of.sources] == ["rows.jsonl"]
    content = (tmp_path / "pairs.npz").read_bytes()
    rows.save(tmp_path / "pairs.npz")
    assert (tmp_path / "pairs.npz").read_bytes() == content
    with pytest.raises(DataError):
        read_pair_rows([tmp_path / "pairs.npz", tmp_path / "rows.jsonl"], tokenizer)
    with pytest.raises(DataError):
        read_pair_rows([tmp_path / "pairs.npz"], tokenizer, excluded=Excluded({}, overlap=0.5))


def test_a_damaged_packed_file_is_named(folder, tokenizer, tmp_path):
    path = tmp_path / "pairs.npz"
    toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(3)).save(path)
    content, arrays = path.read_bytes(), read_arrays(path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"pairs\.npz: "):
        read_pair_rows([path], tokenizer)
    write_arrays(path, {name: one for name, one in arrays.items() if name != "place"})
    with pytest.raises(DataError, match="place"):
        read_pair_rows([path], tokenizer)


def test_excluded_sentences_are_skipped(folder, tmp_path):
    examples = toy_sentences(30)
    write_tagged(tmp_path / "rows.jsonl", examples)
    (tmp_path / "test.txt").write_text(" ".join(examples[4].tokens).upper() + "\n")
    out = tmp_path / "pairs.npz"
    options = ["--encoder", folder.path, "--exclude", tmp_path / "test.txt", "--out", out]
    erda_corpus("pairs", tmp_path / "rows.jsonl", *options)
    rows = PairRows.load(out)
    assert rows.made_of.left_out == {"sentence given with --exclude": 1}
    assert len(rows) == 89
    assert rows.made_of.excluded
    for wrong in (out, tmp_path / "pairs.jsonl"):
        with pytest.raises(SettingsError, match="expected a new file"):
            erda_corpus("pairs", tmp_path / "rows.jsonl", *options[:-1], wrong)
    assert len(PairRows.load(out)) == 89


def test_rows_of_a_corpus_folder(tokenizer, tmp_path):
    store = toy_store(tmp_path, random_rows(400, n_entities=8))
    assert len(read_pair_rows([store.folder], tokenizer)) == len(store)


def links(batch):
    n = (len(batch.shown.rows) - len(batch.anchor)) // 2
    return {tuple(sorted(pair)) for pair in batch.shown.rows[: 2 * n].reshape(2, n).T.tolist()}


def test_each_epoch_draws_its_pairs_anew(rows):
    batches = batches_of(rows, n_epochs=3)
    assert (batches.n_pairs, batches.n_batches, batches.n_steps) == (40, 5, 15)
    epochs = [set().union(*(links(batches[5 * epoch + i]) for i in range(5))) for epoch in range(3)]
    assert [len(one) for one in epochs] == [40] * 3
    assert len(epochs[0] | epochs[1] | epochs[2]) > 1.5 * 40
    for step in range(15):
        shown, n = batches[step].shown.rows, 8
        pair = rows.pair[shown]
        assert np.array_equal(pair[:n], pair[n : 2 * n])
        assert (pair[2 * n :] != pair[batches[step].anchor]).all()
    again = batches_of(rows, n_epochs=3)
    for step in (8, 1, 14, 0):
        for name in ("rows", "names", "around"):
            assert np.array_equal(getattr(again[step].shown, name), getattr(batches[step].shown, name))


def test_a_limit_bounds_an_epoch(rows):
    assert batches_of(rows, limit=17).n_pairs == 17
    assert batches_of(rows, limit=17).n_batches == 2
    assert batches_of(rows, limit=5).n_batches == 1


def test_names_are_masked_and_sentences_cropped_with_the_given_probability(folder, tmp_path):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(400))
    for share in (0.0, 0.7, 1.0):
        shown = batches_of(rows, blank_names=share, batch_size=400)[0].shown
        assert (shown.names == MASKED).mean() == pytest.approx(share, abs=0.04)
        assert (shown.around == WHOLE).all()
    shown = batches_of(rows, crop=0.4, blank_names=0.0, batch_size=400)[0].shown
    cropped = shown.around[:, 0] != WHOLE
    assert cropped.mean() == pytest.approx(0.4, abs=0.05)
    assert (shown.names[~cropped] == AS_IT_IS).all()
    assert (shown.names[cropped, 0] == shown.names[cropped, 1]).all()
    assert {*shown.names[cropped].ravel()} == {MASKED, SOMETHING}
    assert {*shown.around[cropped].ravel()} == {0, 1, 2, 3}


def test_only_the_papers_objective_has_hard_negatives(rows):
    assert not len(batches_of(rows, batch_size=40)[0].anchor)
    batch = batches_of(rows, batch_size=40, objective="paper")[0]
    assert batch.anchor.tolist() == list(range(40))
    assert (rows.pair[batch.shown.rows[80:]] != batch.pair).all()
