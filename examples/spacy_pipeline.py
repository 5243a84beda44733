"""Add an extractor to a spaCy pipeline: entities come from spaCy, relations from erda.

python examples/spacy_pipeline.py      # needs the extra `entities`
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import spacy

from erda import Extractor, read_examples

TEXTS = ["Amazon was founded by Jeff Bezos in 1994.", "Jeff Bezos was born in Albuquerque."]
PATTERNS = [
    {"label": "ORG", "pattern": "Amazon"},
    {"label": "PERSON", "pattern": "Jeff Bezos"},
    {"label": "GPE", "pattern": "Albuquerque"},
]

with TemporaryDirectory() as folder:
    store = folder + "/extractor"
    Extractor.open(store).teach_many(read_examples(Path(__file__).with_name("founders.csv")).examples)
    nlp = spacy.blank("en")  # or a trained pipeline, which finds entities itself
    nlp.add_pipe("entity_ruler").add_patterns(PATTERNS)
    nlp.add_pipe("erda", config={"store": store})
    for doc in nlp.pipe(TEXTS):
        for found in doc._.relations:
            print(f"{found.head} | {found.relation} | {found.tail}")
