"""Every table and figure of the paper as rows of runs, and what we add to them.

A table is one preset (dataset, shots, encoder) and some rows; a row is one method with one choice of settings. Tables
share runs: the ERDA of the main table is the ERDA of the ablation, found by the folder of its records,
`OUT/SETTING/VARIANT/METHOD/SEED`. `planning.py` makes runs of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from erda.benchmark.report.sections import DEFAULT_VIEWS
from erda.errors import SettingsError, join_faults, unknown_name
from erda.settings.load import read_preset
from erda.settings.runs import Setting

PLAIN = "plain"
AUGMENTED = "augmented"
ON = "-on-"  # in names of folders and sections: a table on another dataset than its own


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a method, the settings in which it differs from the preset, and whether it has a corpus."""

    label: str
    method: str
    variant: str = PLAIN  # folder of its records, beside other choices of settings
    settings: Mapping[str, Setting] = field(default_factory=dict)
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
    settings: Mapping[str, Setting] = field(default_factory=dict)  # of every row: what is run, how the stream is cut
    seeds: tuple[int, ...] | None = None  # fewer than all six where one stream is enough
    reference: str | None = None
    views: tuple[str, ...] = DEFAULT_VIEWS
    setting: str = ""  # along the axis of view "sweep"
    embeds: bool = False  # also keeps vectors, for t-SNE

    @property
    def folder(self) -> str:
        """The folder of its records: tables with the same one share runs."""
        cut = (f"{name}-{value}" for name, value in self.settings.items())
        return "-".join([self.preset, *cut]).replace("_", "-")

    @property
    def dataset(self) -> str:
        """The dataset of its preset."""
        return _preset_value(self.preset, "dataset")

    @property
    def encoder(self) -> str:
        """The encoder of its preset."""
        return _preset_value(self.preset, "encoder")

    def folder_on(self, dataset: str | None) -> str:
        """The folder of its records where the user chose a dataset (None: the table's own)."""
        if dataset is None or dataset == self.dataset:
            return self.folder
        name = re.sub(r"[^a-z0-9]+", "-", Path(dataset).name.lower()).strip("-")
        return f"{self.folder}{ON}{name or 'own'}"


@lru_cache
def _preset_value(preset: str, name: str) -> str:
    return str(read_preset(preset)[name])


ERDA = Row("ERDA", "erda", AUGMENTED, corpus=True)
WITHOUT_AUGMENTATION = Row("ERDA w.o. DA", "erda")
SEQRUN, JOINT = Row("SeqRun", "seqrun"), Row("Joint training", "joint")
EMR, EMAR, IDLVQ = Row("EMR", "emr"), Row("EMAR", "emar"), Row("IDLVQ-C", "idlvq-c")
METHODS = (SEQRUN, JOINT, EMR, EMAR, IDLVQ, WITHOUT_AUGMENTATION, ERDA)


def _without(label: str, variant: str, **settings: Setting) -> Row:
    own = {f"erda.{name}": value for name, value in settings.items()}
    return Row(f"w.o. {label}", "erda", f"without-{variant}", own, corpus=True)


ABLATIONS = (
    ERDA,
    _without("L_mm", "mm", multi_margin_weight=0.0),
    _without("L_pm", "pm", pairwise_margin_weight=0.0),
    _without("L_con", "con", contrastive_weight=0.0),
    Row("w.o. DA", "erda"),
    _without("EM", "matching", entity_matching=False),
    _without("SS", "search", similarity_search=False),
    _without("M", "memory", memory_size=0),
    _without("rehearsal from the corpus", "rehearsal", n_rehearsed=0),
    Row(
        "DA as in the paper",
        "erda",
        "paper-augmentation",
        {
            "erda.n_neighbours": 1,
            "erda.search_matched": False,
            "erda.agreement": "none",
            "erda.agreement_margin": 0.0,
            "erda.n_rehearsed": 0,
        },
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
            {"erda.contrastive_weight": value},
            corpus=True,
        )
        for value in SWEPT
    )


NO_RUNS = tuple(view for view in DEFAULT_VIEWS if view != "runs")
FEW = ("accuracy", "final", "published", "comparison", "curve", "forgetting", "cost")


def _comparison(*, name: str, group: str, preset: str, title: str, text: str) -> PaperTable:
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
        settings={"shots": 5, "way": 2, "first_shots": 100, "test_per_relation": 20, "n_tasks": n_tasks},
        seeds=(100,),
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
        settings={"order_family": "sckd"},
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
        name="minilm",
        group="bert",
        preset="fewrel-5-shot-minilm-paper",
        title="FewRel 5-shot with MiniLM as the paper uses BERT",
        text="[CLS] and a trained last layer, as in the paper's Table 4, in a transformer of a fifth of BERT's size.",
    ),
    _comparison(
        name="base",
        group="bert",
        preset="fewrel-5-shot-mpnet",
        title="FewRel 5-shot with a base-size transformer (MPNet)",
        text="Stands beside the paper's Table 4 (BERT-base). On a GPU: --device cuda.",
    ),
    _comparison(
        name="shots-2",
        group="shots",
        preset="fewrel-2-shot",
        title="FewRel 2-shot, BiLSTM",
        text="The paper's figure of the 2-shot setting.",
    ),
    _comparison(
        name="shots-10",
        group="shots",
        preset="fewrel-10-shot",
        title="FewRel 10-shot, BiLSTM",
        text="The paper's figure of the 10-shot setting.",
    ),
    _comparison(
        name="base-shots-2",
        group="bert-shots",
        preset="fewrel-2-shot-mpnet",
        title="FewRel 2-shot with a base-size transformer (MPNet)",
        text="The paper's figure of the 2-shot setting with BERT-base. On a GPU: --device cuda.",
    ),
    _comparison(
        name="base-shots-10",
        group="bert-shots",
        preset="fewrel-10-shot-mpnet",
        title="FewRel 10-shot with a base-size transformer (MPNet)",
        text="The paper's figure of the 10-shot setting with BERT-base. On a GPU: --device cuda.",
    ),
    _comparison(
        name="tacred-5",
        group="tacred",
        preset="tacred-5-shot",
        title="TACRED 5-way 5-shot, BiLSTM",
        text="The paper's figure; TACRED is licensed by the LDC and must be placed by hand (docs/data.md).",
    ),
    _comparison(
        name="tacred-10",
        group="tacred",
        preset="tacred-10-shot",
        title="TACRED 5-way 10-shot, BiLSTM",
        text="The paper's figure, with 10 shots.",
    ),
    _comparison(
        name="redoc41-5",
        group="redoc41",
        preset="redoc41-5-shot",
        title="redoc41 5-way 5-shot, BiLSTM",
        text="An open stand-in of TACRED's shape: 41 relations, the first task of six.",
    ),
    _comparison(
        name="redoc41-10",
        group="redoc41",
        preset="redoc41-10-shot",
        title="redoc41 5-way 10-shot, BiLSTM",
        text="The same with 10 shots.",
    ),
    _comparison(
        name="base-tacred-5",
        group="bert-tacred",
        preset="tacred-5-shot-mpnet",
        title="TACRED 5-way 5-shot with a base-size transformer (MPNet)",
        text="The paper's figure with BERT-base; TACRED must be placed by hand (docs/data.md).",
    ),
    _comparison(
        name="base-tacred-10",
        group="bert-tacred",
        preset="tacred-10-shot-mpnet",
        title="TACRED 5-way 10-shot with a base-size transformer (MPNet)",
        text="The paper's figure with BERT-base, with 10 shots.",
    ),
    _comparison(
        name="base-redoc41-5",
        group="bert-tacred",
        preset="redoc41-5-shot-mpnet",
        title="redoc41 5-way 5-shot with a base-size transformer (MPNet)",
        text="The open stand-in of TACRED's shape, with the same transformer.",
    ),
    _comparison(
        name="base-redoc41-10",
        group="bert-tacred",
        preset="redoc41-10-shot-mpnet",
        title="redoc41 5-way 10-shot with a base-size transformer (MPNet)",
        text="The same with 10 shots.",
    ),
    PaperTable(
        name="continual",
        group="continual",
        title="The continual setting: 100 examples for every relation of every task",
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
        settings={"n_tasks": 2},
        seeds=(100,),
        rows=(IDLVQ, WITHOUT_AUGMENTATION, ERDA),
        views=("tsne", "final"),
        embeds=True,
    ),
    _scaling(8),
    _scaling(20),
    _scaling(40),
)
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(table.group for table in TABLES))


def choose_tables(names: Sequence[str]) -> tuple[PaperTable, ...]:
    """Tables by group or by their own name, in the order of the plan; all of them for no name."""
    known = {*GROUPS, *(table.name for table in TABLES)}
    faults = [unknown_name("table", name, known) for name in names if name not in known]
    if faults:
        raise SettingsError(join_faults(faults))
    return tuple(table for table in TABLES if not names or table.group in names or table.name in names)


def row_folder(out: Path, table: PaperTable, row: Row, *, dataset: str | None = None) -> Path:
    """Where `METHOD/SEED` of a row's records lie; `dataset` is the user's own choice."""
    return out / table.folder_on(dataset) / row.variant
