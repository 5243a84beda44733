"""The scripts of `tools/atlas/` import each other by their plain names, as they do when they are run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "atlas"))
