"""Reading records and reporting on them needs no PyTorch."""

import subprocess
import sys

MODULES = ("records", "metrics", "statistics", "experiments", "report.report", "report.reproducibility")


def test_records_and_reports_are_imported_without_torch() -> None:
    names = ", ".join(f"erda.benchmark.{name}" for name in MODULES)
    code = f"import sys, {names}; print([one for one in ('torch', 'transformers', 'numba') if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
