"""Data of the open-text benchmark: the sentences that are taught and asked, and a file of their vectors.

Sentences come in parts, in a fixed order (`PARTS`). `python benchmarks/opentext.py list FILE.jsonl.gz` writes all of
them, one a line: `tokens`, `head` and `tail` ([start, end) into tokens), `blanked` (names are replaced by the mask
token) and `part`. The vectors of an encoder are a folder:

    vectors.npy      float16 [n, dim], row i belongs to line i of the list; any length, they are scaled to 1
    index.json       {"encoder": name, "fingerprint": of its weights, "parts": {part: {"n": rows, "sha256": of them}}}
    unlabelled.npz    statistics of the encoder (`erda.encoders.contract`), if the score reads them

`opentext.py embed FOLDER` computes one here; `opentext.py pack FOLDER --vectors FILE.npy` makes one of vectors
that another machine computed from the list. `VectorEncoder` reads it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from erda.app.inputs import example_of
from erda.data.catalogue import load_dataset
from erda.data.dataset import shuffled
from erda.data.formats.jsonl_examples import read_relation_list
from erda.data.streams import with_written_patterns
from erda.encoders.contract import Encoder, UnlabelledFile, save_unlabelled, unit_rows
from erda.errors import DataError, unknown_name
from erda.files import data_folder, decode_json, read_bytes, read_json, write_json, write_lines
from erda.methods.posterior import COMMON_NAMES, TEMPLATES, sentences_of
from erda.text.spacy_tagger import UNUSED, SpacyTagger, type_of
from erda.types import EncoderSpec, Entity, Example, Relation, Span, pair_in_sentence

HERE = Path(__file__).parent
DENIED, DOMAINS, FOLDS = HERE / "denied.jsonl", HERE / "domains.jsonl", HERE / "folds.json"
TYPES = HERE / "entity_types.json.gz"
TYPED = ("dev", "redoc41", "test")  # parts with entity types
N_TEST = 10_000  # pairs of redocred-test: all with a relation, others by seed
N_REDOC41, N_UNRELATED = 160, 1_000  # sentences per relation; of no relation
N_FEWREL, N_NOTA = 40, 100  # teaching sentences per relation; sentences per relation of the protocol with "none"
AT_ONCE = 2_000

# -- questions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """An ordered pair of entities in a sentence of a document, with the gold relations.

    `holds` are relations whose evidence includes the sentence. `ignored` are relations that the document states
    elsewhere, or without naming a sentence: an answer for them counts neither as right nor as wrong.
    """

    document: int
    sentence: int
    example: Example
    holds: frozenset[str]
    ignored: frozenset[str] = frozenset()


@cache
def read_documents(name: str = "dev") -> list[dict[str, Any]]:
    """Read the 500 documents of Re-DocRED's `dev` or `test` in DocRED's format."""
    with gzip.open(data_folder() / "corpus" / f"redocred-{name}.json.gz", "rt", encoding="utf-8") as file:
        documents: list[dict[str, Any]] = json.load(file)
    return documents


def questions_of(documents: Sequence[dict[str, Any]]) -> Iterator[Question]:
    """Yield every ordered pair of entities that share a sentence, sentence by sentence."""
    for number, document in enumerate(documents):
        stated: dict[tuple[int, int], set[str]] = defaultdict(set)
        evident: dict[tuple[int, int, int], set[str]] = defaultdict(set)
        for label in document["labels"]:
            pair = (label["h"], label["t"])
            stated[pair].add(label["r"])
            for sentence in label["evidence"]:
                evident[*pair, sentence].add(label["r"])
        for sentence, tokens in enumerate(document["sents"]):
            first = _first_mentions(document["vertexSet"], sentence)
            for head, tail in ((h, t) for h in first for t in first if h != t):
                if _overlap(first[head], first[tail]):
                    continue
                example = Example(tuple(tokens), _entity(first[head], tokens), _entity(first[tail], tokens))
                holds = frozenset(evident[head, tail, sentence])
                yield Question(number, sentence, example, holds, frozenset(stated[head, tail]) - holds)


def _first_mentions(entities: Sequence[Sequence[dict[str, Any]]], sentence: int) -> dict[int, tuple[int, int]]:
    """Map each entity of a sentence to the place of its first mention there."""
    places = {i: [m["pos"] for m in mentions if m["sent_id"] == sentence] for i, mentions in enumerate(entities)}
    return {number: tuple(min(found)) for number, found in places.items() if found}


def _entity(place: tuple[int, int], tokens: Sequence[str]) -> Entity:
    return Entity(" ".join(tokens[slice(*place)]), Span(*place))


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def letters(tokens: Sequence[str]) -> str:
    """A sentence by its letters and digits alone, to find equal sentences."""
    return "".join(character for character in " ".join(tokens).lower() if character.isalnum())


@cache
def sentences_in(name: str) -> frozenset[str]:
    """All sentences of `dev` or `test`, by their letters."""
    return frozenset(letters(sentence) for document in read_documents(name) for sentence in document["sents"])


@cache
def dev() -> list[Question]:
    """All questions of redocred-dev."""
    return list(questions_of(read_documents()))


@cache
def test() -> list[Question]:
    """Questions of redocred-test: all pairs with a relation, and some without any in the whole document."""
    found = list(questions_of(read_documents("test")))
    kept = [row for row, one in enumerate(found) if one.holds]
    none = [row for row, one in enumerate(found) if not one.holds and not one.ignored]
    kept += shuffled(none, 0, "test")[: N_TEST - len(kept)]
    return [found[row] for row in sorted(kept)]


def redoc41() -> list[Example]:
    """Sentences of redoc41 that stand in no document of redocred-dev, relation by relation."""
    dataset = load_dataset("redoc41")
    free = [example for example in dataset.train if letters(example.tokens) not in sentences_in("dev")]
    rows = []
    for relation in dataset.relations:
        rows += shuffled([one for one in free if one.relation == relation.id], 0, relation.id)[:N_REDOC41]
    return rows


def unrelated() -> list[Example]:
    """Sentences of redoc41 whose pair has no relation."""
    free = [one for one in load_dataset("redoc41").unrelated if letters(one.tokens) not in sentences_in("dev")]
    return shuffled(free, 0, "unrelated")[:N_UNRELATED]


def fewrel(part: str) -> list[Example]:
    """FewRel's sentences of a fold: `validation` and `test` as published, `taught` and `nota` from all others."""
    dataset, relations = load_dataset("fewrel"), fold("nota-16" if part == "nota" else "fewrel-40")
    if part == "validation":
        return [one for one in dataset.validation if one.relation in relations]
    if part == "test":
        return [one for name in relations for one in _some(dataset.test, name, 50)]
    asked = {one.tokens for one in (*dataset.test, *dataset.validation)}
    pool = [one for one in load_dataset("fewrel-full").train if one.tokens not in asked]
    return [one for name in relations for one in _some(pool, name, N_NOTA if part == "nota" else N_FEWREL)]


def _some(examples: Iterable[Example], relation: str, n: int) -> list[Example]:
    return shuffled([one for one in examples if one.relation == relation], 0, relation)[:n]


def denied() -> list[tuple[str, Example]]:
    """Kind and example of each hand-written sentence: taught, stated, denied, doubted, reversed."""
    rows = [json.loads(line) for line in DENIED.read_text(encoding="utf-8").splitlines()]
    return [(row["kind"], replace(example_of(row["sentence"]), relation=row["relation"])) for row in rows]


@cache
def domains() -> dict[str, list[Example]]:
    """Return the hand-written sentences of each domain: text unlike Wikipedia."""
    found = defaultdict[str, list[Example]](list)
    for row in map(json.loads, DOMAINS.read_text(encoding="utf-8").splitlines()):
        found[row["domain"]].append(replace(example_of(row["sentence"]), relation=row["relation"]))
    return dict(found)


def swapped(example: Example) -> Example:
    """The same sentence with head and tail exchanged."""
    return replace(example, head=example.tail, tail=example.head)


@cache
def relations(dataset: str) -> dict[str, Relation]:
    """Relations of redoc41, fewrel, the denied sentences or a domain, by id."""
    if dataset == "denied" or dataset in domains():
        written = domains()[dataset] if dataset in domains() else [one for _, one in denied()]
        return {one.relation: Relation(one.relation, one.relation) for one in written if one.relation}
    return {one.id: one for one in read_relation_list(data_folder() / dataset / "relations.json")}


def name_sentences() -> list[Example]:
    """Sentences of all names and written patterns that `Posterior` embeds."""
    known = [one for dataset in ("redoc41", "fewrel", "denied") for one in relations(dataset).values()]
    common = [Relation(name, name) for name in COMMON_NAMES]
    names = [sentence for one in (*known, *common) for sentence in sentences_of(one)]
    return names + [one for own in known for one in sentences_of(with_written_patterns(own))[len(TEMPLATES) :]]


@cache
def fold(name: str, kind: str = "relations") -> tuple[str, ...]:
    """Relations of a fold that are asked."""
    folds = read_json(FOLDS, dict[str, Any])["folds"]
    if name not in folds:
        raise DataError(unknown_name("fold", name, folds))
    return tuple(folds[name][kind])


def held_out(name: str) -> tuple[str, ...]:
    """Relations that a training or a fit for a fold does not read: those that are asked, and their inverses."""
    return fold(name, "held_out")


PARTS: dict[str, Callable[[], list[Example]]] = {
    "names": name_sentences,
    "dev": lambda: [one.example for one in dev()],
    "redoc41": redoc41,
    "unrelated": unrelated,
    "fewrel-validation": lambda: fewrel("validation"),
    "fewrel-test": lambda: fewrel("test"),
    "fewrel-taught": lambda: fewrel("taught"),
    "fewrel-nota": lambda: fewrel("nota"),
    "denied": lambda: [one for _, example in denied() for one in (example, swapped(example))],
    "test": lambda: [one.example for one in test()],
    "domain-names": lambda: [
        text for name in domains() for one in relations(name).values() for text in sentences_of(one)
    ],
    "domains": lambda: [example for own in domains().values() for example in own],
}
BLANKED = ("names", "domain-names")

# -- entity types -----------------------------------------------------------------------------------------------------


def tag(tagger: Path) -> None:
    """Write the types of all mentions of the parts `TYPED`, by a spaCy model: the only step that needs spaCy."""
    import spacy

    tags_of = SpacyTagger(spacy.load(tagger, exclude=[*UNUSED, "senter"])).tokens
    types = {name: list[tuple[str, str]]() for name in TYPED}
    for name, questions in (("dev", dev()), ("test", test())):
        documents = read_documents(name)
        tags = tags_of([token for sentence in document["sents"] for token in sentence] for document in documents)
        starts = [np.cumsum([0, *map(len, document["sents"])]) for document in documents]
        for one in questions:
            found, offset = tags[one.document], int(starts[one.document][one.sentence])
            ends = one.example.head.span, one.example.tail.span
            types[name].append((type_of(ends[0], found, offset=offset), type_of(ends[1], found, offset=offset)))
    teaching = redoc41()
    for example, found in zip(teaching, tags_of(example.tokens for example in teaching), strict=True):
        types["redoc41"].append((type_of(example.head.span, found), type_of(example.tail.span, found)))
    write_lines(TYPES, [json.dumps(types)])


@cache
def _types() -> dict[str, list[tuple[str, str]]]:
    content = gzip.decompress(read_bytes(TYPES))
    return decode_json(content, dict[str, list[tuple[str, str]]], place=str(TYPES))


@cache
def part(name: str) -> list[Example]:
    """Examples of a part, with entity types where there are some."""
    examples = PARTS[name]()
    if name not in TYPED or not TYPES.is_file():
        return examples
    return [
        replace(one, head=replace(one.head, type=head or None), tail=replace(one.tail, type=tail or None))
        for one, (head, tail) in zip(examples, _types()[name], strict=True)
    ]


# -- vectors ----------------------------------------------------------------------------------------------------------


def write_list(path: Path) -> None:
    """Write all sentences in the order of the vectors."""
    write_lines(path, (json.dumps(row, ensure_ascii=False) for row in _rows()))


def _rows() -> Iterator[dict[str, Any]]:
    for name in PARTS:
        for one in part(name):
            head, tail = one.head.span, one.tail.span
            places = {"head": [head.start, head.end], "tail": [tail.start, tail.end]}
            yield {"tokens": one.tokens, **places, "blanked": name in BLANKED, "part": name}


def checksum(examples: Iterable[Example]) -> str:
    """Digest of sentences and places, to recognise vectors of other data."""
    found = hashlib.sha256()
    for one in examples:
        found.update(repr(pair_in_sentence(one)).encode())
    return found.hexdigest()


def pack(folder: Path, vectors: np.ndarray, *, encoder: str, fingerprint: str) -> None:
    """Write vectors in the order of the list."""
    parts = {name: {"n": len(part(name)), "sha256": checksum(part(name))} for name in PARTS}
    n = sum(len(part(name)) for name in PARTS)
    if vectors.ndim != 2 or len(vectors) != n or not np.isfinite(vectors).all():
        raise DataError(f"{folder}: needs {n} finite vectors, in the order of the list; got {vectors.shape}.")
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "vectors.npy", vectors.astype(np.float16))
    write_json(folder / "index.json", {"encoder": encoder, "fingerprint": fingerprint, "parts": parts})


def embed(folder: Path, encoder: Encoder, *, fingerprint: str) -> None:
    """Embed all sentences, and copy the statistics of the encoder."""
    found = []
    for name in PARTS:
        for start in range(0, len(part(name)), AT_ONCE):
            some = part(name)[start : start + AT_ONCE]
            found.append(unit_rows(encoder.embed(some, blanked=name in BLANKED)).astype(np.float16))
            print(f"{name}: {start + len(some)} of {len(part(name))}", flush=True)
    pack(folder, np.concatenate(found), encoder=encoder.spec.name, fingerprint=fingerprint)
    if (unlabelled := encoder.unlabelled()) is not None:
        save_unlabelled(folder, unlabelled, fingerprint)


class VectorEncoder(Encoder):
    """Reads vectors from a folder; no model is loaded. `load` makes the vectors of a part available."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "index.json").is_file():
            raise DataError(f"{folder} holds no vectors. Run: python benchmarks/opentext.py embed {folder}")
        about = read_json(folder / "index.json", dict[str, Any])
        self._all, self._parts = np.load(folder / "vectors.npy", mmap_mode="r"), about["parts"]
        self.spec, self.dim = EncoderSpec(about["encoder"], {}, about["fingerprint"]), self._all.shape[1]
        self.unlabelled_file = UnlabelledFile(folder, about["fingerprint"])
        self._known: dict[tuple[bool, tuple[object, ...]], np.ndarray] = {}
        self.load("names")

    def load(self, name: str) -> list[Example]:
        """Read the vectors of a part; return its examples."""
        examples, start = part(name), 0
        for other, about in self._parts.items():
            if other == name:
                break
            start += about["n"]
        if self._parts.get(name) != {"n": len(examples), "sha256": checksum(examples)}:
            raise DataError(
                f"The vectors of '{name}' were computed from other data. Run embed, or list and pack, again."
            )
        rows = unit_rows(self._all[start : start + len(examples)].astype(np.float32))
        keys = ((name in BLANKED, pair_in_sentence(one)) for one in examples)
        self._known |= dict(zip(keys, rows, strict=True))
        return examples

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        """Look up sentences."""
        try:
            found = [self._known[blanked, pair_in_sentence(one)] for one in examples]
        except KeyError as missing:
            raise DataError(f"There is no vector of this sentence: {missing}. Compute the vectors again.") from None
        return np.stack(found) if found else np.zeros((0, self.dim), dtype=np.float32)
