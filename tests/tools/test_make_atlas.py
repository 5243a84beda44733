"""The embedded dataset: its files are what the generator makes, and its patterns, pools and corpus keep their rules."""

import gzip
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from atlas_patterns import PURPOSES, read_content, tokenize
from erda.data.catalogue import embedded_file, load_dataset
from erda.data.dataset import Dataset
from erda.data.formats.jsonl_examples import read_jsonl
from erda.types import Example
from make_atlas import checksum, write_atlas


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load_dataset("atlas")


@pytest.fixture(scope="module")
def corpus() -> tuple[Example, ...]:
    return read_jsonl(embedded_file("corpus.jsonl.gz")).unrelated


def pair(example: Example) -> frozenset[str]:
    return frozenset((str(example.head.id), str(example.tail.id)))


def test_the_packaged_files_are_what_the_generator_makes(tmp_path: Path, dataset: Dataset) -> None:
    write_atlas(tmp_path)
    made = sorted(tmp_path.iterdir())
    assert [path.name for path in made] == sorted(path.name for path in embedded_file("").glob("*.json*"))
    for path in made:  # unpacked: another zlib may pack the same rows differently
        unpack = gzip.decompress if path.suffix == ".gz" else bytes
        assert unpack(path.read_bytes()) == unpack(embedded_file(path.name).read_bytes()), path.name
    assert dataset.checksum == checksum()


def test_pools_are_disjoint_and_their_spans_are_right(dataset: Dataset, corpus: tuple[Example, ...]) -> None:
    for pool, size in ((dataset.train, 120), (dataset.validation, 30), (dataset.test, 50)):
        assert Counter(example.relation for example in pool) == {one.id: size for one in dataset.relations}
    everything = (*dataset.train, *dataset.validation, *dataset.test, *dataset.unrelated, *corpus)
    assert len({example.tokens for example in everything}) == len(everything) == 48 * 200 + 500 + 3000
    for example in everything:
        for entity in (example.head, example.tail):
            assert example.tokens[entity.span.start : entity.span.end] == tokenize(entity.name), example
            assert entity.id == f"atlas:{entity.name}"
        assert not any(mark in token for token in example.tokens for mark in "{}"), example
    asked = {pair(example) for example in (*dataset.validation, *dataset.test, *dataset.unrelated)}
    assert not asked & {pair(example) for example in (*dataset.train, *corpus)}
    genders = {f"atlas:{name}": gender for name, gender in read_content().genders.items()}
    of_nephews = [e for e in dataset.train if e.relation == "aunt" and "nephew" in e.tokens]
    assert of_nephews
    assert {genders[str(example.tail.id)] for example in of_nephews} == {"man"}


def test_the_corpus_repeats_train_pairs_and_never_a_pattern_of_a_question(
    dataset: Dataset, corpus: tuple[Example, ...]
) -> None:
    trained = {pair(example): example.relation for example in dataset.train}
    said = Counter(f"atlas:{trained[pair(e)]}" == e.source for e in corpus if pair(e) in trained)
    assert said[True] > 900
    assert 90 < said[False] < said[True] / 4  # the pair mentioned without its relation
    assert sum(example.source == "atlas:unrelated" for example in corpus) == 1000
    runs = defaultdict(set)
    for part in read_content().relations:
        for purpose in PURPOSES:
            for pattern in part.patterns[purpose]:
                longest = max((run for run in pattern.parts if isinstance(run, tuple)), key=len)
                if len(longest) > 5:
                    runs[purpose].add(longest[-5:])
    asked = (runs["validation"] | runs["test"]) - runs["train"] - runs["corpus"]
    assert len(asked) > 100
    for example in corpus:
        assert not asked & {example.tokens[start : start + 5] for start in range(len(example.tokens) - 4)}, example
