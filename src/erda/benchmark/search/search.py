"""Search for settings on validation data, with Optuna.

A trial is one choice of values. It runs on every stream of the search, and its mean accuracy after the last task is the
objective. The study is Optuna's SQLite storage (`OUT/study.db`); the records of a trial are in `OUT/trials/VALUES`.
An interrupted search queues its interrupted trials again, which find their finished runs by their values. With one
process, an interrupted search tries the same values as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError
from tqdm import tqdm

from erda.benchmark.experiments import slug_of
from erda.benchmark.metrics import CANDIDATES
from erda.benchmark.run.engines import Outcome, run_here, run_in_processes
from erda.benchmark.run.planned_runs import CacheSettings, PlannedRun, run_planned, shared_cache
from erda.benchmark.run.stream_tests import StreamTests
from erda.benchmark.search.space import Choice, as_text
from erda.errors import ErdaError, RecordError, SettingsError
from erda.files import first_line, locked
from erda.settings.build import open_run_stream
from erda.settings.runs import RunSettings, Setting

STUDY = "study.db"
TRIALS = "trials"
N_TRIALS = 40  # of a search without a grid
WHOLE, CUT, FAILED = "whole", "cut short", "failed"
STATES = {TrialState.COMPLETE: WHOLE, TrialState.PRUNED: CUT, TrialState.FAIL: FAILED}
N_STARTUP = 5  # trials before pruning starts
# user attributes of a trial; a failed trial without a fault was interrupted
VALUES, ACCURACIES, FAULT, RESUMES = "values", "accuracies", "fault", "resumes"
Values = dict[str, Setting]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search over `space` for one method of `settings`, measured on validation data.

    With `prune`, a trial stops if its mean is below the median of the others after the same streams.
    """

    settings: RunSettings
    space: tuple[Choice, ...]
    sampler: str
    protocol: str
    prune: bool = True

    @property
    def method(self) -> str:
        """Method whose settings are searched."""
        return self.settings.methods[0]

    @property
    def n_grid(self) -> int:
        """Number of choices of values; 0 if a range has no steps."""
        return math.prod(len(choice.values) for choice in self.space)

    def grid(self) -> list[Values]:
        """Every choice of values, in a fixed random order."""
        names = [choice.name for choice in self.space]
        found = [dict(zip(names, one, strict=True)) for one in itertools.product(*(one.values for one in self.space))]
        random.Random(0).shuffle(found)
        return found

    def with_values(self, values: Values) -> RunSettings:
        """Settings of a trial."""
        own: dict[str, Values] = {self.method: {}, "encoder": {}}
        for name, value in values.items():
            owner, _, setting = name.rpartition(".")
            own[owner][setting] = value
        method = {**self.settings.method_settings[self.method], **own[self.method]}
        encoder = {**self.settings.encoder_settings, **own["encoder"]}
        changes = {"method_settings": {self.method: method}, "encoder_settings": encoder}
        return self.settings.model_copy(update=changes)

    def current(self) -> Values | None:
        """Values of the current settings; None if they are not in the space."""
        found = {f"{self.method}.{name}": value for name, value in self.settings.method_settings[self.method].items()}
        found |= {f"encoder.{name}": value for name, value in self.settings.encoder_settings.items()}
        inside = all(choice.name in found and choice.has(found[choice.name]) for choice in self.space)
        return {choice.name: found[choice.name] for choice in self.space} if inside else None

    def to_json(self) -> dict[str, Any]:
        """Settings that must not change when a search resumes."""
        settings = self.settings.model_dump()
        for name in ("cache_gb", "cache_dir", "device"):
            settings.pop(name)
        value = {**settings, "space": [str(choice) for choice in self.space], "sampler": self.sampler}
        return json.loads(json.dumps({**value, "protocol": self.protocol, "prune": self.prune}))


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial that has ended: its values and measured accuracies, in the order of the seeds."""

    number: int
    state: str  # WHOLE (it ran on every stream), CUT or FAILED
    values: Values = field(default_factory=dict)
    accuracies: tuple[float, ...] = ()
    fault: str = ""

    @property
    def accuracy(self) -> float:
        """Mean accuracy after the last task, as a fraction."""
        return math.fsum(self.accuracies) / len(self.accuracies)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Trials of a search without duplicates, and faults."""

    trials: tuple[Tried, ...]
    faults: tuple[str, ...]

    def ranked(self) -> list[Tried]:
        """Complete trials, best first."""
        return sorted((one for one in self.trials if one.state == WHOLE), key=lambda one: (-one.accuracy, one.number))


def search(
    asked: Search, *, out: Path, n_trials: int | None = None, n_processes: int = 1, show_bars: bool = True
) -> SearchResult:
    """Search until `out` holds `n_trials` trials (default: the whole grid, or 40) or the space is exhausted."""
    n_trials = n_trials or (asked.n_grid if asked.sampler == "grid" else N_TRIALS)
    n_trials = min(n_trials, asked.n_grid or n_trials)
    _check_protocol(asked)
    with locked(out, busy="another search is running in this folder; wait until it ends", error=RecordError):
        with study_of(asked, out) as study:
            n_ended = _fill_queue(study, asked, n_trials)
        with shared_cache(CacheSettings.of(asked.settings), lambda: out, needed=n_processes > 1) as cache:
            pieces = [_Piece(asked, out, seed, cache) for seed in range(n_ended, n_trials)]
            outcomes: Iterable[Outcome[_Piece, None]]
            if n_processes > 1:
                outcomes = run_in_processes(_run_trial, pieces, n_processes=n_processes)
            else:
                outcomes = run_here(_run_trial, pieces)
            hidden = None if show_bars else True  # None: only on a terminal
            shown = tqdm(outcomes, f"search {asked.method}", total=len(pieces), unit="trial", disable=hidden)
            faults = [str(outcome.fault) for outcome in shown if outcome.fault is not None]
        with study_of(asked, out) as study:
            return _result(study, faults)


def _check_protocol(asked: Search) -> None:
    """Reject a protocol that the dataset does not support."""
    stream = open_run_stream(asked.settings.runs()[0])
    answers = StreamTests(stream, asked.settings.evaluate_on).answers
    if asked.protocol == CANDIDATES and any(one.listed is None for one in answers):
        raise SettingsError("--protocol candidates: the dataset lists no candidates; use --protocol all-seen.")


# -- the study ---------------------------------------------------------------------------------------------------------


@contextmanager
def study_of(asked: Search, out: Path) -> Iterator[optuna.Study]:
    """Open or create the study in `out`; reject a study of another search."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = out / STUDY
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{path.absolute()}",
            study_name="erda search",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=N_STARTUP, n_warmup_steps=0),
        )
        then, now = study.user_attrs.get("asked"), asked.to_json()
        if then is None:
            study.set_user_attr("asked", now)
        elif then != now:
            names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
            what = "\n".join(f"  {name}: {then.get(name)} there, {now.get(name)} now" for name in names)
            raise SettingsError(f"{out} holds another search:\n{what}\nChoose another --out, or delete that folder.")
        yield study
    except (
        SQLAlchemyError,
        optuna.exceptions.OptunaError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        raise RecordError(
            f"{path}: cannot be used ({first_line(error)}). If it is damaged, delete it and repeat the command, "
            f"which reads the records in {out / TRIALS}."
        ) from error


def _fill_queue(study: optuna.Study, asked: Search, n_trials: int) -> int:
    """Queue interrupted trials again and, for a grid, untried values; return the number of ended trials."""
    trials = study.get_trials(deepcopy=False)
    for trial in trials:
        if trial.state is TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
    waiting = [one.system_attrs["fixed_params"] for one in trials if one.state is TrialState.WAITING]
    resumed = {one.user_attrs.get(RESUMES) for one in trials}
    for trial in trials:
        if trial.params and _is_interrupted(trial) and trial.number not in resumed:
            study.enqueue_trial(trial.params, user_attrs={RESUMES: trial.number})
            waiting.append(trial.user_attrs.get(VALUES, trial.params))
    ended = [one.user_attrs[VALUES] for one in trials if one.state.is_finished() and not _is_interrupted(one)]
    if asked.sampler == "grid" or n_trials == asked.n_grid:
        known = [*ended, *waiting]
        for values in [one for one in asked.grid() if one not in known][: n_trials - len(known)]:
            study.enqueue_trial(values)
    elif not trials and (current := asked.current()):
        study.enqueue_trial(current)  # first, so that the best is never worse than the current settings
    return len(ended)


def _is_interrupted(trial: FrozenTrial) -> bool:
    return trial.state in (TrialState.RUNNING, TrialState.FAIL) and FAULT not in trial.user_attrs


# -- one trial ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
    """One trial to run: the next in the queue, or new values sampled with the seed."""

    asked: Search
    out: Path
    seed: int
    cache: CacheSettings


class _TrialFailedError(ErdaError):
    """Tells Optuna that a trial failed; the trial stores the fault."""


def _run_trial(piece: _Piece) -> None:
    with study_of(piece.asked, piece.out) as study:
        study.sampler = _sampler(piece)
        study.optimize(partial(_objective, piece), n_trials=1, catch=_TrialFailedError)


def _sampler(piece: _Piece) -> BaseSampler:
    if piece.asked.sampler == "tpe":
        return TPESampler(seed=piece.seed, constant_liar=True)  # avoids values that are being tried
    return RandomSampler(seed=piece.seed)


def _objective(piece: _Piece, trial: Trial) -> float:
    """Run a trial stream by stream; return its mean accuracy after the last task."""
    asked = piece.asked
    values = {choice.name: choice.suggest(trial) for choice in asked.space}
    trial.set_user_attr(VALUES, values)
    settings = asked.with_values(values)
    accuracies: list[float] = []
    for run in settings.runs():
        planned = PlannedRun(run, piece.out / TRIALS / folder_of(values))
        finished = run_planned([planned], cache=piece.cache, show_bars=False)
        if finished.faults:
            trial.set_user_attr(FAULT, finished.faults[0])
            raise _TrialFailedError
        accuracies.append((finished.records[0].accuracy[asked.protocol] or [])[-1])
        trial.set_user_attr(ACCURACIES, accuracies)
        trial.report(math.fsum(accuracies) / len(accuracies), step=len(accuracies))
        if asked.prune and len(accuracies) < len(settings.seeds) and trial.should_prune():
            raise optuna.TrialPruned
    return math.fsum(accuracies) / len(accuracies)


def folder_of(values: Values) -> str:
    """Folder name of a trial: its values, shortened, and a digest that makes it unique."""
    text = ",".join(f"{name.rpartition('.')[2]}-{as_text(value)}" for name, value in values.items())
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return f"{slug_of(text)[:100]}-{digest[:8]}"


# -- the result --------------------------------------------------------------------------------------------------------


def _result(study: optuna.Study, faults: list[str]) -> SearchResult:
    trials: dict[str, Tried] = {}
    for one in study.get_trials(deepcopy=False, states=tuple(STATES)):
        if not _is_interrupted(one):
            attributes = one.user_attrs
            values, accuracies = attributes[VALUES], tuple(attributes.get(ACCURACIES, ()))
            tried = Tried(one.number, STATES[one.state], values, accuracies, attributes.get(FAULT, ""))
            trials.setdefault(folder_of(values), tried)
    failed = [f"trial {one.number}: {one.fault}" for one in trials.values() if one.fault]
    return SearchResult(tuple(trials.values()), (*failed, *faults))
