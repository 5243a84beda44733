"""The demo: SeqRun, ERDA and Joint on the embedded dataset, then ERDA with extra examples from its corpus."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from erda.benchmark.report.report import FOLDER, write_report
from erda.benchmark.report.tables import Table
from erda.benchmark.run.loop import run_all
from erda.errors import ErdaError, join_faults
from erda.settings.load import run_settings

SHOWN = ("accuracy", "final")  # the tables that a newcomer wants to see
N_SENTENCES = 3000


@dataclass(frozen=True, slots=True)
class Demo:
    """What came out of the demo, and where it was written."""

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
    """Run the preset `demo` into `out`, or read what is there already, and write the report; `show` hears each step."""
    show("SeqRun, ERDA and Joint learn the embedded dataset 'atlas', task by task.")
    plain = run_all(run_settings(preset="demo", seeds=seeds), out=out / "plain")
    if not plain.records:
        raise ErdaError(join_faults(plain.faults))
    show(f"A corpus of {n_sentences:,} unlabelled sentences is built and embedded.")
    corpus = atlas_corpus(out / "atlas-corpus", n=n_sentences)
    show("ERDA learns again, now with extra examples that it finds in the corpus.")
    settings = run_settings(preset="demo", seeds=seeds, methods="erda", corpus=str(corpus))
    augmented = run_all(settings, out=out / "augmented")
    report = write_report(out)
    return Demo(
        tables=tuple(table for table in report.tables if table.name.startswith(SHOWN)),
        curves=tuple(path for path in report.files if path.stem == "curve"),
        page=report.page,
        folder=out / FOLDER,
        faults=(*plain.faults, *augmented.faults, *report.faults),
    )


def atlas_corpus(folder: Path, *, n: int) -> Path:
    """The corpus of the embedded dataset in a folder, built and indexed; what is there already is kept."""
    from erda.corpus.build import build_corpus
    from erda.corpus.index import build_index
    from erda.corpus.similarity import load_similarity
    from erda.corpus.store import CorpusStore
    from erda.data import atlas
    from erda.data.formats import example_to_json

    source = folder.with_name(f"{folder.name}.jsonl")
    source.parent.mkdir(parents=True, exist_ok=True)
    rows = (json.dumps(example_to_json(example), ensure_ascii=False) for example in atlas.corpus(n=n))
    source.write_text("\n".join(rows) + "\n", encoding="utf-8")
    build_corpus([source], folder)
    build_index(CorpusStore.open(folder), load_similarity())
    return folder
