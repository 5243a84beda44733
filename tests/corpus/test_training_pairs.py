import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import build_model
from toy_corpus import erda_corpus, random_rows, toy_store
from toy_pairs import toy_rows, toy_sentences, write_tagged

from erda.corpus.exclude import Excluded
from erda.corpus.similarity_run import read_sources
from erda.corpus.training_pairs import NONE, PairRows, Provenance, entity_code, mine_pairs, pair_place, read_rows
from erda.encoders.packed import PackedSentences
from erda.encoders.tokens import MarkedTokenizer
from erda.errors import DataError, SettingsError
from erda.files import read_arrays, write_arrays
from erda.types import Entity, Example, Span


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_model(tmp_path_factory.mktemp("bert"), n_layers=1)


@pytest.fixture(scope="module")
def tokenizer(folder):
    return MarkedTokenizer.load(folder, mode="markers")


def example(head: str, tail: str, *, head_id: str | None = None) -> Example:
    return Example((head, "met", tail), Entity(head, Span(0, 1), head_id), Entity(tail, Span(2, 3)))


def everything(rows: PairRows) -> np.ndarray:
    return np.arange(len(rows))


def test_codes_tell_entities_apart():
    assert entity_code(example("Oslo", "x").head) == entity_code(example("oslo", "x").head)
    assert entity_code(example("Oslo", "x", head_id="Q585").head) == entity_code(
        example("it", "x", head_id="Q585").head
    )
    assert entity_code(example("Oslo", "x").head) != entity_code(example("Bergen", "x").head)


def test_mined_pairs_are_what_they_should_be(folder, tmp_path):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(40, per_pair=5))
    pairs = mine_pairs(rows, everything(rows), seed=3)
    assert len(pairs) == rows.n_links == 40 * 2
    assert len({*pairs.first, *pairs.second}) == 2 * len(pairs)  # nothing twice
    for first, second, negative in zip(pairs.first, pairs.second, pairs.negative, strict=True):
        assert rows.pair[first] == rows.pair[second]
        shared = [column[first] == column[negative] for column in (rows.head, rows.tail)]
        assert sorted(shared) == [False, True]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40), st.integers(0, 9), st.data())
def test_any_rows_give_all_their_pairs(entities, seed, data):
    head, tail = np.array(entities, np.int32).reshape(-1, 2).T
    empty = PackedSentences(np.empty(0), np.empty((len(head), 5)), np.empty(len(head), bool), np.array([]))
    rows = PairRows(empty, head, tail, np.zeros(len(head), np.uint32), Provenance({}))
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


def test_mining_depends_on_the_seed_alone(folder, tmp_path):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(20))
    one, again, other = (mine_pairs(rows, everything(rows), seed=seed) for seed in (1, 1, 2))
    for name in ("first", "second", "negative"):
        assert np.array_equal(getattr(one, name), getattr(again, name))
    assert not np.array_equal(one.first, other.first)


def test_pairs_without_a_shared_entity_have_no_negative(folder, tmp_path):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", [example("a", "b"), example("a", "b"), example("c", "d")])
    assert mine_pairs(rows, everything(rows), seed=0).negative.tolist() == [NONE]
    assert len(mine_pairs(rows, everything(rows)[2:], seed=0)) == 0


def test_held_out_pairs_are_the_same_ones_in_every_file(folder, tmp_path):
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


def test_packed_rows_come_back(folder, tokenizer, tmp_path):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", [*toy_sentences(30), example("lonely", "pair")])
    some = rows.limited(20, seed=4)
    assert (len(some), some.n_links) == (60, 20)
    assert some.limited(20, seed=4).digest == some.digest != rows.digest
    some.save(tmp_path / "pairs.npz")
    again = read_rows([tmp_path / "pairs.npz"], tokenizer)
    assert again.digest == some.digest
    assert again.made_of == rows.made_of
    assert [*again.made_of.sources] == ["rows.jsonl"]
    content = (tmp_path / "pairs.npz").read_bytes()
    some.save(tmp_path / "pairs.npz")
    assert (tmp_path / "pairs.npz").read_bytes() == content
    with pytest.raises(DataError, match="a packed file is read alone"):
        read_rows([tmp_path / "pairs.npz", tmp_path / "rows.jsonl"], tokenizer)
    with pytest.raises(DataError, match="is packed already"):
        read_rows([tmp_path / "pairs.npz"], tokenizer, excluded=Excluded())


def test_a_file_that_is_not_packed_rows_is_named(folder, tokenizer, tmp_path):
    path = tmp_path / "pairs.npz"
    toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(3)).save(path)
    content, arrays = path.read_bytes(), read_arrays(path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"pairs\.npz: is damaged .* Write it again with `erda corpus pairs`"):
        read_rows([path], tokenizer)
    write_arrays(path, {name: one for name, one in arrays.items() if name != "place"})
    with pytest.raises(DataError, match=r"pairs\.npz: holds no 'place', so it is no file of `erda corpus pairs`"):
        read_rows([path], tokenizer)
    for change in ({"pieces": arrays["pieces"][1:]}, {"head": arrays["head"][1:]}, {"vocabulary": np.array(["a"])}):
        write_arrays(path, arrays | change)
        with pytest.raises(DataError, match=r"pairs\.npz: its parts do not fit together"):
            read_rows([path], tokenizer)
    with pytest.raises(DataError, match="cannot be read"):
        read_rows([tmp_path / "none.npz"], tokenizer)


def test_what_is_excluded_stays_out(folder, tmp_path):
    examples = toy_sentences(30)
    write_tagged(tmp_path / "rows.jsonl", examples)
    (tmp_path / "test.txt").write_text(" ".join(examples[4].tokens).upper() + "\n")
    out = tmp_path / "pairs.npz"
    options = ["--encoder", folder.path, "--exclude", tmp_path / "test.txt", "--out", out]
    assert erda_corpus("pairs", tmp_path / "rows.jsonl", *options) == 0
    rows = PairRows.load(out)
    assert rows.made_of.left_out == {"sentence given with --exclude": 1}
    assert len(rows) == 89
    assert rows.made_of.excluded


def test_a_file_that_is_not_tagged_text_is_named(tokenizer, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"tokens": ["a"]}\nnothing\n')
    with pytest.raises(DataError) as fault:
        read_rows([path], tokenizer)
    assert f"{path}:1: " in str(fault.value)
    assert f"{path}:2: " in str(fault.value)
    with pytest.raises(SettingsError, match="--limit is 0"):
        erda_corpus("pairs", path, "--limit", 0, "--out", tmp_path / "x.npz")
    with pytest.raises(SettingsError, match=r"--out is .*: expected a name that ends in \.npz"):
        erda_corpus("pairs", path, "--out", tmp_path / "x.jsonl.gz")


class Elsewhere:
    """Stands for a cluster: draws what the corpus draws, and says that it was asked."""

    asked: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, *, address):
        self.address = address

    def positive_pairs(self, store, **settings):
        self.asked.append(("positive", self.address))
        return store.positive_pairs(**settings)

    def hard_negatives(self, store, **settings):
        self.asked.append(("negative", self.address))
        return store.hard_negatives(**settings)


def test_the_commands_mine_on_a_cluster(folder, tokenizer, tmp_path, monkeypatch):
    store = toy_store(tmp_path, random_rows(200, n_entities=8))
    here, far = tmp_path / "here.npz", tmp_path / "far.npz"
    common = [store.folder, "--encoder", folder.path, "--limit", 40]
    monkeypatch.setattr("erda.corpus.ray_jobs.RayJobs", Elsewhere)
    Elsewhere.asked.clear()
    erda_corpus("pairs", *common, "--out", here)
    assert Elsewhere.asked == []
    erda_corpus("pairs", *common, "--out", far, "--engine", "ray", "--address", "127.0.0.1:1")
    assert Elsewhere.asked == [("positive", "127.0.0.1:1"), ("negative", "127.0.0.1:1")]
    assert far.read_bytes() == here.read_bytes()
    sources = []
    monkeypatch.setattr(
        "erda.corpus.similarity_run.run_training", lambda given, *_, **__: sources.append(given) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        erda_corpus("train", store.folder, "--out", tmp_path / "model", "--engine", "ray")
    read_sources(sources[0], tokenizer, seed=0)
    assert Elsewhere.asked[2:] == [("positive", "auto"), ("negative", "auto")]
    with pytest.raises(SettingsError, match="--address: only with --engine ray"):
        erda_corpus("pairs", store.folder, "--out", far, "--address", "auto")
    with pytest.raises(SettingsError, match=r"mines folders of 'erda corpus build' only, and .*here.npz is none"):
        erda_corpus("pairs", here, "--out", far, "--engine", "ray")


def test_pairs_of_a_corpus_folder(tokenizer, tmp_path):
    from erda.corpus.corpus_build import build_corpus

    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in random_rows(400, n_entities=8)))
    build_corpus([source], tmp_path / "corpus")
    rows, again = (read_rows([tmp_path / "corpus"], tokenizer, limit=50) for _ in range(2))
    pairs = mine_pairs(rows, everything(rows), seed=0)
    assert len(pairs) >= 25
    assert (pairs.negative != NONE).mean() > 0.9
    assert again.digest == rows.digest


@pytest.mark.parametrize("line", ["[" * 100_000, '{"tokens": ' * 50_000, "9" * 5_000, "nothing"])
def test_a_line_that_cannot_be_decoded_is_a_fault_with_its_number(tokenizer, tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.jsonl:1: "):
        read_rows([path], tokenizer)
