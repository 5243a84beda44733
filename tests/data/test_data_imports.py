"""Importing erda.data loads no PyTorch and no NumPy; importing erda.text loads no pydantic either."""

import subprocess
import sys

import pytest

TEXT = ("descriptions", "keys", "marks", "names", "reading", "sentences")
DATA = ("catalogue", "fetch", "own_data", "streams")


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ([f"erda.text.{name}" for name in TEXT], {"torch", "transformers", "numpy", "pydantic"}),
        ([f"erda.data.{name}" for name in DATA], {"torch", "transformers", "numpy", "requests"}),
    ],
)
def test_reading_loads_no_heavy_library(modules: list[str], absent: set[str]) -> None:
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not absent & set(done.stdout.split())
