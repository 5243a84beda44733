"""The datasets that `erda` knows by name, where their files are, and the streams that they give.

`open_stream` is the one way from a name (or a path) to a stream of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path

from erda.data.dataset import Dataset, Stamps, data_checksum, file_stamps, require_files
from erda.data.drawn import draw_stream
from erda.data.fewrel import WIKI_FILES, read_full
from erda.data.formats import read_jsonl, read_relation_list, read_tacred
from erda.data.own import OWN_SHOTS, name_relations, read_own, relation_files
from erda.data.published import ORDERS, published_stream, read_published
from erda.data.streams import TaskStream
from erda.errors import DataError, SettingsError, StreamError, unknown_name
from erda.files import data_folder

GITHUB = "https://raw.githubusercontent.com"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A public file at a pinned commit: where it is, where it goes in the data folder, and its git blob id."""

    repository: str
    commit: str
    path: str
    target: str
    blob: str

    def url(self, mirror: str = GITHUB) -> str:
        """Where the file is fetched from."""
        return f"{mirror.rstrip('/')}/{self.repository}/{self.commit}/{self.path}"


@dataclass(frozen=True, slots=True)
class Shape:
    """The tasks that a stream has where nothing else is asked for. `first_shots=None`: as many as the others."""

    way: int
    shots: int = 5
    first_way: int | None = None
    first_shots: int | None = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A dataset of the catalogue."""

    name: str
    about: str
    licence: str
    shape: Shape
    load: Callable[[Path], Dataset]  # from the data folder
    needs: tuple[str, ...] = ()  # files in the data folder; "a|b" is satisfied by either
    remote: tuple[RemoteFile, ...] = ()
    obtain: str = ""  # what to do where the files cannot be fetched


def _fewrel_file(name: str, blob: str) -> RemoteFile:
    commit = "278a2315d2138810a379cd8d5718914dc56e2582"
    return RemoteFile("thunlp/FewRel", commit, f"data/{name}", f"fewrel/{name}", blob)


def _cfrl_file(path: str, target: str, blob: str) -> RemoteFile:
    commit = "9d94a9ddc9de6300deec1d5bd434cda0a7a3f1eb"
    repository = "qcwthu/Continual_Fewshot_Relation_Learning"
    return RemoteFile(repository, commit, f"data/fewrel/{path}", f"fewrel/cfrl/{target}", blob)


_WIKI = (
    _fewrel_file("train_wiki.json", "4fee283724b455bab1fcbf76bfdef02283bb44f5"),
    _fewrel_file("val_wiki.json", "fe103ba5f52de1f0c070d66c7a8ba9de20c9f96c"),
    _fewrel_file("pid2name.json", "00b632be58e00b5337c054ac8a46bda1f4c27b0e"),
)
_NAMES = _cfrl_file("relation_name.txt", "relation_name.txt", "75bd651df800ce92bd5033403f1e8ba76291c965")
_SPLITS = (
    _cfrl_file("rel_index.npy", "rel_index.npy", "89e2839b96b3c6cca50c0094fd3d99bad64dce6c"),
    *(
        _cfrl_file(f"CFRLdata_10_100_10_{shots}/{name}", f"{shots}-shot/{name}", blob)
        for shots, blobs in (
            (2, ("57d197a21a8948317f05d3605571b9dfacaa3d0e", "f226e7b3ef6c0e5d8a04cfa82c441ea39d79e1f6",
                 "98140a05abc059952ba1c70d490495fcf5c1c3aa")),
            (5, ("091b700284eca875c6e975a9046c0e3a4afb16c3", "d75d8cd578f5ec617b69b631da35e576588c40e2",
                 "0561f428eda45da2b8df430f899e9f1aa34a9cec")),
            (10, ("9b42147ac0e4c69054d40febeaa45f0f5bb8d429", "7bc596986149beb8f258be56301f42b77d6ab425",
                  "da342a83c4117e69c046dd9a2c7b3c567c3e97e7")),
        )
        for name, blob in zip(("train_0.txt", "test_0.txt", "rel_cluster_label_0.npy"), blobs, strict=True)
    ),
)  # fmt: skip
_RELATION_FILES = tuple(f"fewrel/relations.json|fewrel/{name}" for name in ("pid2name.json", "cfrl/relation_name.txt"))
_TACRED_FILES = ("tacred/train.json", "tacred/dev.json", "tacred/test.json")


def _load_redoc41(folder: Path) -> Dataset:
    examples, relations = folder / "redoc41/examples.jsonl.gz", folder / "redoc41/relations.json"
    require_files("redoc41", [examples, relations])
    listed = tuple(read_relation_list(relations))
    reading = read_jsonl(examples, {relation.id for relation in listed})
    checksum = data_checksum([examples], relations=listed)
    return Dataset("redoc41", listed, reading.examples, checksum=checksum, unrelated=reading.unrelated)


def _load_tacred(folder: Path) -> Dataset:
    """All three files as one pool: some relations are too rare in the LDC's own train file for ten shots."""
    files = [folder / name for name in _TACRED_FILES]
    require_files("tacred", files)
    readings = [read_tacred(file) for file in files]
    examples, unrelated = (
        tuple(chain.from_iterable(pools))
        for pools in zip(*((reading.examples, reading.unrelated) for reading in readings), strict=True)
    )
    relations = name_relations(examples)
    checksum = data_checksum(files, relations=relations)
    return Dataset("tacred", relations, examples, checksum=checksum, unrelated=unrelated)


def _load_atlas(folder: Path) -> Dataset:
    from erda.data.atlas import build

    return build()


DATASETS: dict[str, Entry] = {
    "atlas": Entry(
        name="atlas",
        about="48 relations of eight domains, written for erda and generated by seed; nothing to download",
        licence="Apache-2.0",
        shape=Shape(way=6),
        load=_load_atlas,
    ),
    "fewrel": Entry(
        name="fewrel",
        about="80 Wikidata relations in the published CFRL splits, 10-way 2/5/10-shot, tests with candidate lists",
        licence="MIT",
        shape=Shape(way=10),
        load=lambda folder: read_published(folder / "fewrel"),
        needs=(
            *(file.target for file in _SPLITS),
            *_RELATION_FILES,
            *(f"fewrel/validation.jsonl.gz|fewrel/{name}" for name in WIKI_FILES),
        ),
        remote=(*_SPLITS, _NAMES, *_WIKI),
    ),
    "fewrel-full": Entry(
        name="fewrel-full",
        about="the same 80 relations with up to 700 examples each, drawn by seed (100 shots: the continual setting)",
        licence="MIT",
        shape=Shape(way=10, shots=100),
        load=lambda folder: read_full(folder / "fewrel"),
        needs=(*_RELATION_FILES, *(f"fewrel/full.jsonl.gz|fewrel/{name}" for name in WIKI_FILES)),
        remote=(*_WIKI, _NAMES),
    ),
    "redoc41": Entry(
        name="redoc41",
        about="41 relations from DocRED and Re-DocRED, an open stand-in of TACRED's shape",
        licence="MIT",
        shape=Shape(way=5, first_way=6),
        load=_load_redoc41,
        needs=("redoc41/examples.jsonl.gz", "redoc41/relations.json"),
        obtain="redoc41 has no public source to fetch from; it comes with the data folder. Set ERDA_DATA to a folder "
        "that has it, or copy its folder 'redoc41' to the place named above.",
    ),
    "tacred": Entry(
        name="tacred",
        about="41 relations of TACRED, first task of 6, then 5-way",
        licence="LDC user agreement",
        shape=Shape(way=5, first_way=6),
        load=_load_tacred,
        needs=_TACRED_FILES,
        obtain="TACRED is licensed by the Linguistic Data Consortium and cannot be fetched: order LDC2018T24 at "
        "https://catalog.ldc.upenn.edu/LDC2018T24, unpack it, and copy data/json/train.json, dev.json and test.json to "
        "the places named above.",
    ),
}


def missing_files(entry: Entry, folder: Path) -> list[str]:
    """What a dataset still needs in the data folder; empty when it can be loaded."""
    missing = []
    for need in entry.needs:
        alternatives = need.split("|")
        if not any((folder / name).is_file() for name in alternatives):
            missing.append(alternatives[-1])
    return missing


def not_there(entry: Entry, folder: Path) -> str:
    """Says which files of a dataset are missing."""
    listed = "\n".join(f"  {folder / name}" for name in missing_files(entry, folder))
    return f"Dataset '{entry.name}' is not here; missing:\n{listed}"


def find_entry(name: str) -> Entry:
    """The entry of the catalogue with this name."""
    if name not in DATASETS:
        raise SettingsError(unknown_name("dataset", name, DATASETS) + " A path to your own data works too.")
    return DATASETS[name]


def load_dataset(name_or_path: str | Path, *, folder: Path | None = None, no_relation: Collection[str] = ()) -> Dataset:
    """A dataset by its name, or from the user's own file or folder (docs/data.md).

    Rows of own data without a relation, or with one that is named in `no_relation`, are its `unrelated` examples.
    """
    path = _own_path(name_or_path)
    if path is not None:
        beside = sorted(path.iterdir()) if path.is_dir() else relation_files(path)
        return _read_own_once(path, file_stamps([path, *beside]), frozenset(no_relation))
    entry = find_entry(str(name_or_path))
    folder = folder or data_folder()
    missing = missing_files(entry, folder)
    if missing and entry.obtain:
        raise DataError(f"{not_there(entry, folder)}\n{entry.obtain}")
    require_files(entry.name, [folder / name for name in missing])
    files = [folder / name for need in entry.needs for name in need.split("|")]
    return _load_once(entry.name, folder, file_stamps(files))


def open_stream(
    dataset: str | Path,
    *,
    shots: int | None = None,
    family: str = "erda",
    seed: int | None = None,
    way: int | None = None,
    first_way: int | None = None,
    first_shots: int | None = None,
    n_tasks: int | None = None,
    test_per_relation: int | None = 100,
    candidates: int | None = None,
    min_examples: int | None = None,
    no_relation: str = "",
    folder: Path | None = None,
) -> TaskStream:
    """The stream of a dataset: `fewrel` in a published order, every other dataset drawn by seed.

    What is not asked for comes from the dataset's own shape (`DATASETS`); a user's own data: 5-way, 5-shot throughout.
    `family` names the published orders, and otherwise only the six seeds that `default_seeds` gives. `min_examples`
    leaves rarer relations out; `no_relation` names those (with commas between) that say that there is none, as "Other".
    """
    seed = default_seeds(dataset, family)[0] if seed is None else seed
    if dataset == "fewrel":
        _refuse_for_published(way=(way, 10), first_way=(first_way, 10), first_shots=(first_shots, 100))
        load_folder = (folder or data_folder()) / "fewrel"
        return published_stream(
            load_folder, shots=5 if shots is None else shots, family=family, seed=seed, n_tasks=n_tasks
        )
    own = _own_path(dataset) is not None
    shape = Shape(way=5, shots=OWN_SHOTS, first_shots=None) if own else find_entry(str(dataset)).shape
    asked = {"way": way, "shots": shots, "first_way": first_way, "first_shots": first_shots}
    if way is not None and first_way is None:
        shape = replace(shape, first_way=None)
    shape = replace(shape, **{name: number for name, number in asked.items() if number is not None})
    return draw_stream(
        load_dataset(dataset, folder=folder, no_relation=[name.strip() for name in no_relation.split(",")]),
        way=shape.way,
        shots=shape.shots,
        seed=seed,
        first_way=shape.first_way,
        first_shots=shape.first_shots,
        n_tasks=n_tasks,
        test_per_relation=test_per_relation,
        candidates=candidates,
        min_examples=min_examples,
    )


def default_seeds(dataset: str | Path, family: str = "erda") -> tuple[int, ...]:
    """The six seeds that are run where none are named: those of the family, for every dataset."""
    if family not in ORDERS:
        raise StreamError(unknown_name("order family", family, ORDERS))
    return tuple(ORDERS[family])


@lru_cache(maxsize=4)
def _load_once(name: str, folder: Path, stamps: Stamps) -> Dataset:
    """A dataset stays in memory for the next stream while its files are the same."""
    return DATASETS[name].load(folder)


@lru_cache(maxsize=4)
def _read_own_once(path: Path, stamps: Stamps, no_relation: frozenset[str]) -> Dataset:
    return read_own(path, no_relation=no_relation)


def _own_path(name_or_path: str | Path) -> Path | None:
    """The path that was meant, if it was one: something that exists, or looks like a file name."""
    if str(name_or_path) in DATASETS:
        return None
    path = Path(name_or_path).expanduser()
    looks_like_path = isinstance(name_or_path, Path) or path.suffix or len(path.parts) > 1
    return path if looks_like_path or path.exists() else None


def _refuse_for_published(**asked: tuple[int | None, int]) -> None:
    for name, (number, published) in asked.items():
        if number not in (None, published):
            raise StreamError(
                f"The published splits of 'fewrel' have {name} {published}, not {number}; "
                "dataset 'fewrel-full' draws streams of any shape."
            )
