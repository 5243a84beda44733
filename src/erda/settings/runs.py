"""What a run is, and what `erda run` can be asked to do: several methods on several streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from erda.fields import Count, Seed, Settings, flat_kinds, flat_values

if TYPE_CHECKING:
    from erda.methods.base import Method

Setting = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One method on one stream: what a record answers for.

    `settings` has three parts: "method" (every setting of the method), "encoder" (those that were given) and "stream"
    (how the stream was cut, beyond dataset, shots and order).
    """

    method: str
    encoder: str
    dataset: str
    shots: int
    order_family: str
    seed: int
    evaluate_on: str = "test"
    device: str = "cpu"
    corpus: str = ""  # where extra examples come from
    settings: dict[str, dict[str, Setting]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """How messages and progress bars call it."""
        return f"{self.method} {self.seed}"


class StreamSettings(Settings):
    """How a stream is cut, where the dataset's own shape is not wanted (`open_stream`)."""

    way: Count | None = None
    first_way: Count | None = None
    first_shots: Count | None = None
    n_tasks: Count | None = None
    test_per_relation: Count | None = None
    candidates: Count | None = None
    min_examples: Count | None = None  # relations with fewer are left out
    no_relation: str | None = None  # names that say that there is none, by commas


class RunSettings(Settings):
    """Everything that `erda run` was asked to do, checked; `run_settings` and the command line make it."""

    dataset: str = "atlas"
    shots: Count  # unless given: the dataset's own
    order_family: str = "erda"
    seeds: tuple[Seed, ...]  # unless given: all six of the family
    methods: tuple[str, ...] = ("posterior",)
    encoder: str = "minilm"
    device: str = "cpu"
    evaluate_on: Literal["test", "validation"] = "test"
    cache_gb: Annotated[float, Field(ge=0, le=10_000)] = 4.0  # of what frozen layers compute; 0 keeps nothing
    cache_dir: str = ""  # empty: in memory
    corpus: str = ""  # folder of a corpus with an index; without one there is no augmentation
    method_settings: dict[str, dict[str, Setting]]  # method -> every setting of it
    encoder_settings: dict[str, Setting]  # those that were given
    stream_settings: dict[str, Setting]  # those of `StreamSettings` that were given

    def runs(self) -> tuple[Run, ...]:
        """Every method on every stream, seed by seed, so that methods can be compared early."""
        return tuple(
            Run(
                method=method,
                encoder=self.encoder,
                dataset=self.dataset,
                shots=self.shots,
                order_family=self.order_family,
                seed=seed,
                evaluate_on=self.evaluate_on,
                device=self.device,
                corpus=self.corpus if takes_augmenter(method) else "",
                settings={
                    "method": dict(self.method_settings[method]),
                    "encoder": dict(self.encoder_settings),
                    "stream": dict(self.stream_settings),
                },
            )
            for seed in self.seeds
            for method in self.methods
        )


# name at the top level of a settings file -> its kind; also what `--set` and the flags of `erda run` are called
RUN_KINDS: dict[str, Any] = {**flat_kinds(RunSettings), **flat_kinds(StreamSettings)}
for _part in ("method_settings", "encoder_settings", "stream_settings"):
    del RUN_KINDS[_part]


def default_settings(method: type[Method]) -> dict[str, Setting]:
    """Every setting of a method with its built-in value."""
    from erda.methods.base import method_settings

    return flat_values(method_settings(method)())


def filled_settings(method: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Settings of a method as they were kept, with today's built-in value of each that did not exist then.

    A new setting must leave a method as it was by default; so what was run before it came was run with that value.
    """
    from erda.methods import METHODS

    return {**default_settings(METHODS[method]), **settings} if method in METHODS else dict(settings)


def takes_augmenter(method: str) -> bool:
    """Whether a method can use a corpus."""
    from erda.methods import METHODS

    return any(one.name == "augmenter" for one in fields(METHODS[method]))
