"""How a similarity model is trained: every setting with its range. Nothing here needs PyTorch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from erda.fields import Count, Fraction, Number, Positive, Settings, Share, Weight

MAX_PIECES = 128
TEMPERATURES = {"infonce": 0.07, "paper": 1.0}
LEARNING_RATES = {"adapter": 2e-3, "full": 2e-4}


class TrainingSettings(Settings):
    """How to train. Zero stands for the default of the objective (temperature) or of the kind of weights (rate)."""

    objective: Literal["infonce", "paper"] = "infonce"
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    blank_names: Fraction = 0.7  # probability that an entity name is replaced by a mask, each on its own
    crop: Fraction = 0.0  # probability that a sentence is cut down to what is between its entities, both names hidden
    hard_negatives: Fraction = 1.0  # share of the pairs whose hard negative is used
    rank: Annotated[int, Field(ge=0, le=1024)] = 32  # of the low-rank adapter; 0 trains all weights
    scale: float = 1.0
    start: str = ""  # folder of trained weights to begin from
    dropout: Share = 0.0
    learning_rate: Fraction = 0.0
    warmup: Fraction = 0.06  # share of the steps
    weight_decay: Weight = 0.01
    average: Share = 0.0  # decay a step of the mean of the weights that is saved; 0 saves the last ones
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 256  # pairs, on each device
    n_epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    max_pieces: Count = MAX_PIECES
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    teacher: str = ""  # folder of a trained model whose similarities are learned too
    teacher_encoder: str = ""  # the pretrained model under it, where it is not to be found by its name
    teacher_weight: Weight = 1.0
    teacher_temperature: Positive = 0.07

    @model_validator(mode="after")
    def _positives_alone_teach_nothing(self) -> TrainingSettings:
        if self.objective == "paper" and not self.hard_negatives:
            raise ValueError("objective 'paper' needs hard negatives; its positives alone make all vectors the same.")
        if self.objective == "paper" and self.teacher:
            raise ValueError("objective 'paper' has no teacher; take 'infonce'.")
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
    chunk_size: Number = 0  # sentences whose states are in memory at once, their vectors computed twice; 0: all
    save_steps: Count = 500
