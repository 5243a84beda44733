"""Make the modules of the trial importable by name, as when it is run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
