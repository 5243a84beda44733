"""Integration tests use the toy runs of the benchmark's tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmark"))
