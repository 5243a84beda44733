"""FewRel's relations, validation examples and whole data, from the data folder or from the files as published.

The data folder may hold `relations.json`, `validation.jsonl.gz` and `full.jsonl.gz`. Where only the public files are
there (`train_wiki.json`, `val_wiki.json`, `pid2name.json`, `cfrl/`), the same things are made from them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from erda.data.dataset import Dataset, data_checksum, require_files, shuffled
from erda.data.formats import example_to_json, read_fewrel, read_jsonl, read_relation_list
from erda.data.streams import text_key
from erda.errors import DataError
from erda.files import read_json, write_bytes
from erda.text.keys import sentence_key
from erda.text.reading import read_lines
from erda.types import Example, Relation

N_VALIDATION = 50  # validation examples a relation
VALIDATION_FILE = "validation.jsonl.gz"
VALIDATION_SEED = 2022  # validation examples are the same in every stream
WIKI_FILES = ("train_wiki.json", "val_wiki.json")


def read_relations(folder: Path) -> list[Relation]:
    """FewRel's 80 relations in the order of their index in the splits."""
    if (folder / "relations.json").is_file():
        return read_relation_list(folder / "relations.json")
    names_file, texts_file = folder / "cfrl" / "relation_name.txt", folder / "pid2name.json"
    require_files("fewrel", [names_file, texts_file])
    names = [line.strip() for _, line in read_lines(names_file) if line.strip()]
    texts = read_json(texts_file, dict[str, tuple[str, str]], remedy="Fetch it again: erda data get fewrel.")
    by_name = {name: (pid, text) for pid, (name, text) in texts.items()}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise DataError(f"{texts_file}: no relation is called {unknown[0]!r} ({len(unknown)} names are missing).")
    return [Relation(by_name[name][0], name, by_name[name][1]) for name in names]


def read_validation(folder: Path, relations: Sequence[Relation]) -> tuple[Example, ...]:
    """Validation examples: 50 a relation, no sentence of which is in any published split."""
    path = folder / VALIDATION_FILE
    if path.is_file():
        return read_jsonl(path, {relation.id for relation in relations}).examples
    splits = sorted((folder / "cfrl").glob("*-shot/*_0.txt"))
    rows = (line.split("\t") for file in splits for _, line in read_lines(file))
    return draw_validation(_read_wiki(folder, relations), {sentence_key(row[2]) for row in rows if len(row) > 2})


def write_validation(folder: Path) -> Path:
    """Write the validation examples that `read_validation` draws from FewRel's own files, for the next time."""
    path = folder / VALIDATION_FILE
    rows = [example_to_json(example) for example in read_validation(folder, read_relations(folder))]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_bytes(path, gzip.compress(text.encode(), mtime=0))
    return path


def draw_validation(examples: Iterable[Example], taken: Collection[int]) -> tuple[Example, ...]:
    """Fifty examples a relation at random by a fixed seed, from sentences whose keys are not `taken`; none twice."""
    free: dict[str, dict[int, Example]] = {}
    for example in examples:
        key = text_key(example)
        if key not in taken:
            free.setdefault(str(example.relation), {}).setdefault(key, example)
    chosen: list[Example] = []
    used: set[int] = set()
    for relation, sentences in sorted(free.items()):
        keys = sorted(sentences.keys() - used, key=lambda key: " ".join(sentences[key].tokens).casefold())
        keys = shuffled(keys, VALIDATION_SEED, relation)
        if len(keys) < N_VALIDATION:
            raise DataError(f"relation '{relation}' has {len(keys)} sentences for validation; {N_VALIDATION} needed.")
        used.update(keys[:N_VALIDATION])
        chosen += [sentences[key] for key in keys[:N_VALIDATION]]
    return tuple(chosen)


def read_full(folder: Path) -> Dataset:
    """All 80 relations with all their examples: what the continual setting is drawn from."""
    relations = read_relations(folder)
    path = folder / "full.jsonl.gz"
    if path.is_file():
        examples, files = read_jsonl(path, {relation.id for relation in relations}).examples, [path]
    else:
        examples, files = _read_wiki(folder, relations), [folder / name for name in WIKI_FILES]
    return Dataset("fewrel-full", tuple(relations), examples, checksum=data_checksum(files, relations=relations))


def _read_wiki(folder: Path, relations: Sequence[Relation]) -> tuple[Example, ...]:
    """FewRel's own files, lower-cased as the splits are, the 80 relations of the splits only."""
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
        for example in read_fewrel(file).examples
        if example.relation in known
    )
