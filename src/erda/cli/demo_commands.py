"""`erda demo`: an extractor (`demo.toml`), then methods of the benchmark, on the embedded data, in a few minutes."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from erda.cli.checking import Commands, add_command
from erda.cli.printing import print_line, print_tables
from erda.errors import ErdaError, join_faults

if TYPE_CHECKING:
    from erda.app.extractor import Extractor

Sentences = Mapping[str, Sequence[str]]  # relation -> sentences
PARTS: Mapping[str, Sentences] = tomllib.loads(Path(__file__).with_name("demo.toml").read_text(encoding="utf-8"))
N_SENTENCES = 3000  # of the embedded corpus
show = partial(print_line, flush=True)


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = add_command(commands, "demo", run)
    parser.add_argument("part", choices=("extractor", "methods"), nargs="?", help="part to run (default: both)")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="default: runs/demo")
    parser.add_argument("--seeds", metavar="N,N", type=seeds, help="streams to run (default: those of preset 'demo')")


def seeds(text: str) -> list[int]:
    """Convert an argument such as 100,110."""
    return [int(one) for one in text.split(",")]


def run(options: argparse.Namespace) -> None:
    """Show one part or both."""
    if options.part != "methods":
        demonstrate_extractor(options.out / "extractor")
    if options.part is None:
        print_line()
    if options.part != "extractor":
        options.kept = f"Finished runs are kept in {options.out}; `erda demo methods` continues there."
        demonstrate_methods(options.out, seeds=options.seeds)


# -- the extractor -----------------------------------------------------------------------------------------------------


def demonstrate_extractor(folder: Path) -> None:
    """Teach four relations, ask, teach a fifth, and ask again; an extractor in `folder` is kept as it is."""
    from erda.app.extractor import Extractor

    mine = Extractor.open(folder)
    with TemporaryDirectory() as other:
        _demonstrate(mine if not mine.history() else Extractor.open(other))
    show("Ask it yourself:")
    program = "erda" if shutil.which("erda") else shlex.quote(sys.argv[0])  # make demo does not activate .venv
    question = shlex.quote("[[The Long Field]] is a story by {{Jane Marsh}}.")
    show(f"  echo {question} | {program} predict --store {shlex.quote(str(folder))}")


def _demonstrate(extractor: Extractor) -> None:
    show("An extractor of your own learns four relations, from five sentences each:")
    extractor.teach_many(PARTS["lessons"])
    for relation, sentences in PARTS["lessons"].items():
        show(f"  {relation:<11} {sentences[0]}")
    show("It answers questions about new sentences:")
    questions, last_questions = PARTS["questions"], PARTS["last_questions"]
    before = _ask(extractor, questions)
    start = time.perf_counter()
    extractor.teach_many(PARTS["fifth"])
    show(f"A fifth relation, 'born in', is added by five more; that takes {time.perf_counter() - start:.1f} seconds.")
    new = _ask(extractor, last_questions)
    after = _ask(extractor, questions, is_shown=False)
    n, n_new = sum(map(len, questions.values())), sum(map(len, last_questions.values()))
    kept = f"{before} of {n} before, {after} of {n} after"
    show(f"Correct relation ranked first: {kept} for the first four relations; {new} of {n_new} for the fifth.")


def _ask(extractor: Extractor, questions: Sentences, *, is_shown: bool = True) -> int:
    """Count the questions whose correct relation ranks first."""
    n_right = 0
    for relation, sentences in questions.items():
        for sentence, answer in zip(sentences, extractor.predict(sentences), strict=True):
            likeliest = answer.ranked[0].relation
            n_right += likeliest == relation
            wrong = "" if likeliest == relation else f"(not {relation}) "
            doubt = "(too unsure to answer) " if answer.relation is None else ""
            if is_shown:
                show(f"  {likeliest:<11}{100 * answer.ranked[0].confidence:4.0f} %  {doubt}{wrong}{sentence}")
    return n_right


# -- the methods -------------------------------------------------------------------------------------------------------


def demonstrate_methods(out: Path, *, seeds: Sequence[int] | None = None) -> None:
    """Run the preset `demo` into `out`, or read finished runs there; write the report and print its tables."""
    from erda.benchmark.report.report_files import FOLDER, write_report
    from erda.benchmark.run.planned_runs import run_experiment
    from erda.settings.load import run_settings

    settings = partial(run_settings, preset="demo", seeds=seeds)
    show("SeqRun, ERDA and Joint learn the embedded dataset 'atlas', task by task.")
    show("SeqRun keeps no example, ERDA (the paper) one of each relation, and Joint all of them.")
    parts = [run_experiment(settings(), out=out / "plain")]
    if not parts[0].records:
        raise ErdaError(join_faults(parts[0].faults))
    show(f"A corpus of {N_SENTENCES:,} unlabelled sentences is built and embedded.")
    corpus = atlas_corpus(out / "atlas-corpus", n=N_SENTENCES)
    show("ERDA learns again, now with extra examples that it finds in the corpus.")
    parts.append(run_experiment(settings(methods="erda", corpus=str(corpus)), out=out / "augmented"))
    show("Posterior learns the same tasks over MiniLM with its adapter, and trains nothing.")
    posterior = settings(methods="posterior", encoder="minilm")
    parts.append(run_experiment(posterior, out=out / "posterior"))
    report = write_report(out)
    print_line()
    print_tables(table for table in report.tables if table.name.startswith(("accuracy", "final")))
    print_line(f"Page:    {report.page}")
    print_line(f"Tables:  {out / FOLDER}")
    print_line(f"Records: {out}")
    if faults := [*(fault for part in parts for fault in part.faults), *report.faults]:
        raise ErdaError(join_faults(faults))


def atlas_corpus(folder: Path, *, n: int) -> Path:
    """Build and index the corpus of the embedded dataset in a folder, unless it exists."""
    from erda.corpus.corpus_build import build_corpus
    from erda.corpus.corpus_store import CorpusStore
    from erda.corpus.similarity import load_similarity
    from erda.corpus.vector_index import build_index
    from erda.data.catalogue import embedded_file
    from erda.files import write_lines
    from erda.text.reading import read_lines

    source = folder.with_name(f"{folder.name}.jsonl")
    write_lines(source, (line for _, line in islice(read_lines(embedded_file("corpus.jsonl.gz")), n)))
    build_corpus([source], folder)
    build_index(CorpusStore.open(folder), load_similarity())
    return folder
