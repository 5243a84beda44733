"""Make the statistics of unlabelled pairs of an encoder (`erda.encoders.contract`) from Wikipedia sentences.

Pairs are all ordered pairs of tagged entities of sentences of `corpus/wiki-large`, minus every sentence that also
stands in redoc41 or in the documents of the open-text benchmark. Nothing annotated is read: the confusions of types are
counted over names that the tagger saw in several sentences.

python tools/build_unlabelled.py --tagger FOLDER --tag-only FILE.json.gz    the pairs, for a machine without spaCy
python tools/build_unlabelled.py --pairs FILE.json.gz --encoder mpnet --adapter FOLDER --device cuda
python tools/build_unlabelled.py --pairs FILE.json.gz --encoder open --keep FILE.npz    also keep the vectors

`tools/build_encoder.py` calls it for the encoder `open`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from erda.data.catalogue import load_dataset
from erda.encoders import build_encoder
from erda.encoders.contract import UNLABELLED, Encoder, Unlabelled, save_unlabelled, unit_rows
from erda.encoders.onnx_encoder import packaged_folder
from erda.files import data_folder, decode_json, read_bytes, write_lines
from erda.text.keys import entity_key
from erda.text.spacy_tagger import UNUSED, SpacyTagger, Tag
from erda.types import Entity, Example, Span

N_PAIRS, N_SAMPLE = 12_000, 4_000
ROWS, SHARE = 120_000, 0.03  # rows read of each part of wiki-large, and the share of them kept
N_CENTRES = 600
LEAST = 0.5  # added to each count of confused types


def letters(tokens: Sequence[str]) -> str:
    """Return the letters and digits of a sentence, to find equal sentences."""
    return "".join(character for character in " ".join(tokens).lower() if character.isalnum())


def sentences() -> Iterator[tuple[str, ...]]:
    """Sentences of wiki-large that stand in no benchmark, each once."""
    with gzip.open(data_folder() / "corpus/redocred-dev.json.gz", "rt", encoding="utf-8") as file:
        seen = {letters(sentence) for document in json.load(file) for sentence in document["sents"]}
    redoc41 = load_dataset("redoc41")
    seen |= {letters(one.tokens) for one in (*redoc41.train, *redoc41.unrelated)}
    draw = random.Random(0)
    for part in range(4):
        with gzip.open(data_folder() / f"corpus/wiki-large-{part}.jsonl.gz", "rt", encoding="utf-8") as file:
            for _, line in zip(range(ROWS), file, strict=False):
                if draw.random() < SHARE:
                    tokens = tuple(json.loads(line)["tokens"])
                    if 5 <= len(tokens) <= 80 and letters(tokens) not in seen:
                        seen.add(letters(tokens))
                        yield tokens


def confusions(texts: Sequence[Sequence[str]], tagged: Sequence[Sequence[Tag]], names: Sequence[str]) -> np.ndarray:
    """Distribution of the type of another mention of a name, given the type of one: [1 + n_types, 1 + n_types]."""
    of_name: dict[str, Counter[str]] = defaultdict(Counter)
    for tokens, tags in zip(texts, tagged, strict=True):
        for tag in tags:
            of_name[entity_key(" ".join(tokens[tag.start : tag.end]), None)][tag.type] += 1
    number = {name: 1 + i for i, name in enumerate(names)}
    counts = np.zeros((1 + len(names), 1 + len(names)))
    for types in of_name.values():
        total = sum(types.values())
        for one, n in types.items():
            for other, m in types.items():
                counts[number[one], number[other]] += n * (m - (one == other)) / max(total - 1, 1)
    counts[1:, 1:] += LEAST * np.eye(len(names))
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-9))


def pairs_of(texts: Sequence[tuple[str, ...]], tagged: Sequence[Sequence[Tag]]) -> list[Example]:
    """Draw ordered pairs of tagged entities."""
    pairs = [
        Example(text, _entity(text, head), _entity(text, tail))
        for text, tags in zip(texts, tagged, strict=True)
        for head in tags
        for tail in tags
        if head is not tail
    ]
    random.Random(0).shuffle(pairs)
    return pairs[:N_PAIRS]


def _entity(tokens: Sequence[str], tag: Tag) -> Entity:
    return Entity(" ".join(tokens[tag.start : tag.end]), Span(tag.start, tag.end), type=tag.type)


def statistics(
    pairs: Sequence[Example], vectors: np.ndarray, names: Sequence[str], *, smooth: np.ndarray
) -> Unlabelled:
    """Moments and cluster centres of all pairs, and a sample of them."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    centred = vectors - mean
    variances, axes = np.linalg.eigh(centred.T @ centred / len(vectors))
    some = pairs[:N_SAMPLE]
    return Unlabelled(
        mean,
        axes,
        np.maximum(variances, 0),
        vectors[:N_SAMPLE],
        np.array([[1 + names.index(str(e.type)) for e in (one.head, one.tail)] for one in some]),
        np.array([[one.head.span.start, one.tail.span.start] for one in some]),
        tuple(names),
        smooth,
        centres_of(vectors, N_CENTRES),
    )


def centres_of(vectors: np.ndarray, n: int, *, seed: int = 0, n_rounds: int = 20) -> np.ndarray:
    """K-means centres of `vectors`: [min(n, n_vectors), dim]."""
    centres = vectors[np.random.default_rng(seed).permutation(len(vectors))[:n]]
    for _ in range(n_rounds):
        nearest = (vectors @ centres.T - np.square(centres).sum(axis=1) / 2).argmax(axis=1)
        counts = np.bincount(nearest, minlength=len(centres))[:, None]
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, vectors)
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
    return np.asarray(centres)


@dataclass(frozen=True, slots=True)
class TaggedPairs:
    """Everything that needs the tagger: pairs as [sentence, head start, head end, head type, tail ...]."""

    sentences: list[list[str]]
    pairs: list[list[int]]  # types are numbers of `type_names`
    type_names: list[str]
    smoothing: list[list[float]]

    @classmethod
    def of(cls, tagger: Path) -> TaggedPairs:
        """Tag the sentences and draw the pairs."""
        import spacy

        texts = list(sentences())
        tagged = SpacyTagger(spacy.load(tagger, exclude=[*UNUSED, "senter"])).tokens(texts)
        names = sorted({tag.type for tags in tagged for tag in tags})
        drawn = pairs_of(texts, tagged)
        used = {text: row for row, text in enumerate(dict.fromkeys(one.tokens for one in drawn))}
        ends = [
            (one.tokens, [(e.span.start, e.span.end, names.index(str(e.type))) for e in (one.head, one.tail)])
            for one in drawn
        ]
        rows = [[used[tokens], *head, *tail] for tokens, (head, tail) in ends]
        return cls([list(text) for text in used], rows, names, confusions(texts, tagged, names).tolist())

    @classmethod
    def read(cls, path: Path) -> TaggedPairs:
        """Read the file of `--tag-only`."""
        return decode_json(gzip.decompress(read_bytes(path)), cls, place=str(path))

    def examples(self) -> list[Example]:
        """The first `N_PAIRS` pairs, with types."""
        texts = [tuple(one) for one in self.sentences]
        return [
            Example(
                texts[text], *(_entity(texts[text], Tag(a, b, self.type_names[c])) for a, b, c in (end[:3], end[3:]))
            )
            for text, *end in self.pairs[:N_PAIRS]
        ]


def write_statistics(
    encoder: Encoder, tagged: TaggedPairs, out: Path, *, vectors: np.ndarray | None = None
) -> np.ndarray:
    """Write `unlabelled.npz` of an encoder into a folder; return the vectors of the pairs."""
    pairs = tagged.examples()
    vectors = unit_rows(encoder.embed(pairs) if vectors is None else vectors.astype(np.float32))
    if len(vectors) != len(pairs):
        raise SystemExit(f"Expected the vectors of {len(pairs)} pairs, got {len(vectors)}.")
    made = statistics(pairs, vectors, tagged.type_names, smooth=np.array(tagged.smoothing))
    save_unlabelled(out, made, encoder.spec.fingerprint)
    return vectors


def _encoder(options: argparse.Namespace) -> Encoder:
    settings: dict[str, Any] = {} if options.encoder.startswith("open") else {"trained_layers": 0}
    if options.adapter:
        from erda.encoders.adapter import TrainedWeights

        settings |= {"adapter": options.adapter, "mode": TrainedWeights.load(options.adapter).mode}
    return build_encoder(options.encoder, device=options.device, **settings)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--tagger", type=Path, help="folder of a spaCy pipeline (erda data get entities)")
    source.add_argument("--pairs", type=Path, help="pairs that --tag-only wrote")
    parser.add_argument("--tag-only", type=Path, metavar="FILE", help="write the pairs to this file and stop")
    parser.add_argument("--encoder", default="open", help="name or folder of a model (default: open)")
    parser.add_argument("--adapter", default="", help="folder of an adapter (default: the shipped one)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="folder (default: that of the adapter, or of the encoder)")
    parser.add_argument("--keep", type=Path, help="also write the vectors of all pairs to this file")
    parser.add_argument("--vectors", type=Path, help="read the vectors of all pairs from this file")
    options = parser.parse_args()
    tagged = TaggedPairs.read(options.pairs) if options.pairs else TaggedPairs.of(options.tagger)
    if options.tag_only:
        write_lines(options.tag_only, [json.dumps(asdict(tagged))])
        return
    out = options.out or Path(options.adapter or packaged_folder(options.encoder))
    given = np.load(options.vectors)["vectors"] if options.vectors else None
    made = write_statistics(_encoder(options), tagged, out, vectors=given)
    if options.keep:
        np.savez(options.keep, vectors=made.astype(np.float16))
    print(f"{UNLABELLED} sha256 {hashlib.sha256((out / UNLABELLED).read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
