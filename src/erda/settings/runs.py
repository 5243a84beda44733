"""One run, and the checked settings of `erda run`: several methods on several streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from erda.data.streams import StreamSettings
from erda.errors import ErdaError
from erda.fields import Count, Seed, Settings, flat_kinds, flat_values

if TYPE_CHECKING:
    from erda.methods.base import Method

Setting = bool | int | float | str


def _tuple(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given if isinstance(given, tuple) else (given,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One method on one stream: the subject of a record.

    `settings` has three parts: "method" (every setting of the method), "encoder" (those given) and "stream" (how the
    stream is cut, beyond dataset, shots and order).
    """

    method: str
    encoder: str
    dataset: str
    shots: int
    order_family: str
    seed: int
    evaluate_on: str = "test"
    device: str = "cpu"
    corpus: str = ""  # source of extra examples
    allow_seen: bool = False  # run also with an encoder whose training read labels of the stream's relations
    settings: dict[str, dict[str, Setting]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name in messages and progress bars."""
        return f"{self.method} {self.seed}"


class RunOptions(Settings):
    """The top level of a settings file without the stream settings; also the flags of `erda run`."""

    dataset: str = "atlas"
    shots: Count | None = None  # None: the dataset's own
    order_family: str = "erda"
    seeds: Annotated[tuple[Seed, ...], BeforeValidator(_tuple)] = ()  # empty: all six of the family
    methods: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = ("posterior",)
    encoder: str = "minilm"
    device: str = "cpu"
    evaluate_on: Literal["test", "validation"] = "test"
    cache_gb: Annotated[float, Field(ge=0, le=10_000)] = 4.0  # outputs of frozen layers; 0 disables the cache
    cache_dir: str = ""  # empty: in memory
    corpus: str = ""  # folder of a corpus with an index; without one there is no augmentation
    allow_seen: bool = False


class RunSettings(RunOptions):
    """The validated settings of `erda run`, built by `run_settings` and the command line."""

    shots: Count
    method_settings: dict[str, dict[str, Setting]]  # method -> every setting
    encoder_settings: dict[str, Setting]  # those given
    stream_settings: dict[str, Setting]  # those given

    def runs(self) -> tuple[Run, ...]:
        """Every method on every stream, seed by seed, so that methods can be compared early."""
        from erda.methods import find_method

        takes = {name for name in self.methods if any(one.name == "augmenter" for one in fields(find_method(name)))}
        names = {"encoder", "dataset", "shots", "order_family", "evaluate_on", "device", "allow_seen"}
        shared = self.model_dump(include=names)
        parts = {"encoder": self.encoder_settings, "stream": self.stream_settings}  # shared by all runs
        return tuple(
            Run(
                **shared,
                method=method,
                seed=seed,
                corpus=self.corpus if method in takes else "",
                settings={"method": self.method_settings[method], **parts},
            )
            for seed in self.seeds
            for method in self.methods
        )


# name at the top level of a settings file -> its type
RUN_KINDS: dict[str, Any] = {**flat_kinds(RunOptions), **flat_kinds(StreamSettings)}


def default_settings(method: type[Method]) -> dict[str, Setting]:
    """Every setting of a method with its default."""
    from erda.methods.base import method_settings

    return flat_values(method_settings(method)())


def known_settings(method: str) -> dict[str, Setting]:
    """Every setting of a method with its default; none for a method that is not installed."""
    from erda.methods import find_method

    try:
        return default_settings(find_method(method))
    except (ImportError, ErdaError):
        return {}


def filled_settings(method: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Add to recorded settings the defaults of settings that are newer or older than the record.

    A new setting must by default leave a method unchanged, so the default is the value the record was made with.
    """
    from erda.methods.base import FORMER_SETTINGS

    defaults = known_settings(method)  # records of a method that is not installed are readable
    former = {name: value for name, value in FORMER_SETTINGS.items() if name not in defaults}
    return {**former, **defaults, **settings}
