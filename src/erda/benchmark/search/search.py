"""Searching for settings on validation data, with Optuna.

A trial is one choice of values, run on every stream of the search and judged by its mean accuracy after the last task.
All that is known lies in `OUT/study.journal` (Optuna's storage) and in the records under `OUT/trials/NUMBER`, so a
search that was stopped or killed goes on where it was. Trials draw their random numbers by their number: with one
process a search in pieces tries the same values as one in a single piece.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState
from tqdm import tqdm

from erda.benchmark.metrics import CANDIDATES
from erda.benchmark.run.engines import run_here, run_in_processes
from erda.benchmark.run.planned_runs import CacheSettings, PlannedRun, run_planned
from erda.benchmark.run.stream_tests import StreamTests
from erda.benchmark.search.space import Choice
from erda.errors import RecordError, SettingsError, WriteError
from erda.files import locked
from erda.settings.build import open_run_stream
from erda.settings.runs import RunSettings, Setting

JOURNAL = "study.journal"
TRIALS = "trials"
ASK_LOCK = ".ask.lock"
STUDY = "erda search"
SAMPLERS = ("grid", "tpe", "random")
N_TRIALS = 40  # where there is no grid to be gone through
WHOLE, CUT, FAILED, UNFINISHED = "whole", "cut short", "failed", "not finished"
STATES = {
    TrialState.COMPLETE: WHOLE,
    TrialState.PRUNED: CUT,
    TrialState.FAIL: FAILED,
    TrialState.RUNNING: UNFINISHED,
}
N_STARTUP = 5  # trials before any is cut short


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched: one method of `settings`, measured on validation data, over `space`.

    A trial whose mean is below the median of the others after the same streams is cut short where `prune` is on.
    """

    settings: RunSettings
    space: tuple[Choice, ...]
    sampler: str
    protocol: str
    prune: bool = True

    @property
    def method(self) -> str:
        """The method whose settings are searched."""
        return self.settings.methods[0]

    @property
    def n_grid(self) -> int:
        """How many choices of values there are; 0 where a range has no steps."""
        return math.prod(len(choice.values) for choice in self.space)

    def with_values(self, values: dict[str, Setting]) -> RunSettings:
        """The settings of a trial."""
        own: dict[str, dict[str, Setting]] = {self.method: {}, "encoder": {}}
        for name, value in values.items():
            owner, _, setting = name.rpartition(".")
            own[owner][setting] = value
        method = {**self.settings.method_settings[self.method], **own[self.method]}
        encoder = {**self.settings.encoder_settings, **own["encoder"]}
        changes = {"method_settings": {self.method: method}, "encoder_settings": encoder}
        return self.settings.model_copy(update=changes)

    def current(self) -> dict[str, Setting]:
        """The values that the settings have now, as far as they are given."""
        found = {f"{self.method}.{name}": value for name, value in self.settings.method_settings[self.method].items()}
        found |= {f"encoder.{name}": value for name, value in self.settings.encoder_settings.items()}
        return {choice.name: found[choice.name] for choice in self.space if choice.name in found}

    def to_json(self) -> dict[str, Any]:
        """What a search must share with the one that it goes on with; where it happens does not count."""
        settings = self.settings.model_dump()
        for name in ("cache_gb", "cache_dir", "device"):
            settings.pop(name)
        value = {**settings, "space": [str(choice) for choice in self.space], "sampler": self.sampler}
        return json.loads(json.dumps({**value, "protocol": self.protocol, "prune": self.prune}))


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one trial: its values and, in the order of the seeds, the accuracies that were measured.

    All but the first two is what Optuna keeps for us beside the trial.
    """

    number: int
    state: str  # one of those in STATES
    values: dict[str, Setting] = field(default_factory=dict)
    accuracies: list[float] = field(default_factory=list)
    fault: str = ""
    is_repeat: bool = False  # of values that were tried before: nothing was run

    @property
    def is_whole(self) -> bool:
        """Whether it was measured on every stream."""
        return self.state == WHOLE

    @property
    def accuracy(self) -> float:
        """Mean accuracy after the last task, a fraction."""
        return math.fsum(self.accuracies) / len(self.accuracies)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All trials of a search by number, which setting mattered how much, and what failed."""

    trials: tuple[Tried, ...]
    importance: dict[str, float]  # setting -> share of the variance that it explains; empty where that is unknown
    faults: tuple[str, ...]

    @property
    def tried(self) -> tuple[Tried, ...]:
        """Trials that were run."""
        return tuple(one for one in self.trials if not one.is_repeat)

    def ranked(self) -> list[Tried]:
        """Whole trials, the best first."""
        return sorted((one for one in self.tried if one.is_whole), key=lambda one: (-one.accuracy, one.number))


@dataclass(frozen=True, slots=True)
class _Share:
    """What one process is to do: finish these trials, then begin new ones until there are enough."""

    asked: Search
    out: Path
    n_trials: int
    unfinished: tuple[int, ...]
    show_bars: bool


def search(
    asked: Search, *, out: Path, n_trials: int | None = None, n_processes: int = 1, show_bars: bool = True
) -> SearchResult:
    """Search until there are `n_trials` in all (default: the whole grid, or 40), going on with what is in `out`.

    It ends before where every choice of values was tried.
    """
    n_trials = n_trials or (asked.n_grid if asked.sampler == "grid" else N_TRIALS)
    if asked.sampler == "grid":
        n_trials = min(n_trials, asked.n_grid)
    _check_protocol(asked)
    with locked(out, busy="another search is at work here; wait for it", error=RecordError):
        _repair_journal(out / JOURNAL)
        study = _open_study(out, asked)
        unfinished = [trial.number for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))]
        shared = out / ".frozen" if n_processes > 1 and not asked.settings.cache_dir else None
        if shared:  # processes meet in a folder
            asked = replace(asked, settings=asked.settings.model_copy(update={"cache_dir": str(shared)}))
        shares = [
            _Share(asked, out, n_trials, tuple(unfinished[k::n_processes]), show_bars) for k in range(n_processes)
        ]
        try:
            several = n_processes > 1
            outcomes = run_in_processes(_work, shares, n_processes=n_processes) if several else run_here(_work, shares)
            faults = [str(outcome.fault) for outcome in outcomes if outcome.fault is not None]
        finally:
            (out / ASK_LOCK).unlink(missing_ok=True)
            if shared:
                shutil.rmtree(shared, ignore_errors=True)
        return _found(_open_study(out, asked), faults)


def _check_protocol(asked: Search) -> None:
    """Refuse early what no trial could measure."""
    stream = open_run_stream(asked.settings.runs()[0])
    answers = StreamTests(stream, asked.settings.evaluate_on).answers
    if asked.protocol == CANDIDATES and any(one.listed is None for one in answers):
        raise SettingsError("--protocol candidates: the dataset lists none; use --protocol all-seen.")


# -- the study ---------------------------------------------------------------------------------------------------------


def _open_study(out: Path, asked: Search) -> optuna.Study:
    """The study in `out`, begun where there is none; refused where it is another search."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = out / JOURNAL
    try:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
        pruner = optuna.pruners.MedianPruner(n_startup_trials=N_STARTUP, n_warmup_steps=0)
        study = optuna.create_study(
            storage=storage, study_name=STUDY, direction="maximize", load_if_exists=True, pruner=pruner
        )
        then = study.user_attrs.get("asked")
    except OSError as error:
        raise WriteError(f"Cannot write {path}: {error.strerror or error}. Choose another --out.") from error
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:  # Optuna's, over damage
        raise RecordError(f"{path}: is damaged ({error!r}). Delete it to begin anew; records are kept.") from error
    now = asked.to_json()
    if then is None:
        study.set_user_attr("asked", now)
        values = asked.current()
        if asked.sampler != "grid" and all(c.name in values and c.has(values[c.name]) for c in asked.space):
            study.enqueue_trial(values)  # what is known comes first, so that the best is never worse
    elif then != now:
        names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
        what = "\n".join(f"  {name}: {then.get(name)} there, {now.get(name)} now" for name in names)
        raise SettingsError(f"{out} holds another search:\n{what}\nChoose another --out, or delete that folder.")
    return study


def _repair_journal(path: Path) -> None:
    """Remove what a kill left: Optuna's lock, and half a line, which Optuna would append to and then read neither."""
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)


def _sampler(asked: Search, number: int) -> BaseSampler:
    """The sampler of a trial; the grid is shuffled once for all."""
    if asked.sampler == "grid":
        return GridSampler({choice.name: list(choice.values) for choice in asked.space}, seed=0)
    if asked.sampler == "random":
        return RandomSampler(seed=number)
    return TPESampler(seed=number, constant_liar=True)  # values that are being tried now are not tried twice


# -- one process of a search -------------------------------------------------------------------------------------------


def _work(share: _Share, slot: int) -> None:
    study = _open_study(share.out, share.asked)
    title = f"search {share.asked.method}"
    hidden = True if not share.show_bars or slot else None
    with tqdm(desc=title, total=share.n_trials, unit="trial", disable=hidden) as bar:
        for trial in _trials(study, share):
            _try(study, trial, share)
            known = study.get_trials(deepcopy=False)
            bar.n = sum(one.state.is_finished() for one in known)
            reached = [one.value for one in known if one.state is TrialState.COMPLETE and one.value is not None]
            bar.set_postfix({"best": f"{100 * max(reached):.1f}%"} if reached else {})


def _trials(study: optuna.Study, share: _Share) -> Iterator[Trial]:
    """Trials that were not finished, then new ones, as long as there are not enough."""
    for frozen in study.get_trials(states=(TrialState.RUNNING,)):
        if frozen.number in share.unfinished:
            study.sampler = _sampler(share.asked, frozen.number)
            yield _with_values(Trial(study, frozen._trial_id), study, share.asked)
    while True:
        with FileLock(share.out / ASK_LOCK):  # processes ask one after another: never more trials than asked for
            known = study.get_trials(deepcopy=False, states=tuple(STATES))
            if len(known) >= share.n_trials or 0 < share.asked.n_grid <= len({_key(one) for one in known}):
                return
            study.sampler = _sampler(share.asked, len(known))
            trial = _with_values(study.ask(), study, share.asked)
        yield trial


def _with_values(trial: Trial, study: optuna.Study, asked: Search) -> Trial:
    """A trial whose values are drawn and written down; those of an unfinished one stay as they are."""
    trial.set_user_attr("values", {choice.name: choice.suggest(trial) for choice in asked.space})
    study.sampler = RandomSampler()  # a grid's would end a loop of Optuna's own, and there is none
    return trial


def _try(study: optuna.Study, trial: Trial, share: _Share) -> None:
    """Run a trial stream by stream and tell the study; the same values are not run twice."""
    values: dict[str, Setting] = trial.user_attrs["values"]
    for other in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        if other.user_attrs["values"] == values:
            trial.set_user_attr("accuracies", other.user_attrs["accuracies"])
            trial.set_user_attr("is_repeat", True)
            study.tell(trial, other.value)
            return
    settings = share.asked.with_values(values)
    folder = share.out / TRIALS / str(trial.number)
    accuracies: list[float] = []
    for run in settings.runs():
        finished = run_planned([PlannedRun(run, folder)], cache=CacheSettings.of(settings), show_bars=False)
        if finished.faults:
            trial.set_user_attr("fault", finished.faults[0])
            study.tell(trial, state=TrialState.FAIL)
            return
        accuracy = finished.records[0].accuracy[share.asked.protocol] or []
        accuracies.append(accuracy[-1])
        trial.set_user_attr("accuracies", accuracies)
        step = len(accuracies)
        if step not in study.get_trials(deepcopy=False)[trial.number].intermediate_values:  # told before it was killed?
            trial.report(math.fsum(accuracies) / step, step)
        if share.asked.prune and step < len(settings.seeds) and trial.should_prune():
            study.tell(trial, state=TrialState.PRUNED)
            return
    study.tell(trial, math.fsum(accuracies) / len(accuracies))


def _key(trial: FrozenTrial) -> str:
    """The values of a trial as one text."""
    return json.dumps(trial.user_attrs.get("values", trial.number), sort_keys=True)


# -- what came out -----------------------------------------------------------------------------------------------------


def _found(study: optuna.Study, faults: list[str]) -> SearchResult:
    trials = study.get_trials(deepcopy=False, states=tuple(STATES))
    tried = tuple(Tried(one.number, STATES[one.state], **one.user_attrs) for one in trials)
    failed = [f"trial {one.number}: {one.fault}" for one in tried if one.fault]
    return SearchResult(tried, _importance(study), (*failed, *faults))


def _importance(study: optuna.Study) -> dict[str, float]:
    """How much of the variance between whole trials each setting explains (fANOVA); needs trials that differ."""
    reached = {trial.value for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))}
    if len(reached) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return optuna.importance.get_param_importances(study, evaluator=evaluator)
