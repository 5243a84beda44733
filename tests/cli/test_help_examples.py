"""The examples in the help of an extractor's commands do what the help says."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import TESTS, Erda, write_rows
from toy_extractor import BORN, FOUNDED, QUESTIONS

from erda.app.answers import Suggestion
from erda.app.extractor import Extractor
from erda.cli import edit, judge, predict, teach
from erda.text.marks import example_from_marks


def commands_of(help_text: str) -> list[str]:
    """The examples at the end of a help."""
    return [line.strip() for line in help_text.strip().rpartition("examples:\n")[2].splitlines()]


def run_example(erda: Erda, line: str) -> SimpleNamespace:
    """Run a line of the shell: `erda ...`, or `echo ... | erda ...`."""
    before, _, command = line.rpartition(" | ")
    _, *words = shlex.split(command)
    stdin = shlex.split(before)[1] + "\n" if before else ""
    done = erda(*words, stdin=stdin)
    assert done.status == 0, (line, done.err)
    return done


def test_teaching_does_what_its_help_says(erda: Erda) -> None:
    Path("my-examples.csv").write_text("text,relation\n" + "".join(f'"{text}",born in\n' for text in BORN))
    sentences, file, described, _ = commands_of(teach.TEACH)
    assert run_example(erda, sentences).lines == [
        "Version 1: 2 new examples; new: founded by.",
        "my-extractor knows 1 relation from 2 examples (version 1).",
    ]
    assert run_example(erda, file).lines[-1] == "my-extractor knows 2 relations from 4 examples (version 2)."
    listed, examples = (run_example(erda, line) for line in commands_of(teach.RELATIONS))
    assert listed.lines[:3] == ["examples  relation", "       2  founded by", "       2  born in"]
    assert examples.lines[1] == "    1  {{Jobs}} founded [[Apple]] in a garage ."
    taken, gone = (run_example(erda, line) for line in commands_of(teach.FORGET))
    assert taken.lines[0].startswith("Version 3: took back")
    assert taken.lines[1:] == ["my-extractor knows 2 relations from 3 examples (version 3)."]
    assert gone.lines == [
        "Version 4: forgot founded by.",
        "my-extractor knows 1 relation from 2 examples (version 4).",
    ]
    for line in commands_of(teach.HISTORY):
        shown = run_example(erda, line).lines
        assert [one[:5] for one in shown] == ["    0", "    1", "    2", "    3", "*   4"]
        assert shown[4].endswith("  forgot founded by")
    undone, first = (run_example(erda, line) for line in commands_of(teach.UNDO))
    assert undone.lines == [
        "Undone: forgot founded by. To bring it back: erda undo --to 4",
        "my-extractor knows 2 relations from 3 examples (version 3).",
    ]
    assert first.lines == ["my-extractor knows 1 relation from 2 examples (version 1)."]
    assert run_example(erda, described).lines[0] == "Version 5: 1 new pattern; new description: founded by."


def test_relations_are_renamed_merged_and_described_as_the_help_says(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    erda("teach", "set up by", "[[Ikea]] was set up by {{Ingvar}} .")
    described, patterns, cleared = commands_of(edit.DESCRIBE)
    run_example(erda, described)
    assert erda("relations").lines[1] == "       3  founded by  the person who started an organisation"
    run_example(erda, patterns)
    assert erda("relations").lines[1] == "       3  founded by  the person who started it (2 patterns)"
    run_example(erda, cleared)
    assert erda("relations").lines[1] == "       3  founded by"
    (merge,), (rename,) = commands_of(edit.MERGE), commands_of(edit.RENAME)
    assert run_example(erda, merge).lines == [
        "Version 6: merged set up by into founded by.",
        "my-extractor knows 1 relation from 4 examples (version 6).",
    ]
    assert run_example(erda, cleared).lines[0] == "Nothing new."
    run_example(erda, rename)
    assert erda("relations").lines[1] == "       4  established by"
    assert erda("undo").lines[0].startswith("Undone: renamed founded by to established by.")


def test_suggestions_can_be_edited_and_taught(erda: Erda, monkeypatch: pytest.MonkeyPatch) -> None:
    erda("teach", "founded by", *FOUNDED)
    found = [Suggestion(example_from_marks("[[Ford]] was begun by {{Henry}}"), 0.51, 0.9)]
    monkeypatch.setattr(Extractor, "suggest", lambda self, relation, texts, n, progress: found[:n])
    Path("my-text.txt").write_text("Ford was begun by Henry.\n")
    of_text, of_corpus, written = (run_example(erda, line) for line in commands_of(teach.SUGGEST))
    assert of_text.lines == of_corpus.lines == [" 0.51  [[Ford]] was begun by {{Henry}}"]
    assert written.lines[-1].endswith("then: erda teach --file suggested.csv")
    assert "1 new example" in erda("teach", "--file", "suggested.csv").out
    Path("texts.jsonl").write_text('{"text": "Ford was begun by Henry."}\n')
    over = erda("suggest", "founded by", "--text", "texts.jsonl", "--out", "./texts.jsonl", "--overwrite")
    assert (over.status, "is the input texts.jsonl" in over.err) == (2, True)
    assert Path("texts.jsonl").read_text() == '{"text": "Ford was begun by Henry."}\n'


def test_asking_does_what_its_help_says(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    erda("teach", "born in", *BORN)
    Path("my-questions.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in QUESTIONS))
    piped, filed = (run_example(erda, line) for line in commands_of(predict.PREDICT))
    row = json.loads(piped.out)
    assert (row["id"], row["line"], row["head"], len(row["ranked"])) == ("sentence:1", 1, "SpaceX", 2)
    through = run_example(erda, 'echo "[[SpaceX]] was founded in 2002 by {{Elon Musk}}." | erda predict')
    assert json.loads(through.out) == {**row, "id": "stdin:1"}
    assert filed.lines == ["answers.csv: 3 rows"]
    answers = Path("answers.csv").read_text().splitlines()
    assert answers[0] == "id,line,text,head,tail,relation,confidence,error,input_text"
    assert answers[1].startswith("my-questions:1,1,[[SpaceX]] was founded by {{Elon}} .,SpaceX,Elon,")
    Path("news.txt").write_text("SpaceX was founded by Elon Musk .\n\nIt rained.\n")
    Path("my-names.txt").write_text("SpaceX\tQ193701\nElon Musk\n")
    shown, written = (run_example(erda, line) for line in commands_of(predict.EXTRACT))
    pairs = {(row["head"], row["tail"]) for row in map(json.loads, shown.lines)}
    assert pairs <= {("SpaceX", "Elon Musk"), ("Elon Musk", "SpaceX")}
    assert written.lines == [f"found.csv: {len(pairs)} row{'' if len(pairs) == 1 else 's'}"]
    write_rows("my-tests.jsonl", TESTS)
    measured, changed = (run_example(erda, line) for line in commands_of(predict.EVALUATE))
    assert "of 2 questions answered" in measured.out
    assert "relation    questions  recall  precision" in measured.lines
    assert changed.lines[-1].endswith("of versions 1 and 2 differ.")


def test_counterexamples_are_taught_listed_judged_and_forgotten(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    for line in commands_of(judge.JUDGE):
        run_example(erda, line)
    assert run_example(erda, commands_of(teach.TEACH)[-1]).lines[0] == "Nothing new; 1 example known already."
    Path("wrong.txt").write_text("[[Ulm]] is where {{Albert}} was born .\n")
    rows = [{"text": BORN[0], "relation": "born in"}, {"text": FOUNDED[0], "relation": "born in", "holds": False}]
    Path("t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"text": "[[a]] saw {{b}}"}]))
    assert erda("teach", "founded by", "--counterexamples", "wrong.txt").status == 0
    said = erda("teach", "--file", "t.jsonl").lines
    assert said[0] == "1 row without a relation, not taught; write no_relation if none holds"
    assert said[1] == "Version 5: 1 new example, 1 new counterexample; new: born in."
    assert said[2] == "my-extractor knows 2 relations from 5 examples and 3 counterexamples (version 5)."
    assert erda("relations").lines[:3] == [
        "examples  counterexamples  relation",
        "       4                2  founded by",
        "       1                1  born in",
    ]
    assert erda("relations", "founded by").lines[-1] == "    5- [[Ulm]] is where {{Albert}} was born ."
    erda("teach", "no_relation", "[[Monday]] follows {{Sunday}}")
    assert erda("relations", "no_relation").lines == ["    8  [[Monday]] follows {{Sunday}}"]
    assert erda("forget", "founded by", "--example", "5").status == 0
    assert erda("forget", "no_relation", "--example", "8").status == 0
    assert erda("relations").lines[1] == "       4                1  founded by"
    wrong = erda("teach", "--counterexamples", "wrong.txt")
    assert (wrong.status, "teach RELATION --counterexamples wrong.txt" in wrong.err) == (2, True)
    assert "Did you mean 'born in'" in erda("judge", "borne in", FOUNDED[0], "--no").err


def test_tuning_and_declaring_do_what_their_helps_say(erda: Erda) -> None:
    taught = (*((one, "founded by") for one in FOUNDED), *((one, "born in") for one in BORN))
    write_rows("taught.jsonl", taught)
    erda("teach", "--file", "taught.jsonl")
    rows = [{"text": f"{FOUNDED[0]} {i}", "relation": "founded by"} for i in range(25)]
    rows += [{"text": f"x{i} [[c]] y{i} {{{{d}}}} z{i}", "relation": None} for i in range(20)]
    Path("labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, cleared = (run_example(erda, line) for line in commands_of(judge.TUNE))
    assert found.lines[0].split() == ["relation", "threshold", "rows", "precision", "recall"]
    assert found.lines[1].startswith("founded by")
    assert "The thresholds apply to erda predict." in found.lines
    assert "(version 3)" in cleared.lines[-1]
    assert erda("tune", "labelled.jsonl", "--clear").status == 2
    wrong = erda("tune", "labelled.jsonl", "--precision", "2")
    assert (wrong.status, "between 0 and 1" in wrong.err) == (2, True)
    erda("undo")
    assert "Thresholds for a precision of 0.9 were tuned on version 1." in erda("relations").lines
    erda("rename", "founded by", "spouse")
    erda("rename", "born in", "parent")
    erda("teach", "child", "[[Ann]] has the daughter {{Eve}}")
    symmetric, inverse, gone = (run_example(erda, line).lines[0] for line in commands_of(judge.DECLARE))
    assert symmetric == "spouse: symmetric"
    assert inverse == "parent: inverse of child; head types: PERSON; tail types: PERSON"
    assert gone == "parent: head types: PERSON; tail types: PERSON"
    assert erda("declare", "parent").status == 2
    assert erda("relations").lines[1].endswith("spouse  (symmetric)")
