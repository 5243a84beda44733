"""Tiny models with random weights and a tiny vocabulary, saved to a folder."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from erda.encoders import TransformerSettings
from erda.encoders.frozen import FrozenCache
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import ModelFolder, find_model
from erda.types import Entity, Example, Span

PLACES = ["paris", "france", "berlin", "germany"]
WORDS = ["the", "a", "of", "in", "was", "is", "born", "capital", "city", "king", "queen", "river", "marie", "curie"]
TEXTS = ["capital of", "born in the city", "river"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789é"


def vocabulary(special: list[str]) -> list[str]:
    pieces = [*special, "#", "@", "-", ".", ",", *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS, *PLACES]
    return list(dict.fromkeys(pieces))


def build_model(
    folder: Path, kind: str = "bert", *, seed: int = 0, n_layers: int = 3, dropout: float = 0.1, positions: int = 64
) -> ModelFolder:
    """Save a tiny model (`bert`, `roberta`, `mpnet`, `electra`) to a folder."""
    from transformers import CONFIG_MAPPING, AutoModel, BertTokenizer, MPNetTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    mpnet, bert = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"], ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = {piece: row for row, piece in enumerate(vocabulary(mpnet if kind == "mpnet" else bert))}
    tokenizer = (MPNetTokenizer if kind == "mpnet" else BertTokenizer)(vocab=vocab, model_max_length=positions)
    config = CONFIG_MAPPING[kind](
        vocab_size=len(vocab),
        hidden_size=16,
        num_hidden_layers=n_layers,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=positions + (0 if kind == "bert" else 2),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModel.from_config(config)
        for name, parameter in model.named_parameters():  # zero biases hide mistakes
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return find_model(folder)


def safetensors_bytes(values: bytes = b"\0" * 16) -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [len(values) // 4], "data_offsets": [0, len(values)]}}).encode()
    return struct.pack("<Q", len(header)) + header + values


def write_folder(folder: Path, *, values: bytes = b"\0" * 16) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "vocab.txt").write_text("[PAD]\n")
    (folder / "model.safetensors").write_bytes(safetensors_bytes(values))
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFolder]:
    """One tiny model of each architecture."""
    place = tmp_path_factory.mktemp("models")
    return {kind: build_model(place / kind, kind) for kind in ("bert", "roberta", "mpnet", "electra")}


@pytest.fixture
def bert(folders: dict[str, ModelFolder]) -> ModelFolder:
    """The tiny BERT."""
    return folders["bert"]


def sentence(text: str, head: tuple[int, int], tail: tuple[int, int], *, relation: str | None = None) -> Example:
    tokens = tuple(text.split(" "))

    def entity(span: tuple[int, int]) -> Entity:
        return Entity(" ".join(tokens[span[0] : span[1]]), Span(*span))

    return Example(tokens, entity(head), entity(tail), relation)


SENTENCES = [
    sentence("marie curie was born in paris", (0, 2), (5, 6)),
    sentence("paris is the capital of france", (0, 1), (5, 6)),
    sentence("the capital of germany is berlin", (5, 6), (3, 4)),
    sentence("a river in france", (1, 2), (3, 4)),
    sentence("the queen of france was born in berlin , a city in germany .", (1, 2), (7, 8)),
    sentence("berlin paris", (1, 2), (0, 1)),
]


def encoder_of(
    folder: ModelFolder, *, seed: int = 0, cache: FrozenCache | None = None, **settings: Any
) -> TransformerEncoder:
    """Build the encoder of a folder."""
    return TransformerEncoder(folder, TransformerSettings(**settings), seed=seed, cache=cache)


@st.composite
def marked_examples(draw: st.DrawFn, words: st.SearchStrategy[str], *, part_size: int = 4) -> Example:
    """A sentence of five parts; the second and the fourth are the mentions, in either order."""
    context, mention = (st.lists(words, min_size=size, max_size=part_size) for size in (0, 1))
    before, first, between, second, after = (draw(part) for part in (context, mention, context, mention, context))
    start = len(before) + len(first) + len(between)
    one = Entity(" ".join(first), Span(len(before), len(before) + len(first)), "id-one")
    two = Entity(" ".join(second), Span(start, start + len(second)))
    head, tail = (one, two) if draw(st.booleans()) else (two, one)
    name = draw(st.sampled_from(["a", "b"]))
    return Example((*before, *first, *between, *second, *after), head, tail, f"r-{name}", name, "here")
