"""Teach an extractor from a table, then ask it about new sentences.

python examples/teach_from_csv.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from erda import Extractor, read_examples

TABLE = Path(__file__).with_name("founders.csv")  # columns: text, head, tail, relation
QUESTIONS = [
    "[[SpaceX]] was founded in 2002 by {{Elon Musk}}.",
    "[[Nikola Tesla]], a native of {{Smiljan}}, moved to New York.",
    "[[Mozart]] wrote {{The Magic Flute}}.",
]

with TemporaryDirectory() as folder:
    extractor = Extractor.open(folder + "/extractor")  # keep it: any folder of yours
    print(extractor.teach_many(read_examples(TABLE).examples))
    for answer in extractor.predict(QUESTIONS):
        print(f"{answer.example.head.name} | {answer.relation} | {answer.example.tail.name}")
