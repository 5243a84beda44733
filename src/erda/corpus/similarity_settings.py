"""Settings for training a similarity model; importable without PyTorch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from erda.encoders import PooledLayers
from erda.fields import Count, Fraction, Settings, Share, Weight

MAX_PIECES = 128
TEMPERATURES = {"infonce": 0.07, "paper": 1.0}
LEARNING_RATES = {"adapter": 2e-3, "full": 2e-4}


class TrainingSettings(Settings):
    """Training settings. A temperature or learning rate of 0 means the default of the objective or of the weights."""

    objective: Literal["infonce", "paper"] = "infonce"  # only "paper" uses hard negatives
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    blank_names: Fraction = 0.7  # probability that an entity name is masked, independently for each name
    crop: Fraction = 0.0  # probability that a sentence is cropped to the words between its entities, both names masked
    rank: Annotated[int, Field(ge=0, le=1024)] = 32  # of the low-rank adapter; 0 trains all weights
    scale: float = 1.0
    start: str = ""  # folder of trained weights to start from
    learning_rate: Fraction = 0.0
    warmup: Fraction = 0.06  # share of the steps
    weight_decay: Weight = 0.01
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 256  # pairs, on each device
    n_epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    max_pieces: Count = MAX_PIECES
    pooled_layers: PooledLayers = 1  # of the trained model; training reads the last layer
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @property
    def effective_temperature(self) -> float:
        """The temperature, or the default of the objective."""
        return self.temperature or TEMPERATURES[self.objective]

    @property
    def effective_learning_rate(self) -> float:
        """The learning rate, or the default of an adapter or of all weights."""
        return self.learning_rate or LEARNING_RATES["adapter" if self.rank else "full"]


class Machine(Settings):
    """Hardware settings. They do not change the result, apart from rounding."""

    device: str = "cpu"  # cpu or cuda
    bf16: bool = False
    save_steps: Count = 500


class TrainCommandSettings(Settings):
    """All settings of `erda corpus train`."""

    training: TrainingSettings = TrainingSettings()
    machine: Machine = Machine()
    limit: Count | None = None  # pairs per epoch
    held_out: Share = 0.04  # share of the entity pairs
    measure: bool = True  # before and after
