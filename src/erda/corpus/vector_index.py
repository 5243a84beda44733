"""Nearest-neighbour search in a corpus by inner product: a FAISS index beside the vector shards.

| rows | FAISS factory | why |
|---|---|---|
| up to 200,000 | `Flat` | exact, and fast enough: the 50 queries of a task take well under a second |
| more | `IVF<n>,PQ<dim / 4>x4fsr` | one bit per dimension, compared in registers: 96 bytes for 768 dimensions |

An IVF index holds quantised vectors. A search therefore retrieves spare rows and rescores all of them with the vectors
of the memory-mapped shards, which restores recall and makes scores exact. `index.json` describes `index.faiss`: model,
corpus, factory string, search parameters and recall; trained weights of the model are copied beside it. Row i of the
index is row i of the corpus.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from erda.corpus.corpus_store import CorpusStore, StoredFile, disk_faults
from erda.corpus.vector_shards import BUSY, FOLDER, Embedder, VectorShards, embed_corpus, vectors_folder
from erda.errors import DataError, ModelError
from erda.files import locked, read_sealed, sealed, whole_file, write_json

if TYPE_CHECKING:
    from erda.corpus.similarity import SimilarityModel

_ABOUT = "index.json"
_FILE = "index.faiss"
EXACT_ROWS = 200_000
TARGET_RECALL = 0.98
POINTS_PER_LIST = 40
N_ITERATIONS = 8
_QUERIES = 400
_TOLERANCE = 1e-5  # products that differ by less are equal
_EFFORTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SPARE = 128  # rows beyond those requested that are rescored


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """The nprobe of an index (0: exact), and its recall@1 against exact search."""

    effort: int = 0
    recall: float = 1.0


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
    format: Literal[2] = 2


class Neighbours(NamedTuple):
    """Scores and row numbers of the nearest rows of n vectors, nearest first: [n, k] each; row -1 is padding."""

    scores: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """Search and stored vectors of one corpus version and one model."""

    about: IndexAbout
    index: Any
    shards: VectorShards

    @classmethod
    def open(cls, store: CorpusStore, model: SimilarityModel) -> VectorIndex:
        """Open the index of a corpus for a model, memory-mapped where possible; its files are verified."""
        import faiss

        folder = vectors_folder(store, model.fingerprint)
        if not (folder / _ABOUT).exists():
            raise DataError(
                f"{folder}: no finished index of this corpus and similarity model ({model.base}); "
                f"run: erda corpus index {store.folder}, with the same --model."
            )
        about = read_sealed(folder / _ABOUT, IndexAbout, remedy="Run 'erda corpus index' again.")
        if (about.fingerprint, about.digest) != (model.fingerprint, store.digest):
            raise ModelError(f"{folder}: the index of another model or corpus; delete this folder.")
        if fault := about.file.fault(folder):
            raise DataError(f"{fault} To repair it, run: erda corpus index {store.folder}")
        # FAISS maps inverted lists and flat codes, and reads the rest.
        mapped = faiss.IO_FLAG_MMAP_IFC if about.factory == "Flat" else faiss.IO_FLAG_MMAP
        index = faiss.read_index(str(folder / _FILE), mapped)
        if about.search.effort:
            faiss.extract_index_ivf(index).nprobe = about.search.effort
        return cls(about, index, VectorShards(folder, about.n_rows))

    def search(self, vectors: np.ndarray, k: int) -> Neighbours:
        """Find the `k` nearest rows of each vector [n, dim]."""
        vectors = np.ascontiguousarray(vectors, np.float32)
        if self.about.factory == "Flat":
            return Neighbours(*self.index.search(vectors, min(k, self.about.n_rows)))
        _, rows = self.index.search(vectors, min(k + SPARE, self.about.n_rows))
        scores = rescore(self.shards, vectors, rows)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return Neighbours(np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1))


def build_index(
    store: CorpusStore, model: SimilarityModel, *, embedder: Embedder | None = None, batch_size: int = 64
) -> VectorIndex:
    """Embed rows without a vector, then make the index; `choose_factory` picks its kind by the number of rows."""
    import faiss

    shards = embed_corpus(store, model, batch_size=batch_size, embedder=embedder)
    folder = shards.folder
    with locked(folder, busy=BUSY), disk_faults(folder):
        if model.weights is not None:
            model.weights.save(folder)
        factory = choose_factory(len(shards), shards.dim)
        if not _is_complete(folder, store, factory):
            index, search = index_shards(shards, factory)
            with whole_file(folder / _FILE) as temporary, temporary.open("wb") as file:
                writer = faiss.PyCallbackIOWriter(file.write)  # type: ignore[attr-defined]  # FAISS's stubs lack it
                faiss.write_index(index, writer)  # without it, FAISS prints write errors to the terminal
            about = IndexAbout(
                fingerprint=model.fingerprint,
                model=model.base,
                dim=shards.dim,
                digest=store.digest,
                n_rows=len(shards),
                factory=factory,
                search=search,
                file=StoredFile.of(folder, folder / _FILE),
            )
            write_json(folder / _ABOUT, sealed(about))
    return VectorIndex.open(store, model)


def indexed_model(store: CorpusStore) -> str | Path | None:
    """The model of a corpus's only index: the folder with the copy of its weights, or an untrained encoder's name."""
    from erda.encoders.adapter import SETTINGS_FILE

    found = sorted(store.folder.glob(f"{FOLDER}/*-{store.digest[:12]}/{_ABOUT}"))
    if len(found) > 1:
        folders = ", ".join(str(path.parent) for path in found)
        raise DataError(f"{store.folder}: indexes of {len(found)} similarity models; delete all but one of {folders}")
    copy = next((path.parent for path in found if (path.parent / SETTINGS_FILE).is_file()), None)
    return copy or next((read_sealed(path, IndexAbout).model for path in found), None)


def _is_complete(folder: Path, store: CorpusStore, factory: str) -> bool:
    with suppress(DataError):  # missing or damaged
        about = read_sealed(folder / _ABOUT, IndexAbout)
        return (about.digest, about.factory) == (store.digest, factory) and not about.file.fault(folder)
    return False


def index_shards(shards: VectorShards, factory: str) -> tuple[Any, SearchEffort]:
    """Train a FAISS index on a random sample, add all vectors and tune its search."""
    import faiss
    from tqdm import tqdm

    index = faiss.index_factory(shards.dim, factory, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        lists = faiss.extract_index_ivf(index)
        lists.cp.niter = N_ITERATIONS
        lists.cp.max_points_per_centroid = POINTS_PER_LIST
        lists.cp.min_points_per_centroid = 1
        n = min(len(shards), max(lists.nlist * POINTS_PER_LIST, 16_384))
        index.train(shards.vectors(np.sort(np.random.default_rng(0).choice(len(shards), n, replace=False))))
    for _, vectors in tqdm(shards, desc="indexing", unit="shard", total=len(shards.paths), disable=None):
        index.add(vectors)
    return index, SearchEffort() if factory == "Flat" else tune(index, shards)


# -- FAISS -------------------------------------------------------------------------------------------------------------


def choose_factory(n_rows: int, dim: int) -> str:
    """Choose the factory string for a number of rows; see the table above.

    >>> choose_factory(50_000, 768), choose_factory(1_000_000, 384), choose_factory(1_000_000, 100)
    ('Flat', 'IVF2048,PQ96x4fsr', 'IVF2048,SQ8')
    """
    if n_rows <= EXACT_ROWS:
        return "Flat"
    codes = "SQ8" if dim % 8 else f"PQ{dim // 4}x4fsr"
    n_lists = 2 ** round(math.log2(2 * math.sqrt(n_rows)))
    return f"IVF{n_lists},{codes}"


def tune(index: Any, shards: VectorShards) -> SearchEffort:
    """Set the least effort of an IVF index that reaches `TARGET_RECALL` on a sample of rows, or the best effort."""
    import faiss

    asked = np.unique(np.linspace(0, len(shards) - 1, min(_QUERIES, len(shards))).astype(np.int64))
    queries = shards.vectors(asked)
    best = best_scores(shards, queries, but=asked)
    tried: list[SearchEffort] = []
    lists = faiss.extract_index_ivf(index)
    for effort in _EFFORTS:
        lists.nprobe = effort
        _, rows = index.search(queries, min(2 + SPARE, len(shards)))
        scores = rescore(shards, queries, rows)
        scores[rows == asked[:, None]] = -np.inf
        tried.append(SearchEffort(effort, float((scores.max(axis=1) >= best - _TOLERANCE).mean())))
        if tried[-1].recall >= TARGET_RECALL:
            break
    most = max(one.recall for one in tried)
    chosen = next(one for one in tried if one.recall >= min(TARGET_RECALL, most - 0.002))
    lists.nprobe = chosen.effort
    return chosen


def best_scores(shards: VectorShards, queries: np.ndarray, *, but: np.ndarray) -> np.ndarray:
    """Exact score of the nearest row of each query i other than row `but[i]`: [n_queries]."""
    best = np.full(len(queries), -np.inf, np.float32)
    for start, vectors in shards:
        scores = queries @ vectors.T
        here = np.flatnonzero((but >= start) & (but < start + len(vectors)))
        scores[here, but[here] - start] = -np.inf
        np.maximum(best, scores.max(axis=1), out=best)
    return best


def rescore(shards: VectorShards, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Exact products of each query with its rows [n, k]: [n, k]; -inf where the row is -1."""
    unique, places = np.unique(np.maximum(rows, 0), return_inverse=True)
    vectors = shards.vectors(unique)[places.reshape(rows.shape)]
    scores: np.ndarray = np.einsum("nd,nkd->nk", queries, vectors)
    scores[rows < 0] = -np.inf
    return scores
