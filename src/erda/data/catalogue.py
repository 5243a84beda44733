"""The dataset catalogue: names, required files, download locations and default stream shapes.

`open_stream` turns a dataset name or a path into a task stream.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from erda.data.dataset import Dataset, Stamps, data_checksum, file_stamps, require_files
from erda.data.drawn_streams import draw_stream
from erda.data.fewrel_dataset import (
    ORDERS,
    WIKI_FILES,
    published_stream,
    read_fresh,
    read_full,
    read_published,
)
from erda.data.formats import read_jsonl, read_relation_list, read_tacred
from erda.data.own_data import OWN_SHOTS, name_relations, read_own, relation_files
from erda.data.streams import TaskStream
from erda.errors import SettingsError, StreamError, unknown_name
from erda.files import data_folder, user_path
from erda.registry import Registry

GITHUB = "https://raw.githubusercontent.com"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A public file at a pinned commit: its source, its target in the data folder, and its git blob id."""

    repository: str
    commit: str
    path: str
    target: str
    blob: str

    def url(self, mirror: str = GITHUB) -> str:
        """Return the download URL."""
        return f"{mirror.rstrip('/')}/{self.repository}/{self.commit}/{self.path}"


@dataclass(frozen=True, slots=True)
class Shape:
    """Default task sizes of a stream. `first_shots=None`: the first task has as many shots as the others."""

    way: int
    shots: int = 5
    first_way: int | None = None
    first_shots: int | None = 100


OWN_SHAPE = Shape(way=5, shots=OWN_SHOTS, first_shots=None)  # of a user's own data


@dataclass(frozen=True, slots=True)
class Entry:
    """A dataset in the catalogue."""

    name: str
    about: str
    licence: str
    shape: Shape
    load: Callable[[Path], Dataset]  # from the data folder
    needs: tuple[str, ...] = ()  # files in the data folder; "a|b" is satisfied by either
    remote: tuple[RemoteFile, ...] = ()
    obtain: str = ""  # instructions for files that cannot be fetched


def _remote(part: str) -> tuple[RemoteFile, ...]:
    """Read the files of one section of `remote.toml`."""
    sources = tomllib.loads(files(__package__).joinpath("remote.toml").read_text(encoding="utf-8"))[part]
    return tuple(
        RemoteFile(
            source["repository"], source["commit"], f"{source['there']}/{name}", f"{source['here']}/{name}", blob
        )
        for source in sources
        for name, blob in source["files"].items()
    )


_SPLITS, _WIKI = _remote("splits"), _remote("wiki")
_RELATION_FILES = tuple(f"fewrel/relations.json|fewrel/{name}" for name in ("pid2name.json", "cfrl/relation_name.txt"))
_ATLAS_CHECKSUM = "efb69db44855d97c30b2771d6268d46b2bf9bb598b6b2766a66e51f359750d7c"  # of its generator's input
_FULL_FILES = (
    *_RELATION_FILES,
    *(f"fewrel/full.jsonl.gz|fewrel/{name}" for name in WIKI_FILES),
    *(f"fewrel/validation.jsonl.gz|{file.target}" for file in _SPLITS),
)
_REDOC41_FILES = ("redoc41/examples.jsonl.gz", "redoc41/relations.json")
_REDOC41_SOURCE = (
    "redoc41 has no public download; it comes with the data folder. Set ERDA_DATA to a folder that holds "
    "it, or copy its folder 'redoc41' to the location above."
)
_TACRED_FILES = ("tacred/train.json", "tacred/dev.json", "tacred/test.json")


def _load_redoc41(folder: Path) -> Dataset:
    examples = folder / "redoc41/examples.jsonl.gz"
    relations = tuple(read_relation_list(folder / "redoc41/relations.json"))
    reading = read_jsonl(examples, {relation.id for relation in relations})
    checksum = data_checksum([examples], relations=relations)
    return Dataset("redoc41", relations, reading.examples, checksum=checksum, unrelated=reading.unrelated)


def _load_tacred(folder: Path) -> Dataset:
    """Load all three files as one pool: in the LDC's train file alone, some relations are too rare for ten shots."""
    paths = [folder / name for name in _TACRED_FILES]
    readings = [read_tacred(path) for path in paths]
    examples = tuple(example for reading in readings for example in reading.examples)
    unrelated = tuple(example for reading in readings for example in reading.unrelated)
    relations = name_relations(examples)
    checksum = data_checksum(paths, relations=relations)
    return Dataset("tacred", relations, examples, checksum=checksum, unrelated=unrelated)


def embedded_file(name: str) -> Path:
    """Return the path of a file of the embedded dataset `atlas`; `corpus.jsonl.gz` holds its unlabelled sentences."""
    return Path(__file__).with_name("atlas") / name


def _load_atlas(folder: Path) -> Dataset:
    unrelated = read_jsonl(embedded_file("unrelated.jsonl.gz")).unrelated
    return replace(read_own(embedded_file("")), name="atlas", checksum=_ATLAS_CHECKSUM, unrelated=unrelated)


_ENTRIES: dict[str, Entry | str] = {
    "atlas": Entry(
        name="atlas",
        about="48 relations in eight domains, written for erda; no download",
        licence="Apache-2.0",
        shape=Shape(way=6),
        load=_load_atlas,
    ),
    "fewrel": Entry(
        name="fewrel",
        about="80 Wikidata relations in the published CFRL splits, 10-way 2/5/10-shot, with candidate lists",
        licence="MIT",
        shape=Shape(way=10),
        load=lambda folder: read_published(folder / "fewrel"),
        needs=(
            *(file.target for file in _SPLITS),
            *_RELATION_FILES,
            *(f"fewrel/validation.jsonl.gz|fewrel/{name}" for name in WIKI_FILES),
        ),
        remote=(*_SPLITS, *_WIKI),
    ),
    "fewrel-full": Entry(
        name="fewrel-full",
        about="the same 80 relations, up to 700 examples each, drawn by seed (100 shots: the continual setting)",
        licence="MIT",
        shape=Shape(way=10, shots=100),
        load=lambda folder: read_full(folder / "fewrel"),
        needs=_FULL_FILES,
        remote=(*_SPLITS, *_WIKI),
    ),
    "fewrel-fresh": Entry(
        name="fewrel-fresh",
        about="40 of the 80 relations, without the sentences of the splits: no setting is chosen on them",
        licence="MIT",
        shape=Shape(way=10),
        load=lambda folder: read_fresh(folder / "fewrel"),
        needs=(*_FULL_FILES, *(file.target for file in _SPLITS)),
        remote=(*_SPLITS, *_WIKI),
    ),
    "redoc41": Entry(
        name="redoc41",
        about="41 relations from DocRED and Re-DocRED, an open substitute of TACRED's shape",
        licence="MIT",
        shape=Shape(way=5, first_way=6),
        load=_load_redoc41,
        needs=_REDOC41_FILES,
        obtain=_REDOC41_SOURCE,
    ),
    "tacred": Entry(
        name="tacred",
        about="41 relations of TACRED, first task of 6 relations, then 5-way",
        licence="LDC user agreement",
        shape=Shape(way=5, first_way=6),
        load=_load_tacred,
        needs=_TACRED_FILES,
        obtain="TACRED is licensed by the Linguistic Data Consortium and cannot be fetched. Order LDC2018T24 at "
        "https://catalog.ldc.upenn.edu/LDC2018T24, unpack it, and copy data/json/train.json, dev.json and test.json to "
        "the locations above.",
    ),
}
DATASETS: Registry[Entry] = Registry("erda.datasets", _ENTRIES)


def missing_files(entry: Entry, folder: Path) -> list[str]:
    """Return the files that a dataset lacks in the data folder; empty when it can be loaded."""
    missing = []
    for need in entry.needs:
        alternatives = need.split("|")
        if not any((folder / name).is_file() for name in alternatives):
            missing.append(alternatives[-1])
    return missing


def find_entry(name: str) -> Entry:
    """Return the catalogue entry of a dataset."""
    if name not in DATASETS:
        raise SettingsError(unknown_name("dataset", name, DATASETS) + " A path to your own data works too.")
    return DATASETS[name]


def load_dataset(name_or_path: str | Path, *, folder: Path | None = None, no_relation: Collection[str] = ()) -> Dataset:
    """Load a dataset by name, or from a user's file or folder (docs/data.md).

    In a user's data, rows without a relation and rows whose relation is in `no_relation` become `unrelated` examples.
    """
    path = _own_path(name_or_path)
    if path is not None:
        beside = sorted(path.iterdir()) if path.is_dir() else relation_files(path)
        return _read_own_once(path, file_stamps([path, *beside]), frozenset(no_relation))
    entry = find_entry(str(name_or_path))
    folder = folder or data_folder()
    require_files(entry.name, (folder / name for name in missing_files(entry, folder)), obtain=entry.obtain)
    paths = [folder / name for need in entry.needs for name in need.split("|")]
    return _load_once(entry.name, folder, file_stamps(paths))


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Settings of a stream. Sizes default to the dataset's `Shape`, and to 5-way 5-shot for a user's own data.

    `family` selects the published orders of `fewrel`; for other datasets it only selects the default seed.
    `min_examples` drops rarer relations. `no_relation` lists, separated by commas, relation names that mean "no
    relation", such as "Other".
    """

    shots: int | None = None
    family: str = "erda"
    seed: int | None = None
    way: int | None = None
    first_way: int | None = None
    first_shots: int | None = None
    n_tasks: int | None = None
    test_per_relation: int | None = 100
    candidates: int | None = None
    min_examples: int | None = None
    no_relation: str = ""

    def shape(self, default: Shape) -> Shape:
        """The default shape with these sizes in it."""
        sizes = {field.name: getattr(self, field.name) for field in fields(Shape)}
        if self.way is not None:
            default = replace(default, first_way=None)
        return replace(default, **{name: size for name, size in sizes.items() if size is not None})


def open_stream(dataset: str | Path, *, folder: Path | None = None, **settings: Any) -> TaskStream:
    """Open the stream of a dataset: `fewrel` in a published order, every other dataset drawn by seed.

    `settings` are the fields of `StreamSettings`, for example `shots=5, n_tasks=3`. `folder` is the data folder.
    """
    wanted = StreamSettings(**settings)
    seed = default_seeds(dataset, wanted.family)[0] if wanted.seed is None else wanted.seed
    if dataset == "fewrel":
        for name, published in (("way", 10), ("first_way", 10), ("first_shots", 100)):
            if (size := getattr(wanted, name)) not in (None, published):
                raise StreamError(
                    f"The published splits of 'fewrel' have {name} {published}, not {size}; "
                    "dataset 'fewrel-full' draws streams of any shape."
                )
        place, shots = (folder or data_folder()) / "fewrel", 5 if wanted.shots is None else wanted.shots
        return published_stream(place, shots=shots, family=wanted.family, seed=seed, n_tasks=wanted.n_tasks)
    own = _own_path(dataset) is not None
    shape = wanted.shape(OWN_SHAPE if own else find_entry(str(dataset)).shape)
    names = [name.strip() for name in wanted.no_relation.split(",")]
    return draw_stream(
        load_dataset(dataset, folder=folder, no_relation=names),
        **asdict(shape),
        seed=seed,
        n_tasks=wanted.n_tasks,
        test_per_relation=wanted.test_per_relation,
        candidates=wanted.candidates,
        min_examples=wanted.min_examples,
    )


def default_seeds(dataset: str | Path, family: str = "erda") -> tuple[int, ...]:
    """Return the six default seeds: those of the order family, for every dataset."""
    if family not in ORDERS:
        raise StreamError(unknown_name("order family", family, ORDERS))
    return tuple(ORDERS[family])


@lru_cache(maxsize=4)
def _load_once(name: str, folder: Path, stamps: Stamps) -> Dataset:
    """Load a dataset; cached until one of its files changes."""
    return DATASETS[name].load(folder)


@lru_cache(maxsize=4)
def _read_own_once(path: Path, stamps: Stamps, no_relation: frozenset[str]) -> Dataset:
    return read_own(path, no_relation=no_relation)


def _own_path(name_or_path: str | Path) -> Path | None:
    """Return the path if the argument is one: an existing path, or text that looks like a file name."""
    if str(name_or_path) in DATASETS:
        return None
    path = user_path(name_or_path)
    looks_like_path = isinstance(name_or_path, Path) or path.suffix or len(path.parts) > 1
    return path if looks_like_path or path.exists() else None
