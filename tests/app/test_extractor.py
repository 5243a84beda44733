"""What people do with an extractor: teach, ask, correct, undo."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from toy_extractor import BORN, CAPITAL, DIM, FOUNDED, QUESTIONS, Words, open_toy, scores, taught

from erda.app.extractor import Extractor
from erda.encoders.contract import Unlabelled, UnlabelledFile, save_unlabelled
from erda.errors import DataError, ErdaError, ModelError, SettingsError
from erda.methods import METHODS
from erda.text.marks import example_from_marks
from erda.types import EncoderSpec, Task
from toy_world import toy_encoder, toy_example, toy_questions, toy_task


def toy_scores(extractor: Extractor) -> np.ndarray:
    return extractor.version.method.predict(toy_questions(4)[0]).scores


def assert_close(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Equal up to rounding: the BiLSTM's vectors depend on the other sentences of a batch, by 1e-7 on ARM."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


def test_examples_come_as_marks_as_tokens_or_as_text(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    plain = "SpaceX was founded by Elon ."
    tokens = {"tokens": plain.split(), "head": {"span": [0, 1]}, "tail": {"span": [4, 5]}}
    text = {"text": plain, "head": {"span": [0, 6]}, "tail": {"span": [22, 26]}}
    given = [QUESTIONS[0], example_from_marks(QUESTIONS[0]), tokens, text]
    answers = extractor.predict(given)
    assert len({answer.ranked[0].score for answer in answers}) == 1
    assert answers == [extractor.predict(one) for one in given]
    said = extractor.teach("founded by", given)
    assert (said.n_examples, len(said.duplicates)) == (1, 3)


@pytest.mark.parametrize("name", sorted(METHODS.builtin))
def test_every_method_can_be_taught_kept_and_undone(name: str, tmp_path: Path) -> None:
    extractor = Extractor.open(tmp_path, method=name, encoder=toy_encoder(3), method_settings={"seed": 3})
    method = METHODS[name](toy_encoder(3), seed=3)
    first = None
    for index in range(2):
        held = extractor.version
        extractor.teach_many(toy_task(index))
        method.learn(toy_task(index))
        if held.number:
            np.testing.assert_array_equal(held.method.predict(toy_questions(2)[0]).scores, first)
        first = extractor.version.method.predict(toy_questions(2)[0]).scores
    assert_close(toy_scores(extractor), method.predict(toy_questions(4)[0]).scores)
    again = Extractor.open(tmp_path, encoder=toy_encoder(3))
    np.testing.assert_array_equal(toy_scores(again), toy_scores(extractor))
    extractor.undo()
    assert len(extractor.relations) == 2
    again.teach_many(toy_task(2))  # on top of what another process undid
    assert [one.id for one in again.relations] == ["r0", "r1", "r4", "r5"]


@pytest.mark.parametrize("name", sorted(METHODS.builtin))
def test_what_is_taken_back_was_never_taught(name: str, tmp_path: Path) -> None:
    """An example of the first teaching goes; two teachings of its relation and another relation stay."""
    tasks = [toy_task(0), Task(1, toy_task(0).relations[:1], (toy_example(0, 90),)), toy_task(1)]
    extractor = Extractor.open(tmp_path / "a", method=name, encoder=toy_encoder(3))
    never = Extractor.open(tmp_path / "b", method=name, encoder=toy_encoder(3))
    gone = tasks[0].examples[2]
    for task in tasks:
        extractor.teach_many(task)
        never.teach_many(Task(task.index, task.relations, tuple(one for one in task.examples if one != gone)))
    extractor.take_back(next(one.number for one in extractor.examples("r0") if one.example == gone))
    assert_close(toy_scores(extractor), toy_scores(never))
    with pytest.raises(DataError, match="No such example was taught"):
        extractor.take_back(gone)
    extractor.undo()
    assert gone in [one.example for one in extractor.examples("r0")]


def test_several_examples_are_taken_back_in_one_version_or_not_at_all(tmp_path: Path) -> None:
    extractor = open_toy(tmp_path / "x")
    extractor.teach_many({"born in": BORN, "founded by": FOUNDED})
    extractor.judge(QUESTIONS[0], "born in", holds=False)
    before = extractor.version.number
    assert extractor.take_back_many([]) == before
    with pytest.raises(DataError, match="No such example was taught"):
        extractor.take_back_many([FOUNDED[0], 999])
    assert extractor.version.number == before
    after = extractor.take_back_many([FOUNDED[0], extractor.examples("born in")[0].number, QUESTIONS[0]])
    assert after == extractor.version.number == before + 1
    counts = [len(extractor.examples(name)) for name in ("born in", "founded by")]
    assert (counts, extractor.counterexamples("born in")) == ([len(BORN) - 1, len(FOUNDED) - 1], ())
    what = "took back 3 examples of founded by, born in, counterexamples of born in"
    assert extractor.history()[-1].what == what


def test_the_last_example_is_taken_back_where_a_name_is_read(tmp_path: Path) -> None:
    reader = open_toy(tmp_path / "reader")
    reader.teach_many({"born in": BORN, "founded by": FOUNDED[:1]})
    reader.take_back(FOUNDED[0])
    assert [one.id for one in reader.relations] == ["born in", "founded by"], "known by its name"
    extractor = open_toy(tmp_path / "x", method="idlvq-c")
    extractor.teach_many({"born in": BORN, "founded by": FOUNDED[:1]})
    with pytest.raises(DataError, match=r"only example of 'founded by'; forget\('founded by'\)"):
        extractor.take_back(FOUNDED[0])
    assert extractor.version.number == 1


def test_a_contradicting_example_moves_and_is_said(tmp_path: Path) -> None:
    extractor = taught(tmp_path, method_settings={"name_weight": 0.0})
    said = extractor.teach("moved to", [BORN[0], "[[Ada]] moved to {{Paris}}"])
    assert [(one.before, one.after) for one in said.moved] == [("born in", "moved to")]
    assert "moved from born in to moved to" in str(said)
    assert [len(extractor.examples(name)) for name in ("born in", "moved to")] == [1, 2]
    never = open_toy(tmp_path / "never", method_settings={"name_weight": 0.0})
    never.teach("founded by", FOUNDED)
    never.teach_many({"born in": BORN[1:], "capital of": CAPITAL})
    never.teach("moved to", [BORN[0], "[[Ada]] moved to {{Paris}}"])
    np.testing.assert_array_equal(scores(extractor), scores(never))
    said = extractor.teach("lived in", [BORN[1]])
    assert said.forgotten == ("born in",)
    assert "born in has no example left and is forgotten" in str(said)
    assert [one.id for one in extractor.relations] == ["founded by", "capital of", "moved to", "lived in"]
    said = extractor.teach_many({"a": ["[[x]] y {{z}}"], "b": ["[[x]] y {{z}}", "[[x]] q {{z}}"]})
    assert (said.new, said.forgotten) == (("b",), ("a",))


def test_a_snapshot_stays_as_it_is_while_others_teach_and_ask(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    held, before = extractor.version, scores(extractor)

    def ask(_: int) -> bool:
        answers = held.predict(QUESTIONS, top=100)
        extractor.predict(QUESTIONS)
        return [[one.relation for one in answer.ranked] for answer in answers] == expected

    expected = [[one.relation for one in answer.ranked] for answer in held.predict(QUESTIONS, top=100)]
    with ThreadPoolExecutor(4) as pool:
        asked = pool.map(ask, range(40))
        for number in range(5):
            extractor.teach(
                f"relation {number}", [f"[[a{number}]] of {{{{b{number}}}}}", f"{{{{c}}}} in [[d{number}]]"]
            )
        assert all(asked)
    assert len(held.relations) == 3
    assert len(extractor.relations) == 8
    extractor.rollback(2)
    np.testing.assert_array_equal(scores(extractor), before)


def test_another_method_or_encoder_is_taught_everything_when_asked(tmp_path: Path) -> None:
    taught(tmp_path)
    with pytest.raises(ModelError, match="was taught to method 'posterior' over encoder 'words', not to 'idlvq-c'"):
        open_toy(tmp_path, method="idlvq-c")
    with pytest.raises(ModelError, match="open it with relearn=True"):
        open_toy(tmp_path, encoder=Words("other"))
    with pytest.raises(SettingsError, match="Unknown method 'frozn'"):
        open_toy(tmp_path, method="frozn")
    steps: list[tuple[int, int]] = []
    other = open_toy(tmp_path, encoder=Words("other"), relearn=True, progress=lambda *step: steps.append(step))
    assert steps == [(1, 2), (2, 2)]
    assert other.version.number == 3
    np.testing.assert_array_equal(scores(other), scores(taught(tmp_path / "fresh", encoder=Words("other"))))
    assert open_toy(tmp_path, encoder=Words("other"), relearn=True).version.number == 3, "nothing else to learn"
    settings = {"shrinkage": 0.5}
    assert open_toy(tmp_path, encoder=Words("other"), method_settings=settings, relearn=True).version.number == 4
    other.rollback(2)
    with pytest.raises(ErdaError):
        other.predict(QUESTIONS)


def test_a_store_of_the_former_default_encoder_is_taught_again_when_asked(tmp_path: Path) -> None:
    """Its int8 file of MiniLM no longer exists."""
    former = Words()
    former.spec = EncoderSpec("minilm", {"engine": "packaged", "trained_layers": 0, "adapter": "shipped"}, "f" * 64)
    taught(tmp_path, encoder=former)
    store = Extractor.open(tmp_path)
    assert len(store.relations) == 3
    for asked in (lambda: store.predict(QUESTIONS), lambda: store.teach("led by", QUESTIONS[:1])):
        with pytest.raises(ModelError, match=r"other weights of encoder 'minilm'.*erda teach --relearn"):
            asked()
    with pytest.raises(ModelError, match=r"over encoder 'minilm' \(engine packaged\), not .* over 'open'.*--relearn"):
        Extractor.open(tmp_path, encoder="open")
    moved = Extractor.open(tmp_path, relearn=True)
    assert moved.version.method.encoder.spec.name == "open"
    assert moved.predict(QUESTIONS[0]).ranked[0].relation == "founded by"


def test_a_background_made_later_changes_answers_only_when_it_is_asked_for(tmp_path: Path) -> None:
    encoder, weights = Words(), tmp_path / "weights"
    encoder.unlabelled_file = UnlabelledFile(weights, "words")
    before = scores(taught(tmp_path / "x", encoder=encoder))
    vectors, none = np.random.default_rng(0).normal(size=(20, DIM)), np.zeros((20, 2))
    pairs = Unlabelled(np.zeros(DIM), np.eye(DIM), np.ones(DIM), vectors, none, none, ("PERSON",), np.eye(2), vectors)
    save_unlabelled(weights, pairs, "words")
    later = open_toy(tmp_path / "x", encoder=encoder)
    np.testing.assert_array_equal(scores(later), before)
    later.teach("led by", ["[[Tesla]] is led by {{Elon}} ."])
    later.forget("led by")
    np.testing.assert_array_equal(scores(later), before)
    taken = open_toy(tmp_path / "x", encoder=encoder, relearn=True)
    np.testing.assert_array_equal(scores(taken), scores(taught(tmp_path / "fresh", encoder=encoder)))
    assert np.abs(scores(taken) - before).max() > 0.01
    assert open_toy(tmp_path / "x", encoder=encoder, relearn=True).version.number == taken.version.number
    taken.undo()
    np.testing.assert_array_equal(scores(taken), before)


def test_a_relation_is_taught_by_its_name_alone(tmp_path: Path) -> None:
    extractor = taught(tmp_path / "x")
    said = extractor.teach("capital city", description="the seat of a government")
    assert (said.new, said.n_examples) == (("capital city",), 0)
    assert extractor.examples("capital city") == ()
    assert "capital city" in [one.relation for one in extractor.predict(QUESTIONS[0], top=9).ranked]
    np.testing.assert_array_equal(scores(open_toy(tmp_path / "x")), scores(extractor))
    by_name = scores(extractor)
    extractor.teach("capital city", ["[[Bern]] is the capital city of {{Switzerland}}"])
    assert not np.array_equal(scores(extractor), by_name)
    extractor.take_back("[[Bern]] is the capital city of {{Switzerland}}")
    np.testing.assert_array_equal(scores(extractor), by_name)
    with pytest.raises(DataError, match="was taught by its name alone; suggestions need at least one example"):
        extractor.suggest("capital city", tmp_path)
    only = open_toy(tmp_path / "only")
    only.teach_many({"born in": [], "founded by": []})
    assert only.predict(QUESTIONS[1]).ranked[0].exemplar is None
    assert only.explain(QUESTIONS[1]).nearest == ()
    assert only.version.extract("Ada was born in Rome.", ["Ada", "Rome"]).answers


def test_an_example_that_looks_reversed_is_reported(tmp_path: Path) -> None:
    """Over the packaged encoder; a reversed sentence, exchanged types, and no alarm about a right sentence."""
    extractor = Extractor.open(tmp_path)
    assert extractor.teach("founded by", ["[[Tesla]] was founded by {{Martin Eberhard}}."]).warnings == ()
    assert extractor.teach("founded by", ["{{Bill Gates}} founded [[Microsoft]] in 1975."]).warnings == ()
    (doubted,) = extractor.reversed_examples("founded by", ["[[Larry Page]] founded {{Google}}."])
    assert doubted.head.name == "Larry Page"
    done = extractor.teach("founded by", ["[[Larry Page]] founded {{Google}}.", "{{Jobs}} set up [[Apple]]."])
    assert len(done.warnings) == 1
    assert done.warnings[0].startswith("'Larry Page -> founded by -> Google' looks like the reverse")
    assert done.warnings[0].endswith("{{Larry Page}} founded [[Google]] .")
    row = {"text": "Bo met Acme.", "head": {"span": [0, 2], "type": "PER"}, "tail": {"span": [7, 11], "type": "ORG"}}
    turned = {**row, "head": row["tail"], "tail": row["head"]}
    assert extractor.teach("works for", [row, {**row, "text": "Al met Aces."}]).warnings == ()
    assert len(extractor.teach("works for", [{**turned, "text": "Ed met Apex."}]).warnings) == 1
