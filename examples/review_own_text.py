"""Correct an extractor on a text of one's own: it suggests pairs of entities, and you judge them.

    python examples/review_own_text.py

`erda review news.txt` and the page of `erda serve` do the same with keys. Here the answers are in a set.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from erda import Extractor, Judgement, read_examples

HERE = Path(__file__).parent
TEXT = HERE / "news.txt"
FOUNDERS = {("Patagonia", "Yvon Chouinard"), ("Spanx", "Sara Blakely"), ("Lauder Cosmetics", "She")}


def show(extractor: Extractor) -> None:
    """Print the founders that the extractor finds."""
    for line in TEXT.read_text(encoding="utf-8").splitlines():
        for answer in extractor.extract(line).found:
            if answer.relation == "founded by":
                print(f"  {answer.head_name} | {answer.tail_name}")


with TemporaryDirectory() as folder:
    extractor = Extractor.open(folder + "/extractor")
    extractor.teach_many(read_examples(HERE / "founders.csv").examples)
    print("before the review:")
    show(extractor)
    judgements = []
    for suggestion in extractor.suggest("founded by", TEXT):
        pair = (suggestion.example.head.name, suggestion.example.tail.name)
        judgements.append(Judgement(suggestion.example, "founded by", holds=pair in FOUNDERS))  # ask a person here
    extractor.judge_many(judgements)
    print(f"after {len(judgements)} judgements:")
    show(extractor)
