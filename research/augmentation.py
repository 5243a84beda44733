"""Effect of augmentation on ERDA on the embedded dataset, and precision of the extra examples; a minute per seed.

erda demo --out runs/demo                                     # builds the corpus
python research/augmentation.py runs/demo/atlas-corpus

A row is one kind of augmentation, averaged over the seeds. "Right ones only" discards every extra example with a wrong
relation, which is possible only because the relations of `atlas` sentences are known; it shows the cost of wrong ones.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from erda.benchmark.measures import forgetting
from erda.corpus.augment import PAPERS, Augmentation, Augmenter, open_augmenter
from erda.fields import flat_values
from erda.methods.erda import Erda
from erda.settings.build import build_run_method, open_run_stream
from erda.settings.load import run_settings
from erda.settings.runs import Run

PAPER = {**flat_values(PAPERS), "n_rehearsed": 0}
KINDS: dict[str, dict[str, Any]] = {
    "none": {"augmentation": False},
    "the paper's": PAPER,
    "the paper's, right ones only": PAPER,
    "the paper's, 8 rehearsed": {**PAPER, "n_rehearsed": 8},
    "the demo's, nothing rehearsed": {"n_rehearsed": 0},
    "the demo's": {},
    "the demo's, right ones only": {},
}


class RightOnly(Augmenter):
    """Augmenter that keeps only extra examples with the right relation."""

    def find(self, *args: Any, **settings: Any) -> Augmentation:
        """Extra examples without those that have a wrong relation."""
        found = super().find(*args, **settings)
        return replace(found, extras=tuple(extra for extra in found.extras if _says(extra.to_json()) == "right"))


@dataclass(slots=True)
class Outcome:
    """Accuracy (`all-seen`) and forgetting of each seed; counts of extra examples by (kind, correctness)."""

    accuracy: list[float] = field(default_factory=list)
    forgetting: list[float] = field(default_factory=list)
    extras: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, run: Run, augmenter: Augmenter) -> None:
        """Learn one stream task by task and predict the tests of all tasks so far."""
        method, stream = build_run_method(run), open_run_stream(run)
        assert isinstance(method, Erda)
        method.augmenter = augmenter
        ask = stream.validation if run.evaluate_on == "validation" else stream.test
        matrix: list[list[float]] = []
        for task in stream:
            method.learn(task)
            for found in method.notes().get("augmentation", ()):
                rehearsed = found.get("rehearsed", {"extras": ()})["extras"]
                self.extras.update((one["augmentation"]["rule"], _says(one)) for one in found["extras"])
                self.extras.update(("rehearsed", _says(one)) for one in rehearsed)
            tests = [ask(k) for k in range(task.index + 1)]
            best = [method.predict(test.examples).best for test in tests]
            matrix.append([
                fmean(a == b for a, b in zip(row, test.gold, strict=True))
                for row, test in zip(best, tests, strict=True)
            ])  # fmt: skip
        self.accuracy.append(100 * fmean(matrix[-1]))  # all tasks have the same number of test examples
        self.forgetting.append(100 * (forgetting(matrix) or 0))

    def share(self, kind: str) -> str:
        """Number of extra examples of a kind, and the share of right ones."""
        n = sum(count for (its_kind, _), count in self.extras.items() if its_kind == kind)
        return f"{n / len(self.accuracy):.0f}, {100 * self.extras[kind, 'right'] / n:.0f} %" if n else "–"


def _says(extra: dict[str, Any]) -> str:
    """Whether the sentence of an extra example expresses its relation, another one, or none."""
    said = extra["source"].removeprefix("atlas:")
    return "right" if said == extra["relation"] else "none" if said == "unrelated" else "another"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every kind on every seed and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, metavar="DIR", help="the corpus that `erda demo` built")
    parser.add_argument("--seeds", default="110,120,130,140,150", metavar="N,N", help="default: 110,120,130,140,150")
    parser.add_argument("--evaluate-on", default="validation", choices=("validation", "test"))
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this row; may be repeated")
    options = parser.parse_args(arguments)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    augmenter = open_augmenter(options.corpus)
    right_only = RightOnly(augmenter.store, augmenter.index, augmenter.model)
    print("| augmentation | accuracy | each seed | forgetting | entity matches | neighbours | rehearsed |")
    print("|---|---:|---|---:|---:|---:|---:|")
    for kind in options.kind or KINDS:
        outcome = Outcome()
        changes = {f"erda.{name}": value for name, value in KINDS[kind].items()}
        settings = run_settings(
            preset="demo", methods="erda", seeds=seeds, evaluate_on=options.evaluate_on, settings=changes
        )
        for run in settings.runs():
            outcome.add(run, right_only if kind.endswith("right ones only") else augmenter)
        shares = " | ".join(outcome.share(one) for one in ("entity-match", "neighbour", "rehearsed"))
        each = " ".join(f"{one:.1f}" for one in outcome.accuracy)
        means = f"{fmean(outcome.accuracy):.1f} | {each} | {fmean(outcome.forgetting):.1f}"
        print(f"| {kind} | {means} | {shares} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
