"""The settings of the encoders with their ranges. Nothing here needs PyTorch: they are checked before it loads.

Sizes have an upper bound: what no machine can hold is refused with a sentence, not by the allocator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from erda.fields import Number, Settings, Share, Weight

Mode = Literal["paper", "markers"]
BY_MODE = -2  # trained_layers: what the mode says
ALL = -1  # trained_layers: every layer, and the embeddings


class BiLstmSettings(Settings):
    """Of the BiLSTM. `vectors` is the path of a GloVe text file; empty is GloVe 6B 50-d from the registry package.

    `reads` is the whole `sentence`, as in the paper, or its `span` from the first entity to the end of the second.
    """

    hidden_size: Annotated[int, Field(ge=1, le=4096)] = 100
    dropout: Share = 0.0
    vectors: str = ""
    reads: Literal["sentence", "span"] = "sentence"


class TransformerSettings(Settings):
    """Of a pretrained transformer.

    Mode `markers`: marks of their own around the entities, the states of the two start marks side by side (2 x hidden;
    through a linear layer only where `projection` is set), everything trained. Mode `paper`: `#` and `@`, the state of
    [CLS] through a trained linear layer (`projection` wide, 0 = as wide as the model), the last layer trained.
    `trained_layers` counts from the top: -1 is all of them and the embeddings, -2 what the mode says.
    `max_pieces` 0 is the model's own limit, `learning_rate` 0 the mode's own.
    `engine` runs the model: `torch`; or, for a frozen model in mode `markers` on a CPU, ONNX Runtime: `packaged` (the
    int8 file that ships with erda), `onnx` (float32, made from the weights) or `onnx-int8` (made from the weights).
    `adapter` names trained weights to start from: `shipped` (for `minilm` and `mpnet`), or a folder of `erda corpus
    train`; nothing for the pretrained model as it is. They were trained in mode `markers`, with a limit of pieces.
    """

    mode: Mode = "markers"
    trained_layers: Annotated[int, Field(ge=BY_MODE, le=1000)] = BY_MODE
    projection: Annotated[int, Field(ge=0, le=16384)] = 0
    dropout: Share = 0.1
    precision: Literal["fp32", "bf16"] = "fp32"
    max_pieces: Number = 0
    learning_rate: Weight = 0.0
    adapter: str = ""
    engine: Literal["torch", "packaged", "onnx", "onnx-int8"] = "torch"

    @model_validator(mode="after")
    def _no_adapter_in_the_papers_mode(self) -> TransformerSettings:
        if self.adapter and self.mode == "paper":
            raise ValueError("mode 'paper' cannot use an adapter, which was trained in mode 'markers'; leave mode out.")
        return self


class AdaptedSettings(TransformerSettings):
    """Of a pretrained transformer for which the package has an adapter: it is used unless the mode is the paper's."""

    adapter: str = "shipped"

    @model_validator(mode="before")
    @classmethod
    def _the_paper_has_none(cls, given: Any) -> Any:
        return {"adapter": "", **given} if isinstance(given, dict) and given.get("mode") == "paper" else given


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """What rebuilds an encoder: its name, its settings and the fingerprint of the weights it started from."""

    name: str
    settings: Mapping[str, bool | int | float | str]
    fingerprint: str
