"""Continual few-shot relation learning: new relations from a handful of examples, without forgetting the old ones.

`PUBLIC` lists the public names. Each is imported at first use, so `import erda` is free. `make docs` writes the type
stub `__init__.pyi` from it.

Four verbs: `read_*` parses a file into values, `load_*` reads a whole resource into memory, `open_*` gives access to
something that is read on demand, `build_*` makes a new object from settings.
"""

from importlib import import_module

__version__ = "0.1.0"

PUBLIC = {  # module -> its public names
    "erda.app.answers": (
        "Answer",
        "Change",
        "Evaluation",
        "Explanation",
        "Extraction",
        "Moved",
        "Neighbour",
        "Ranked",
        "RelationScore",
        "Suggestion",
        "Taught",
        "TextPlace",
        "TripleEvaluation",
        "Tuned",
        "TunedRelation",
        "WordEffect",
    ),
    "erda.app.extractor": ("Extractor",),
    "erda.app.state": ("Judgement", "Lesson", "VersionInfo"),
    "erda.app.version": ("Version",),
    "erda.benchmark.records": ("read_record", "read_records"),
    "erda.benchmark.report.report": ("write_report",),
    "erda.benchmark.run.planned_runs": ("run_experiment",),
    "erda.corpus.augment": ("open_augmenter",),
    "erda.corpus.corpus_store": ("CorpusStore",),
    "erda.corpus.similarity": ("load_similarity",),
    "erda.data.catalogue": ("DATASETS", "load_dataset", "open_stream"),
    "erda.data.own_data": ("read_examples",),
    "erda.encoders": ("ENCODERS", "build_encoder"),
    "erda.errors": ("ErdaError",),
    "erda.methods": ("METHODS",),
    "erda.methods.base": ("Method",),
    "erda.methods.erda": ("Erda",),
    "erda.methods.posterior": ("Posterior",),
    "erda.serve.client": ("Client",),
    "erda.settings.load": ("run_settings",),
    "erda.settings.runs": ("Run", "RunSettings"),
    "erda.types": ("Entity", "Example", "Prediction", "Predictions", "Relation", "Span", "Task", "TestSet"),
}
_HOME = {name: module for module, names in PUBLIC.items() for name in names}
__all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604 (they are texts)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'erda' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
