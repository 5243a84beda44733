"""Unlabelled tagged text: sources, store, similarity model, index and augmentation. Public names load lazily."""

from importlib import import_module

_HOME = {
    "CorpusStore": "erda.corpus.corpus_store",
    "load_similarity": "erda.corpus.similarity",
    "open_augmenter": "erda.corpus.augment",
}
__all__ = ["CorpusStore", "load_similarity", "open_augmenter"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
