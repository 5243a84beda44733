"""Draw sentences of wiki-large evenly over its topics, to distil an encoder.

python tools/topic_sentences.py --tagger FOLDER --out topics.jsonl.gz

Sport and places fill wiki-large; medicine and chemistry are rare. K-means over weighted means of word vectors makes
1,000 topics, and at most 520 sentences are drawn from each. A sentence gets a pair with a common noun (`noun_pairs.py`)
with probability 0.6, if it has one; otherwise it keeps its two names. Measured sentences
(`labelled_rows.measured_sentences`) are left out afterwards; `erda corpus pairs --exclude` leaves out those of the
benchmark and near-duplicates. Seeds are fixed, but rounding can move sentences between topics on another machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from labelled_rows import letters, measured_sentences
from noun_pairs import SEED, pair_in, tags_of

from erda.encoders.weights import find_model
from erda.errors import ErdaError, require
from erda.files import data_folder, write_lines

N_PARTS, N_TOPICS = 4, 1000
MAX_PER_TOPIC = 520  # sentences
NOUN_SHARE = 0.6  # probability that a pair with a common noun is sought in a sentence
SMOOTH = 1e-4  # a word's weight is SMOOTH / (SMOOTH + share of the sentences that have it)
N_DIMENSIONS = 96  # principal components of a sentence vector; the first component is dropped
N_ROUNDS = 12  # of k-means


def rows() -> Iterator[dict[str, Any]]:
    """Rows of wiki-large that have 6 to 60 tokens, each sentence once."""
    seen = set[tuple[str, ...]]()
    for part in range(N_PARTS):
        with gzip.open(data_folder() / f"corpus/wiki-large-{part}.jsonl.gz", "rt", encoding="utf-8") as file:
            for row in map(json.loads, file):
                tokens = tuple(row["tokens"])
                if 6 <= len(tokens) <= 60 and tokens not in seen:
                    seen.add(tokens)
                    yield row


def sentence_vectors(texts: list[list[str]]) -> np.ndarray:
    """Means of MiniLM's word vectors, weighted by rarity, as unit vectors: [n, N_DIMENSIONS]."""
    from safetensors.numpy import load_file
    from scipy.sparse import csr_matrix

    folder = find_model("minilm").path
    words = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"].astype(np.float32)
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    place = {word: row for row, word in enumerate(vocabulary) if word.isalpha() and len(word) > 2}
    found = [sorted({place[word] for word in map(str.lower, text) if word in place}) for text in texts]
    ends = np.cumsum([0, *map(len, found)])
    columns = np.concatenate([np.array(one, int) for one in found])
    counts = csr_matrix((np.ones(len(columns), np.float32), columns, ends), shape=(len(texts), len(words)))
    frequency = np.bincount(columns, minlength=len(words)) / len(texts)
    weight = np.where(frequency > 0, SMOOTH / (SMOOTH + frequency), 0)
    vectors = (counts @ (weight[:, None] * words)) / np.maximum(counts @ weight, 1e-6)[:, None]
    vectors -= vectors.mean(axis=0)
    components = np.linalg.svd(vectors[::50], full_matrices=False)[2][1 : 1 + N_DIMENSIONS]
    vectors = vectors @ components.T
    return np.asarray(vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9), np.float32)


def topics(vectors: np.ndarray) -> np.ndarray:
    """Number of each sentence's topic: [n]."""
    import faiss

    clusters = faiss.Kmeans(
        vectors.shape[1], N_TOPICS, niter=N_ROUNDS, seed=SEED, max_points_per_centroid=150, spherical=True
    )
    clusters.train(vectors)
    found: np.ndarray = clusters.index.search(vectors, 1)[1][:, 0]
    return found


def drawn(topic: np.ndarray) -> np.ndarray:
    """Random rows of each topic, topic by topic."""
    mixed = np.random.default_rng(SEED).permutation(len(topic))
    order = mixed[np.argsort(topic[mixed], kind="stable")]
    counts = np.bincount(topic)
    nth = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[nth < MAX_PER_TOPIC]


def main() -> None:
    """Write the file and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tagger", type=Path, metavar="FOLDER", required=True, help="spaCy's en_core_web_md, unpacked")
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl.gz", required=True)
    args = parser.parse_args()
    require("faiss", "scipy", "spacy")
    tags_of(args.tagger, [])  # reject an invalid tagger before the clustering
    measured, sentences = measured_sentences(data_folder()), list(rows())
    kept = [sentences[row] for row in drawn(topics(sentence_vectors([one["tokens"] for one in sentences])))]
    kept = [row | {"relation": None} for row in kept if letters(row["tokens"]) not in measured]
    draw = random.Random(SEED)
    sought = [row for row in kept if draw.random() < NOUN_SHARE]
    texts, n_nouns = [tuple(row["tokens"]) for row in sought], 0
    for row, tokens, tags in zip(sought, texts, tags_of(args.tagger, texts), strict=True):
        if pair := pair_in(tags, draw):
            n_nouns += 1
            for side, phrase in zip(("head", "tail"), pair, strict=True):
                span = [phrase.start, phrase.end]
                row[side] = {"name": " ".join(tokens[slice(*span)]), "id": None, "span": span}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_lines(args.out, (json.dumps(row, ensure_ascii=False) for row in kept))
    print(f"{args.out}: {len(kept):,} sentences, {n_nouns:,} of them with a common noun")


if __name__ == "__main__":
    try:
        main()
    except (ErdaError, OSError) as fault:
        raise SystemExit(str(fault)) from None
