"""The estimate of `erda review` against the annotation of redocred-dev.

    python benchmarks/review.py

Five relations are taught by five sentences. Some even documents, with annotated entities, are the user's own text, and
the annotation decides every pair that the review shows; pairs whose relation the document states elsewhere are skipped
before. After 0, 10, 25 and 50 judgements, the two shares that the review expects stand beside the true ones of all
pairs that it has read. Right after a new version, the estimate is that after one more judgement. A review covers all
five relations of a draw (`all`), or a single one (`one`: `--relation`). The table is kept in results/open/review.jsonl.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from entities import DATES, Annotated, Fact, documents, taught_extractor
from erda.app.extractor import Extractor
from erda.app.review import ENOUGH, LATER, Review, open_review
from erda.app.review_journal import FOLDER, Decision, ReviewJournal
from erda.app.texts import TextRow
from erda.benchmark.run.loop import commit
from erda.data.dataset import shuffled
from erda.data.formats.jsonl_examples import EntityRow
from erda.encoders import build_encoder
from erda.encoders.frozen import FrozenCache
from erda.types import Example, pair_key
from opentext import keep, print_table
from opentext_documents import Draws
from opentext_score import Row, means, share

POINTS = (0, 10, 25, 50)
SINGLE = 2  # reviews of one relation in a draw
SAID = re.compile(r"(\d+) % of the answers right, (\d+) % of the facts found")
Pair = tuple[str, str]  # ids of head and tail


def row_of(document: Annotated) -> TextRow:
    """A text with its entities, as in a .jsonl file of texts."""
    return TextRow(
        document.text, None, [EntityRow([one.start, one.end], None, one.id, one.type) for one in document.marks]
    )


class Gold:
    """The annotation of some documents for some relations, by pairs of entities that share a sentence."""

    def __init__(self, texts: Iterable[Annotated], relations: Collection[str]) -> None:
        self.holds, self.ignored = defaultdict[Pair, set[str]](set), set[frozenset[str]]()
        for one in texts:
            ids, stated = {str(mark.id) for mark in one.marks}, [fact for fact in one.stated if fact[1] in relations]
            for sentence, (head, relation, tail) in product({int(name.split()[1]) for name in ids}, stated):
                pair = f"{one.number} {sentence} {head}", f"{one.number} {sentence} {tail}"
                if Fact(sentence, head, relation, tail) in one.facts:
                    self.holds[pair].add(relation)
                elif ids.issuperset(pair):
                    self.ignored.add(frozenset(pair))

    def counts(self, example: Example) -> bool:
        """Whether a pair counts: the document does not state one of the relations elsewhere."""
        return frozenset(pair_of(example)) not in self.ignored

    def relations(self, example: Example) -> set[str]:
        """The relations that hold in an example."""
        return self.holds.get(pair_of(example), set())


def pair_of(example: Example) -> Pair:
    """The ids of head and tail."""
    return str(example.head.id), str(example.tail.id)


def truth(review: Review, gold: Gold) -> tuple[float | None, float | None, int]:
    """Shares of right answers and of found facts, in percent, and the number of facts, of the pairs read so far.

    As in the review, two entities of a sentence are one fact, whichever direction and relations it has. Judgements that
    are not part of a version yet count as if they were.
    """
    pool, said = review._shared.pool, {}
    assert pool is not None
    for one in ReviewJournal(review.extractor.folder / FOLDER).decisions:
        said[one.key] = one.said in ("yes", "other")
    right, facts, found = list[bool](), set[frozenset[str]](), set[frozenset[str]]()
    for text in pool._remembering(review.version).answer_texts(pool._embedded, top=1):
        asked = [answer.example for answer in text.answers if gold.counts(answer.example)]
        facts |= {frozenset(pair_of(one)) for one in asked if gold.relations(one)}
        found |= {frozenset(pair_of(one)) for one in asked if said.get(pair_key(one))}
        for answer in text.found:
            pair, relation = frozenset(pair_of(answer.example)), set(answer.relations)
            is_mine = review.relation is None or review.relation in relation
            if is_mine and gold.counts(answer.example) and pair not in found and pair_key(answer.example) not in said:
                right.append(bool(relation & gold.relations(answer.example)))
                found |= {pair} if right[-1] else set()
    right += [True] * sum(said.values())
    return share(np.array(right)), share(np.array([pair in found for pair in facts])), len(facts)


def decide(review: Review, gold: Gold) -> None:
    """Judge the shown pair by the annotation."""
    one = review.view.current
    assert one is not None
    holding = gold.relations(one.example)
    if holding and one.relation not in holding:
        review.judge(holds=True, relation=min(holding))
    else:
        review.judge(holds=bool(holding))


def skip_ignored(extractor: Extractor, texts: Sequence[TextRow], gold: Gold) -> None:
    """Skip the pairs that do not count, before the review."""
    examples = (one for row in texts for one in extractor.version.questions(row.text, row.marks()).examples)
    skipped = [Decision(pair_key(one), "", "skip") for one in examples if not gold.counts(one)]
    folder = extractor.folder / FOLDER
    folder.mkdir()
    ReviewJournal(folder).add(skipped)


def reviewed(extractor: Extractor, texts: Sequence[Annotated], relation: str | None) -> Iterator[Row]:
    """Review a text, again whenever the review stops; yield expected and true shares at each point, then the stops."""
    gold = Gold(texts, {relation} if relation else {one.id for one in extractor.relations})
    rows, n, left = list(map(row_of, texts)), 0, list(POINTS)
    skip_ignored(extractor, rows, gold)
    stops: dict[str, int] = {}
    while left and "used up" not in stops:
        with open_review(extractor, rows, relation=relation) as review:
            while left:
                said = review.view.progress
                if n >= left[0] and said != LATER:
                    if shares := SAID.search(said):  # else there is nothing to expect
                        yield {"judged": left[0]} | compared(map(float, shares.groups()), *truth(review, gold))
                    left.pop(0)
                if review.view.current is None:
                    stops.setdefault("stopped" if review.view.reason == ENOUGH else "used up", n)
                    break
                decide(review, gold)
                n += 1
    yield dict(stops)


def compared(expected: Iterable[float], precision: float | None, found: float | None, n_facts: int) -> Row:
    """Expected and true shares, and their distances; None without an answer or a fact."""
    row: Row = {"facts": n_facts}
    for name, a, b in zip(("precision", "found"), expected, (precision, found), strict=True):
        row |= {f"expected {name}": a if b is not None else None, name: b}
        row |= {f"error of {name}": abs(a - b) if b is not None else None}
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10, help="of relations, sentences and documents")
    parser.add_argument("--documents", type=int, default=30, help="of a text (default: %(default)s)")
    options = parser.parse_args(arguments)
    encoder, found = build_encoder("open", cache=FrozenCache()), defaultdict[tuple[str, int], list[Row]](list)
    stops, texts = defaultdict[str, list[Row]](list), documents()[::2]
    for seed, taught in enumerate(Draws(left_out=DATES).draws("all", 5, 5, options.draws)):
        for relation in (None, *(one.relation.id for one in taught[:SINGLE])):
            kind = "one" if relation else "all"
            with tempfile.TemporaryDirectory() as folder:
                extractor = taught_extractor(folder, encoder, taught)
                *points, stop = reviewed(extractor, shuffled(texts, seed, "review")[: options.documents], relation)
            stops[kind].append(stop)
            for row in points:
                found[kind, row["judged"]].append(row)
    rows: list[Row] = []
    for (kind, n), own in sorted(found.items()):
        rows.append({"kind": kind, "reviews": len(own)} | means(own) | {"judged": n, "_stops": stops[kind]})
    print_table(rows)
    for kind, name in product(stops, ("stopped", "used up")):
        ended = [one[name] for one in stops[kind] if name in one]
        after = f", after {np.mean(ended):.0f} judgements on average" if ended else ""
        print(f"{kind}: {len(ended)} of {len(stops[kind])} reviews {name}{after}")
    about: Row = {"encoder": encoder.spec.name, "fingerprint": encoder.spec.fingerprint, "fold": "all", "seed": 0}
    about |= {"relations": 5, "shots": 5, "draws": options.draws, "documents": options.documents, "commit": commit()}
    keep("review", rows, about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
