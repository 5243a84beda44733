"""Train a similarity model from sources to a saved folder, and measure it on held-out data before and after.

AUC: probability that a pair of sentences with the same two entities is more similar than a pair that shares one entity,
on held-out entity pairs; with names, and with every name masked. Agreement: how often the nearest other sentence of
labelled validation data has the same relation.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.corpus.training_batches import NONE, PairSet, TrainCommandSettings, mine_pairs
from erda.corpus.training_pairs import PairRows, read_pair_rows
from erda.encoders import check_device
from erda.encoders.packed import Shown
from erda.encoders.weights import find_model
from erda.files import data_folder, write_json
from erda.types import Example

if TYPE_CHECKING:
    from erda.corpus.similarity import SimilarityModel
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


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Probability that a random positive scores above a random negative; ties count half (Mann-Whitney)."""
    ordered = np.sort(negative)
    below, upto = (np.searchsorted(ordered, positive, side) for side in ("left", "right"))
    return float((below + upto).sum() / 2 / (len(positive) * len(negative)))


def neighbour_agreement(vectors: np.ndarray, relations: Sequence[str], *, block_size: int = 1024) -> float:
    """Share of vectors whose nearest other vector by inner product has the same relation; ties take the first."""
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
    vectors = model.encode_shown(rows.sentences, Shown.whole(used, blank_names=blank_names)).cpu().numpy()
    first, second, negative = vectors[where.reshape(3, -1)]
    return auc((first * second).sum(axis=1), (first * negative).sum(axis=1))


def measure_similarity(
    model: SimilarityModel, rows: PairRows, pairs: PairSet, *, validation: Sequence[Example] = ()
) -> SimilarityMeasures:
    """Measure AUC on the first `MAX_PAIRS` pairs of `rows` with a hard negative, and agreement on `validation`."""
    kept = np.flatnonzero(pairs.negative != NONE)[:MAX_PAIRS]
    aucs: tuple[float | None, float | None] = (None, None)
    if len(kept):
        some = pairs.take(kept)
        aucs = (pair_auc(model, rows, some), pair_auc(model, rows, some, blank_names=True))
    agreement = None
    if len(validation) > 1:
        agreement = neighbour_agreement(model.encode(validation), [str(one.relation) for one in validation])
    return SimilarityMeasures(*aucs, agreement, len(kept), len(validation))


# -- one training ---------------------------------------------------------------------------------------------------


ABOUT = {
    "auc": "AUC, same pair against hard negatives",
    "auc_blanked": "AUC with entity names masked",
    "agreement": "nearest neighbour has the same relation",
}


def run_training(
    paths: Sequence[Path],
    settings: TrainCommandSettings,
    *,
    encoder: str,
    out: Path,
    validation: Path | None = None,
    command: str | None = None,
) -> list[str]:
    """Train on the pairs of `paths` (see `read_pair_rows`); save the model and `training.json` in `out`.

    `validation` are labelled sentences (default: FewRel's, if in the data folder). Returns the lines of a summary.
    """
    import torch

    from erda.corpus.similarity import SimilarityModel
    from erda.corpus.similarity_training import REPORT_FILE, refuse_foreign, train
    from erda.data.formats.jsonl_examples import read_jsonl
    from erda.encoders.layers import load_tokenizer

    how, machine = settings.training, settings.machine
    check_device(machine.device)
    refuse_foreign(out)
    folder = find_model(encoder)
    default = data_folder() / VALIDATION_FILE
    labelled = read_jsonl(validation or default).examples if validation or default.is_file() else ()
    tokenizer = load_tokenizer(folder, mode="markers")
    rows = read_pair_rows(paths, tokenizer)
    among, outside = rows.split(settings.held_out)
    pairs = mine_pairs(rows, outside, seed=how.seed)

    def measures(weights: TrainedWeights | None) -> SimilarityMeasures:
        model = SimilarityModel(folder, weights, max_pieces=how.max_pieces, device=machine.device)
        return measure_similarity(model, rows, pairs, validation=labelled)

    before = measures(None)
    start = time.perf_counter()
    trained = train(folder, rows, how, out=out, among=among, limit=settings.limit, machine=machine)
    seconds = round(time.perf_counter() - start, 1)
    after = measures(trained.weights)
    name = torch.cuda.get_device_name() if machine.device.startswith("cuda") else platform.machine()
    effective = {"temperature": how.effective_temperature, "learning_rate": how.effective_learning_rate}
    row = {
        "command": command,
        "encoder": trained.weights.base.name,
        "data": {"digest": rows.digest, "n_rows": len(rows), **asdict(rows.made_of)},
        "limit": settings.limit,
        "held_out": settings.held_out,
        "settings": how.model_dump() | effective,
        "machine": machine.model_dump() | {"name": f"{name}, torch {torch.__version__}"},
        "before": asdict(before),
        "after": asdict(after),
        "n_pairs": trained.n_pairs,
        "n_steps": trained.n_steps,
        "seconds": seconds,
        "losses": trained.losses,
    }
    write_json(out / REPORT_FILE, row)
    values = {text: (getattr(before, name), getattr(after, name)) for name, text in ABOUT.items()}
    table = [f"{text:<44}{both[0]:6.3f}  {both[1]:6.3f}" for text, both in values.items() if None not in both]
    read = f"{trained.n_pairs:,} pairs" if trained.n_pairs else f"{len(among):,} sentences"
    done = f"trained on {read}, {trained.n_steps:,} steps, {seconds:.0f} s"
    return [done, f"{'':<44}before   after", *table] if table else [done]
