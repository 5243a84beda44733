"""FewRel: its relations, its full data and the published CFRL splits.

A split has 80 relations in eight tasks, 2, 5 or 10 shots, and tests with candidate lists. Its first task (the base
relations) has 100 examples per relation. The order of the tasks follows one of two published families of six orders.
Tasks, examples and candidate lists are used as published.

The data folder may hold `relations.json`, `validation.jsonl.gz` and `full.jsonl.gz`. If it holds only the public files
(`train_wiki.json`, `val_wiki.json`, `pid2name.json`, `cfrl/`), the same data is derived from them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from erda.data.dataset import CATALOGUE, Dataset, data_checksum, require_files, shuffled
from erda.data.drawn_streams import N_VALIDATION, draw_candidates, not_learned
from erda.data.formats.jsonl_examples import example_to_json, read_jsonl, read_relation_list
from erda.data.formats.published_formats import read_cfrl
from erda.data.own_data import read_examples
from erda.data.streams import Pool, StreamManifest, TaskStream, build_stream, text_key
from erda.errors import DataError, StreamError, unknown_name
from erda.files import first_line, read_arrays, read_json, write_lines
from erda.text.keys import sentence_key
from erda.text.reading import read_lines
from erda.types import Example, Relation

VALIDATION_FILE = "validation.jsonl.gz"
VALIDATION_SEED = 2022  # validation examples are the same in every stream
WIKI_FILES = ("train_wiki.json", "val_wiki.json")
SHOTS = (2, 5, 10)
FIRST_SHOTS = 100
N_TASKS = 8
N_LISTED = 10  # relations listed with each test example, and drawn for each validation example
FRESH_KEYS = Path(__file__).with_name("fewrel_fresh.npz")  # hashes of sentences
HALVES_SEED = 2026  # decides which relations are fresh: for the test alone, no setting is chosen on them

# family -> seed -> task clusters in the order of learning
ORDERS: dict[str, dict[int, tuple[int, ...]]] = {
    family: {int(seed): tuple(order) for seed, order in orders.items()}
    for family, orders in CATALOGUE["orders"].items()
}


# -- the published splits ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PublishedSplit:
    """One published split: its examples, and how they are asked."""

    dataset: Dataset
    clusters: Mapping[int, tuple[Relation, ...]]  # the relations of each task
    candidates: tuple[tuple[str, ...], ...] | None  # of each test example
    n_duplicates: int


def published_stream(
    folder: Path, *, shots: int, family: str = "erda", seed: int = 100, n_tasks: int | None = None
) -> TaskStream:
    """Build the stream of a published split in a published order. `folder` is FewRel's part of the data folder.

    The stream stops after `n_tasks` tasks. Validation questions come from outside the split, 50 per relation. Each has
    a candidate list of ten relations, drawn with a fixed seed.
    """
    order = published_order(family, seed, n_tasks)
    split = read_split(folder, shots)
    dataset = split.dataset
    groups = [split.clusters[cluster] for cluster in ORDERS[family][seed]]
    about = StreamManifest(
        dataset="fewrel",
        checksum=dataset.checksum,
        family=family,
        seed=seed,
        shots=shots,
        first_shots=FIRST_SHOTS,
        order=order,
        hygiene={"duplicates_kept": split.n_duplicates},
        notes=not_learned(groups, n_tasks),
    )
    listed = draw_candidates(dataset.validation, [relation.id for relation in dataset.relations], N_LISTED)
    return build_stream(
        f"fewrel 10-way {shots}-shot, {family} order {seed}",
        about,
        groups[:n_tasks],
        train=Pool(dataset.train),
        validation=Pool(dataset.validation, listed),
        test=Pool(dataset.test, split.candidates),
    )


def read_split(folder: Path, shots: int = 5) -> PublishedSplit:
    """Read the files of one published split; its validation examples are from outside the split."""
    if shots not in SHOTS:
        raise StreamError(
            f"The published splits have 2, 5 or 10 shots, not {shots}; "
            "dataset 'fewrel-full' draws streams with any number of shots (100: the continual setting)."
        )
    cfrl = folder / "cfrl"
    names = ("train_0.txt", "test_0.txt", "rel_cluster_label_0.npy")
    files = (*(cfrl / f"{shots}-shot" / name for name in names), cfrl / "rel_index.npy")
    require_files("fewrel", files)
    relations = read_relations(folder)
    index = {str(number): relation.id for number, relation in enumerate(relations, 1)}
    validation = read_validation(folder, relations)
    train, test = (read_cfrl(file, index) for file in files[:2])
    checksum = data_checksum(files, relations=relations, examples=validation)
    return PublishedSplit(
        Dataset("fewrel", tuple(relations), train.examples, validation, test.examples, checksum),
        _clusters(relations, *files[2:]),
        test.candidates,
        len(train.duplicates) + len(test.duplicates),
    )


def orders_of(family: str) -> dict[int, tuple[int, ...]]:
    """Return the published orders of a family, by seed."""
    if family not in ORDERS:
        raise StreamError(unknown_name("order family", family, ORDERS))
    return ORDERS[family]


def published_order(family: str, seed: int, n_tasks: int | None = None) -> tuple[int, ...]:
    """Return the first `n_tasks` task clusters of a published order."""
    orders = orders_of(family)
    if seed not in orders:
        known = ", ".join(map(str, orders))
        raise StreamError(f"Order family '{family}' has no seed {seed}. Known: {known}.")
    order = orders[seed]
    if n_tasks is not None and not 1 <= n_tasks <= len(order):
        raise StreamError(f"The published splits have {len(order)} tasks; {n_tasks} were requested.")
    return order[:n_tasks]


def _clusters(relations: Sequence[Relation], labels: Path, indices: Path) -> dict[int, tuple[Relation, ...]]:
    """Group the relations by task: relation `indices[i]` (from 1) belongs to cluster `labels[i]`."""
    label, index = read_indices(labels), read_indices(indices)
    if len(label) != len(index):
        raise DataError(f"{labels}: {len(label)} cluster labels for {len(index)} relations in {indices.name}.")
    if sorted(index) != list(range(1, len(relations) + 1)):
        raise DataError(f"{indices}: expected each of 1 to {len(relations)} once.")
    clusters: dict[int, list[Relation]] = {}
    for number, cluster in zip(index, label, strict=True):
        clusters.setdefault(cluster, []).append(relations[number - 1])
    if missing := [cluster for cluster in range(N_TASKS) if cluster not in clusters]:
        raise DataError(f"{labels}: no relation belongs to cluster {missing[0]}.")
    return {cluster: tuple(listed) for cluster, listed in clusters.items()}


def read_indices(path: Path) -> list[int]:
    """Read the integers of a one-dimensional `.npy` file."""
    import numpy as np

    try:
        with warnings.catch_warnings(action="ignore"):  # NumPy warns about a damaged header before it fails
            return [int(value) for value in np.load(path, allow_pickle=False)]
    except Exception as error:  # of many kinds: NumPy does not check what it reads
        said = f"{path}: not a NumPy array of integers ({first_line(error)})"
        raise DataError(f"{said}; fetch it again: erda data get fewrel.") from None


# -- relations, validation examples, the full data ---------------------------------------------------------------------


def read_relations(folder: Path) -> list[Relation]:
    """Read FewRel's 80 relations, in the order of their index in the splits."""
    if (folder / "relations.json").is_file():
        return read_relation_list(folder / "relations.json")
    names_file, texts_file = folder / "cfrl" / "relation_name.txt", folder / "pid2name.json"
    require_files("fewrel", [names_file, texts_file])
    names = [line.strip() for _, line in read_lines(names_file) if line.strip()]
    texts = read_json(texts_file, dict[str, tuple[str, str]], remedy="Fetch it again: erda data get fewrel.")
    by_name = {name: (pid, text) for pid, (name, text) in texts.items()}
    if unknown := [name for name in names if name not in by_name]:
        raise DataError(f"{texts_file}: no relation is named {unknown[0]!r} ({len(unknown)} names are missing).")
    return [Relation(by_name[name][0], name, by_name[name][1]) for name in names]


def read_validation(folder: Path, relations: Sequence[Relation]) -> tuple[Example, ...]:
    """Return 50 validation examples per relation; none of their sentences is in a published split."""
    path = folder / VALIDATION_FILE
    if path.is_file():
        return read_jsonl(path, {relation.id for relation in relations}).examples
    return draw_validation(_read_wiki(folder, relations), _split_sentences(folder))


def _split_sentences(folder: Path) -> set[int]:
    """Return the keys of all sentences in the published splits."""
    splits = sorted((folder / "cfrl").glob("*-shot/*_0.txt"))
    rows = (line.split("\t") for file in splits for _, line in read_lines(file))
    return {sentence_key(row[2]) for row in rows if len(row) > 2}


def write_validation(folder: Path) -> Path:
    """Store the validation examples that `read_validation` draws from FewRel's public files."""
    path = folder / VALIDATION_FILE
    rows = map(example_to_json, read_validation(folder, read_relations(folder)))
    write_lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))
    return path


def draw_validation(examples: Iterable[Example], taken: Collection[int]) -> tuple[Example, ...]:
    """Draw fifty examples per relation with a fixed seed, from sentences whose keys are not `taken`; none twice."""
    free: dict[str, dict[int, Example]] = {}
    for example in examples:
        if (key := text_key(example)) not in taken:
            free.setdefault(str(example.relation), {}).setdefault(key, example)
    chosen: list[Example] = []
    used: set[int] = set()
    for relation, sentences in sorted(free.items()):
        keys = sorted(sentences.keys() - used, key=lambda key: " ".join(sentences[key].tokens).casefold())
        keys = shuffled(keys, VALIDATION_SEED, relation)
        if len(keys) < N_VALIDATION:
            raise DataError(f"relation '{relation}' has {len(keys)} sentences for validation; {N_VALIDATION} required.")
        used.update(keys[:N_VALIDATION])
        chosen += [sentences[key] for key in keys[:N_VALIDATION]]
    return tuple(chosen)


def read_full(folder: Path) -> Dataset:
    """Load all 80 relations with all their examples: the source of the continual setting.

    The validation examples are those of the splits. Their sentences are removed from the other examples, so settings
    chosen on validation data are never tested on it.
    """
    relations = read_relations(folder)
    path = folder / "full.jsonl.gz"
    if path.is_file():
        examples, files = read_jsonl(path, {relation.id for relation in relations}).examples, [path]
    else:
        examples, files = _read_wiki(folder, relations), [folder / name for name in WIKI_FILES]
    validation = read_validation(folder, relations)
    taken = set(map(text_key, validation))
    rest = tuple(example for example in examples if text_key(example) not in taken)
    checksum = data_checksum(files, relations=relations, examples=validation)
    return Dataset("fewrel-full", tuple(relations), rest, validation, checksum=checksum)


def read_fresh(folder: Path) -> Dataset:
    """Load the listed sentences of the 40 fresh relations; none is in the published splits or the validation data.

    The list holds hashes of sentences, so that copies of FewRel with further rows give the same streams.
    """
    listed = set(read_arrays(FRESH_KEYS, error=DataError)["keys"].tolist())
    fresh = fewrel_half(read_full(folder), "fewrel-fresh", fresh=True).only(lambda example: text_key(example) in listed)
    if n_missing := len(listed - set(map(text_key, fresh.train))):
        raise DataError(f"{folder}: lacks {n_missing:,} of the {len(listed):,} sentences of fewrel-fresh.")
    return replace(fresh, validation=())


def fewrel_half(full: Dataset, name: str, *, fresh: bool) -> Dataset:
    """Select the 40 fresh relations of all 80, or the other 40."""
    ids = sorted(relation.id for relation in full.relations)
    chosen = set(shuffled(ids, HALVES_SEED, "fresh relations")[: len(ids) // 2])
    relations = tuple(relation for relation in full.relations if (relation.id in chosen) == fresh)
    known = {relation.id for relation in relations}
    return replace(full.only(lambda example: example.relation in known), name=name, relations=relations)


def _read_wiki(folder: Path, relations: Sequence[Relation]) -> tuple[Example, ...]:
    """Read FewRel's public files: lower-cased like the splits, and only the 80 relations of the splits."""
    files = tuple(folder / name for name in WIKI_FILES)
    require_files("fewrel", files)
    known = {relation.id for relation in relations}
    return tuple(
        replace(
            example,
            tokens=tuple(token.lower() for token in example.tokens),
            head=replace(example.head, name=example.head.name.lower()),
            tail=replace(example.tail, name=example.tail.name.lower()),
        )
        for file in files
        for example in read_examples(file, "fewrel").examples
        if example.relation in known
    )
