"""Extractor figures: teach, undo, open, predict, memory, and accuracy beside the benchmark.

python benchmarks/teaching.py                     speed and asking
python benchmarks/teaching.py extracting          300 words of plain text (ERDA_DATA; erda data get entities)
python benchmarks/teaching.py reading             `erda extract` of a text of 90,000 characters, start included
python benchmarks/teaching.py judging             a judgement and the next question, 5 and 100 relations known
python benchmarks/teaching.py graph               10,000 extracted relations as a graph in each format
python benchmarks/teaching.py memory              10,000 questions, 1,000 rounds of teaching and undoing
python benchmarks/teaching.py fewrel --seed 100   eight tasks taught through `Extractor` beside the benchmark's loop
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from erda.app.extractor import Extractor
from erda.benchmark.measures import ALL_SEEN, TestAnswers, mark
from erda.data.catalogue import load_dataset, open_stream
from erda.data.dataset import shuffled
from erda.encoders import build_encoder
from erda.encoders.frozen import FrozenCache
from erda.graph import FORMATS, graph_file
from erda.methods import DEFAULT_METHOD, find_method
from erda.types import Example
from opentext_data import read_documents
from targets import Figure, measure

ROUNDS = 5
N_WORDS = 300
SHOTS = 5


class Seconds(NamedTuple):
    """Wall-clock and processor seconds."""

    by_clock: float
    of_processor: float


def speed(options: argparse.Namespace) -> Iterator[Figure]:
    """Teach, undo and open with 100 known relations."""
    with tempfile.TemporaryDirectory() as folder:
        extractor = _taught(Path(folder) / "x", 100, options)
        extractor.predict(_sentences()[0])
        teach, undo = list[Seconds](), list[Seconds]()
        for number in range(ROUNDS):
            examples = _examples(1000 + number)
            teach.append(_seconds(lambda e=examples: extractor.teach("new", e)))  # type: ignore[misc]
            undo.append(_seconds(extractor.undo))
        opened = [_seconds(lambda: _open(extractor.folder, options)) for _ in range(ROUNDS)]
        asked = [_seconds(lambda: _open(extractor.folder, options).predict(_sentences()[0])) for _ in range(ROUNDS)]
    yield from _figures("teach 1 relation by 5 examples, 100 known", teach, "<= 1")
    yield from _figures("undo it", undo, "<= 0.2")
    yield from _figures("open a store of 100 relations", opened, "<= 2")
    yield from _figures("open it and give the first answer, weights loaded", asked, "<= 2")


def asking(options: argparse.Namespace) -> Iterator[Figure]:
    """Predict one question at a time, with ten and with a thousand known relations, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        few, many = (_taught(Path(folder) / str(n), n, options) for n in (10, 1000))
        questions = list(islice(cycle(_sentences()), 300))
        for one in questions[:20]:
            few.predict(one), many.predict(one)
        times = [
            (_seconds(lambda q=one: few.predict(q)), _seconds(lambda q=one: many.predict(q)))  # type: ignore[misc]
            for one in questions
        ]
    of_few, of_many = zip(*times, strict=True)
    ratios = [many.by_clock / few.by_clock for few, many in times]
    yield Figure("one question, 10 relations known", 1000 * _median(of_few), "ms", "<= 8")
    yield Figure("  of processor", 1000 * statistics.median(one.of_processor for one in of_few), "ms")
    yield Figure("one question, 1,000 relations known", 1000 * _median(of_many), "ms")
    yield Figure("  times as long", statistics.median(ratios), "x", "<= 1.1")


def extracting(options: argparse.Namespace) -> Iterator[Figure]:
    """Extract from 300 words of plain text of Re-DocRED, with and without pronouns, everything loaded."""
    with tempfile.TemporaryDirectory() as folder:
        extractor = _taught(Path(folder) / "x", 5, options)
        words = (word for document in read_documents() for one in document["sents"] for word in one)
        texts = [" ".join(islice(words, N_WORDS)) for _ in range(ROUNDS)]
        extractor.extract(texts[0])
        for pronouns in (False, True):
            n_pairs = statistics.median(
                len(extractor.version.questions(text, pronouns=pronouns).examples) for text in texts
            )
            tagged = [_seconds(lambda t=text: extractor.version.questions(t)) for text in texts]  # type: ignore[misc]
            asked = [
                _seconds(lambda t=text, p=pronouns: extractor.extract(t, pronouns=p))  # type: ignore[misc]
                for text in texts
            ]
            which = "with pronouns" if pronouns else "names alone"
            yield from _figures(f"extract {N_WORDS} words, {which}, {n_pairs:g} pairs", asked, "<= 1.5")
    yield Figure("  of which the tagger", _median(tagged), "s")


def reading(options: argparse.Namespace) -> Iterator[Figure]:
    """Run `erda extract` on a text of Re-DocRED, one line per document."""
    with tempfile.TemporaryDirectory() as folder:
        store, text = _taught(Path(folder) / "x", 5, options).folder, Path(folder) / "text.txt"
        documents = (read_documents(name) for name in ("dev", "test"))
        lines = (" ".join(word for one in each["sents"] for word in one) for some in documents for each in some)
        text.write_text("\n".join(lines)[: options.characters], encoding="utf-8")
        command = [sys.executable, "-m", "erda", "extract", str(text), "--out", f"{text}.jsonl", "--store", str(store)]
        before, start = os.times(), perf_counter()
        subprocess.run(command, check=True)
        used = os.times()
        yield Figure(f"erda extract, {options.characters:,} characters", perf_counter() - start, "s")
        seconds = used.children_user + used.children_system - before.children_user - before.children_system
        yield Figure("  of processor", seconds, "s")


def judging(options: argparse.Namespace) -> Iterator[Figure]:
    """Judge a sentence and ask the next question, with 5 and with 100 known relations."""
    question, *others = _sentences()[-2 * ROUNDS - 1 :]
    with tempfile.TemporaryDirectory() as folder:
        for n_relations in (5, 100):
            extractor = _taught(Path(folder) / str(n_relations), n_relations, options)
            extractor.predict(question)
            for answer, sentences in (("no", others[:ROUNDS]), ("yes", others[ROUNDS:])):
                judged, asked = list[Seconds](), list[Seconds]()
                for one in sentences:
                    judge = partial(extractor.judge, one, "relation 0", holds=answer == "yes")
                    judged.append(_seconds(judge))
                    asked.append(_seconds(partial(extractor.predict, question)))
                yield from _figures(f"judge '{answer}', {n_relations} relations known", judged, "<= 0.4")
                yield from _figures("  the next question", asked, "<= 0.5")


def graph(options: argparse.Namespace) -> Iterator[Figure]:
    """Write 10,000 relations of 5,000 entities in 500 documents as a graph."""
    rows = [
        {"id": f"news {i % 500}", "text": f"[[Company {i % 3000}]] was set up in {i} by {{{{Person {i % 2000}}}}}."}
        | {"relation": f"relation {i % 50}", "confidence": 0.5, "head_type": "ORG", "tail_type": "PERSON"}
        | {"head": f"Company {i % 3000}", "head_start": 10 * i, "head_end": 10 * i + 8}
        | {"tail": f"Person {i % 2000}", "tail_start": 10 * i + 30, "tail_end": 10 * i + 37}
        for i in range(10_000)
    ]
    for name in FORMATS:
        yield from _figures(f"{len(rows):,} relations as .{name}", [_seconds(partial(graph_file, rows, name))], "<= 10")


def memory(options: argparse.Namespace) -> Iterator[Figure]:
    """Growth of memory over many questions, and over many rounds of teach and undo."""
    with tempfile.TemporaryDirectory() as folder:
        extractor = _taught(Path(folder) / "x", 20, options)
        questions = list(islice(cycle(_sentences()), options.questions))
        extractor.predict(questions[:1000])
        before = _resident_mb()
        for one in questions:
            extractor.predict(one)
        yield Figure(f"growth over {len(questions):,} questions", _resident_mb() - before, "MB", "<= 10")
        for number in range(options.rounds + 20):
            if number == 20:
                before = _resident_mb()
            extractor.teach("new", _examples(number))
            extractor.undo()
            if number % 100 == 99:
                extractor.prune()
        yield Figure(f"growth over {options.rounds:,} rounds of teach and undo", _resident_mb() - before, "MB", "<= 10")


def fewrel(options: argparse.Namespace) -> Iterator[Figure]:
    """The 5-shot stream taught task by task through `Extractor`, and learned by the benchmark's loop."""
    cache = FrozenCache()  # encode each sentence once for both
    encoder = build_encoder("open", cache=cache)
    stream = open_stream("fewrel", shots=SHOTS, seed=options.seed)
    method = find_method(options.method).from_settings(encoder, {"seed": options.seed})
    with tempfile.TemporaryDirectory() as folder:
        settings = {"seed": options.seed}
        extractor = Extractor.open(folder, method=options.method, method_settings=settings, encoder=encoder)
        for task in stream:
            extractor.teach_many(task)
            method.learn(task)
    tests = [stream.test(index) for index in range(len(stream))]
    questions = [
        replace(one, relation=gold) for test in tests for one, gold in zip(test.examples, test.gold, strict=True)
    ]
    taught = extractor.evaluate(questions).accuracy_of_known or 0.0
    learned = float(
        mark(method.predict([one for test in tests for one in test.examples]), TestAnswers.of(*tests))
        .right[ALL_SEEN]
        .mean()
    )
    yield Figure("FewRel 5-shot after task 8, taught through Extractor", 100 * taught, "%")
    yield Figure("  learned by the benchmark's loop", 100 * learned, "%")
    yield Figure("  difference", 100 * abs(taught - learned), "points", "== 0")


MEASURES: dict[str, Callable[[argparse.Namespace], Iterator[Figure]]] = {
    "speed": speed,
    "asking": asking,
    "extracting": extracting,
    "reading": reading,
    "judging": judging,
    "graph": graph,
    "memory": memory,
    "fewrel": fewrel,
}
DEFAULT = ("speed", "asking")


def _taught(folder: Path, n_relations: int, options: argparse.Namespace) -> Extractor:
    """Extractor with `n` relations of five sentences each."""
    extractor = _open(folder, options)
    extractor.teach_many({f"relation {number}": _examples(number) for number in range(n_relations)})
    return extractor


def _open(folder: Path, options: argparse.Namespace) -> Extractor:
    return Extractor.open(folder, method=options.method)


@cache
def _sentences() -> tuple[Example, ...]:
    """Sentences of the embedded dataset, shuffled."""
    dataset = load_dataset("atlas")
    return tuple(replace(one, relation=None) for one in shuffled(dataset.train, 0, "benchmark"))


def _examples(number: int) -> list[Example]:
    """Five sentences, different for each number up to a thousand."""
    return [_sentences()[(SHOTS * number + shot) % len(_sentences())] for shot in range(SHOTS)]


def _seconds(act: Callable[[], object]) -> Seconds:
    start, of_processor = perf_counter(), process_time()
    act()
    return Seconds(perf_counter() - start, process_time() - of_processor)


def _median(times: Sequence[Seconds]) -> float:
    return statistics.median(one.by_clock for one in times)


def _figures(name: str, times: Sequence[Seconds], target: str) -> Iterator[Figure]:
    """Medians of wall-clock and processor seconds; load of the machine affects only the former."""
    yield Figure(name, _median(times), "s", target)
    yield Figure("  of processor", statistics.median(one.of_processor for one in times), "s")


def _resident_mb() -> float:
    """Resident memory of the process, after its allocator has released free memory."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen measurements and print each figure beside its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    named = f"of {', '.join(MEASURES)} (default: {', '.join(DEFAULT)})"
    parser.add_argument("what", nargs="*", metavar="WHAT", help=named)
    parser.add_argument("--method", default=DEFAULT_METHOD, help=f"what learns (default: {DEFAULT_METHOD})")
    parser.add_argument("--seed", type=int, default=100, metavar="N", help="order of `fewrel` (default: 100)")
    parser.add_argument("--characters", type=int, default=90_000, metavar="N", help="of `reading` (default: 90,000)")
    parser.add_argument("--questions", type=int, default=10_000, metavar="N", help="of `memory` (default: 10,000)")
    parser.add_argument("--rounds", type=int, default=1000, metavar="N", help="of `memory` (default: 1,000)")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.what if name not in MEASURES]:
        parser.error(f"no such measurement: {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    return measure(lambda: (figure for name in options.what or DEFAULT for figure in MEASURES[name](options)))


if __name__ == "__main__":
    sys.exit(main())
