import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from toy_corpus import erda_corpus, random_rows, toy_store
from toy_pairs import toy_sentences

from erda.corpus.pairs import (
    NONE,
    entity_code,
    is_held_out,
    mine_pairs,
    read_corpus,
    read_tagged,
    split_held_out,
    write_pairs,
)
from erda.corpus.similarity_run import read_pairs
from erda.errors import DataError, SettingsError
from erda.types import Entity, Example, Span


def example(head: str, tail: str, *, head_id: str | None = None) -> Example:
    return Example((head, "met", tail), Entity(head, Span(0, 1), head_id), Entity(tail, Span(2, 3)))


def codes(one: Example) -> tuple[str, str]:
    return entity_code(one.head), entity_code(one.tail)


def test_codes_tell_entities_apart():
    assert entity_code(example("Oslo", "x").head) == entity_code(example("oslo", "x").head)
    assert entity_code(example("Oslo", "x", head_id="Q585").head) == entity_code(
        example("it", "x", head_id="Q585").head
    )
    assert entity_code(example("Oslo", "x").head) != entity_code(example("Bergen", "x").head)
    code = entity_code(example("Oslo", "x").head)
    assert entity_code(Entity("anything", Span(0, 1), code)) == code


def test_mined_pairs_are_what_they_should_be():
    examples = toy_sentences(40, per_pair=5)
    pairs = mine_pairs(examples, seed=3)
    assert len(pairs) == 40 * 3  # at most three links of a group
    links = set()
    for first, second, negative in zip(pairs.first, pairs.second, pairs.negative, strict=True):
        assert first != second
        assert codes(examples[first]) == codes(examples[second])
        assert pairs.pair[first] == pairs.pair[second]
        links.add((first, second))
        shared = [a == b for a, b in zip(codes(examples[first]), codes(examples[negative]), strict=True)]
        assert sorted(shared) == [False, True]
    assert len(links) == len(pairs)


def test_mining_depends_on_the_seed_alone():
    examples = toy_sentences(20)
    one, again, other = (mine_pairs(examples, seed=seed) for seed in (1, 1, 2))
    assert one.digest() == again.digest() != other.digest()


def test_a_pair_without_a_near_one_has_no_negative():
    examples = [example("a", "b"), example("a", "b"), example("c", "d")]
    pairs = mine_pairs(examples, seed=0)
    assert pairs.negative.tolist() == [NONE]
    assert len(mine_pairs([], seed=0)) == 0


def test_the_same_pairs_are_held_out_everywhere(tmp_path):
    examples = toy_sentences(300, per_pair=2)
    training, held_out = split_held_out(examples, 0.2)
    assert 0.1 < len(held_out) / len(examples) < 0.3
    assert not {codes(one) for one in training} & {codes(one) for one in held_out}
    write_pairs(examples[::-1], tmp_path / "pairs.jsonl", limit=None)
    again = split_held_out(read_tagged([tmp_path / "pairs.jsonl"]), 0.2)[1]
    assert {codes(one) for one in again} == {codes(one) for one in held_out}
    assert not any(is_held_out(*codes(one), 0.0) for one in examples)


@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.jsonl.gz"])
def test_written_pairs_come_back(tmp_path, name):
    examples = [*toy_sentences(30), example("lonely", "pair")]
    n_rows, n_pairs = write_pairs(examples, tmp_path / name, limit=20, seed=4)
    found = read_tagged([tmp_path / name])
    assert (n_rows, n_pairs) == (30, 20)
    assert len(found) == 30
    assert len(mine_pairs(found, seed=0)) == 20
    before = {(one.tokens, one.head.span, one.tail.span, codes(one)) for one in examples}
    assert {(one.tokens, one.head.span, one.tail.span, codes(one)) for one in found} <= before
    content = (tmp_path / name).read_bytes()
    write_pairs(examples, tmp_path / name, limit=20, seed=4)
    assert (tmp_path / name).read_bytes() == content


def test_a_file_that_is_not_tagged_text_is_named(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"tokens": ["a"]}\nnothing\n')
    with pytest.raises(DataError) as fault:
        read_tagged([path])
    assert f"{path}:1: " in str(fault.value)
    assert f"{path}:2: " in str(fault.value)
    with pytest.raises(SettingsError, match="--limit is 0"):
        write_pairs([], path, limit=0)


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


def test_the_commands_mine_on_a_cluster(tmp_path, monkeypatch):
    store = toy_store(tmp_path, random_rows(200, n_entities=8))
    here, far = tmp_path / "here.jsonl", tmp_path / "far.jsonl"
    monkeypatch.setattr("erda.corpus.ray_jobs.RayJobs", Elsewhere)
    Elsewhere.asked.clear()
    erda_corpus("pairs", store.folder, "--limit", 40, "--out", here)
    assert Elsewhere.asked == []
    erda_corpus("pairs", store.folder, "--limit", 40, "--out", far, "--engine", "ray", "--address", "127.0.0.1:1")
    assert Elsewhere.asked == [("positive", "127.0.0.1:1"), ("negative", "127.0.0.1:1")]
    assert far.read_bytes() == here.read_bytes()
    sources = []
    monkeypatch.setattr(
        "erda.corpus.similarity_run.run_training", lambda given, *_, **__: sources.append(given) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        erda_corpus("train", store.folder, "--out", tmp_path / "model", "--engine", "ray")
    read_pairs(sources[0], seed=0)
    assert Elsewhere.asked[2:] == [("positive", "auto"), ("negative", "auto")]
    with pytest.raises(SettingsError, match="--address: only with --engine ray"):
        erda_corpus("pairs", store.folder, "--out", far, "--address", "auto")
    with pytest.raises(SettingsError, match=r"mines folders of 'erda corpus build' only, and .*here.jsonl is none"):
        erda_corpus("pairs", here, "--out", far, "--engine", "ray")


def test_pairs_of_a_corpus_folder(tmp_path):
    from erda.corpus.build import build_corpus

    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in random_rows(400, n_entities=8)))
    build_corpus([source], tmp_path / "corpus")
    examples = read_corpus(tmp_path / "corpus", seed=0, limit=50)
    pairs = mine_pairs(examples, seed=0)
    assert len(pairs) >= 25
    assert (pairs.negative != NONE).mean() > 0.9
    assert np.array_equal(mine_pairs(read_corpus(tmp_path / "corpus", seed=0, limit=50), seed=0).first, pairs.first)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"tokens": ' * 50_000, "9" * 5_000, "nothing"])
def test_a_line_that_cannot_be_decoded_is_a_fault_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.jsonl:1: "):
        read_tagged([path])
