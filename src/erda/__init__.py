"""Continual few-shot relation learning: new relations from a handful of examples, without forgetting the old ones.

The names below are the public ones; each is loaded when it is first asked for, so that `import erda` costs nothing.
Their types stand in `__init__.pyi`.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "erda.app.answers": ("Answer",),
    "erda.app.extractor": ("Extractor",),
    "erda.benchmark.records": ("read_record", "read_records"),
    "erda.benchmark.report.report": ("write_report",),
    "erda.benchmark.run.planned_runs": ("run_experiment",),
    "erda.corpus.augment": ("open_augmenter",),
    "erda.corpus.similarity": ("load_similarity",),
    "erda.corpus.store": ("CorpusStore",),
    "erda.data.catalogue": ("DATASETS", "load_dataset", "open_stream"),
    "erda.data.own": ("read_examples",),
    "erda.encoders": ("ENCODERS", "build_encoder"),
    "erda.errors": ("ErdaError",),
    "erda.methods": ("METHODS",),
    "erda.methods.base": ("Method",),
    "erda.methods.erda": ("Erda",),
    "erda.methods.posterior": ("Posterior",),
    "erda.settings.load": ("run_settings",),
    "erda.types": ("Entity", "Example", "Prediction", "Predictions", "Relation", "Span", "Task", "TestSet"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604 (they are texts)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'erda' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
