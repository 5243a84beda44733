from erda.corpus.augment import open_augmenter as open_augmenter
from erda.corpus.corpus_store import CorpusStore as CorpusStore
from erda.corpus.similarity import load_similarity as load_similarity

PUBLIC: dict[str, tuple[str, ...]]
