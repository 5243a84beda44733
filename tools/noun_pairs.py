"""Mark pairs of common nouns in sentences of wiki-large: training sentences whose entities have no names.

python tools/noun_pairs.py --tagger FOLDER --out nouns.jsonl.gz

The links of Wikipedia mark names; of 10,000 pairs of wiki-large none has two common nouns, as in "the [[web]] of a
{{spider}}". A tagger of spaCy finds the nouns. Each sentence gives one ordered pair with at least one common noun.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from erda.files import data_folder, write_lines

PARTS, SHARE = (2, 3), 0.3  # parts of wiki-large, and the share of their sentences
SEED = 0
NEAR = 20  # tokens between the starts of two nouns
COMMON, PROPER, BEFORE = {"NN", "NNS"}, {"NNP", "NNPS"}, {"JJ", "HYPH"}
WHOLE = 0.5  # probability that the adjectives before a noun are marked too
BOTH = 0.5  # probability that both are common nouns, where a sentence has two


def sentences() -> Iterator[tuple[str, ...]]:
    """Sentences of wiki-large, drawn by seed, each once."""
    draw, seen = random.Random(SEED), set[tuple[str, ...]]()
    for part in PARTS:
        with gzip.open(data_folder() / f"corpus/wiki-large-{part}.jsonl.gz", "rt", encoding="utf-8") as file:
            for line in file:
                if draw.random() < SHARE:
                    tokens = tuple(json.loads(line)["tokens"])
                    if 5 <= len(tokens) <= 60 and tokens not in seen:
                        seen.add(tokens)
                        yield tokens


def phrases(tags: Sequence[str], draw: random.Random) -> list[tuple[int, int, bool]]:
    """Noun phrases of a tagged sentence: start, end, whether the noun is a common one."""
    found, start = list[tuple[int, int, bool]](), None
    for i, tag in enumerate([*tags, "."]):
        if tag in COMMON | PROPER | BEFORE:
            start = i if start is None else start
            continue
        if start is not None and tags[i - 1] in COMMON | PROPER:
            first = next((j + 1 for j in range(i - 1, start - 1, -1) if tags[j] in BEFORE), start)
            whole = draw.random() < WHOLE and tags[start] != "HYPH"
            found.append((start if whole else first, i, tags[i - 1] in COMMON))
        start = None
    return found


def pair_in(tags: Sequence[str], draw: random.Random) -> tuple[tuple[int, int], ...] | None:
    """Draw an ordered pair of noun phrases; None if there is none."""
    found = phrases(tags, draw)
    pairs = [(a, b) for a in found for b in found if a is not b and (a[2] or b[2]) and abs(a[0] - b[0]) <= NEAR]
    both = [(a, b) for a, b in pairs if a[2] and b[2]]
    if not pairs:
        return None
    head, tail = draw.choice(both if both and draw.random() < BOTH else pairs)
    return head[:2], tail[:2]


def rows(texts: Sequence[tuple[str, ...]], tagged: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each sentence that has a pair."""
    draw = random.Random(SEED)
    for tokens, tags in zip(texts, tagged, strict=True):
        if pair := pair_in(tags, draw):
            head, tail = ({"name": " ".join(tokens[slice(*end)]), "id": None, "span": end} for end in pair)
            yield {"tokens": tokens, "head": head, "tail": tail, "relation": None, "source": "nouns"}


def main() -> None:
    """Write the file and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tagger", type=Path, metavar="FOLDER", required=True, help="spaCy's en_core_web_md, unpacked")
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl.gz", required=True)
    args = parser.parse_args()

    import spacy
    from spacy.tokens import Doc
    from tqdm import tqdm

    tagger = spacy.load(args.tagger, exclude=["parser", "ner", "lemmatizer", "senter", "attribute_ruler"])
    texts = list(sentences())
    docs = tagger.pipe((Doc(tagger.vocab, words=tokens) for tokens in texts), batch_size=256)
    tagged = [[token.tag_ for token in doc] for doc in tqdm(docs, total=len(texts), desc="tagging", disable=None)]
    found = list(rows(texts, tagged))
    write_lines(args.out, (json.dumps(row, ensure_ascii=False) for row in found))
    n_both = sum(all(row["tokens"][row[side]["span"][0]].islower() for side in ("head", "tail")) for row in found)
    print(f"{args.out}: {len(found):,} sentences, {n_both:,} of them with two common nouns")


if __name__ == "__main__":
    main()
