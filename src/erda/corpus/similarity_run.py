"""Train a similarity model from sources to a saved folder, and measure it on held-out data before and after.

AUC: probability that a pair of sentences with the same two entities is more similar than a pair that shares one entity,
on held-out entity pairs; with names, and with every name masked. Agreement: how often the nearest other sentence of
labelled validation data has the same relation.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.corpus.training_pairs import (
    HELD_OUT,
    NONE,
    PairRows,
    PairSet,
    check_limit,
    check_share,
    mine_pairs,
    read_rows,
)
from erda.encoders import check_device
from erda.encoders.tokens import MarkedTokenizer
from erda.encoders.weights import find_model
from erda.errors import DataError, one_line
from erda.files import data_folder, write_json
from erda.types import Example

if TYPE_CHECKING:
    from erda.corpus.similarity import SimilarityModel
    from erda.corpus.similarity_settings import Machine, TrainingSettings
    from erda.encoders.adapter import TrainedWeights

MAX_PAIRS = 3_000
VALIDATION_FILE = Path("fewrel/validation.jsonl.gz")  # in the data folder; FewRel's test data is never read


@dataclass(frozen=True, slots=True)
class SimilarityMeasures:
    """Measures between 0 and 1, None without data to measure on; a random model has an AUC of 0.5."""

    auc: float | None
    auc_blanked: float | None
    agreement: float | None
    n_pairs: int
    n_validation: int


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Sentence pairs of held-out entity pairs, as indices into `rows`."""

    rows: PairRows
    pairs: PairSet


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Probability that a random positive scores above a random negative; ties count half (Mann-Whitney)."""
    if not len(positive) or not len(negative):
        raise DataError("AUC needs at least one positive and one negative score.")
    ordered = np.sort(negative)
    below, upto = (np.searchsorted(ordered, positive, side) for side in ("left", "right"))
    return float((below + upto).sum() / 2 / (len(positive) * len(negative)))


def neighbour_agreement(vectors: np.ndarray, relations: Sequence[str], *, block_size: int = 1024) -> float:
    """Share of vectors whose nearest other vector by inner product has the same relation; ties take the first."""
    if len(vectors) < 2:
        raise DataError("agreement needs at least two labelled sentences.")
    names = np.asarray(relations)
    n_right = 0
    for start in range(0, len(vectors), block_size):
        similarities = vectors[start : start + block_size] @ vectors.T
        rows = np.arange(len(similarities))
        similarities[rows, start + rows] = -np.inf
        n_right += int((names[similarities.argmax(axis=1)] == names[start + rows]).sum())
    return n_right / len(vectors)


def pair_auc(model: SimilarityModel, rows: PairRows, pairs: PairSet, *, blank_names: bool = False) -> float:
    """AUC of S(first).S(second) against S(first).S(negative); every pair needs a negative."""
    used, where = np.unique(np.stack([pairs.first, pairs.second, pairs.negative]), return_inverse=True)
    vectors = model.encode_packed(rows.sentences, used, blank_names=blank_names).cpu().numpy()
    first, second, negative = vectors[where.reshape(3, -1)]
    return auc((first * second).sum(axis=1), (first * negative).sum(axis=1))


def evaluate(
    model: SimilarityModel, *, held_out: HeldOut | None = None, validation: Sequence[Example] = ()
) -> SimilarityMeasures:
    """Measure AUC on the first `MAX_PAIRS` held-out pairs with a hard negative, and agreement on `validation`."""
    kept = np.flatnonzero(held_out.pairs.negative != NONE)[:MAX_PAIRS] if held_out is not None else np.empty(0, int)
    aucs: tuple[float | None, float | None] = (None, None)
    if held_out is not None and len(kept):
        pairs = held_out.pairs.take(kept)
        aucs = (pair_auc(model, held_out.rows, pairs), pair_auc(model, held_out.rows, pairs, blank_names=True))
    agreement = None
    if validation:
        unlabelled = [example for example in validation if example.relation is None]
        if unlabelled:
            raise DataError(f"{len(unlabelled)} of {len(validation)} validation sentences have no relation.")
        vectors = model.encode(validation)
        agreement = neighbour_agreement(vectors, [str(example.relation) for example in validation])
    return SimilarityMeasures(*aucs, agreement, len(kept), len(validation))


# -- one training ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Training and validation data. `paths` are corpus folders and tagged JSONL files, or one packed file."""

    paths: Sequence[Path]
    limit: int | None = None  # pairs per epoch
    held_out: float = HELD_OUT
    validation: Path | None = None

    def __post_init__(self) -> None:
        check_share(self.held_out)
        check_limit(self.limit)


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """Summary of a training: measures before and after, sizes, seconds and losses as (step, loss)."""

    before: SimilarityMeasures | None
    after: SimilarityMeasures | None
    n_pairs: int
    n_steps: int
    seconds: float
    losses: tuple[tuple[int, float], ...]

    def lines(self) -> list[str]:
        """Format for the terminal."""
        found = [f"trained on {self.n_pairs:,} pairs, {self.n_steps:,} steps, {self.seconds:.0f} s"]
        if self.before is None or self.after is None:
            return found
        found.append(f"{'':<44}before   after")
        for name, text in ABOUT.items():
            values = [getattr(one, name) for one in (self.before, self.after)]
            if None not in values:
                found.append(f"{text:<44}{values[0]:6.3f}  {values[1]:6.3f}")
        return found


ABOUT = {
    "auc": "AUC, same pair against hard negatives",
    "auc_blanked": "AUC with entity names masked",
    "agreement": "nearest neighbour has the same relation",
}


def read_validation(path: Path | None) -> list[Example]:
    """Read labelled sentences from `path`, or FewRel's from the data folder if it has them."""
    from erda.data.formats.jsonl_examples import read_jsonl

    if path is None:
        path = data_folder() / VALIDATION_FILE
        if not path.is_file():
            return []
    return list(read_jsonl(path).examples)


def read_sources(sources: Sources, tokenizer: MarkedTokenizer, *, seed: int) -> tuple[PairRows, np.ndarray, HeldOut]:
    """Read all rows; return them, the indices of the training rows, and the held-out pairs."""
    spare = None if sources.limit is None else int(2 * sources.limit / (1 - sources.held_out)) + 1
    rows = read_rows(sources.paths, tokenizer, limit=spare, seed=seed)
    training, outside = rows.split(sources.held_out)
    return rows, training, HeldOut(rows, mine_pairs(rows, outside, seed=seed))


def run_training(
    sources: Sources,
    settings: TrainingSettings,
    *,
    encoder: str,
    out: Path,
    machine: Machine,
    resume: bool = True,
    measure: bool = True,
    command: str | None = None,
) -> TrainingReport:
    """Train on the pairs of `sources`; save the model and `training.json` in `out`."""
    from erda.corpus.similarity import SimilarityModel
    from erda.corpus.similarity_training import train
    from erda.corpus.training_checkpoints import REPORT_FILE, refuse_foreign
    from erda.encoders.layers import load_tokenizer

    check_device(machine.device)
    refuse_foreign(out)
    folder = find_model(encoder)
    validation = read_validation(sources.validation) if measure else []
    tokenizer = load_tokenizer(folder, mode="markers")
    rows, training, held_out = read_sources(sources, tokenizer, seed=settings.seed)
    counts = f"{len(training):,} rows to train on, {len(rows) - len(training):,} held out, {len(validation):,} labelled"
    print(one_line(counts), file=sys.stderr)

    def model(weights: TrainedWeights | None) -> SimilarityModel:
        return SimilarityModel(folder, weights, max_pieces=settings.max_pieces, device=machine.device)

    before = evaluate(model(None), held_out=held_out, validation=validation) if measure else None
    start = time.perf_counter()
    trained = train(
        folder, rows, settings, out=out, among=training, limit=sources.limit, machine=machine, resume=resume
    )
    seconds = time.perf_counter() - start
    report = TrainingReport(before, None, trained.n_pairs, trained.n_steps, round(seconds, 1), trained.losses)
    if measure:
        report = replace(report, after=evaluate(model(trained.weights), held_out=held_out, validation=validation))
    effective = {"temperature": settings.effective_temperature, "learning_rate": settings.effective_learning_rate}
    row = {
        "command": command,
        "encoder": trained.weights.base.name,
        "data": {"digest": rows.digest, "n_rows": len(rows), **asdict(rows.made_of)},
        "limit": sources.limit,
        "held_out": sources.held_out,
        "settings": settings.model_dump() | effective,
        "machine": machine.model_dump() | {"name": machine_name(machine.device)},
        **asdict(report),
    }
    write_json(out / REPORT_FILE, row)
    return report


def measure_model(
    name: str | None,
    paths: Sequence[Path],
    *,
    held_out: float = HELD_OUT,
    validation: Path | None = None,
    device: str = "cpu",
    seed: int = 0,
) -> SimilarityMeasures:
    """Measure a saved, packaged or untrained model on held-out pairs of `paths` and on validation data."""
    from erda.corpus.similarity import load_similarity

    check_device(device)
    check_share(held_out)
    labelled = read_validation(validation)
    if not paths and not labelled:
        raise DataError("nothing to measure on: give --pairs or --validation.")
    model = load_similarity(name, device=device)
    pairs = None
    if paths:
        rows = read_rows(paths, model.encoder.tokenizer, seed=seed)
        pairs = HeldOut(rows, mine_pairs(rows, rows.split(held_out)[1], seed=seed))
    return evaluate(model, held_out=pairs, validation=labelled)


def machine_name(device: str) -> str:
    """Name of the processor or GPU, and the versions of PyTorch and transformers."""
    import platform

    import torch
    import transformers

    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.machine()
    return f"{name}, torch {torch.__version__}, transformers {transformers.__version__}"
