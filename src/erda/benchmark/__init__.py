"""Runs, their records, and the views of them: measures, tables, figures, report. `PUBLIC` lists the public names."""

from erda.lazy import lazy_names

PUBLIC = {  # module -> its public names
    "erda.benchmark.records": ("read_record", "read_records"),
    "erda.benchmark.report.report_files": ("write_report",),
    "erda.benchmark.run.planned_runs": ("run_experiment",),
    "erda.settings.load": ("run_settings",),
    "erda.settings.runs": ("Run", "RunSettings"),
}
__all__, __getattr__, __dir__ = lazy_names(__name__, PUBLIC)
