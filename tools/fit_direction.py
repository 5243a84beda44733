"""Fit the threshold of the warning about reversed examples, and measure it: python tools/fit_direction.py FILE.

FILE is a file of examples with relations, such as fewrel/validation.jsonl.gz. The threshold is the first percentile of
the scores of right examples of one half of the relations; the other half measures how many right and how many
reversed examples it reports, given n taught ones.
"""

import argparse
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from erda.app.teach import REVERSED, direction_scores, exchanged
from erda.data.own_data import read_examples
from erda.encoders import build_encoder
from erda.encoders.contract import Encoder
from erda.types import Example, pair_in_sentence

COUNTS, N_DRAWS, SHARE = (1, 2, 4, 9), 20, 0.01


class Cached:
    """An encoder that embeds each example once."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.vectors = encoder, dict[object, np.ndarray]()

    def embed(self, examples: Sequence[Example]) -> np.ndarray:
        """Embed new examples; return the vectors of all."""
        new = {key: one for one in examples if (key := pair_in_sentence(one)) not in self.vectors}
        if new:
            self.vectors |= dict(zip(new, self.encoder.embed(list(new.values())), strict=True))
        return np.stack([self.vectors[pair_in_sentence(one)] for one in examples])


def main() -> None:
    """Print the fitted threshold and the rates of the present one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--relations", type=int, default=80, metavar="N", help="relations to draw (default: 80)")
    options = parser.parse_args()
    encoder = Cached(build_encoder("open"))
    generator = np.random.default_rng(0)
    examples = sorted(read_examples(options.file).examples, key=lambda one: str(one.relation))
    groups = [list(own) for _, own in groupby(examples, key=lambda one: one.relation)]
    order = generator.permutation(len(groups))[: options.relations]
    scores = {(half, n, turned): list[float]() for half in (0, 1) for n in COUNTS for turned in (False, True)}
    for place, number in enumerate(order):
        for n in COUNTS:
            for _ in range(N_DRAWS):
                drawn = [groups[number][i] for i in generator.choice(len(groups[number]), n + 1, replace=False)]
                for turned in (False, True):
                    last = exchanged(drawn[-1]) if turned else drawn[-1]
                    scores[place % 2, n, turned].append(direction_scores([*drawn[:-1], last], encoder)[-1])
    fitted = np.quantile(np.concatenate([scores[0, n, False] for n in COUNTS]), SHARE)
    print(f"fitted threshold: {fitted:.3f} (present: {REVERSED})")
    for n in COUNTS:
        rates = [100 * np.mean(np.array(scores[1, n, turned]) < REVERSED) for turned in (False, True)]
        print(f"{n} taught: {rates[0]:.1f} % of right and {rates[1]:.1f} % of reversed examples are reported")


if __name__ == "__main__":
    main()
