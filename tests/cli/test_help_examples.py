"""The examples in the help of an extractor's commands do what the help says."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import TESTS, Erda, write_rows
from toy_extractor import BORN, FOUNDED, QUESTIONS

from erda.answers import Suggestion
from erda.app.extractor import Extractor
from erda.cli.checking import help_texts
from erda.text.marks import example_from_marks


def commands_of(command: str) -> list[str]:
    """The examples at the end of a command's help."""
    return [line.strip() for line in help_texts()[command]["more"].strip().rpartition("examples:\n")[2].splitlines()]


def run_example(erda: Erda, line: str) -> SimpleNamespace:
    """Run a line of the shell: `erda ...`, or `echo ... | erda ...`."""
    before, _, command = line.rpartition(" | ")
    _, *words = shlex.split(command)
    done = erda(*words, stdin=shlex.split(before)[1] + "\n" if before else "")
    assert done.status == 0, (line, done.err)
    return done


def test_teaching_does_what_its_help_says(erda: Erda) -> None:
    Path("my-examples.csv").write_text("text,relation\n" + "".join(f'"{text}",born in\n' for text in BORN))
    sentences, file, described, _ = commands_of("teach")
    assert run_example(erda, sentences).lines == [
        "Version 1: 2 new examples; new: founded by.",
        "my-extractor knows 1 relation from 2 examples (version 1).",
    ]
    assert run_example(erda, file).lines[-1] == "my-extractor knows 2 relations from 4 examples (version 2)."
    listed, examples = (run_example(erda, line) for line in commands_of("relations"))
    assert listed.lines[:3] == ["examples  relation", "       2  founded by", "       2  born in"]
    assert examples.lines[1] == "    1  {{Jobs}} founded [[Apple]] in a garage ."
    taken, gone = (run_example(erda, line) for line in commands_of("forget"))
    assert taken.lines[0].startswith("Version 3: took back")
    assert taken.lines[1:] == ["my-extractor knows 2 relations from 3 examples (version 3)."]
    assert gone.lines == [
        "Version 4: forgot founded by.",
        "my-extractor knows 1 relation from 2 examples (version 4).",
    ]
    listing, undo, to, _, _ = commands_of("versions")
    shown = run_example(erda, listing).lines
    assert [one[:5] for one in shown] == ["    0", "    1", "    2", "    3", "*   4"]
    assert shown[4].endswith("  forgot founded by")
    undone, first = run_example(erda, undo), run_example(erda, to)
    assert undone.lines == [
        "Undone: forgot founded by. To bring it back: erda versions --to 4",
        "my-extractor knows 2 relations from 3 examples (version 3).",
    ]
    assert first.lines == ["my-extractor knows 1 relation from 2 examples (version 1)."]
    assert run_example(erda, described).lines[0] == "Version 5: 1 new pattern; new description: founded by."


def test_relations_are_renamed_merged_and_described_as_the_help_says(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    erda("teach", "set up by", "[[Ikea]] was set up by {{Ingvar}} .")
    described, patterns, cleared, typed, merge, rename = commands_of("edit")
    run_example(erda, described)
    assert erda("relations").lines[1] == "       3  founded by  the person who started an organisation"
    run_example(erda, patterns)
    assert erda("relations").lines[1] == "       3  founded by  who started it (1 pattern)"
    run_example(erda, cleared)
    assert erda("relations").lines[1] == "       3  founded by"
    assert run_example(erda, typed).lines[0] == "Version 6: declared founded by."
    assert erda("relations").lines[1] == "       3  founded by  (head types: ORG; tail types: PERSON, ORG)"
    erda("edit", "founded by", "--types", "", "")
    assert run_example(erda, merge).lines == [
        "Version 8: merged set up by into founded by.",
        "my-extractor knows 1 relation from 4 examples (version 8).",
    ]
    assert run_example(erda, cleared).lines[0] == "Nothing new."
    run_example(erda, rename)
    assert erda("relations").lines[1] == "       4  established by"
    assert erda("versions", "--undo").lines[0].startswith("Undone: renamed founded by to established by.")


def test_suggestions_can_be_edited_and_taught(erda: Erda, monkeypatch: pytest.MonkeyPatch) -> None:
    erda("teach", "founded by", *FOUNDED)
    found = [Suggestion(example_from_marks("[[Ford]] was begun by {{Henry}}"), 0.51, 0.9)]
    monkeypatch.setattr(Extractor, "suggest", lambda self, relation, texts, n, **asked: found[:n])
    Path("my-text.txt").write_text("Ford was begun by Henry.\n")
    of_text, written = (run_example(erda, line) for line in commands_of("review")[2:])
    assert of_text.lines == written.lines[:1] == [" 0.51  [[Ford]] was begun by {{Henry}}"]
    assert written.lines[-1].endswith("then: erda teach --file suggested.csv")
    assert "1 new example" in erda("teach", "--file", "suggested.csv").out
    Path("texts.jsonl").write_text('{"text": "Ford was begun by Henry."}\n')
    listing = ("review", "--list", "--relation", "founded by")
    over = erda(*listing, "--text", "texts.jsonl", "--out", "./texts.jsonl", "--overwrite")
    assert (over.status, "is the input texts.jsonl" in over.err) == (2, True)
    assert Path("texts.jsonl").read_text() == '{"text": "Ford was begun by Henry."}\n'


def test_asking_does_what_its_help_says(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    erda("teach", "born in", *BORN)
    Path("my-questions.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in QUESTIONS))
    piped, filed = (run_example(erda, line) for line in commands_of("predict"))
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
    shown, written, graph = (run_example(erda, line) for line in commands_of("extract"))
    pairs = {(row["head"], row["tail"]) for row in map(json.loads, shown.lines)}
    assert pairs <= {("SpaceX", "Elon Musk"), ("Elon Musk", "SpaceX")}
    assert written.lines == [f"found.csv: {len(pairs)} row{'' if len(pairs) == 1 else 's'}"]
    assert graph.lines[0].startswith("found.graphml: ")
    write_rows("my-tests.jsonl", TESTS)
    measured = run_example(erda, commands_of("evaluate")[0])
    assert "of 2 questions answered" in measured.out
    assert "relation    questions  recall  precision" in measured.lines


def test_counterexamples_are_taught_listed_judged_and_forgotten(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    negative = commands_of("teach")[-1]
    assert run_example(erda, negative).lines[0] == "Version 2: 1 new counterexample."
    assert run_example(erda, negative).lines[0] == "Nothing new; 1 example known already."
    moved = "moved from counterexamples of founded by to founded by"
    assert moved in run_example(erda, negative.removesuffix(" --not")).out
    assert "moved from founded by to counterexamples of founded by" in run_example(erda, negative).out
    Path("wrong.txt").write_text("[[Ulm]] is where {{Albert}} was born .\n")
    rows = [{"text": BORN[0], "relation": "born in"}, {"text": FOUNDED[0], "relation": "born in", "holds": False}]
    Path("t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"text": "[[a]] saw {{b}}"}]))
    assert erda("teach", "founded by", "--not", "--file", "wrong.txt").status == 0
    said = erda("teach", "--file", "t.jsonl").lines
    assert said[0] == "1 row without a relation, not taught; write no_relation if none holds"
    assert said[1] == "Version 6: 1 new example, 1 new counterexample; new: born in."
    assert said[2] == "my-extractor knows 2 relations from 4 examples and 3 counterexamples (version 6)."
    assert erda("relations").lines[:3] == [
        "examples  counterexamples  relation",
        "       3                2  founded by",
        "       1                1  born in",
    ]
    assert erda("relations", "founded by").lines[-1] == "    6- [[Ulm]] is where {{Albert}} was born ."
    erda("teach", "no_relation", "[[Monday]] follows {{Sunday}}")
    assert erda("relations", "no_relation").lines == ["    9  [[Monday]] follows {{Sunday}}"]
    assert erda("forget", "founded by", "--example", "6").status == 0
    assert erda("forget", "no_relation", "--example", "9").status == 0
    assert erda("relations").lines[1] == "       3                1  founded by"


def test_tuning_does_what_its_help_says(erda: Erda) -> None:
    write_rows("taught.jsonl", (*((one, "founded by") for one in FOUNDED), *((one, "born in") for one in BORN)))
    erda("teach", "--file", "taught.jsonl")
    rows = [{"text": f"{FOUNDED[0]} {i}", "relation": "founded by"} for i in range(25)]
    rows += [{"text": f"x{i} [[c]] y{i} {{{{d}}}} z{i}", "relation": None} for i in range(20)]
    Path("labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, cleared = (run_example(erda, line) for line in commands_of("tune"))
    assert found.lines[0].split() == ["relation", "threshold", "rows", "precision", "recall"]
    assert found.lines[1].startswith("founded by")
    assert "The thresholds apply to erda predict." in found.lines
    assert "(version 3)" in cleared.lines[-1]
    assert erda("tune", "labelled.jsonl", "--clear").status == 2
    wrong = erda("tune", "labelled.jsonl", "--precision", "2")
    assert (wrong.status, "between 0 and 1" in wrong.err) == (2, True)
    erda("versions", "--undo")
    assert "Thresholds for a precision of 0.9 were tuned on version 1." in erda("relations").lines
