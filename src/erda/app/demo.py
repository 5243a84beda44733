"""The last part of the demo: teach an extractor four relations, ask it, teach a fifth, and ask again (`demo.toml`)."""

from __future__ import annotations

import shlex
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from erda.app.extractor import Extractor

Questions = Mapping[str, Sequence[str]]
_PARTS = tomllib.loads(Path(__file__).with_name("demo.toml").read_text(encoding="utf-8"))
LESSONS: Questions = _PARTS["lessons"]
FIFTH: Questions = _PARTS["fifth"]
QUESTIONS: Questions = _PARTS["questions"]
LAST_QUESTIONS: Questions = _PARTS["last_questions"]


def demonstrate(folder: Path, *, show: Callable[[str], None], program: str = "erda") -> None:
    """Teach and ask an extractor in a folder, and show its answers; an existing extractor is reset first.

    `program` is how the user calls the command.
    """
    extractor = Extractor.open(folder)
    if extractor.history():
        extractor.rollback(extractor.history()[0].number)
    show("An extractor of your own learns four relations, from five sentences each:")
    extractor.teach_many(LESSONS)
    for relation, sentences in LESSONS.items():
        show(f"  {relation:<11} {sentences[0]}")
    show("It answers questions about new sentences:")
    before = _ask(extractor, QUESTIONS, show)
    start = time.perf_counter()
    extractor.teach_many(FIFTH)
    show(f"A fifth relation, 'born in', is added by five more; that takes {time.perf_counter() - start:.1f} seconds.")
    new = _ask(extractor, LAST_QUESTIONS, show)
    after = _ask(extractor, QUESTIONS)
    n, n_new = sum(map(len, QUESTIONS.values())), sum(map(len, LAST_QUESTIONS.values()))
    kept = f"{before} of {n} before, {after} of {n} after"
    show(f"Correct relation ranked first: {kept} for the first four relations; {new} of {n_new} for the fifth.")
    show("A question mark means that the confidence is too low; the answer is then 'none'.")
    show("Ask it yourself:")
    question = "[[The Long Field]] is a story by {{Jane Marsh}}."
    show(f"  echo {shlex.quote(question)} | {program} predict --store {shlex.quote(str(folder))}")


def _ask(extractor: Extractor, questions: Questions, show: Callable[[str], None] = lambda line: None) -> int:
    """Count the questions whose correct relation ranks first."""
    n_right = 0
    for relation, sentences in questions.items():
        for sentence, answer in zip(sentences, extractor.predict(sentences), strict=True):
            likeliest = answer.ranked[0].relation
            n_right += likeliest == relation
            wrong = "" if likeliest == relation else f"(not {relation}) "
            doubt = "?" if answer.relation is None else ""
            show(f"  {likeliest + doubt:<12}{100 * answer.ranked[0].confidence:3.0f} %  {wrong}{sentence}")
    return n_right
