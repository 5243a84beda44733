"""Difficulty of the embedded dataset for a method that only counts words.

Streams have eight tasks, with 100 examples per relation of the first and 5 per relation of the others. The classifier
(TF-IDF vectors, nearest centroid) keeps all training examples, so it cannot forget; accuracy is `all-seen`.

python research/atlas.py
python research/atlas.py --seeds 100,110
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import mean, stdev

from erda.data.catalogue import default_seeds, open_stream
from erda.data.streams import TaskStream


def tfidf_accuracy(stream: TaskStream) -> list[float]:
    """`all-seen` accuracy after each task of the nearest (cosine) mean of TF-IDF vectors."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    accuracy = []
    for n_tasks in range(1, len(stream) + 1):
        train = [example for k in range(n_tasks) for example in stream[k].examples]
        tests = [stream.test(k) for k in range(n_tasks)]
        vectorizer = TfidfVectorizer(analyzer=lambda tokens: [token.lower() for token in tokens], sublinear_tf=True)
        vectors = vectorizer.fit_transform([example.tokens for example in train])
        relations = sorted({str(example.relation) for example in train})
        rows = np.array([relations.index(str(example.relation)) for example in train])
        centroids = np.stack([np.asarray(vectors[rows == j].mean(axis=0)).ravel() for j in range(len(relations))])
        centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
        questions = vectorizer.transform([example.tokens for test in tests for example in test.examples])
        best = np.asarray(questions @ centroids.T).argmax(axis=1)
        gold = [answer for test in tests for answer in test.gold]
        accuracy.append(mean(relations[j] == answer for j, answer in zip(best, gold, strict=True)))
    return accuracy


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(int(seed) for seed in text.split(","))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the accuracy after each task for each seed, and the final mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    seeds_help = "seeds of the streams (default: 100,110,..,150)"
    parser.add_argument("--seeds", type=_seeds, default=default_seeds(), metavar="N,N", help=seeds_help)
    seeds = parser.parse_args(arguments).seeds
    last = []
    for seed in seeds:
        accuracy = tfidf_accuracy(open_stream("atlas", seed=seed))
        last.append(accuracy[-1])
        print(f"seed {seed}: " + " ".join(f"{100 * value:5.1f}" for value in accuracy))
    spread = f" (standard deviation {100 * stdev(last):.1f}, {len(last)} seeds)" if len(last) > 1 else ""
    print(f"TF-IDF nearest centroid after the last task: {100 * mean(last):.1f} % all-seen{spread}")


if __name__ == "__main__":
    main()
