"""Nearest-neighbour search in a corpus by inner product: a FAISS index beside the vector shards.

`DIR/vectors/<model>/index.json` describes `index.faiss`: model, corpus version, FAISS factory string, search parameters
and recall. Row i of the index is row i of the corpus. An index of another model or corpus version is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from erda.corpus.faiss_kinds import TARGET_RECALL, SearchEffort, choose_factory, make_index, rescore, set_effort, tune
from erda.corpus.manifest import CorpusVersion, StoredFile, fault_of
from erda.corpus.sql import disk_faults
from erda.corpus.vector_shards import (
    BUSY,
    FOLDER,
    Embedder,
    VectorShards,
    embed_corpus,
    read_journal,
    vectors_folder,
)
from erda.errors import DataError, ModelError
from erda.files import locked, read_sealed, sealed, whole_file, write_json

if TYPE_CHECKING:
    from erda.corpus.corpus_store import CorpusStore
    from erda.corpus.similarity import SimilarityModel

FORMAT = 1
_ABOUT = "index.json"
_FILE = "index.faiss"


@dataclass(frozen=True, slots=True)
class IndexAbout:
    """The content of `index.json`."""

    fingerprint: str
    model: str
    dim: int
    digest: str
    n_rows: int
    factory: str
    search: SearchEffort
    file: StoredFile
    format: int = FORMAT

    @classmethod
    def read(cls, folder: Path) -> IndexAbout:
        """Read the description from a folder of vectors."""
        about = read_sealed(folder / _ABOUT, cls, remedy="Run 'erda corpus index' again.")
        if about.format != FORMAT or about.file.path != _FILE:
            raise DataError(f"{folder / _ABOUT}: written by another version of erda; run 'erda corpus index' again.")
        return about


class Neighbours(NamedTuple):
    """Scores and row numbers of the nearest rows of n vectors, nearest first: [n, k] each; row -1 is padding."""

    scores: np.ndarray
    rows: np.ndarray


class VectorIndex:
    """Search and stored vectors of one corpus version and one model."""

    def __init__(self, about: IndexAbout, index: Any, shards: VectorShards) -> None:
        self.about = about
        self.shards = shards
        self._index = index

    @classmethod
    def open(cls, store: CorpusStore, model: SimilarityModel) -> VectorIndex:
        """Open the index of a corpus for a model, memory-mapped where possible; changed files are verified."""
        folder = vectors_folder(store.folder, model.fingerprint)
        again = f"run: erda corpus index {store.folder}"
        if not (folder / _ABOUT).exists():
            _refuse_missing(store.folder, folder, model, again)
        about = IndexAbout.read(folder)
        if about.fingerprint != model.fingerprint:
            raise ModelError(f"{folder}: made by model {about.fingerprint[:16]}, not {model.fingerprint[:16]}; {again}")
        if about.digest != store.digest:
            if CorpusVersion(about.n_rows, about.digest) in store.versions:
                raise DataError(
                    f"{folder}: the index covers the first {about.n_rows:,} of {len(store):,} rows of a corpus that "
                    f"has grown. To add the new rows to the index, {again}"
                )
            raise DataError(
                f"{folder}: index of another version of the corpus (digest {about.digest[:12]}, {about.n_rows:,} rows; "
                f"now {store.digest[:12]}, {len(store):,} rows); {again} --rebuild"
            )
        shards = VectorShards.open(folder, beside=[about.file])
        if (len(shards), shards.dim) != (about.n_rows, about.dim):
            raise DataError(f"{folder}: unfinished (vectors of {len(shards):,} of {about.n_rows:,} rows); {again}")
        return cls(about, _read_faiss(folder / _FILE, about, again), shards)

    def __len__(self) -> int:
        return self.about.n_rows

    def search(self, vectors: np.ndarray, k: int) -> Neighbours:
        """Find the `k` nearest rows of each vector [n, dim]."""
        vectors = np.ascontiguousarray(vectors, np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != self.about.dim:
            raise ModelError(f"vectors of shape {vectors.shape} do not fit an index of {self.about.dim} dimensions.")
        if not len(vectors):
            return Neighbours(np.empty((0, k), np.float32), np.empty((0, k), np.int64))
        if self.about.factory == "Flat":
            return Neighbours(*self._index.search(vectors, min(k, len(self))))
        _, rows = self._index.search(vectors, min(k + self.about.search.spare, len(self)))
        scores = rescore(self.shards, vectors, rows)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return Neighbours(np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1))

    def vectors(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Read the vectors of rows (half precision), not their quantised codes."""
        return self.shards.vectors(rows)


def build_index(
    store: CorpusStore,
    model: SimilarityModel,
    *,
    rebuild: bool = False,
    embedder: Embedder | None = None,
    batch_size: int = 64,
    show: Callable[[str], None] = lambda message: None,
) -> VectorIndex:
    """Embed rows without a vector, then make the index or add the new rows to it.

    `choose_factory` picks the kind of index by the number of rows. A corpus that has outgrown exact search gets a new
    index.
    """
    shards = embed_corpus(store, model, rebuild=rebuild, batch_size=batch_size, embedder=embedder)
    folder = shards.folder
    with locked(folder, busy=BUSY), disk_faults(folder):
        before = _before(folder, show)
        wanted = choose_factory(len(shards), shards.dim)
        if before and _still_good(folder, before, store, wanted):
            if before.n_rows < len(shards):
                show(f"adding {len(shards) - before.n_rows:,} rows to {before.factory}")
                about = _grow(folder, before, shards, store)
            else:
                show(f"{folder.name}: the index is complete ({before.factory}, {before.n_rows:,} rows)")
                about = before
        else:
            show(f"building {wanted} of {len(shards):,} rows")
            made = index_shards(shards, wanted, show=show)
            about = IndexAbout(
                fingerprint=model.fingerprint,
                model=model.base,
                dim=shards.dim,
                digest=store.digest,
                n_rows=len(shards),
                factory=wanted,
                search=made.search,
                file=_write_faiss(made.index, folder),
            )
        if about is not before:
            write_json(folder / _ABOUT, sealed(about))
    return VectorIndex.open(store, model)


def _before(folder: Path, show: Callable[[str], None]) -> IndexAbout | None:
    """Read the description of the existing index; None if it is missing or damaged."""
    if not (folder / _ABOUT).exists():
        return None
    try:
        return IndexAbout.read(folder)
    except DataError as fault:
        show(f"{fault} Building a new index.")
        return None


def _still_good(folder: Path, about: IndexAbout, store: CorpusStore, wanted: str) -> bool:
    """Whether an existing index is intact and of the wanted kind, so that it can be kept and extended."""
    known = CorpusVersion(about.n_rows, about.digest) in store.versions and fault_of(folder, about.file) is None
    return known and (wanted == "Flat") == (about.factory == "Flat")


@dataclass(frozen=True, slots=True)
class MadeIndex:
    """A FAISS index of all vectors, and its search parameters."""

    index: Any
    search: SearchEffort


def index_shards(
    shards: VectorShards, factory: str, *, show: Callable[[str], None] = lambda message: None
) -> MadeIndex:
    """Build an index of all vectors and tune its search."""
    from tqdm import tqdm

    index = make_index(factory, shards)
    for _, vectors in tqdm(shards, desc="indexing", unit="shard", total=len(shards.shards), disable=None):
        index.add(vectors)
    search = SearchEffort() if factory == "Flat" else tune(index, shards)
    if search.recall < TARGET_RECALL:
        show(f"warning: recall@1 of {factory} is only {search.recall:.1%}")
    return MadeIndex(index, search)


def _grow(folder: Path, before: IndexAbout, shards: VectorShards, store: CorpusStore) -> IndexAbout:
    import faiss

    index = faiss.read_index(str(folder / _FILE))
    for start, vectors in shards:
        if start >= before.n_rows:
            index.add(vectors)
    return replace(before, digest=store.digest, n_rows=len(shards), file=_write_faiss(index, folder))


def _write_faiss(index: Any, folder: Path) -> StoredFile:
    """Write an index through a Python file, because FAISS prints write errors to the terminal."""
    import faiss

    path = folder / _FILE
    with whole_file(path) as temporary, temporary.open("wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]  # FAISS's stubs lack it
    return StoredFile.of(folder, path)


def _read_faiss(path: Path, about: IndexAbout, again: str) -> Any:
    """Open an index memory-mapped: FAISS maps inverted lists and flat codes, and reads the rest."""
    import faiss

    try:
        kind = faiss.IO_FLAG_MMAP_IFC if about.factory == "Flat" else faiss.IO_FLAG_MMAP
        index = faiss.read_index(str(path), kind)
    except RuntimeError:
        try:
            index = faiss.read_index(str(path))
        except RuntimeError as error:
            raise DataError(f"{path}: damaged ({str(error).splitlines()[-1]}); {again}") from None
    if index.ntotal != about.n_rows or index.d != about.dim:
        raise DataError(f"{path}: has {index.ntotal:,} rows, expected {about.n_rows:,}; it is damaged; {again}")
    set_effort(index, about.search.effort)
    return index


def _refuse_missing(corpus: Path, folder: Path, model: SimilarityModel, again: str) -> None:
    others = sorted(path.parent for path in (corpus / FOLDER).glob(f"*/{_ABOUT}"))
    if others:
        made_by = ", ".join(f"{IndexAbout.read(path).model} ({path.name})" for path in others)
        raise ModelError(
            f"{corpus}: the index belongs to another similarity model, {made_by}; this model is {model.base} "
            f"({folder.name}). Use that model, or index for this one: {again.removeprefix('run: ')} --model ..."
        )
    if n_done := len(read_journal(folder)):
        raise DataError(f"{folder}: unfinished ({n_done} shards are done); to resume, {again}")
    raise DataError(f"{corpus}: has no index; {again}")
