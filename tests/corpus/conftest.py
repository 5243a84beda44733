"""Tests of the corpus use the tiny models of the encoders' tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "encoders"))
