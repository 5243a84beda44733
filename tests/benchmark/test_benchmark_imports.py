"""The loop, records and reports are imported without PyTorch."""

import subprocess
import sys

MODULES = ("records", "measures", "statistics", "experiments", "run.loop", "run.planned_runs", "report.report_files")


def test_no_module_outside_the_methods_imports_torch() -> None:
    names = ", ".join(f"erda.benchmark.{name}" for name in MODULES)
    code = f"import sys, {names}; print([name for name in ('torch', 'transformers', 'numba') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
