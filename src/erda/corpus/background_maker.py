"""Make the background of trained weights (`erda.encoders.contract`) from tagged sentences."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from erda.corpus.similarity import load_similarity
from erda.corpus.training_pairs import tagged_rows
from erda.encoders.contract import centres_of, save_background
from erda.encoders.weights import MODELS, SHIPPED, adapter_folder
from erda.errors import DataError, ModelError
from erda.files import user_path
from erda.types import Example

N_CENTRES = 600  # under a megabyte in half precision
N_SENTENCES = 6000


def make_background(
    model: str, sources: Sequence[Path], *, n_sentences: int = N_SENTENCES, seed: int = 0, device: str = "cpu"
) -> Path:
    """Write the background of trained weights: of a folder, or of the packaged `minilm` or `mpnet`."""
    sentences = drawn_from(sources, n_sentences, seed)
    folder = adapter_folder(SHIPPED, base=model) if model in MODELS else user_path(model)
    similarity = load_similarity(folder, device=device)
    if similarity.weights is None:
        raise ModelError(f"{model}: not a folder of trained weights; make one with 'erda corpus train'.")
    vectors = similarity.encode(sentences)
    return save_background(folder, centres_of(vectors, N_CENTRES, seed=seed), similarity.fingerprint)


def drawn_from(sources: Sequence[Path], n: int, seed: int) -> list[Example]:
    """Draw `n` sentences uniformly from all files (reservoir sampling)."""
    generator, drawn = random.Random(seed), list[Example]()
    for seen, example in enumerate(chain.from_iterable(map(tagged_rows, sources))):
        place = seen if seen < n else generator.randrange(seen + 1)
        if place < len(drawn):
            drawn[place] = example
        elif place < n:
            drawn.append(example)
    if not drawn:
        raise DataError(f"{', '.join(map(str, sources))}: no sentences.")
    return drawn
