"""Run an exported extractor. Needs only onnxruntime, tokenizers, numpy and the files beside it.

python predict.py "[[SpaceX]] was set up in 2002 by {{Elon Musk}}."
python predict.py < sentences.txt > answers.jsonl
python predict.py --extract news.txt > found.jsonl    # plain text, one per line; without a file: standard input

from predict import Predictor
Predictor("folder").predict(["[[SpaceX]] was set up in 2002 by {{Elon Musk}}."])
Predictor("folder").extract("SpaceX was set up in 2002 by Elon Musk.").found
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from erda.answers import Answer, Extraction
from erda.app.calibration import Calibration, Scored
from erda.app.questions import CAPITALS, PairQuestions, Tagged, rows_of_line
from erda.encoders.tokens import MarkedTokenizer, graph_inputs, open_session, shared_runs
from erda.errors import ErdaError
from erda.methods.expected import Fitted
from erda.methods.open_head import OpenHead
from erda.text.marks import Mark, check_text, example_from_marks, example_from_text
from erda.text.names import CapitalisedTagger, NameTagger
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
        self.tagger = CapitalisedTagger(NameTagger(self.known["names"]))
        self.session = open_session((folder / "model.onnx").read_bytes())
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
        return [one.to_json() for one in self._answers([read_sentence(one) for one in sentences], top=top)]

    def extract(self, text: str, top: int = 5) -> Extraction:
        """Find the relations between all entities of a text that share a sentence; raise ValueError if it is invalid.

        Entities are the names in taught examples and runs of capitalised words. `found` holds the pairs with a
        relation, `answers` all pairs.
        """
        try:
            check_text(text, most=None)
            asked = PairQuestions.of(text, Tagged(tuple(self.tagger(text)), CAPITALS))
        except ErdaError as fault:
            raise ValueError(str(fault)) from None
        return asked.answered(self._answers(asked.examples, [one.tokens for one in asked.examples], top=top))

    def _answers(
        self, questions: Sequence[Example], sentences: Sequence[Hashable] | None = None, *, top: int
    ) -> list[Answer]:
        """Answer pairs that a person marked, or all pairs of some `sentences`."""
        if not questions:
            return []
        vectors = self._embed(questions)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        scores = self.fitted.scores(vectors).astype(np.float32)
        if self.head:
            confidences = self.head.confidences(scores, vectors, questions, sentences)
        else:
            confidences = self.calibration.confidences(scores)
        names = [relation["id"] for relation in self.known["relations"]]
        least = self.known["least" if sentences is None else "least_in_text"]
        found = Scored(names, scores, confidences, least).settled(questions, self.known["judged"])
        return found.answers(questions, top=top)

    def _embed(self, examples: Sequence[Example]) -> np.ndarray:
        pieces = self.tokenizer.encode(examples)
        vectors, runs = np.empty((len(pieces), self.about["dim"]), dtype=np.float32), shared_runs(pieces)

        def run(rows: list[int]) -> None:
            found: np.ndarray = self.session.run(None, graph_inputs([pieces[row] for row in rows]))[0]
            vectors[rows] = found.reshape(len(rows), -1)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(run, runs))
        return vectors


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
    """Answer the sentences of the arguments or of standard input, one per line, or texts; print lines of JSON."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    extracts, file = arguments[:1] == ["--extract"], Path(*arguments[1:2])
    try:
        predictor = Predictor()
        if not extracts or not arguments[1:]:
            return print_answers(predictor, sys.stdin.buffer if extracts else arguments or sys.stdin.buffer, extracts)
        with file.open("rb") as lines:
            return print_answers(predictor, lines, extracts)
    except BrokenPipeError:
        raise
    except OSError as fault:
        if fault.filename is None:
            said = f"cannot write the answers ({fault.strerror}); write them to another disk."
        elif fault.filename == str(file):
            said = f"{file}: cannot be read ({fault.strerror}); name a text file, or pipe one in: --extract < FILE"
        else:
            said = f"{fault.filename}: cannot be read ({fault.strerror}); export the extractor again."
        print(f"predict.py: {said}", file=sys.stderr)
    except (ValueError, ErdaError) as fault:
        print(f"predict.py: {fault}", file=sys.stderr)
    return 2


def print_answers(predictor: Predictor, lines: Iterable[str | bytes], extracts: bool) -> int:
    """Print the answers about marked sentences, or the relations found in texts; return the exit status."""
    n_rows = status = 0
    for line, one in enumerate(lines, 1):
        rows, place = list[dict[str, Any]](), {"id": None, "line": line} if extracts else {}
        try:
            text = one if isinstance(one, str) else one.decode("utf-8-sig" if line == 1 else "utf-8").rstrip("\r\n")
            if not extracts:
                sentence = json.loads(text) if text.startswith("{") and not text.startswith("{{") else text
                rows = predictor.predict([sentence])
            elif text.strip():
                rows = [*rows_of_line(place, text, predictor.extract(text, top=1))]
        except (ValueError, KeyError, TypeError) as fault:
            rows, status = [{**place, "error": str(fault)}], 2
        n_rows += len(rows)
        for row in rows:
            print(json.dumps(row, ensure_ascii=False), flush=True)
    if extracts and not n_rows:
        print("No relation was found.", file=sys.stderr)
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
