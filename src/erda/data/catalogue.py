"""The dataset catalogue: names, required files, download locations and default stream shapes.

`open_stream` turns a dataset name or a path into a task stream.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from erda.data.dataset import Dataset, Stamps, data_checksum, file_stamps, require_files
from erda.data.drawn_streams import draw_stream
from erda.data.fewrel_dataset import (
    WIKI_FILES,
    orders_of,
    published_stream,
    read_fresh,
    read_full,
    read_published,
)
from erda.data.formats.jsonl_examples import read_jsonl, read_relation_list
from erda.data.formats.published_formats import read_tacred
from erda.data.own_data import name_relations, read_own, relation_files
from erda.data.streams import StreamSettings, TaskStream, with_patterns
from erda.errors import SettingsError, StreamError, unknown_name
from erda.fields import checked_settings
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


OWN_SHAPE = Shape(way=5, first_shots=None)  # of a user's own data


@dataclass(frozen=True, slots=True)
class Entry:
    """A dataset in the catalogue, which maps its name to it."""

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
        about="48 relations in eight domains, written for erda; no download",
        licence="Apache-2.0",
        shape=Shape(way=6),
        load=_load_atlas,
    ),
    "fewrel": Entry(
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
        about="the same 80 relations, up to 700 examples each, drawn by seed (100 shots: the continual setting)",
        licence="MIT",
        shape=Shape(way=10, shots=100),
        load=lambda folder: read_full(folder / "fewrel"),
        needs=_FULL_FILES,
        remote=(*_SPLITS, *_WIKI),
    ),
    "fewrel-fresh": Entry(
        about="40 of the 80 relations, without the sentences of the splits: no setting is chosen on them",
        licence="MIT",
        shape=Shape(way=10),
        load=lambda folder: read_fresh(folder / "fewrel"),
        needs=(*_FULL_FILES, *(file.target for file in _SPLITS)),
        remote=(*_SPLITS, *_WIKI),
    ),
    "redoc41": Entry(
        about="41 relations from DocRED and Re-DocRED, an open substitute of TACRED's shape",
        licence="MIT",
        shape=Shape(way=5, first_way=6),
        load=_load_redoc41,
        needs=_REDOC41_FILES,
        obtain=_REDOC41_SOURCE,
    ),
    "tacred": Entry(
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
        return _load_once(read_own, path, file_stamps([path, *beside]), no_relation=frozenset(no_relation))
    name, folder = str(name_or_path), folder or data_folder()
    entry = find_entry(name)
    require_files(name, (folder / file for file in missing_files(entry, folder)), obtain=entry.obtain)
    paths = [folder / file for need in entry.needs for file in need.split("|")]
    return _load_once(entry.load, folder, file_stamps(paths))


def open_stream(
    dataset: str | Path,
    *,
    shots: int | None = None,
    family: str = "erda",
    seed: int | None = None,
    folder: Path | None = None,
    **settings: Any,
) -> TaskStream:
    """Open the stream of a dataset: `fewrel` in a published order, every other dataset drawn by seed.

    `family` selects the published orders of `fewrel`; for other datasets it only selects the default seed. `folder` is
    the data folder, `settings` are the fields of `StreamSettings`.
    """
    wanted = checked_settings(StreamSettings, settings)
    seed = default_seeds(family)[0] if seed is None else seed
    if dataset == "fewrel":
        stream = _open_published(wanted, shots=5 if shots is None else shots, family=family, seed=seed, folder=folder)
    else:
        shape = OWN_SHAPE if _own_path(dataset) else find_entry(str(dataset)).shape
        if wanted.way is not None:
            shape = replace(shape, first_way=None)
        changed = {"shots": shots, "way": wanted.way, "first_way": wanted.first_way, "first_shots": wanted.first_shots}
        names = [name.strip() for name in wanted.no_relation.split(",")]
        stream = draw_stream(
            load_dataset(dataset, folder=folder, no_relation=names),
            **asdict(shape) | {name: size for name, size in changed.items() if size is not None},
            seed=seed,
            **wanted.model_dump(include={"n_tasks", "test_per_relation", "candidates", "min_examples"}),
        )
    return with_patterns(stream) if wanted.patterns else stream


def _open_published(wanted: StreamSettings, *, shots: int, family: str, seed: int, folder: Path | None) -> TaskStream:
    for name, published in (("way", 10), ("first_way", 10), ("first_shots", 100)):
        if (size := getattr(wanted, name)) not in (None, published):
            raise StreamError(
                f"The published splits of 'fewrel' have {name} {published}, not {size}; "
                "dataset 'fewrel-full' draws streams of any shape."
            )
    place = (folder or data_folder()) / "fewrel"
    return published_stream(place, shots=shots, family=family, seed=seed, n_tasks=wanted.n_tasks)


def default_seeds(family: str = "erda") -> tuple[int, ...]:
    """Return the six default seeds: those of the order family, for every dataset."""
    return tuple(orders_of(family))


@lru_cache(maxsize=4)
def _load_once(load: Callable[..., Dataset], path: Path, stamps: Stamps, **settings: Any) -> Dataset:
    """Load a dataset; cached until one of its files changes."""
    return load(path, **settings)


def _own_path(name_or_path: str | Path) -> Path | None:
    """Return the path if the argument is one: an existing path, or text that looks like a file name."""
    if str(name_or_path) in DATASETS:
        return None
    path = user_path(name_or_path)
    looks_like_path = isinstance(name_or_path, Path) or path.suffix or len(path.parts) > 1
    return path if looks_like_path or path.exists() else None
