"""Answers of an exported extractor. Needs onnxruntime, tokenizers, numpy and the files beside this one, nothing else.

python predict.py "[[SpaceX]] was set up in 2002 by {{Elon Musk}}."
python predict.py < sentences.txt > answers.jsonl

from predict import Predictor
Predictor("folder").predict(["[[SpaceX]] was set up in 2002 by {{Elon Musk}}."])
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

MARK = re.compile(r"\[\[|\]\](?!\])|\{\{|\}\}(?!\})")
ORDERS = (["[[", "]]", "{{", "}}"], ["{{", "}}", "[[", "]]"])
N_SPECIAL = 6  # [CLS], [SEP] and four marks
Place = tuple[int, int]


class Predictor:
    """What was exported into `folder`; several threads may ask it."""

    def __init__(self, folder: str | Path = Path(__file__).parent) -> None:
        folder = Path(folder)
        self.about = json.loads((folder / "encoder.json").read_bytes())
        self.known = json.loads((folder / "relations.json").read_bytes())
        for name, digest in {**self.about["sha256"], **self.known["sha256"]}.items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                raise ValueError(f"{folder / name} is damaged or was changed; export it again.")
        with np.load(folder / "scores.npz", allow_pickle=False) as file:
            self.scores_by = {name: file[name] for name in file.files}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # several sentences are run at once instead
        options.log_severity_level = 3
        path = str(folder / "model.onnx")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.encode_special_tokens = True  # `[SEP]` in a sentence is text
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.token = re.compile(self.known["token"])

    def predict(self, sentences: Iterable[str | Mapping[str, Any]], top: int = 5) -> list[dict[str, Any]]:
        """An answer for each sentence: text with marks, or a row with `tokens` or `text` and the spans of two entities.

        `relation` is the likeliest, or None where none is likely enough; `ranked` are the `top` likeliest.
        """
        scores = self.scores(sentences)
        confidences = self.confidences(scores)
        names = [relation["id"] for relation in self.known["relations"]]
        answers = []
        for row in confidences:
            order = np.argsort(-row, kind="stable")[:top]
            ranked = [{"relation": names[i], "confidence": round(float(row[i]), 4)} for i in order]
            best = ranked[0]["relation"] if row.sum() >= self.known["calibration"]["least_known"] else None
            answers.append({"relation": best, "confidence": ranked[0]["confidence"], "ranked": ranked})
        return answers

    def scores(self, sentences: Iterable[str | Mapping[str, Any]]) -> np.ndarray:
        """Log odds of each relation against one never seen: [n_sentences, n_relations]."""
        by = self.scores_by
        vectors = self.vectors(sentences)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        z = (vectors.astype(np.float64) - by["centre"]) @ by["basis"]
        never = self._log_likelihoods(z, "never_")
        other, centres = never[:, :1], never[:, 1:] / by["mixed_at"]
        if centres.shape[1]:
            highest = centres.max(axis=1, keepdims=True)
            mixed = highest + np.log(np.exp(centres - highest).mean(axis=1, keepdims=True))
            other = (other + by["mixed_at"] * mixed) / 2
        other = by["weight"] * other + (1 - by["weight"]) * by["typical"]
        found: np.ndarray = (self._log_likelihoods(z) - other) / by["temperature"]
        return found.astype(np.float32)

    def _log_likelihoods(self, z: np.ndarray, whose: str = "") -> np.ndarray:
        slope, precision, rest = (self.scores_by[f"{whose}{name}"] for name in ("slope", "precision", "rest"))
        found: np.ndarray = z @ slope - (np.square(z) @ precision + rest) / 2
        return found

    def confidences(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities of the relations, [n_sentences, n_relations]; what a row lacks of 1 is that of none of them."""
        by = self.known["calibration"]
        logits = scores.astype(np.float64) / by["temperature"]
        highest = logits.max(axis=1, keepdims=True)
        mean = highest + np.log(np.exp(logits - highest).mean(axis=1, keepdims=True))
        shares = np.exp((logits - highest) / by["width"])
        with np.errstate(over="ignore"):
            known = 1 / (1 + np.exp(by["none"] - mean / by["width"]))
        found: np.ndarray = known * shares / shares.sum(axis=1, keepdims=True)
        return found

    def vectors(self, sentences: Iterable[str | Mapping[str, Any]]) -> np.ndarray:
        """What the encoder makes of sentences: [n_sentences, dim]."""
        inputs = [self._pieces(*marked_tokens(sentence, self.token)) for sentence in sentences]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            rows = list(pool.map(lambda one: self.session.run(None, one)[0], inputs))
        return np.stack(rows) if rows else np.zeros((0, self.about["dim"]), dtype=np.float32)

    def _pieces(self, tokens: Sequence[str], head: Place, tail: Place) -> dict[str, np.ndarray]:
        """Piece ids from [CLS] to [SEP] with marks around both entities, and where the two start marks are."""
        ids, first_mark = self.about["special"], self.about["vocab_size"]
        clean = [[token.encode("utf-8", "replace").decode()] for token in tokens]
        read = self.tokenizer.encode_batch_fast(clean, is_pretokenized=True, add_special_tokens=False)
        words = [one.ids for one in read]
        one, two = sorted((head, tail))
        parts = [
            list(chain.from_iterable(words[start:end]))
            for start, end in ((0, one[0]), one, (one[1], two[0]), two, (two[1], len(words)))
        ]
        parts[1], parts[3] = parts[1] or [ids["unk"]], parts[3] or [ids["unk"]]
        before, first, between, second, after = cut(parts, self.about["max_pieces"] - N_SPECIAL)
        in_one, in_two = (first_mark, first_mark + 2) if head < tail else (first_mark + 2, first_mark)
        marked = [*before, in_one, *first, in_one + 1, *between, in_two, *second, in_two + 1, *after]
        starts = [1 + len(before), 3 + len(before) + len(first) + len(between)]
        pieces = np.array([ids["cls"], *marked, ids["sep"]], dtype=np.int32)
        return {"ids": pieces, "marks": np.array(starts if head < tail else starts[::-1])}


def cut(parts: list[list[int]], room: int) -> list[list[int]]:
    """Shorten (before, entity, between, entity, after) to `room` pieces: those nearest to either entity stay."""
    before, first, between, second, after = parts
    n_entity = len(first) + len(second)
    if sum(map(len, parts)) <= room:
        return parts
    if n_entity > room:
        n_first = min(len(first), max(room // 2, room - len(second)))
        return [[], first[:n_first], [], second[: room - n_first], []]
    places = [(len(before) - i, 0, one) for i, one in enumerate(before)]
    places += [(min(i + 1, len(between) - i), 1, one) for i, one in enumerate(between)]
    places += [(i + 1, 2, one) for i, one in enumerate(after)]
    kept = sorted(sorted(range(len(places)), key=lambda i: places[i][0])[: room - n_entity])
    context = [[places[i][2] for i in kept if places[i][1] == part] for part in range(3)]
    return [context[0], first, context[1], second, context[2]]


def marked_tokens(sentence: str | Mapping[str, Any], token: re.Pattern[str]) -> tuple[list[str], Place, Place]:
    """Tokens and the places of both entities among them; a ValueError where they are not marked."""
    if isinstance(sentence, Mapping) and "tokens" in sentence:
        tokens = list(sentence["tokens"])
        return _checked(tokens, tuple(sentence["head"]["span"]), tuple(sentence["tail"]["span"]), len(tokens))
    if isinstance(sentence, Mapping) and "head" in sentence:
        text, spans = sentence["text"], [tuple(sentence[role]["span"]) for role in ("head", "tail")]
    else:
        text = sentence if isinstance(sentence, str) else sentence["text"]
        text, *spans = _without_marks(text)
    _checked([], spans[0], spans[1], len(text))
    tokens, at = [], {0: 0}
    borders = sorted({0, len(text), *chain.from_iterable(spans)})
    for left, right in pairwise(borders):
        tokens += [found.group() for found in token.finditer(text, left, right)]
        at[right] = len(tokens)
    head, tail = ((at[start], at[end]) for start, end in spans)
    return _checked(tokens, head, tail, len(tokens))


def _without_marks(text: str) -> tuple[str, Place, Place]:
    found = list(MARK.finditer(text))
    if [mark.group() for mark in found] not in ORDERS:
        raise ValueError("put the first entity in [[ ]] and the second in {{ }}, once each.")
    a, b, c, d = (mark.start() - 2 * number for number, mark in enumerate(found))
    one, two = (a, b), (c, d)
    head, tail = (one, two) if found[0].group() == "[[" else (two, one)
    return MARK.sub("", text), head, tail


def _checked(tokens: list[str], head: Any, tail: Any, length: int) -> tuple[list[str], Place, Place]:
    one, two = sorted((head, tail))
    if not (0 <= one[0] < one[1] <= two[0] < two[1] <= length):
        raise ValueError(f"{head} and {tail} are not two separate stretches of the sentence, each with a word.")
    return tokens, head, tail


def main(arguments: Sequence[str]) -> int:
    """Answer the sentences given, or those of standard input, one a line; an answer is a line of JSON."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    try:
        predictor = Predictor()
    except (ValueError, OSError) as fault:
        print(fault, file=sys.stderr)
        return 2
    status = 0
    for given in arguments or sys.stdin.buffer:
        try:
            text = given if isinstance(given, str) else given.decode().rstrip("\r\n")
            sentence = json.loads(text) if text.startswith("{") and not text.startswith("{{") else text
            answer = predictor.predict([sentence])[0]
        except (ValueError, KeyError, TypeError) as fault:
            answer, status = {"error": str(fault)}, 2
        print(json.dumps(answer, ensure_ascii=False), flush=True)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read the answers has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
