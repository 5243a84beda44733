from erda.benchmark.records import read_record as read_record
from erda.benchmark.records import read_records as read_records
from erda.benchmark.report.report_files import write_report as write_report
from erda.benchmark.run.planned_runs import run_experiment as run_experiment
from erda.settings.load import run_settings as run_settings
from erda.settings.runs import Run as Run
from erda.settings.runs import RunSettings as RunSettings

PUBLIC: dict[str, tuple[str, ...]]
