"""`python -m erda` and the command `erda`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line."""
    from erda.cli.main import main as run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
