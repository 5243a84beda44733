"""Copy a pretrained model in half precision, at half the size, to move it to another machine.

python tools/half_copy.py minilm minilm-half

Adapters trained over the copy fit the original, up to the rounding of weights to 11 bits.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from erda.encoders.weights import (
    ORIGIN_FILE,
    WEIGHT_FILES,
    CopyOrigin,
    ModelFolder,
    find_model,
    model_files,
    origin,
    write_tensors,
)
from erda.errors import ModelError
from erda.files import read_bytes, sealed, sha256_of, write_bytes, write_json


def half_copy(name: str, out: Path) -> ModelFolder:
    """Write the copy of a model into a folder."""
    from safetensors.torch import load_file

    folder = find_model(name)
    source = folder.path / WEIGHT_FILES[0]
    if not source.is_file():
        raise ModelError(f"{folder.path} has no {source.name}; only models with that file can be copied.")
    tensors = {key: value.half() if value.is_floating_point() else value for key, value in load_file(source).items()}
    write_tensors(out / source.name, tensors, {"format": "pt"})
    for file in model_files(folder.path):
        if file.name not in WEIGHT_FILES:
            write_bytes(out / file.name, read_bytes(file, error=ModelError))
    files = {path.name: sha256_of(path, error=ModelError) for path in model_files(out)}
    original = origin(folder)
    write_json(out / ORIGIN_FILE, sealed(CopyOrigin(original.name, original.fingerprint, files)))
    return find_model(out)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="name or folder")
    parser.add_argument("out", type=Path, help="folder of the copy")
    options = parser.parse_args()
    print(half_copy(options.model, options.out).path)


if __name__ == "__main__":
    main()
