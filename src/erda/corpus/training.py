"""Training of the similarity model: the objectives, the batches, and Hugging Face's trainer around them.

Precision, several GPUs (`torchrun -m erda corpus train ...`; negatives are those of the same GPU), checkpoints and
resuming are the trainer's. Everything random here comes from the seed and the number of the pair, so a resumed run
sees what the interrupted one would have seen.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from erda.corpus.pairs import NONE, PairSet, mine_pairs
from erda.corpus.similarity import MAX_PIECES
from erda.encoders.adapter import KINDS, SETTINGS_FILE, TrainedSettings, TrainedWeights, add_adapter
from erda.encoders.settings import TransformerSettings
from erda.encoders.tokens import MarkedTokenizer
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import ModelFolder, origin
from erda.errors import DataError, ErdaError, SettingsError, WriteError, require
from erda.fields import Count, Fraction, Settings, Weight
from erda.files import cannot_write, read_json, read_sealed, sealed, sha256_of, write_json

TEMPERATURES = {"infonce": 0.07, "paper": 1.0}
LEARNING_RATES = {"adapter": 2e-3, "full": 2e-4}
N_CHUNKS = 4  # a batch is computed in parts of like length
CHECKPOINTS = "checkpoints"
RUN_FILE = "run.json"
REPORT_FILE = "training.json"
FILES = "files.json"
NOT_OURS = "Name another folder for --out, or remove it yourself."


class TrainingSettings(Settings):
    """How to train. Zero stands for the default of the objective (temperature) or of the kind of weights (rate)."""

    objective: Literal["infonce", "paper"] = "infonce"
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    blank_names: Fraction = 0.7  # probability that an entity name is replaced by a mask, each on its own
    hard_negatives: Fraction = 1.0  # share of the pairs whose hard negative is used
    rank: Annotated[int, Field(ge=0, le=1024)] = 32  # of the low-rank adapter; 0 trains all weights
    scale: float = 1.0
    learning_rate: Fraction = 0.0
    warmup: Fraction = 0.06  # share of the steps
    weight_decay: Weight = 0.01
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 256  # pairs, on each device
    n_epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    max_pieces: Count = MAX_PIECES
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0  # what NumPy takes

    @model_validator(mode="after")
    def _positives_alone_teach_nothing(self) -> TrainingSettings:
        if self.objective == "paper" and not self.hard_negatives:
            raise ValueError("objective 'paper' needs hard negatives; its positives alone make all vectors the same.")
        return self

    @property
    def effective_temperature(self) -> float:
        """The temperature asked for, or the objective's own."""
        return self.temperature or TEMPERATURES[self.objective]

    @property
    def effective_learning_rate(self) -> float:
        """The rate asked for, or that of an adapter or of all weights."""
        return self.learning_rate or LEARNING_RATES["adapter" if self.rank else "full"]


class Machine(Settings):
    """What to train on; nothing here changes the outcome but for rounding."""

    device: str = "cpu"  # cpu or cuda
    bf16: bool = False
    n_workers: Annotated[int, Field(ge=0, le=1024)] = 0  # processes that prepare batches
    save_steps: Count = 500


# -- objectives: pure functions of similarities ----------------------------------------------------------------------


def infonce_loss(similarities: Tensor, same: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of row i against column i: similarities [n, m] with m >= n, large is close.

    Columns other than i where `same` [n, m] is true (the same entity pair) are neither right nor wrong: left out.
    """
    n = len(similarities)
    own = torch.eye(n, similarities.shape[1], dtype=torch.bool, device=similarities.device)
    logits = (similarities / temperature).masked_fill(same & ~own, -torch.inf)
    return nn.functional.cross_entropy(logits, torch.arange(n, device=similarities.device))


def paper_loss(positive: Tensor, negative: Tensor, temperature: float = 1.0) -> Tensor:
    """-log sigma(s) over positive pairs, -log(1 - sigma(s)) over negative ones, the mean of each added.

    `positive` [n] and `negative` [m] are similarities. The paper has sums over as many of one kind as of the other,
    and no temperature (1.0).
    """
    loss = nn.functional.softplus(-positive / temperature).mean()
    return loss + nn.functional.softplus(negative / temperature).mean() if len(negative) else loss


class PairModel(nn.Module):
    """The encoder with an objective on top: what the trainer trains."""

    def __init__(self, encoder: TransformerEncoder, *, objective: str, temperature: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.objective = objective
        self.temperature = temperature

    def forward(
        self, chunks: Sequence[Sequence[Tensor]], place: Tensor, pair: Tensor, anchor: Tensor
    ) -> dict[str, Tensor]:
        """Loss of one batch of n pairs with m hard negatives.

        Sentences come in `chunks` of like length; `place` [2n + m] says where firsts, seconds and negatives are in
        them. `pair` [2n + m] numbers entity pairs; `anchor` [m] says which first a negative was drawn for.
        """
        vectors = nn.functional.normalize(torch.cat([self.encoder(*chunk) for chunk in chunks])[place], dim=-1)
        with torch.autocast(vectors.device.type, enabled=False):  # a temperature of 0.07 needs exact similarities
            return {"loss": self._loss(vectors, pair, anchor)}

    def _loss(self, vectors: Tensor, pair: Tensor, anchor: Tensor) -> Tensor:
        n = (len(vectors) - len(anchor)) // 2
        first, second, negative = vectors[:n], vectors[n : 2 * n], vectors[2 * n :]
        if self.objective == "paper":
            negatives = (first[anchor] * negative).sum(-1)
            return paper_loss((first * second).sum(-1), negatives, self.temperature)
        same = pair[:n, None] == torch.cat([pair[:n], pair[2 * n :]])
        ways = ((first, torch.cat([second, negative])), (second, torch.cat([first, negative])))
        return torch.stack([infonce_loss(one @ others.T, same, self.temperature) for one, others in ways]).mean()


# -- batches ---------------------------------------------------------------------------------------------------------


class PairBatches:
    """Numbers of pairs -> the tensors of one batch (`PairModel.forward`); number t is the same in every run of a seed.

    The first pass, numbers 0 to `len(pairs) - 1`, shows `pairs`; each further one as many, drawn anew among the same
    sentences.
    """

    def __init__(self, pairs: PairSet, settings: TrainingSettings, tokenizer: MarkedTokenizer) -> None:
        self.pairs = pairs
        self.settings = settings
        self._marked = tokenizer  # under the name `tokenizer` the trainer would try to save it
        self._pass, self._order, self._epoch = pairs, np.empty(0, np.int64), -1

    def draw(self, number: int) -> list[tuple[int, tuple[bool, bool]]]:
        """A pair as it is shown: the rows of its two or three sentences, each with which names are blanked."""
        seed, n_pairs = self.settings.seed, len(self.pairs)
        epoch, at = divmod(number, n_pairs)
        if epoch != self._epoch:
            again = mine_pairs(self.pairs.examples, seed=seed + epoch) if epoch else self.pairs
            self._pass = again if len(again) >= n_pairs else self.pairs
            self._order = np.random.default_rng([seed, epoch]).permutation(n_pairs)
            self._epoch = epoch
        pairs, i = self._pass, int(self._order[at])
        chances = np.random.default_rng([seed, epoch, i]).random(7)
        rows = [int(pairs.first[i]), int(pairs.second[i])]
        if pairs.negative[i] != NONE and chances[6] < self.settings.hard_negatives:
            rows.append(int(pairs.negative[i]))
        hidden = (chances[:6].reshape(3, 2) < self.settings.blank_names).tolist()
        return [(row, (head, tail)) for row, (head, tail) in zip(rows, hidden, strict=False)]

    def __call__(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Sentences of a batch: all firsts, all seconds, then the hard negatives there are."""
        batch = [self.draw(number) for number in numbers]
        with_negative = [i for i, drawn in enumerate(batch) if len(drawn) > 2]
        shown = [drawn[role] for role in (0, 1) for drawn in batch] + [batch[i][2] for i in with_negative]
        rows = [row for row, _ in shown]
        pieces = self._marked.encode(
            [self.pairs.examples[row] for row in rows], blanked=[blanked for _, blanked in shown]
        )
        order = np.argsort([len(one) for one in pieces], kind="stable")
        chunks = [part for part in np.array_split(order, N_CHUNKS) if len(part)]
        return {
            "chunks": [self._marked.collate([pieces[i] for i in part]) for part in chunks],
            "place": torch.from_numpy(np.argsort(order, kind="stable")),
            "pair": torch.from_numpy(self.pairs.pair[rows]),
            "anchor": torch.tensor(with_negative, dtype=torch.long),
        }


# -- the trainer -----------------------------------------------------------------------------------------------------


class PairTrainer(Trainer):
    """Hugging Face's trainer, which takes the pairs in the order given: they are shuffled by their own seed."""

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)

    def _save_checkpoint(self, *given: Any, **named: Any) -> None:
        folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(*given, **named)
        except (OSError, RuntimeError, SafetensorError) as error:  # PyTorch's and safetensors' of a full disk
            full = shutil.disk_usage(folder.parent).free < 2**20 or "No space left" in str(error)
            reason = OSError(errno.ENOSPC, "") if full else OSError(str(error))
            raise WriteError(cannot_write(folder, reason)) from error
        self.accelerator.wait_for_everyone()
        if is_main_process():
            files = {path.name: sha256_of(path) for path in folder.iterdir() if path.name != FILES}
            write_json(folder / FILES, sealed(CheckpointFiles(files)))


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """`files.json` of a checkpoint, written last: each of its files with its sha256."""

    files: dict[str, str]


class _Lines(TrainerCallback):
    """A line for each tenth of the way, where no progress bar can be drawn."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        if logs and "loss" in logs and state.is_world_process_zero and not sys.stderr.isatty():
            print(f"step {state.global_step} of {state.max_steps}: loss {float(logs['loss']):.4f}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """What training gives: weights, and the loss along the way as (step, loss)."""

    weights: TrainedWeights
    losses: tuple[tuple[int, float], ...]
    n_steps: int


def train(
    folder: ModelFolder,
    pairs: PairSet,
    settings: TrainingSettings,
    *,
    out: Path,
    machine: Machine | None = None,
    resume: bool = True,
) -> TrainingOutcome:
    """Train a similarity model over the pretrained one in `folder` and save it in `out`, with checkpoints until then.

    An interrupted training goes on from its last checkpoint; one with other settings or pairs must be given up first.
    """
    require("accelerate")
    machine = machine or Machine()
    if len(pairs) < 2:
        raise DataError(f"{len(pairs)} pairs of sentences: nothing to train on.")
    if settings.objective == "paper" and not (pairs.negative != NONE).any():
        raise DataError("objective 'paper' needs hard negatives, and no two entity pairs share an entity.")
    checkpoints = out / CHECKPOINTS
    arguments = _arguments(settings, machine, checkpoints, n_draws=len(pairs) * settings.n_epochs)
    with arguments.main_process_first(local=False):
        last = _last_checkpoint(checkpoints, settings, pairs, resume=resume or not is_main_process())
    encoder = TransformerEncoder(folder, TransformerSettings(mode="markers", max_pieces=settings.max_pieces))
    if settings.rank:
        add_adapter(encoder.layers, rank=settings.rank, scale=settings.scale, seed=settings.seed)
    with _own_randomness():
        trainer = PairTrainer(
            model=PairModel(encoder, objective=settings.objective, temperature=settings.effective_temperature),
            args=arguments,
            train_dataset=range(len(pairs) * settings.n_epochs),  # pairs by their numbers, all passes in one sequence
            data_collator=PairBatches(pairs, settings, encoder.tokenizer),
            callbacks=[_Lines()],
        )
        trainer.remove_callback(PrinterCallback)  # numbers come back in the report
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    history = [(row["step"], float(row["loss"])) for row in trainer.state.log_history if "loss" in row]
    weights = TrainedWeights.of(encoder.layers.cpu(), base=origin(folder), max_pieces=settings.max_pieces)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in weights.tensors.values()):
        raise DataError(f"training diverged (weights are not finite); lower --learning-rate, keep {checkpoints}.")
    if is_main_process():
        weights.save(out)
        shutil.rmtree(checkpoints, ignore_errors=True)
    return TrainingOutcome(weights, tuple(history), int(trainer.state.global_step))


def is_main_process() -> bool:
    """Whether this is the only process, or the first of those that `torchrun` started: the one that writes."""
    return os.environ.get("RANK", "0") == "0"


def _arguments(settings: TrainingSettings, machine: Machine, checkpoints: Path, *, n_draws: int) -> Any:
    arguments = TrainingArguments(
        output_dir=str(checkpoints),
        per_device_train_batch_size=settings.batch_size,
        num_train_epochs=1,  # the dataset holds all passes
        learning_rate=settings.effective_learning_rate,
        lr_scheduler_type="linear",
        weight_decay=settings.weight_decay,
        max_grad_norm=1.0,
        bf16=machine.bf16,
        use_cpu=machine.device == "cpu",
        seed=settings.seed,
        dataloader_num_workers=machine.n_workers,
        dataloader_drop_last=n_draws % settings.batch_size == 1,  # one pair has nothing to be told from
        remove_unused_columns=False,
        save_strategy="steps",
        save_steps=machine.save_steps,
        save_total_limit=2,
        ddp_find_unused_parameters=settings.rank == 0,  # a bias of the last layer has no effect on the vectors
        report_to="none",
        disable_tqdm=not sys.stderr.isatty(),
    )
    n_steps = -(-n_draws // (settings.batch_size * arguments.world_size))
    arguments.warmup_steps = round(settings.warmup * n_steps)
    arguments.logging_steps = max(1, n_steps // 10)
    if machine.device != "cpu":
        arguments._n_gpu = 1  # several GPUs are several processes; a batch is not cut in pieces inside one
    return arguments


class Unfinished(Settings):
    """What `run.json` in a folder of checkpoints says: whose they are, and what is being trained."""

    made_by: Literal["erda corpus train"] = "erda corpus train"
    version: int = 2  # of the checkpoints beside it
    settings: TrainingSettings
    pairs: str


def refuse_foreign(out: Path) -> None:
    """Refuse a folder that holds what is not erda's in the places where a training writes or removes."""
    checkpoints = out / CHECKPOINTS
    if (checkpoints / RUN_FILE).is_file():
        read_json(checkpoints / RUN_FILE, Unfinished, remedy=NOT_OURS)
    elif checkpoints.exists():
        raise DataError(f"{checkpoints}: was not made by `erda corpus train`. {NOT_OURS}")
    elif (out / SETTINGS_FILE).exists():
        read_json(out / SETTINGS_FILE, TrainedSettings, remedy=NOT_OURS)
    else:
        names = (*(f"{kind}.safetensors" for kind in KINDS), REPORT_FILE)
        taken = [name for name in names if (out / name).exists()]
        if taken:
            raise DataError(f"{out}: holds {', '.join(taken)}, but no similarity model of erda's. {NOT_OURS}")


def _last_checkpoint(folder: Path, settings: TrainingSettings, pairs: PairSet, *, resume: bool) -> Path | None:
    """Where to go on from; None at the beginning. Leaves a note of what is being trained."""
    refuse_foreign(folder.parent)
    run = Unfinished(settings=settings, pairs=pairs.digest())
    note = folder / RUN_FILE
    if note.is_file():
        before = read_json(note, Unfinished, remedy=NOT_OURS)
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)
        elif before != run:
            raise SettingsError(
                f"{folder} holds an unfinished training with other settings or pairs; finish it with the same ones, "
                "or give it up with --no-resume."
            )
        else:
            return _last_whole(folder)
    write_json(note, run)
    return None


def _last_whole(folder: Path) -> Path | None:
    """The latest checkpoint whose files are all as they were written; one that is not is passed over with a word."""
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: (len(path.name), path.name), reverse=True)
    for path in found:
        with suppress(ErdaError):
            files = read_sealed(path / FILES, CheckpointFiles).files
            if all(sha256_of(path / name) == digest for name, digest in files.items()):
                return path
        print(f"{path}: is damaged or not whole; training goes on from what comes before it.", file=sys.stderr)
    return None


@contextmanager
def _own_randomness() -> Iterator[None]:
    """The trainer seeds the generators of Python, NumPy and PyTorch; give them back as they were."""
    python, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)
