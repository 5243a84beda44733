"""Run an exported extractor. Needs only onnxruntime, tokenizers, numpy and the files beside it.

python predict.py "[[SpaceX]] was set up in 2002 by {{Elon Musk}}."
python predict.py < sentences.txt > answers.jsonl

from predict import Predictor
Predictor("folder").predict(["[[SpaceX]] was set up in 2002 by {{Elon Musk}}."])
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else ONNX Runtime reports its use to its maker
import onnxruntime

from erda.app.calibration import Calibration, Scored
from erda.encoders.tokens import MarkedTokenizer, Pieces, graph_inputs
from erda.errors import ErdaError
from erda.methods.expected import Fitted
from erda.methods.open_head import OpenHead, Pairs, type_numbers
from erda.text.marks import Mark, example_from_marks, example_from_text
from erda.text.sentences import words_before
from erda.types import Entity, Example, Span


class Predictor:
    """The exported extractor in `folder`; threads can share it."""

    def __init__(self, folder: str | Path = Path(__file__).parents[1]) -> None:
        folder = Path(folder)
        self.about = json.loads((folder / "encoder.json").read_bytes())
        self.known = json.loads((folder / "relations.json").read_bytes())
        for name, digest in {**self.about["sha256"], **self.known["sha256"]}.items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                raise ValueError(f"{folder / name} is damaged or was changed; export it again.")
        with np.load(folder / "scores.npz", allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        self.fitted = Fitted.from_arrays(arrays)
        self.head = OpenHead.from_arrays(arrays) if OpenHead.is_in(arrays) else None
        self.calibration = Calibration(**self.known["calibration"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # several sentences run at once instead
        options.log_severity_level = 3
        path = str(folder / "model.onnx")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.tokenizer = MarkedTokenizer.from_json(
            (folder / "tokenizer.json").read_text(encoding="utf-8"),
            special=self.about["special"],
            mode=self.about["mode"],
            vocab_size=self.about["vocab_size"],
            limit=self.about["max_pieces"],
        )

    def predict(self, sentences: Iterable[str | Mapping[str, Any]], top: int = 5) -> list[dict[str, Any]]:
        """Answer each sentence: text with marks, or a row with `tokens` or `text` and the spans of two entities.

        `relation` is the likeliest, or None if none is likely enough; `ranked` holds the `top` likeliest.
        """
        examples = [read_sentence(sentence) for sentence in sentences]
        names = [relation["id"] for relation in self.known["relations"]]
        vectors = self._embed(examples)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        scores = self.fitted.scores(vectors).astype(np.float32)
        confidences = self._confidences(scores, vectors, examples)
        found = Scored(names, scores, confidences, self.known["least"]).settled(examples, self.known["judged"])
        answers = []
        for row, columns, holds in zip(found.confidences, found.ranks.tolist(), found.holds(), strict=True):
            held, likely = [i for i in columns if holds[i]], columns[:top]
            places = [*likely, *(i for i in held if i not in likely)]
            ranked = [{"relation": names[i], "confidence": round(float(row[i]), 4)} for i in places]
            several = {"relations": [names[i] for i in held]} if len(held) > 1 else {}
            first = held[0] if held else likely[0]
            answer = {"relation": names[first] if held else None, **several}
            answers.append({**answer, "confidence": round(float(row[first]), 4), "ranked": ranked})
        return answers

    def _confidences(self, scores: np.ndarray, vectors: np.ndarray, examples: Sequence[Example]) -> np.ndarray:
        if self.head is None:
            return self.calibration.confidences(scores)
        places = np.array([words_before(one) for one in examples]).reshape(-1, 2)
        types = type_numbers([(one.head.type, one.tail.type) for one in examples], self.head.type_names)
        return self.head.marked_confidences(scores, Pairs(vectors, types, places))

    def _embed(self, examples: Sequence[Example]) -> np.ndarray:
        pieces = self.tokenizer.encode(examples)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            rows = list(pool.map(self._vector, pieces))
        return np.stack(rows) if rows else np.zeros((0, self.about["dim"]), dtype=np.float32)

    def _vector(self, pieces: Pieces) -> np.ndarray:
        found: np.ndarray = self.session.run(None, graph_inputs([pieces], self.about["mode"]))[0]
        return found.reshape(-1)


def read_sentence(sentence: str | Mapping[str, Any]) -> Example:
    """Read a sentence with two entities; raise ValueError if it is invalid."""
    try:
        if isinstance(sentence, str):
            return example_from_marks(sentence)
        if "tokens" in sentence:
            tokens = tuple(sentence["tokens"])
            spans = [Span(*sentence[role]["span"]) for role in ("head", "tail")]
            head, tail = (Entity(" ".join(tokens[one.start : one.end]) or "?", one) for one in spans)
            return Example(tokens, head, tail)
        if "head" in sentence:
            head_mark, tail_mark = (Mark(*sentence[role]["span"]) for role in ("head", "tail"))
            return example_from_text(sentence["text"], head_mark, tail_mark)
        return example_from_marks(sentence["text"])
    except ErdaError as fault:
        raise ValueError(str(fault)) from None


def main(arguments: Sequence[str]) -> int:
    """Answer the sentences of the arguments or of standard input, one per line, as lines of JSON."""
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


def run() -> int:
    """Run as a command; return the exit status."""
    try:
        return main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the answers has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
