"""The benchmark demo: forgetting of several methods on the embedded dataset, and the effect of augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from erda.benchmark.records import Record
from erda.benchmark.report.report import FOLDER, write_report
from erda.benchmark.report.table_formats import Table
from erda.benchmark.run.planned_runs import run_experiment
from erda.benchmark.statistics import Summary
from erda.errors import ErdaError, SettingsError, join_faults
from erda.files import write_lines
from erda.settings.load import run_settings

SHOWN = "accuracy"  # prefix of the report tables to print
N_SENTENCES = 3000  # sentences of the embedded corpus
LINES = {  # (method, has a corpus) -> its row of the summary
    ("seqrun", False): ("SeqRun", "trains on each task in turn, keeps nothing: it forgets"),
    ("joint", False): ("Joint", "keeps every example and trains on all of them with each task"),
    ("erda", False): ("ERDA", "the paper: keeps one example of each relation"),
    ("erda", True): ("ERDA + corpus", "the same, with extra examples from unlabelled text"),
    ("posterior", False): ("Posterior", "another encoder: the packaged MiniLM; trains nothing"),
}


@dataclass(frozen=True, slots=True)
class Demo:
    """Results of the demo and the files written."""

    tables: tuple[Table, ...]
    curves: tuple[Path, ...]
    page: Path | None
    folder: Path
    faults: tuple[str, ...]


def run_demo(
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    n_sentences: int = N_SENTENCES,
    show: Callable[[str], None] = lambda line: None,
) -> Demo:
    """Run the preset `demo` into `out`, or read finished runs there, and write the report; `show` receives steps."""
    if not 1 <= n_sentences <= N_SENTENCES:
        raise SettingsError(f"--sentences: must be between 1 and {N_SENTENCES:,}, got {n_sentences:,}.")
    show("SeqRun, ERDA and Joint learn the embedded dataset 'atlas', task by task.")
    plain = run_experiment(run_settings(preset="demo", seeds=seeds), out=out / "plain")
    if not plain.records:
        raise ErdaError(join_faults(plain.faults))
    show(f"A corpus of {n_sentences:,} unlabelled sentences is built and embedded.")
    corpus = atlas_corpus(out / "atlas-corpus", n=n_sentences)
    show("ERDA learns again, now with extra examples that it finds in the corpus.")
    settings = run_settings(preset="demo", seeds=seeds, methods="erda", corpus=str(corpus))
    augmented = run_experiment(settings, out=out / "augmented")
    show("Posterior learns the same tasks over a transformer that was trained on other text.")
    packaged = {"encoder.engine": "packaged", "encoder.trained_layers": 0}
    settings = run_settings(preset="demo", seeds=seeds, methods="posterior", encoder="minilm", settings=packaged)
    posterior = run_experiment(settings, out=out / "posterior")
    report = write_report(out)
    return Demo(
        tables=(
            *(table for table in report.tables if table.name.startswith(SHOWN)),
            summarise((*plain.records, *augmented.records, *posterior.records)),
        ),
        curves=tuple(path for path in report.files if path.name == "curve.png"),
        page=report.page,
        folder=out / FOLDER,
        faults=(*plain.faults, *augmented.faults, *posterior.faults, *report.faults),
    )


def summarise(records: Iterable[Record]) -> Table:
    """Summarise each method in one row: description, final accuracy, forgetting."""
    groups: dict[tuple[str, bool], list[Record]] = {key: [] for key in LINES}
    for record in records:
        groups[record.method, bool(record.corpus)].append(record)
    rows = [
        (
            *LINES[key],
            Summary.of(100 * record.accuracy["all-seen"][-1] for record in group if record.accuracy["all-seen"]),
            Summary.of(100 * left for record in group if (left := record.forgetting["all-seen"]) is not None),
        )
        for key, group in groups.items()
        if group
    ]
    return Table(
        name="summary",
        title="At the end: all test sentences, among all learned relations (%)",
        columns=("method", "what it does", "accuracy", "forgetting"),
        rows=tuple(rows),
        notes=("Forgetting: mean loss of a task since its best accuracy, in points.",),
        decimals=1,
        text_columns=2,
    )


def atlas_corpus(folder: Path, *, n: int) -> Path:
    """Build and index the corpus of the embedded dataset in a folder, unless it exists."""
    from erda.corpus.corpus_build import build_corpus
    from erda.corpus.corpus_store import CorpusStore
    from erda.corpus.similarity import load_similarity
    from erda.corpus.vector_index import build_index
    from erda.data.catalogue import embedded_file
    from erda.text.reading import read_lines

    source = folder.with_name(f"{folder.name}.jsonl")
    write_lines(source, (line for _, line in islice(read_lines(embedded_file("corpus.jsonl.gz")), n)))
    build_corpus([source], folder)
    build_index(CorpusStore.open(folder), load_similarity())
    return folder
