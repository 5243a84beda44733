"""Entity pairs of a user's own texts between which a relation may hold, most useful first.

The texts need no index: entities are found, and each pair is embedded once. Vectors are kept on disk. If there are many
texts or pairs, those that share words with taught examples come first, and the rest is tagged and embedded when these
are used up.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from math import log, sqrt
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from erda.answers import Progress, Suggestion
from erda.app.questions import NO_ENTITY, PairQuestions
from erda.app.review_journal import FOLDER, VECTORS, ReviewJournal
from erda.app.texts import TextRow, text_rows
from erda.app.version import Version, words_outside
from erda.encoders.contract import Encoder
from erda.errors import DataError, ErdaError
from erda.files import read_arrays, remove_unfinished, user_path, write_arrays
from erda.text.language import NOT_ENGLISH
from erda.types import Example, pair_key

T = TypeVar("T")
TAGGED_AT_ONCE = 2_000  # texts whose entities are found before the first pair is shown: ten to twenty seconds
AT_ONCE = 3_000  # pairs that are embedded before the first is shown: half a minute on one core
BATCH = 256  # texts or pairs between two calls of `progress`
LEAST_CONFIDENCE = 0.05  # of a pair that is worth showing
LIKELY = 4  # of five candidates, the number of the most likely ones; the fifth is the least certain one
MOST_ASKED = 50  # taught examples whose neighbours are searched in a corpus
WIDER = 10  # times as many candidates of a corpus as suggestions
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pair of entities, the relation that may hold, and its confidence."""

    example: Example
    relation: str
    confidence: float
    key: str
    is_answer: bool = False  # the confidence is above the threshold


class _Remembering:
    """An encoder that embeds each pair once. Everything else is done by the encoder itself.

    Vectors, by the key of a pair, are in memory and in a file; a missing or damaged file is ignored.
    """

    def __init__(self, encoder: Encoder, path: Path) -> None:
        self._encoder, self._path, self.vectors = encoder, path, dict[str, np.ndarray]()
        remove_unfinished(path.parent, of=path.name)  # of a killed process
        if path.is_file():
            with suppress(ErdaError, KeyError, ValueError):
                found = read_arrays(path)
                self.vectors = dict(zip(map(str, found["keys"]), found["vectors"], strict=True))
        self._n_written = len(self.vectors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def embed(self, examples: Sequence[Example], **options: Any) -> np.ndarray:
        if options.get("blanked"):
            return self._encoder.embed(examples, **options)
        keys, kept = [pair_key(one) for one in examples], self.vectors
        if new := {key: one for key, one in zip(keys, examples, strict=True) if key not in kept}:
            kept |= zip(new, self._encoder.embed(list(new.values()), **options), strict=True)
        return np.stack([kept[key] for key in keys])

    def write(self) -> None:
        """Write the file if it has grown."""
        if len(self.vectors) == self._n_written:
            return
        arrays = {"keys": np.array(list(self.vectors)), "vectors": np.stack(list(self.vectors.values()))}
        with suppress(ErdaError):  # a store that cannot be written: the vectors are only in memory
            write_arrays(self._path, arrays, compress=False)
            self._n_written = len(self.vectors)


class CandidatePool:
    """All entity pairs of some texts, by sentence. `version` finds the entities; vectors are kept in its `store`."""

    def __init__(
        self,
        version: Version,
        texts: Iterable[TextRow],
        store: Path,
        *,
        pronouns: bool = True,
        progress: Progress | None = None,
    ) -> None:
        weights = version.state.stamp.setup.encoder.fingerprint[:16]
        self._encoder = _Remembering(version.method.encoder, store / FOLDER / VECTORS.format(weights))
        self._over: tuple[Version, Version] | None = None  # a version, and the same with kept vectors
        self._untagged, self._pronouns = list(texts), pronouns
        self.n_texts, self.n_entities, self.hint = len(self._untagged), 0, ""
        self._seen = set[tuple[str, ...]]()  # sentences that were tagged
        self._waiting, self._embedded = list[PairQuestions](), list[PairQuestions]()
        self.keys = set[str]()  # of the embedded pairs
        self.n_unlikely = 0.0  # expected number of facts among pairs that are too unlikely to show
        self._tag_more(version, None, progress)

    @property
    def n_pairs(self) -> int:
        """Number of pairs, in both directions."""
        return sum(len(one.examples) for own in (self._waiting, self._embedded) for one in own)

    def ranked(
        self,
        version: Version,
        relation: str | None = None,
        *,
        without: Collection[str] = (),
        progress: Progress | None = None,
    ) -> list[Candidate]:
        """Rank the pairs that were not taught and are not in `without`; embed more pairs until one is likely enough."""
        while True:
            found = self._candidates(version, relation, without)
            if found or not (self._waiting or self._untagged):
                return most_useful_first(found)
            if not self._waiting:
                self._tag_more(version, relation, progress)
            self._embed_more(version, relation, progress)

    def _tag_more(self, version: Version, relation: str | None, progress: Progress | None) -> None:
        """Find the entities of the next texts; texts that share words with taught examples come first."""
        if len(self._untagged) > TAGGED_AT_ONCE:
            words = [set(_WORD.findall(row.text.lower())) for row in self._untagged]
            self._untagged = _promising_first(self._untagged, words, version, relation)
        rows, self._untagged = self._untagged[:TAGGED_AT_ONCE], self._untagged[TAGGED_AT_ONCE:]
        for start in range(0, len(rows), BATCH):
            given = [(row.text, row.marks()) for row in rows[start : start + BATCH]]
            for questions in version.questions_of(given, pronouns=self._pronouns):
                for sentence in _by_sentence(questions):
                    if sentence.examples[0].tokens not in self._seen:
                        self._seen.add(sentence.examples[0].tokens)
                        self._waiting.append(sentence)
                self.n_entities += questions.n_entities
                hint = questions.hint.removeprefix(NO_ENTITY).removesuffix(NOT_ENGLISH)
                self.hint = hint.strip()  # how to get a better tagger
            if progress and len(rows) > BATCH:
                progress(min(start + BATCH, len(rows)), len(rows))

    def _embed_more(self, version: Version, relation: str | None, progress: Progress | None) -> None:
        words = [{token.lower() for token in one.examples[0].tokens} for one in self._waiting]
        ordered = _promising_first(self._waiting, words, version, relation)
        new = [[one for one in sentence.examples if pair_key(one) not in self._encoder.vectors] for sentence in ordered]
        n_known = self.n_pairs - sum(map(len, new))
        n_left, self._waiting, chosen = max(AT_ONCE - n_known, AT_ONCE // 10, 1), [], list[Example]()
        for sentence, examples in zip(ordered, new, strict=True):  # sentences whose vectors are kept cost nothing
            is_chosen = not examples or len(chosen) < n_left
            (self._embedded if is_chosen else self._waiting).append(sentence)
            chosen += examples if is_chosen else ()
            self.keys.update(map(pair_key, sentence.examples) if is_chosen else ())
        if not version.method.trains:
            for start in range(0, len(chosen), BATCH):
                self._encoder.embed(chosen[start : start + BATCH])
                if progress:
                    progress(min(start + BATCH, len(chosen)), len(chosen))
            self._encoder.write()

    def _remembering(self, version: Version) -> Version:
        """The version over an encoder that keeps vectors; a trained encoder changes, so its vectors are not kept."""
        if version.method.trains:
            return version
        if self._over is None or self._over[0] is not version:
            self._over = version, version.over(cast("Encoder", self._encoder))
        return self._over[1]

    def _candidates(self, version: Version, relation: str | None, without: Collection[str]) -> list[Candidate]:
        holds = {key for key, said in version.judged.items() if any(said.values())}
        judged = version.judged.keys() | without
        n_relations = len(version.relations)
        best: dict[object, Candidate] = {}
        extractions = self._remembering(version).answer_texts(self._embedded, top=n_relations if relation else 1)
        for sentence, extraction in enumerate(extractions):
            for answer in extraction.answers:
                chosen = next(one for one in answer.ranked if relation in (None, one.relation))
                key, example = pair_key(answer.example), answer.example
                reverse = replace(example, head=example.tail, tail=example.head)
                if key in judged or pair_key(reverse) in holds:
                    continue
                pair = sentence, frozenset((answer.head_name, answer.tail_name))
                if pair not in best or best[pair].confidence < chosen.confidence:
                    is_answer = chosen.relation in answer.relations
                    example = replace(example, relation=None)
                    best[pair] = Candidate(example, chosen.relation, chosen.confidence, key, is_answer)
        likely = [one for one in best.values() if one.confidence >= LEAST_CONFIDENCE]
        self.n_unlikely = sum(one.confidence for one in best.values()) - sum(one.confidence for one in likely)
        return likely

    def expected(self, right: Set[str], left: Sequence[Candidate], n_more: int) -> tuple[str, bool]:
        """Say what to expect of the answers about these texts, by the confidences of the pairs left.

        `right` are keys of confirmed pairs. The bool says whether `n_more` judgements would change neither share by
        a point.
        """
        about = len(right & self.keys), left, self.n_unlikely
        (precision, found), later = _shares(*about, 0), _shares(*about, n_more)
        if not found:
            return "", False
        gains = [100 * (after - before) for after, before in zip(later, (precision, found), strict=True)]
        is_enough = max(gains) < 1
        more = "would change neither by a point" if is_enough else f"add {gains[0]:.0f} and {gains[1]:.0f} points"
        shares = f"{100 * precision:.0f} % of the answers right, {100 * found:.0f} % of the facts found"
        return f"Expected: {shares}; {n_more} more judgements {more}.", is_enough


def _shares(n_right: int, left: Sequence[Candidate], n_unlikely: float, n_judged: int) -> list[float]:
    """Expected shares of right answers and of facts found, after the first `n_judged` pairs left were judged.

    A judged pair is an answer if its relation holds; `n_right` pairs were confirmed before.
    """
    sure = n_right + sum(one.confidence for one in left[:n_judged])
    answers = [one.confidence for one in left[n_judged:] if one.is_answer]
    facts = n_right + sum(one.confidence for one in left) + n_unlikely
    return [(sure + sum(answers)) / max(n, 1e-9) for n in (sure + len(answers), facts)]


def _by_sentence(questions: PairQuestions) -> Iterator[PairQuestions]:
    """Split the pairs of a text by sentence."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, example in enumerate(questions.examples):
        rows.setdefault(example.tokens, []).append(row)
    for own in rows.values():
        examples = tuple({questions.examples[row]: row for row in own})
        places = tuple({questions.examples[row]: questions.places[row] for row in own}.values())
        yield replace(questions, examples=examples, places=places)


def most_useful_first(found: Sequence[Candidate]) -> list[Candidate]:
    """Order candidates: likely and uncertain ones in turn, relations in turn, and different sentences first."""
    by_relation: dict[str, list[Candidate]] = defaultdict(list)
    for one in found:
        by_relation[one.relation].append(one)
    turns, of_five = list[tuple[int, Candidate]](), LIKELY + 1
    for own in by_relation.values():
        own.sort(key=lambda one: -one.confidence)
        uncertain = {one.key: n for n, one in enumerate(sorted(own, key=lambda one: abs(one.confidence - 0.5)))}
        places = [min(of_five * n / LIKELY, of_five * uncertain[one.key] + LIKELY) for n, one in enumerate(own)]
        turns += enumerate(own[n] for n in np.argsort(places, kind="stable"))
    n_before, ordered = Counter[tuple[str, ...]](), list[tuple[int, Candidate]]()
    for _, one in sorted(turns, key=lambda turn: turn[0]):
        ordered.append((n_before[one.example.tokens], one))
        n_before[one.example.tokens] += 1
    return [one for _, one in sorted(ordered, key=lambda pair: pair[0])]


def _promising_first(texts: Sequence[T], words: Sequence[Set[str]], version: Version, relation: str | None) -> list[T]:
    """Order texts by the rare ones of their `words` that occur in taught examples."""
    n_with = Counter(word for own in words for word in own)
    taught = [lesson.example for one in version.state.known if relation in (None, one.id) for lesson in one.lessons]
    wanted = {token.lower() for example in taught for _, token in words_outside(example)}
    weights = {word: log(len(words) / n_with[word]) for word in wanted if word in n_with}
    scores = [sum(weights.get(word, 0.0) for word in own) / sqrt(max(len(own), 1)) for own in words]
    return [texts[place] for place in sorted(range(len(texts)), key=lambda place: -scores[place])]


def suggest(
    version: Version,
    relation: str,
    texts: str | Path | Iterable[str],
    *,
    store: Path,
    n: int = 10,
    pronouns: bool = True,
    progress: Progress | None = None,
) -> list[Suggestion]:
    """The most useful candidates of a relation; vectors are kept in the store, and pairs shown in reviews left out."""
    given = user_path(texts) if isinstance(texts, str | Path) else texts
    if isinstance(given, Path) and not given.exists():
        raise DataError(f"{given}: no such file or corpus. Put a text into a list: [text].")
    if n < 1:
        raise DataError(f"n: must be at least 1, got {n}.")
    if isinstance(given, Path) and not given.is_file():
        return _suggest_from_corpus(version, relation, given, n)
    name = version.known(relation).id
    pool = CandidatePool(version, text_rows(given), store, pronouns=pronouns, progress=progress)
    shown = ReviewJournal(store / FOLDER, version.judged.keys()).shown
    found = pool.ranked(version, name, without=shown, progress=progress)
    return [Suggestion(one.example, one.confidence) for one in found[:n]]


def _suggest_from_corpus(version: Version, relation: str, corpus: Path, n: int) -> list[Suggestion]:
    """Find sentences near the taught examples of a relation, the least certain answers first.

    A confident answer teaches little, and a sentence that the extractor would reject is rarely an example.
    """
    from erda.corpus.augment import MOST_NEIGHBOURS, open_augmenter

    known = version.known(relation)
    if not known.lessons:
        raise DataError(f"'{known.id}' was taught by its name alone; suggestions need at least one example of it.")
    taught = [lesson.example for lesson in known.lessons[-MOST_ASKED:]]
    each = min(-(-WIDER * n // len(taught)), MOST_NEIGHBOURS)
    found = open_augmenter(corpus).find(
        taught,
        known=[lesson.example for one in version.state.known for lesson in one.lessons],
        match_threshold=0.0,
        max_matches=each,
        n_neighbours=each,
        search_matched=True,
    )
    extras = {extra.example: extra.score for extra in found.extras}
    answers = version.predict(list(extras), top=len(version.relations))
    suggestions = [
        Suggestion(extra, next(one.confidence for one in answer.ranked if one.relation == known.id), score)
        for (extra, score), answer in zip(extras.items(), answers, strict=True)
    ]
    suggestions = [one for one in suggestions if one.confidence >= LEAST_CONFIDENCE]
    return sorted(suggestions, key=lambda one: (abs(one.confidence - 0.5), -(one.similarity or 0)))[:n]
