"""Experiments in words: "FewRel, 5 shots, MiniLM with its adapter, last layer trained"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from erda.settings.runs import Run

DATASETS = {
    "fewrel": "FewRel",
    "fewrel-full": "FewRel, all sentences",
    "fewrel-fresh": "FewRel, fresh relations",
    "tacred": "TACRED",
    "redoc41": "redoc41",
    "atlas": "atlas",
}
ENCODERS = {
    "bilstm": "BiLSTM",
    "minilm": "MiniLM",
    "mpnet": "MPNet",
    "minilm_fp16": "MiniLM in half precision",
    "mpnet_fp16": "MPNet in half precision",
}


def dataset_in_words(name: str) -> str:
    """Name of a dataset as papers write it; the last part of a path."""
    return DATASETS.get(name, Path(name).name)


def encoder_in_words(name: str, settings: dict[str, Any]) -> str:
    """Encoder and the settings that change its results."""
    words = ENCODERS.get(name, Path(name).name)
    given = dict(settings)
    adapter = given.pop("adapter", None)
    if adapter is not None:
        words += {"": " without an adapter", "shipped": " with its adapter"}.get(
            str(adapter), f" with the adapter {Path(str(adapter)).name}"
        )
    layers = given.pop("trained_layers", None)
    parts = [words]
    if layers is not None:
        named = {0: "frozen", 1: "last layer trained", -1: "all layers trained"}
        parts.append(named.get(int(layers), f"last {layers} layers trained"))
    if given.pop("mode", None) == "paper":
        parts.append("used as the paper uses BERT")
    parts += [f"{name.replace('_', ' ')} {value}" for name, value in given.items()]
    return ", ".join(parts)


def title_of(run: Run) -> str:
    """Setting of a run in words: dataset, shots, encoder, stream."""
    parts = [
        dataset_in_words(run.dataset),
        "1 shot" if run.shots == 1 else f"{run.shots} shots",
        encoder_in_words(run.encoder, run.settings.get("encoder", {})),
    ]
    parts += [f"{name.replace('_', ' ')} {value}" for name, value in run.settings.get("stream", {}).items()]
    if run.evaluate_on != "test":
        parts.append(f"measured on {run.evaluate_on} data")
    if run.order_family == "sckd":
        parts.append("task orders of SCKD")
    return ", ".join(parts)
