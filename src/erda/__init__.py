"""Continual few-shot relation learning: new relations from a handful of examples, without forgetting the old ones.

`PUBLIC` lists the public names. Each is imported at first use, so `import erda` is free. `make docs` writes the type
stub `__init__.pyi` from it. `erda.answers`, `erda.benchmark` and `erda.corpus` have public names of their own.

Four verbs: `read_*` parses a file into values, `load_*` reads a whole resource into memory, `open_*` gives access to
something that is read on demand, `build_*` makes a new object from settings.
"""

from erda.lazy import lazy_names

__version__ = "0.1.0"

PUBLIC = {  # module -> its public names
    "erda.app.extractor": ("Extractor",),
    "erda.app.state": ("Judgement", "Lesson", "VersionInfo"),
    "erda.app.version": ("Version",),
    "erda.data.catalogue": ("DATASETS", "load_dataset", "open_stream"),
    "erda.data.own_data": ("read_examples",),
    "erda.encoders": ("ENCODERS", "build_encoder"),
    "erda.errors": ("ErdaError",),
    "erda.methods": ("METHODS",),
    "erda.methods.base": ("Method",),
    "erda.methods.erda": ("Erda",),
    "erda.methods.posterior": ("Posterior",),
    "erda.serve.client": ("Client",),
    "erda.types": ("Entity", "Example", "Prediction", "Predictions", "Relation", "Span", "Task", "TestSet"),
}
__all__, __getattr__, __dir__ = lazy_names(__name__, PUBLIC)
