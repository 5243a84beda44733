"""Every table and figure of the paper as rows of runs, and what we add to them.

A table is one preset (dataset, shots, encoder) and some rows; a row is one method with one choice of settings. Tables
share runs: the ERDA of the main table is the ERDA of the ablation, found by the folder of its records,
`OUT/SETTING/VARIANT/METHOD/SEED`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from erda.benchmark.sections import DEFAULT_VIEWS
from erda.building import open_run_stream
from erda.config import Run, RunSettings, load_settings
from erda.errors import ErdaError, SettingsError, join_faults, unknown_name

PLAIN = "plain"
AUGMENTED = "augmented"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a method, the settings in which it differs from the preset, and whether it has a corpus."""

    label: str
    method: str
    variant: str = PLAIN  # folder of its records, beside other choices of settings
    sets: tuple[str, ...] = ()  # as `erda run --set` takes them
    corpus: bool = False  # learns with extra examples, so it needs --corpus


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table or figure. `group` is what `erda paper` calls it; several tables may share a group."""

    name: str
    group: str
    title: str
    text: str
    preset: str
    rows: tuple[Row, ...]
    sets: tuple[str, ...] = ()  # of every row: how the stream is cut
    flags: Mapping[str, str] = field(default_factory=dict)  # of every row
    seeds: str | None = None  # fewer than all six where one stream is enough
    reference: str | None = None
    views: tuple[str, ...] = DEFAULT_VIEWS
    setting: str = ""  # along the axis of view "sweep"
    embeds: bool = False  # also keeps vectors, for t-SNE

    @property
    def folder(self) -> str:
        """The folder of its records: tables with the same one share runs."""
        cut = [f"{name}-{value}" for name, value in self.flags.items()] + [one.replace("=", "-") for one in self.sets]
        return "-".join([self.preset, *cut]).replace("_", "-")


ERDA = Row("ERDA", "erda", AUGMENTED, corpus=True)
WITHOUT_AUGMENTATION = Row("ERDA w.o. DA", "erda")
SEQRUN, JOINT = Row("SeqRun", "seqrun"), Row("Joint training", "joint")
EMR, EMAR, IDLVQ = Row("EMR", "emr"), Row("EMAR", "emar"), Row("IDLVQ-C", "idlvq-c")
METHODS = (SEQRUN, JOINT, EMR, EMAR, IDLVQ, WITHOUT_AUGMENTATION, ERDA)


def _without(label: str, variant: str, *sets: str) -> Row:
    return Row(f"w.o. {label}", "erda", f"without-{variant}", tuple(f"erda.{one}" for one in sets), corpus=True)


ABLATIONS = (
    ERDA,
    _without("L_mm", "mm", "multi_margin_weight=0"),
    _without("L_pm", "pm", "pairwise_margin_weight=0"),
    _without("L_con", "con", "contrastive_weight=0"),
    Row("w.o. DA", "erda"),
    _without("EM", "matching", "entity_matching=false"),
    _without("SS", "search", "similarity_search=false"),
    _without("M", "memory", "memory_size=0"),
    _without("rehearsal from the corpus", "rehearsal", "n_rehearsed=0"),
    Row(
        "DA as in the paper",
        "erda",
        "paper-augmentation",
        (
            "erda.n_neighbours=1",
            "erda.search_matched=false",
            "erda.agreement=none",
            "erda.agreement_margin=0",
            "erda.n_rehearsed=0",
        ),
        corpus=True,
    ),
)
SWEPT = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def _sweep() -> tuple[Row, ...]:
    """lambda_con; two of its values are rows of other tables."""
    shared = {0.0: "without-con", 0.1: AUGMENTED}
    return tuple(
        Row(
            f"λ_con = {value:g}",
            "erda",
            shared.get(value, f"contrastive-{value:g}"),
            (f"erda.contrastive_weight={value:g}",),
            corpus=True,
        )
        for value in SWEPT
    )


NO_RUNS = tuple(view for view in DEFAULT_VIEWS if view != "runs")
FEW = ("accuracy", "final", "published", "comparison", "curve", "forgetting", "cost")


def _comparison(name: str, group: str, preset: str, title: str, text: str) -> PaperTable:
    return PaperTable(
        name=name, group=group, preset=preset, title=title, text=text, rows=METHODS, reference="ERDA", views=FEW
    )


def _scaling(n_tasks: int) -> PaperTable:
    return PaperTable(
        name=f"scaling-{n_tasks}",
        group="scaling",
        title=f"Cost over {n_tasks} tasks",
        text="Two new relations a task, 5-shot, so that tasks differ only in how many came before. Seconds of learning "
        "should grow with the memory (one exemplar a relation), not with all that was ever learned.",
        preset="fewrel-continual",
        flags={"shots": "5"},
        sets=("way=2", "first_shots=100", "test_per_relation=20", f"n_tasks={n_tasks}"),
        seeds="100",
        rows=(SEQRUN, EMR, EMAR, IDLVQ, WITHOUT_AUGMENTATION),
        views=("final", "curve", "cost"),
    )


TABLES: tuple[PaperTable, ...] = (
    PaperTable(
        name="main",
        group="main",
        title="Main table: FewRel 10-way 5-shot, BiLSTM",
        text="The paper's Table 1 and, with deviations, Table 6. The paper measured by the protocol candidates.",
        preset="fewrel-5-shot",
        rows=METHODS,
        reference="ERDA",
        views=NO_RUNS,
    ),
    PaperTable(
        name="variance",
        group="variance",
        title="Deviations over the six orders",
        text="The paper's Table 6: the main table with its deviation after every task, and each run by itself.",
        preset="fewrel-5-shot",
        rows=METHODS,
        views=("accuracy", "runs"),
    ),
    PaperTable(
        name="families",
        group="families",
        title="Main table on other orders: the six of the family sckd",
        text="The same methods on the other published family of six task orders: how much an order moves the numbers.",
        preset="fewrel-5-shot",
        flags={"order_family": "sckd"},
        rows=METHODS,
        reference="ERDA",
        views=("accuracy", "final", "comparison", "curve", "runs"),
    ),
    PaperTable(
        name="orders",
        group="orders",
        title="Task orders, run by run",
        text="The paper's Table 5: ERDA and IDLVQ-C on each of the six orders.",
        preset="fewrel-5-shot",
        rows=(ERDA, WITHOUT_AUGMENTATION, IDLVQ),
        reference="ERDA",
        views=("runs", "comparison"),
    ),
    PaperTable(
        name="ablation",
        group="ablation",
        title="Ablation: ERDA without one part at a time",
        text="The paper's Tables 3 and 7. Our augmentation goes beyond the paper's (filtered neighbours, rehearsal "
        "from the corpus); the last two rows take that away.",
        preset="fewrel-5-shot",
        rows=ABLATIONS,
        reference="ERDA",
        views=("published", "comparison", "final", "accuracy", "curve", "forgetting"),
    ),
    PaperTable(
        name="lambda",
        group="lambda",
        title="Weight of the contrastive loss",
        text="The paper's Table 2: accuracy after all tasks for λ_con from 0 to 1.",
        preset="fewrel-5-shot",
        rows=_sweep(),
        reference="λ_con = 0.1",
        views=("sweep", "published", "final", "comparison"),
        setting="contrastive_weight",
    ),
    _comparison(
        "minilm",
        "bert",
        "fewrel-5-shot-minilm-paper",
        "FewRel 5-shot with MiniLM as the paper uses BERT",
        "[CLS] and a trained last layer, as in the paper's Table 4, in a transformer of a fifth of BERT's size.",
    ),
    _comparison(
        "base",
        "bert",
        "fewrel-5-shot-mpnet",
        "FewRel 5-shot with a base-size transformer (MPNet)",
        "Stands beside the paper's Table 4 (BERT-base). On a GPU: --device cuda.",
    ),
    _comparison(
        "shots-2", "shots", "fewrel-2-shot", "FewRel 2-shot, BiLSTM", "The paper's figure of the 2-shot setting."
    ),
    _comparison(
        "shots-10", "shots", "fewrel-10-shot", "FewRel 10-shot, BiLSTM", "The paper's figure of the 10-shot setting."
    ),
    _comparison(
        "tacred-5",
        "tacred",
        "tacred-5-shot",
        "TACRED 5-way 5-shot, BiLSTM",
        "The paper's figure; TACRED is licensed by the LDC and must be placed by hand (docs/data.md).",
    ),
    _comparison(
        "tacred-10", "tacred", "tacred-10-shot", "TACRED 5-way 10-shot, BiLSTM", "The paper's figure, with 10 shots."
    ),
    _comparison(
        "redoc41-5",
        "redoc41",
        "redoc41-5-shot",
        "redoc41 5-way 5-shot, BiLSTM",
        "An open stand-in of TACRED's shape: 41 relations, the first task of six.",
    ),
    _comparison("redoc41-10", "redoc41", "redoc41-10-shot", "redoc41 5-way 10-shot, BiLSTM", "The same with 10 shots."),
    PaperTable(
        name="continual",
        group="continual",
        title="The continual setting: 100 examples for every task",
        text="The paper's last figure compares ERDA without augmentation with EMAR.",
        preset="fewrel-continual",
        rows=(SEQRUN, EMR, EMAR, IDLVQ, WITHOUT_AUGMENTATION),
        reference="ERDA w.o. DA",
        views=FEW,
    ),
    PaperTable(
        name="tsne",
        group="tsne",
        title="Embedding space before and after a task",
        text="Four relations of the first task and two of the second, test examples, as in the paper's figure.",
        preset="fewrel-5-shot",
        sets=("n_tasks=2",),
        seeds="100",
        rows=(IDLVQ, WITHOUT_AUGMENTATION),
        views=("tsne", "final"),
        embeds=True,
    ),
    _scaling(8),
    _scaling(20),
    _scaling(40),
)
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(table.group for table in TABLES))


@dataclass(frozen=True, slots=True)
class Changes:
    """What the user changes of every table: fewer seeds, another dataset, smaller streams. None: as planned."""

    seeds: str | None = None
    dataset: str | None = None
    device: str | None = None
    corpus: str | None = None
    sets: tuple[str, ...] = ()


def choose_tables(names: Sequence[str]) -> tuple[PaperTable, ...]:
    """Tables by group or by their own name, in the order of the plan; all of them for no name."""
    known = {*GROUPS, *(table.name for table in TABLES)}
    faults = [unknown_name("table", name, known) for name in names if name not in known]
    if faults:
        raise SettingsError(join_faults(faults))
    return tuple(table for table in TABLES if not names or table.group in names or table.name in names)


def row_settings(table: PaperTable, row: Row, changes: Changes) -> RunSettings:
    """The settings of one row, checked."""
    flags: dict[str, str | None] = {
        **table.flags,
        "methods": row.method,
        "seeds": changes.seeds or table.seeds,
        "dataset": changes.dataset,
        "device": changes.device,
        "corpus": changes.corpus if row.corpus else None,
    }
    return load_settings(preset=table.preset, sets=(*table.sets, *row.sets, *changes.sets), flags=flags)


def row_folder(out: Path, table: PaperTable, row: Row) -> Path:
    """Where `METHOD/SEED` of a row's records lie."""
    return out / table.folder / row.variant


@dataclass(frozen=True, slots=True)
class Planned:
    """The runs of some tables, each once, with the folder of each, and what was left out and why."""

    runs: tuple[tuple[Run, Path], ...]
    embedded: tuple[tuple[Run, Path], ...]  # those whose vectors are kept as well
    left_out: tuple[str, ...]
    cache: tuple[str, float]


def plan_runs(tables: Iterable[PaperTable], *, out: Path, changes: Changes) -> Planned:
    """All runs of the tables, stream by stream, so that methods can be compared early.

    A table whose data is not there, and a row whose settings cannot work, are left out and said.
    """
    runs: dict[Path, tuple[Run, Path]] = {}
    embedded: list[tuple[Run, Path]] = []
    left_out: list[str] = []
    cache = ("", 0.0)
    for table in tables:
        own: list[tuple[Run, Path]] = []
        without: list[str] = []
        for row in table.rows:
            if row.corpus and not changes.corpus:
                without.append(row.label)
                continue
            try:
                settings = row_settings(table, row, changes)
            except SettingsError as fault:
                left_out.append(f"{table.name}, {row.label}: {fault}")
                continue
            cache = max(cache, (settings.cache_dir, settings.cache_gb), key=lambda one: one[1])
            own += [(run, row_folder(out, table, row)) for run in settings.runs()]
        if without:
            left_out.append(f"{table.name}: rows that learn with a corpus ({', '.join(without)}); give --corpus.")
        absent = _fault_of_data(own[0][0]) if own else None
        if absent is not None:
            left_out.append(f"{table.name}: {absent}")
            continue
        own.sort(key=lambda one: one[0].seed)
        for run, folder in own:
            runs.setdefault(folder / run.method / str(run.seed), (run, folder))
        embedded += own if table.embeds else []
    return Planned(tuple(runs.values()), tuple(embedded), tuple(left_out), cache)


def _fault_of_data(run: Run) -> ErdaError | None:
    """Why the stream of a run cannot be had; said once for a table, not once for each of its runs."""
    try:
        open_run_stream(run)
    except ErdaError as fault:
        return fault
    return None
