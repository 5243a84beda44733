"""A dataset: its relations and three disjoint pools of labelled examples, from which streams are drawn."""

from __future__ import annotations

import hashlib
import json
import random
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from erda.data.formats.jsonl_examples import example_to_json
from erda.errors import DataError
from erda.files import sha256_of
from erda.types import Example, Relation, pair_in_sentence

Item = TypeVar("Item")
CATALOGUE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("datasets.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Dataset:
    """Relations with pools of labelled examples. Streams split an empty pool off `train`.

    `unrelated` holds examples without a known relation. `checksum` is the sha256 of the source of the examples, files
    or generator; every manifest records it.
    """

    name: str
    relations: tuple[Relation, ...]
    train: tuple[Example, ...] = field(repr=False)
    validation: tuple[Example, ...] = field(default=(), repr=False)
    test: tuple[Example, ...] = field(default=(), repr=False)
    checksum: str = ""
    unrelated: tuple[Example, ...] = field(default=(), repr=False)

    def only(self, keep: Callable[[Example], bool]) -> Dataset:
        """Return the dataset with its pools filtered by `keep`."""
        train, validation, test = (tuple(filter(keep, pool)) for pool in (self.train, self.validation, self.test))
        return replace(self, train=train, validation=validation, test=test)


def shuffled(items: Iterable[Item], seed: int, purpose: str) -> list[Item]:
    """Return the items in an order that depends only on the seed and the purpose."""
    listed = list(items)
    random.Random(f"{seed}:{purpose}").shuffle(listed)
    return listed


def relations_by_pair(examples: Iterable[Example]) -> dict[tuple[object, ...], set[str | None]]:
    """Map each entity pair in a sentence to the relations it occurs with."""
    relations: dict[tuple[object, ...], set[str | None]] = {}
    for example in examples:
        relations.setdefault(pair_in_sentence(example), set()).add(example.relation)
    return relations


def data_checksum(paths: Iterable[Path], *, relations: Iterable[Relation], examples: Iterable[Example] = ()) -> str:
    """Return the sha256 over the contents of files in this order, the relations' texts and any further examples."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(bytes.fromhex(sha256_of(path)))
    for relation in relations:
        whole.update(json.dumps([relation.id, relation.name, relation.description]).encode())
    for example in examples:
        whole.update(json.dumps(example_to_json(example), sort_keys=True).encode())
    return whole.hexdigest()


def require_files(dataset: str, paths: Iterable[Path], *, obtain: str = "") -> None:
    """Raise a `DataError` that lists the missing files of a dataset and how to get them."""
    if missing := [path for path in paths if not path.is_file()]:
        listed = "\n".join(f"  {path}" for path in missing)
        fetch = f"Fetch it with 'erda data get {dataset}', or set ERDA_DATA to a folder that holds it."
        raise DataError(f"Dataset '{dataset}' is not complete; missing:\n{listed}\n{obtain or fetch}")
