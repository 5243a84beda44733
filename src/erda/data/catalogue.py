"""The dataset catalogue (`datasets.toml`): names, required files, download locations and default stream shapes.

`open_stream` turns a dataset name or a path into a task stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from erda.data.dataset import CATALOGUE, Dataset, data_checksum, require_files
from erda.data.drawn_streams import draw_stream
from erda.data.fewrel_dataset import orders_of, published_stream, read_fresh, read_full, read_split
from erda.data.formats.jsonl_examples import read_jsonl, read_relation_list
from erda.data.own_data import name_relations, read_examples, read_own
from erda.data.streams import StreamSettings, TaskStream, with_patterns
from erda.errors import SettingsError, StreamError, unknown_name
from erda.fields import checked_settings
from erda.files import data_folder, user_path
from erda.registry import Registry

GITHUB = "https://raw.githubusercontent.com"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A public file at a pinned commit: its path on GitHub, its target in the data folder, and its git blob id."""

    path: str  # repository, commit, and path in the repository
    target: str
    blob: str

    def url(self, mirror: str = GITHUB) -> str:
        """Return the download URL."""
        return f"{mirror.rstrip('/')}/{self.path}"


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
    title: str = ""  # as papers write it, if it is not the name


_ATLAS_CHECKSUM = "efb69db44855d97c30b2771d6268d46b2bf9bb598b6b2766a66e51f359750d7c"  # of its generator's input


def _load_redoc41(folder: Path) -> Dataset:
    examples = folder / "redoc41/examples.jsonl.gz"
    relations = tuple(read_relation_list(folder / "redoc41/relations.json"))
    reading = read_jsonl(examples, {relation.id for relation in relations})
    checksum = data_checksum([examples], relations=relations)
    return Dataset("redoc41", relations, reading.examples, checksum=checksum, unrelated=reading.unrelated)


def _load_tacred(folder: Path) -> Dataset:
    """Load all three files as one pool: in the LDC's train file alone, some relations are too rare for ten shots."""
    paths = [folder / f"tacred/{name}.json" for name in ("train", "dev", "test")]
    readings = [read_examples(path, "tacred") for path in paths]
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


_LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "atlas": _load_atlas,
    "fewrel": lambda folder: read_split(folder / "fewrel").dataset,
    "fewrel-full": lambda folder: read_full(folder / "fewrel"),
    "fewrel-fresh": lambda folder: read_fresh(folder / "fewrel"),
    "redoc41": _load_redoc41,
    "tacred": _load_tacred,
}


def _remote_files(parts: Iterable[str]) -> tuple[RemoteFile, ...]:
    """List the public files of some tables of `datasets.toml`."""
    return tuple(
        RemoteFile(
            "/".join((source["repository"], source["commit"], source["there"], name)), f"{source['here']}/{name}", blob
        )
        for part in parts
        for source in CATALOGUE[part]
        for name, blob in source["files"].items()
    )


def _entry(
    name: str, *, shape: dict[str, int], needs: Iterable[str] = (), remote: Iterable[str] = (), **about: str
) -> Entry:
    return Entry(**about, shape=Shape(**shape), load=_LOADERS[name], needs=tuple(needs), remote=_remote_files(remote))


DATASETS: Registry[Entry] = Registry(
    "erda.datasets", {name: _entry(name, **about) for name, about in CATALOGUE["datasets"].items()}
)


def missing_files(entry: Entry, folder: Path) -> list[str]:
    """Return the files that a dataset lacks in the data folder; empty when it can be loaded."""
    needs = (need.split("|") for need in entry.needs)
    return [names[-1] for names in needs if not any((folder / name).is_file() for name in names)]


def find_entry(name: str) -> Entry:
    """Return the catalogue entry of a dataset."""
    if name not in DATASETS:
        raise SettingsError(unknown_name("dataset", name, DATASETS) + " A path to your own data works too.")
    return DATASETS[name]


def load_dataset(name_or_path: str | Path, *, folder: Path | None = None, no_relation: Collection[str] = ()) -> Dataset:
    """Load a dataset by name, or from a user's file or folder (docs/data.md).

    In a user's data, rows without a relation and rows whose relation is in `no_relation` become `unrelated` examples.
    """
    if (path := _own_path(name_or_path)) is not None:
        return read_own(path, no_relation=no_relation)
    name, folder = str(name_or_path), folder or data_folder()
    entry = find_entry(name)
    require_files(name, (folder / file for file in missing_files(entry, folder)), obtain=entry.obtain)
    return _load_once(entry.load, folder)


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
def _load_once(load: Callable[[Path], Dataset], folder: Path) -> Dataset:
    return load(folder)  # seconds for each stream of a large dataset


def _own_path(name_or_path: str | Path) -> Path | None:
    """Return the path if the argument is one: an existing path, or text that looks like a file name."""
    if str(name_or_path) in DATASETS:
        return None
    path = user_path(name_or_path)
    looks_like_path = isinstance(name_or_path, Path) or path.suffix or len(path.parts) > 1
    return path if looks_like_path or path.exists() else None
