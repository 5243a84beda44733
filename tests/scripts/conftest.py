"""Make the scripts of `benchmarks/` and `research/` importable by name, as when they are run."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "research")]
