"""Validated settings -> built objects: the stream, the encoder and the method of a run."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from erda.files import user_path
from erda.settings.runs import Run

if TYPE_CHECKING:
    from erda.corpus.augment import Augmenter
    from erda.data.streams import TaskStream
    from erda.encoders.contract import Encoder
    from erda.encoders.frozen import FrozenCache
    from erda.methods.base import Method


def open_run_stream(run: Run) -> TaskStream:
    """Open the stream of a run. Streams are frozen, so runs of several methods share one."""
    cut = tuple(sorted(run.settings.get("stream", {}).items()))
    return _open_stream(run.dataset, run.shots, run.order_family, run.seed, cut)


@lru_cache(maxsize=1)
def _open_stream(dataset: str, shots: int, family: str, seed: int, cut: tuple[tuple[str, Any], ...]) -> TaskStream:
    from erda.data.catalogue import open_stream

    return open_stream(dataset, shots=shots, family=family, seed=seed, **dict(cut))


@lru_cache(maxsize=1)
def open_cache(directory: str, gigabytes: float) -> FrozenCache | None:
    """Open the cache that all encoders of this process share; None if caching is disabled."""
    from erda.encoders.frozen import GIBIBYTE, FrozenCache

    folder = user_path(directory) if directory else None
    return FrozenCache(folder, max_bytes=int(gigabytes * GIBIBYTE)) if gigabytes else None


def build_run_encoder(run: Run, *, cache: FrozenCache | None = None) -> Encoder:
    """Build the encoder of a run. It is frozen if the method does not train it."""
    from erda.encoders import build_encoder, encoder_settings
    from erda.methods import find_method

    settings: dict[str, Any] = dict(run.settings.get("encoder", {}))
    trains = find_method(run.method).trains and run.settings.get("method", {}).get("train_encoder", True)
    if not trains and "trained_layers" in encoder_settings(run.encoder).model_fields:
        settings["trained_layers"] = 0
    return build_encoder(run.encoder, seed=run.seed, device=run.device, cache=cache, **settings)


def build_run_method(run: Run, *, cache: FrozenCache | None = None) -> Method:
    """Build the method of a run, untrained."""
    from erda.methods import find_method

    parts: dict[str, Any] = {"augmenter": _open_augmenter(run.corpus, run.device)} if run.corpus else {}
    settings = {"seed": run.seed, **run.settings.get("method", {})}
    if settings.get("future_relations"):
        parts["future"] = tuple(open_run_stream(run).relations)
    return find_method(run.method).from_settings(build_run_encoder(run, cache=cache), settings, **parts)


@lru_cache(maxsize=1)
def _open_augmenter(corpus: str, device: str) -> Augmenter:
    from erda.corpus.augment import open_augmenter

    return open_augmenter(user_path(corpus), device=device)
