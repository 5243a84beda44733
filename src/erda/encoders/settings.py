"""Settings of the encoders, with their ranges. They are validated before PyTorch is loaded.

Sizes have an upper bound, so an impossible size is rejected with a message, not by the memory allocator.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from erda.fields import Number, Settings, Share, Weight

Mode = Literal["paper", "markers"]
PooledLayers = Annotated[int, Field(ge=1, le=1000)]
BY_MODE = -2  # trained_layers: the default of the mode
ALL = -1  # trained_layers: all layers and the embeddings


class BiLstmSettings(Settings):
    """Settings of the BiLSTM. `vectors` is the path of a GloVe text file; empty: GloVe 6B 50-d from its package.

    `reads` is `sentence` (all tokens, as in the paper) or `span` (from the first entity to the end of the second).
    """

    hidden_size: Annotated[int, Field(ge=1, le=4096)] = 100
    dropout: Share = 0.0
    vectors: str = ""
    reads: Literal["sentence", "span"] = "sentence"


class TransformerSettings(Settings):
    """Settings of a pretrained transformer.

    Mode `markers` puts new mark tokens around the entities and concatenates the states of the two start marks (2 x
    hidden; followed by a linear layer only if `projection` is set). It trains all layers by default. Mode `paper` marks
    entities with `#` and `@` and passes the [CLS] state through a trained linear layer of width `projection` (0: the
    model's width). It trains the last layer by default.
    `trained_layers` counts from the top: -1 is all layers and the embeddings, -2 the default of the mode.
    `max_pieces` 0 is the limit of the model, `learning_rate` 0 the default of the mode.
    `engine` is `torch`, or an ONNX Runtime engine for a frozen model in mode `markers` on a CPU: `packaged` (the int8
    file that ships with erda), `onnx` (float32, built from the weights) or `onnx-int8` (built from the weights).
    `adapter` is `shipped` (for `minilm` and `mpnet`), a folder written by `erda corpus train`, or empty for the
    pretrained weights alone. Adapters are trained in mode `markers`, with a limit on word pieces.
    `pooled_layers` is the number of last layers whose states at the marks are averaged; 0 is the adapter's own number.
    """

    mode: Mode = "markers"
    trained_layers: Annotated[int, Field(ge=BY_MODE, le=1000)] = BY_MODE
    projection: Annotated[int, Field(ge=0, le=16384)] = 0
    dropout: Share = 0.1
    precision: Literal["fp32", "bf16"] = "fp32"
    max_pieces: Number = 0
    learning_rate: Weight = 0.0
    adapter: str = ""
    pooled_layers: Annotated[int, Field(ge=0, le=1000)] = 0
    engine: Literal["torch", "packaged", "onnx", "onnx-int8"] = "torch"

    @model_validator(mode="after")
    def _reject_adapter_in_mode_paper(self) -> TransformerSettings:
        if self.adapter and self.mode == "paper":
            raise ValueError("mode 'paper' cannot use an adapter: adapters are trained in mode 'markers'.")
        if self.pooled_layers and not self.adapter:
            raise ValueError("pooled_layers: the pretrained weights alone read one layer; name an adapter.")
        return self


class AdaptedSettings(TransformerSettings):
    """Settings of a pretrained transformer with a shipped adapter, the default except in mode `paper`."""

    adapter: str = "shipped"

    @model_validator(mode="before")
    @classmethod
    def _default_adapter(cls, given: Any) -> Any:
        return {"adapter": "", **given} if isinstance(given, dict) and given.get("mode") == "paper" else given
