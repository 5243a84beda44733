"""Corpora of unlabelled text with tagged entities: build, read, index and mine them, and find extra examples.

`PUBLIC` lists the public names.
"""

from erda.lazy import lazy_names

PUBLIC = {  # module -> its public names
    "erda.corpus.augment": ("open_augmenter",),
    "erda.corpus.corpus_store": ("CorpusStore",),
    "erda.corpus.similarity": ("load_similarity",),
}
__all__, __getattr__, __dir__ = lazy_names(__name__, PUBLIC)
