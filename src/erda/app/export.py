"""Export an extractor as a folder that runs without erda: graph, tokenizer, learned parameters and a loader.

model.onnx, tokenizer.json, encoder.json    sentences to vectors (`PackedEncoder`)
scores.npz, relations.json                  vectors to answers
predict.py, README.md                       the loader: onnxruntime, tokenizers and numpy are all that it needs
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from erda import __version__
from erda.app.version import Version
from erda.encoders import TransformerSettings
from erda.encoders.onnx_encoder import OnnxEncoder, PackedEncoder
from erda.errors import DataError, ModelError, SettingsError, WriteError, require
from erda.fields import checked_settings
from erda.files import (
    cannot_write,
    is_unfinished,
    read_bytes,
    remove_own,
    temporary_name,
    user_path,
    write_arrays,
    write_bytes,
    write_json,
)
from erda.methods.base import Method
from erda.methods.posterior import Posterior

VERSION = 2
RELATIONS, SCORES = "relations.json", "scores.npz"
# self-contained modules of erda; an export contains copies of them in its own package
MODULES = (
    *("errors", "types", "text.sentences", "text.marks", "text.keys", "text.pronouns", "text.names", "graph"),
    *("answers", "encoders.tokens", "methods.expected", "methods.open_head", "app.calibration", "app.questions"),
    "app.standalone",
)
PACKAGE, WORDS = "erda_export", "word_lists.toml"
FILES = (
    *("model.onnx", "tokenizer.json", "encoder.json", RELATIONS, SCORES, "predict.py", "README.md"),
    *(f"{PACKAGE}/{name}.py" for name in ("__init__", *(one.replace(".", "_") for one in MODULES))),
    f"{PACKAGE}/{WORDS}",
)


def export(version: Version, folder: str | Path, *, engine: str | None = None) -> Path:
    """Write a version of an extractor into a new folder that needs neither erda nor PyTorch.

    `engine` is `onnx` or `onnx-int8`; the default is the engine of the version, or `onnx` if that is PyTorch.
    With the same engine the answers are the same.
    """
    folder = user_path(folder)
    if not folder.name:
        raise DataError(f"{folder} cannot be written in one step; name a new folder in it.")
    for path in folder.parent.glob(".*.tmp"):  # of an export that was killed
        if is_unfinished(path.name, of=folder.name):
            remove_own(path, FILES.__contains__)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} exists and is not empty; name another folder.")
    method, head = version.fitted
    if type(method) is not Posterior:  # subclasses score in other ways
        raise ModelError(f"Method '{method.name}' cannot be exported, only '{Posterior.name}' can.")
    arrays = {**method.fitted.arrays(), **(head.arrays() if head else {})}
    packed = _packed(method, engine)
    part = temporary_name(folder)
    try:
        packed.write(part)
        write_arrays(part / SCORES, arrays, compress=False)
        write_json(part / RELATIONS, _about(version, part))
        for name, source in _code().items():
            write_bytes(part / name, source)
        about = {"n": len(version.relations), "erda": __version__, "version": version.number, "method": method.name}
        about |= {"model": packed.about.model, "engine": packed.about.engine}
        write_bytes(part / "README.md", _template("readme.md").decode().format(**about).encode())
        part.replace(folder)
    except OSError as fault:
        raise WriteError(cannot_write(folder, fault)) from fault
    finally:
        remove_own(part, FILES.__contains__)
    return folder


def _packed(method: Method, engine: str | None) -> PackedEncoder:
    """The files of the encoder, or files built from its weights for another engine (extra `train`)."""
    encoder, spec = method.encoder, method.encoder.spec
    if isinstance(encoder, OnnxEncoder) and engine in (None, encoder.engine):
        return encoder.packed()
    engine = engine or "onnx"
    if engine not in ("onnx", "onnx-int8"):
        raise SettingsError(f"engine: expected onnx or onnx-int8, got '{engine}'.")
    if "adapter" not in spec.settings:
        remedy = f"use {encoder.engine}" if isinstance(encoder, OnnxEncoder) else "only transformers can be exported"
        raise ModelError(f"Encoder '{spec.name}' cannot be exported with engine {engine}; {remedy}.")
    require("torch", "transformers", "onnx")
    from erda.encoders.adapter import adapter_of
    from erda.encoders.weights import find_model, graph_builder

    settings = checked_settings(TransformerSettings, {**spec.settings, "engine": engine})
    folder = find_model(spec.name)
    packed: PackedEncoder = graph_builder().pack_encoder(folder, settings, weights=adapter_of(folder, settings))
    return packed


def _template(name: str) -> bytes:
    return read_bytes(Path(__file__).with_name(f"export_{name}"), error=ModelError)


def _code() -> dict[str, bytes]:
    """`predict.py` and the modules of erda behind it, which import each other as `erda_export.text_marks` and so on."""
    root = Path(__file__).parents[1]
    sources = {f"{PACKAGE}/{one.replace('.', '_')}.py": root / f"{one.replace('.', '/')}.py" for one in MODULES}
    found = {f"{PACKAGE}/__init__.py": b"", "predict.py": _template("launcher.txt")}
    found[f"{PACKAGE}/{WORDS}"] = read_bytes(root / "text" / WORDS, error=ModelError)
    for name, path in sources.items():
        source = read_bytes(path, error=ModelError).decode()
        for one in MODULES:
            source = source.replace(f"from erda.{one} import", f"from {PACKAGE}.{one.replace('.', '_')} import")
        found[name] = source.encode()
    return found


def _about(version: Version, folder: Path) -> dict[str, Any]:
    return {
        "version": VERSION,
        "erda": __version__,
        "method": version.method.name,
        "scores": version.method.score_kind,
        "calibration": asdict(version.calibration),
        "least": version.least_confidence(version.fitted[1], in_text=False),
        "least_in_text": version.least_confidence(version.fitted[1], in_text=True),
        "relations": [asdict(one) for one in version.method.relations],
        "names": version.taught_names.names,
        "judged": version.judged,
        "sha256": {SCORES: hashlib.sha256(read_bytes(folder / SCORES)).hexdigest()},
    }
