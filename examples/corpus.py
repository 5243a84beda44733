"""Find sentences for known facts in a corpus of unlabelled text, and teach the ones that express the relation.

python examples/corpus.py      # needs the extra `corpus`
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from erda import Extractor, read_examples
from erda.corpus import CorpusStore
from erda.corpus.corpus_build import build_corpus
from erda.corpus.sources import BuildSettings
from erda.text.keys import EntityPair

HERE = Path(__file__).parent
NAMES = ["Patagonia", "Yvon Chouinard", "Spanx", "Sara Blakely", "Oprah Winfrey", "Whole Foods", "Jeff Bezos"]
FACTS = [("Patagonia", "Yvon Chouinard"), ("Spanx", "Sara Blakely")]  # founded by, from a database

with TemporaryDirectory() as folder:
    names, corpus = Path(folder, "names.txt"), Path(folder, "corpus")
    names.write_text("\n".join(NAMES), encoding="utf-8")
    settings = BuildSettings(names=str(names))
    build_corpus([HERE / "news.txt"], corpus, settings=settings)  # or: erda corpus build

    extractor = Extractor.open(folder + "/extractor")
    extractor.teach_many(read_examples(HERE / "founders.csv").examples)
    store = CorpusStore.open(corpus)
    pairs = [EntityPair(head.lower(), tail.lower()) for head, tail in FACTS]
    for sentences in store.sentences_of(pairs):
        for sentence in sentences:
            answer = extractor.predict(sentence.example)
            print(f"{answer.confidence:.1f}  {' '.join(sentence.example.tokens)}")
            if answer.relation == "founded by":  # a pair can also share a sentence for another reason
                extractor.teach("founded by", [sentence.example])
    print(len(extractor.examples("founded by")), "examples of founded by")
