"""The scripts of `tools/` import each other by their plain names, as they do when they are run."""

import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
sys.path[:0] = [str(TOOLS / "atlas"), str(TOOLS)]
