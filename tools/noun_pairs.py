"""Mark common nouns in sentences of wiki-large: training sentences whose entities are not all names.

python tools/noun_pairs.py --tagger FOLDER --out nouns.jsonl.gz

The entities of wiki-large are names; of 10,000 pairs none has two common nouns, as in "the [[web]] of a {{spider}}". A
tagger of spaCy finds the nouns. Each sentence gives one ordered pair whose head or tail ends in a common noun.
Sentences that are measured (`labelled_rows.measured_sentences`) are left out; `erda corpus pairs --exclude` leaves out
those of the benchmark and near-duplicates.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from labelled_rows import letters, measured_sentences

from erda.errors import DataError, ErdaError, require
from erda.files import data_folder, write_lines

PARTS, SHARE = (2, 3), 0.3  # parts of wiki-large, and the share of their sentences
SEED = 0
NEAR = 20  # tokens between the starts of the two phrases
COMMON, PROPER, MODIFIERS = {"NN", "NNS"}, {"NNP", "NNPS"}, {"JJ", "HYPH"}
WHOLE = 0.5  # probability that the adjectives before a noun are marked too
ONLY_COMMON = 0.5  # probability to draw among pairs of two common nouns alone, where there are any


class Phrase(NamedTuple):
    """Nouns in a row, perhaps with the adjectives before them."""

    start: int
    end: int
    is_common: bool  # the last noun is a common one


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


def phrases(tags: Sequence[str], draw: random.Random) -> list[Phrase]:
    """Phrases of a tagged sentence."""
    found, start = list[Phrase](), None
    for i, tag in enumerate([*tags, "."]):
        if tag in COMMON | PROPER | MODIFIERS:
            start = i if start is None else start
            continue
        if start is not None and tags[i - 1] in COMMON | PROPER:
            first = next((j + 1 for j in range(i - 1, start - 1, -1) if tags[j] in MODIFIERS), start)
            whole = draw.random() < WHOLE and tags[start] != "HYPH"
            found.append(Phrase(start if whole else first, i, tags[i - 1] in COMMON))
        start = None
    return found


def pair_in(tags: Sequence[str], draw: random.Random) -> tuple[Phrase, Phrase] | None:
    """Draw an ordered pair of phrases, at least one of them common; return None for a sentence without one."""
    found = phrases(tags, draw)
    near = [(a, b) for a in found for b in found if a is not b and abs(a.start - b.start) <= NEAR]
    pairs = [pair for pair in near if any(one.is_common for one in pair)]
    both = [pair for pair in pairs if all(one.is_common for one in pair)]
    if not pairs:
        return None
    return draw.choice(both if both and draw.random() < ONLY_COMMON else pairs)


def rows(texts: Sequence[tuple[str, ...]], tagged: Sequence[Sequence[str]]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield a row for each sentence that has a pair, and whether both nouns are common ones."""
    draw = random.Random(SEED)
    for tokens, tags in zip(texts, tagged, strict=True):
        if pair := pair_in(tags, draw):
            spans = [(one.start, one.end) for one in pair]
            head, tail = ({"name": " ".join(tokens[slice(*span)]), "id": None, "span": span} for span in spans)
            row = {"tokens": tokens, "head": head, "tail": tail, "relation": None, "source": "nouns"}
            yield row, all(one.is_common for one in pair)


def tags_of(tagger: Path, texts: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """Part-of-speech tags of sentences."""
    require("spacy")
    import spacy
    from spacy.tokens import Doc
    from tqdm import tqdm

    try:
        loaded = spacy.load(tagger, exclude=["parser", "ner", "lemmatizer", "senter", "attribute_ruler"])
    except (OSError, ValueError) as fault:
        raise DataError(f"{tagger}: no spaCy pipeline. Fetch one: erda data get entities ({fault})") from None
    docs = loaded.pipe((Doc(loaded.vocab, words=tokens) for tokens in texts), batch_size=256)
    return [[token.tag_ for token in doc] for doc in tqdm(docs, total=len(texts), desc="tagging", disable=None)]


def main() -> None:
    """Write the file and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tagger", type=Path, metavar="FOLDER", required=True, help="spaCy's en_core_web_md, unpacked")
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl.gz", required=True)
    args = parser.parse_args()
    measured, texts = measured_sentences(data_folder()), list(sentences())
    args.out.parent.mkdir(parents=True, exist_ok=True)
    found = [one for one in rows(texts, tags_of(args.tagger, texts)) if letters(one[0]["tokens"]) not in measured]
    write_lines(args.out, (json.dumps(row, ensure_ascii=False) for row, _ in found))
    print(f"{args.out}: {len(found):,} sentences, {sum(both for _, both in found):,} of them with two common nouns")


if __name__ == "__main__":
    try:
        main()
    except (ErdaError, OSError) as fault:
        raise SystemExit(str(fault)) from None
