"""A frozen transformer on ONNX Runtime: sentences to vectors on a CPU, without PyTorch.

An encoder is three files (`PackedEncoder`): graph, tokenizer and `encoder.json`. Those of `open` ship with erda, and
`erda data get open-mpnet` builds those of `open-mpnet` once, into the cache folder. For other weights,
`erda_mpnet.onnx_build` (packages/erda-mpnet) builds them. An export holds the same three files.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from erda.encoders import Mode
from erda.encoders.contract import Encoder, UnlabelledFile, embedded_one, shares
from erda.encoders.tokens import MarkedTokenizer, Pieces, graph_inputs, open_session, shared_runs
from erda.encoders.weights import PACKAGED
from erda.errors import ModelError
from erda.files import cache_folder, read_bytes, read_json, write_bytes, write_json
from erda.types import EncoderSpec, Example

if TYPE_CHECKING:
    from erda.encoders.frozen import FrozenCache

VERSION = 6  # format of the graph and the files beside it
GRAPH, TOKENIZER, ABOUT = "model.onnx", "tokenizer.json", "encoder.json"
BUILT = "open-mpnet"  # too large to ship: `erda data get open-mpnet` builds its files
GET = f"erda data get {BUILT}"
BATCH_SIZE = 256  # sentences per step of the progress bar
BAR_AFTER = 3.0  # seconds of embedding before a progress bar appears


@dataclass(frozen=True, slots=True)
class AboutEncoder:
    """Content of `encoder.json`: checksums of the other files, and how a sentence becomes piece ids."""

    version: int
    engine: str
    model: str
    dim: int
    max_pieces: int
    vocab_size: int  # ids from here on are the four marks
    special: dict[str, int]  # ids of the special tokens: cls, sep, unk, pad, mask
    mode: Mode
    pooled_layers: int  # last layers whose states are averaged
    trained_on: tuple[str, ...]  # Wikidata ids of the relations that the training read labels of
    sha256: dict[str, str]  # of each file
    crc32: dict[str, int]  # of each file, fast to verify
    made_from: str = ""  # fingerprint of the weights

    @property
    def fingerprint(self) -> str:
        """Sha256 of everything that determines a vector."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("crc32", "made_from")}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class PackedEncoder:
    """An encoder as three files."""

    about: AboutEncoder
    graph: bytes
    tokenizer: bytes

    def write(self, folder: Path) -> None:
        """Write the three files, `encoder.json` last."""
        write_bytes(folder / GRAPH, self.graph)
        write_bytes(folder / TOKENIZER, self.tokenizer)
        write_json(folder / ABOUT, self.about)

    @classmethod
    def read(cls, folder: Path) -> PackedEncoder:
        """Read and verify the three files."""
        about = read_about(folder)
        files = {name: read_bytes(folder / name, error=ModelError) for name in (GRAPH, TOKENIZER)}
        if about.crc32 != crc32_of(files):
            raise ModelError(f"{folder}: {GRAPH} or {TOKENIZER} is damaged. Reinstall erda or rebuild the encoder.")
        return cls(about, files[GRAPH], files[TOKENIZER])


def read_about(folder: Path) -> AboutEncoder:
    """Read `encoder.json`; its checksums are verified when the other files are loaded."""
    about = read_json(folder / ABOUT, AboutEncoder, error=ModelError, plain=True)
    if about.version != VERSION:
        raise ModelError(f"{folder / ABOUT} has version {about.version}; this erda reads version {VERSION}.")
    return about


def crc32_of(files: dict[str, bytes]) -> dict[str, int]:
    """CRC-32 of each file."""
    return {name: zlib.crc32(content) for name, content in files.items()}


class OnnxEncoder(Encoder):
    """A frozen transformer. The first sentence loads graph and tokenizer; `packed` reads and verifies their files.

    Sentences run one at a time, so a vector does not depend on its batch. The pairs of a sentence share a run if the
    marks are levitated. `cache` is for experiments that embed the same sentences many times.
    """

    def __init__(
        self,
        about: AboutEncoder,
        packed: Callable[[], PackedEncoder],
        spec: EncoderSpec,
        *,
        cache: FrozenCache | None = None,
    ) -> None:
        self.about, self.spec, self.dim, self.engine = about, spec, about.dim, about.engine
        self.pooled_layers, self.trained_on = about.pooled_layers, about.trained_on
        self.cache, self.packed, self._lock = cache, packed, Lock()

    def __deepcopy__(self, memo: dict[int, object]) -> OnnxEncoder:
        return self  # immutable

    @cached_property
    def _loaded(self) -> tuple[MarkedTokenizer, Any]:
        with self._lock:
            if "_loaded" in self.__dict__:  # loaded by another thread
                return self.__dict__["_loaded"]
            packed = self.packed()
            text, size, limit = packed.tokenizer.decode(), self.about.vocab_size, self.about.max_pieces
            with ThreadPoolExecutor(1) as pool:  # both take about 0.1 s
                session = pool.submit(open_session, packed.graph)
                tokenizer = MarkedTokenizer.from_json(
                    text, special=self.about.special, mode=self.about.mode, vocab_size=size, limit=limit
                )
                return tokenizer, session.result()

    @property
    def tokenizer(self) -> MarkedTokenizer:
        """Tokenizer of this encoder, loaded lazily."""
        return self._loaded[0]

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        """Embed marked sentences: [n_examples, dim] float32."""
        blanks = [(True, True)] * len(examples) if blanked else None
        pieces = self.tokenizer.encode(examples, blanked=blanks)
        return self.embed_pieces(pieces, batch_size=batch_size or BATCH_SIZE)

    def embed_pieces(self, batch: Sequence[Pieces], *, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Embed sentences that are already word pieces: [n, dim] float32."""
        if self.cache is not None and self.cache.max_bytes:
            states = self.cache.states(self.about.fingerprint, self.dim)
            made = states.of(batch, lambda new: list(self._vectors(new, batch_size)[:, None]))
            return np.concatenate([np.empty((0, self.dim), np.float32), *made])
        return self._vectors(batch, batch_size)

    def _vectors(self, batch: Sequence[Pieces], batch_size: int) -> np.ndarray:
        vectors = np.empty((len(batch), self.dim), dtype=np.float32)
        runs = shared_runs(batch)
        n_threads = 1 if shares() else min(available_threads(), len(runs))

        def put(rows: list[int], found: np.ndarray) -> None:
            vectors[rows] = found
            for _ in rows:
                embedded_one()

        if n_threads <= 1:
            for rows in runs:
                put(rows, self._run([batch[row] for row in rows]))
            return vectors
        from tqdm import tqdm

        starts = range(0, len(runs), batch_size)
        with ThreadPoolExecutor(n_threads) as pool:
            for start in tqdm(starts, desc="sentences", unit="batch", leave=False, delay=BAR_AFTER, disable=None):
                some = runs[start : start + batch_size]
                made = pool.map(lambda rows: self._run([batch[row] for row in rows]), some)
                for rows, found in zip(some, made, strict=True):
                    put(rows, found)
        return vectors

    def _run(self, batch: Sequence[Pieces]) -> np.ndarray:
        """Vectors of the pairs of one sentence: [n, dim]."""
        found: np.ndarray = self._loaded[1].run(None, graph_inputs(batch))[0]
        return found.reshape(len(batch), self.dim)


def open_packaged(name: str, *, cache: FrozenCache | None = None) -> OnnxEncoder:
    """Open an encoder that ships with erda, or that `erda data get` has built."""
    folder = packaged_folder(name)
    if name == BUILT and not (folder / ABOUT).is_file():
        raise ModelError(f"The files of encoder '{BUILT}' are not on this machine. Build them once: {GET}")
    about = read_about(folder)
    spec = EncoderSpec(name, {}, about.fingerprint)
    encoder = OnnxEncoder(about, lambda: PackedEncoder.read(folder), spec, cache=cache)
    remedy = f"Build it: {GET}" if name == BUILT else "Reinstall erda."
    encoder.unlabelled_file = UnlabelledFile(folder, about.fingerprint, remedy)
    return encoder


def packaged_folder(name: str) -> Path:
    """The folder of a packaged encoder; that of `open-mpnet` is in the cache folder."""
    return cache_folder() / "encoders" / name if name == BUILT else PACKAGED / name


def available_threads() -> int:
    """Number of threads for sentences: OMP_NUM_THREADS, or the cores available to this process."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    if limit.isdecimal():
        return max(int(limit), 1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # not on macOS
