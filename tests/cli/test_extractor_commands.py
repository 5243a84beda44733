"""The commands of an extractor: messages, bad input, tables with other columns, output files."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import Erda, write_rows
from toy_extractor import BORN, FOUNDED, QUESTIONS

from erda.app.extractor import Extractor
from erda.app.store import Store
from erda.files import sealed, write_json


def test_suggested_commands_name_a_store_that_is_not_the_default(erda: Erda) -> None:
    store = ("--store", "my store")
    assert "erda teach RELATION SENTENCE ... --store 'my store'" in erda("relations", *store).err
    erda("teach", "founded by", *FOUNDED, *store)
    assert (
        "erda relations 'founded by' --store 'my store'" in erda("forget", "founded by", "--example", "9", *store).err
    )
    assert "erda versions --to 1 --store 'my store'" in erda("versions", "--undo", *store).out
    write_rows("none.jsonl", ((FOUNDED[0], "no_relation"), (FOUNDED[1], "founded by")))
    erda("teach", "--file", "none.jsonl", *store)
    assert "erda relations no_relation --store 'my store'" in erda("relations", *store).out


PATTERNS = ["[[X]] was founded by {{Y}}.", "{{Y}} set up [[X]]."]


def test_a_relation_is_taught_by_patterns_alone(erda: Erda) -> None:
    erda("teach", "born in", *BORN)
    said = erda("teach", "founded by", "--description", "who began it", *(f"--description={one}" for one in PATTERNS))
    assert said.lines[0] == "Version 2: 2 new patterns; new: founded by."
    examples = f"knows 2 relations from {len(BORN)} examples"
    assert said.lines[1].endswith(f"{examples} and 2 patterns (version 2).")
    assert erda("relations").lines[2] == "       0  founded by  who began it (2 patterns)"
    assert erda("relations", "founded by").lines == [f"       {line}" for line in ("who began it", *PATTERNS)]
    Path("q.txt").write_text("[[Tesla]] was founded by {{Martin}} .\n")
    erda("predict", "q.txt", "--out", "a.jsonl")
    assert json.loads(Path("a.jsonl").read_text())["ranked"][0]["relation"] == "founded by"
    said = erda("teach", "founded by", "[[Acme]] hired {{Ann}}.", "--not")
    assert said.lines[-1].endswith(f"{examples}, 2 patterns and 1 counterexample (version 3).")


def test_a_file_is_taught_with_the_relation_list_beside_it(erda: Erda) -> None:
    write_rows("t.jsonl", ((FOUNDED[0], "founded_by"), (BORN[0], "birth")))
    texts = [{"id": "birth", "name": "born in"}, {"id": "founded_by", "description": ["who began it", *PATTERNS]}]
    Path("t.relations.json").write_text(json.dumps(texts))
    said = erda("teach", "--file", "t.jsonl").lines[0]
    assert said == "Version 1: 2 new examples, 2 new patterns; new: founded_by, birth."
    assert erda("relations").lines[1:3] == ["       1  founded by  who began it (2 patterns)", "       1  born in"]


def test_the_store_comes_from_the_environment(erda: Erda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERDA_STORE", "another")
    assert "another knows 1 relation" in erda("teach", "founded by", *FOUNDED).out
    assert Path("another/extractor.json").is_file()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ('teach "born in" "[[Ada]] was born"', "example 1: no tail is marked; put the first entity in [["),
        ('teach "born in" "[[A\\x07da]] in {{L}}"', "control character"),
        ('teach "[[A]] in {{B}}" "founded by" --not', "is a sentence; name the relation first"),
        ("teach", "Nothing to teach: give a RELATION with sentences, or --file FILE."),
        ('teach "born in" "[[A]] in {{B}}" --file q.txt', "Give sentences or --file, not both."),
        ("teach --file q.txt", "no row names a relation"),
        ("teach --file q.txt --description x", "--description: describes one relation; name it"),
        ('teach "founded by" --not', "Nothing to teach: --not needs sentences"),
        ("teach --not --file q.txt", "name one: erda teach RELATION --not --file q.txt"),
        ("predict q.txt --out answers.txt", "expected a name that ends in .jsonl"),
        ("predict q.csv --out q.csv", "q.csv: is the input q.csv"),
        ("predict", "standard input: the file is empty."),
        ("predict ''", "FILE: expected a name or a sentence, got nothing."),
        ('predict "Ada was born in London."', "no such file. In a sentence, mark both entities: [["),
        ("extract q.txt --entity a --names b", "Give --entity or --names, not both."),
        ('forget "founded by" --example 9', "'founded by' has no example 9; list them: erda relations 'founded by'"),
        ("evaluate q.csv", "q.csv: no row names a relation; add a column 'relation'"),
        ("data get nope", "Unknown name 'nope'. Known: atlas, "),
        ("review -", "your answers are read from standard input"),
        ("review missing.txt", "missing.txt: no such file"),
        ("review q.txt --n 3", "--n: only with --list."),
        ("review --list --text q.txt", "--list: give --relation NAME"),
        ("relations --store nowhere", "There is no extractor in nowhere yet. Create one: erda teach RELATION"),
        ("relations --store other", "other holds other files than an extractor"),
    ],
)
def test_bad_input_is_said_and_changes_nothing(erda: Erda, command: str, message: str) -> None:
    erda("teach", "founded by", *FOUNDED)
    Path("q.txt").write_text("\n".join(QUESTIONS))
    Path("q.csv").write_text("text\n[[a]] b {{c}}\n")
    Path("other").mkdir()
    Path("other/thesis.tex").touch()
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    done = erda(*(word.encode().decode("unicode_escape") for word in shlex.split(command)))
    assert done.status == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_old_versions_and_what_was_forgotten_can_be_removed(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    erda("teach", "born in", *BORN)
    erda("forget", "born in")
    assert erda("versions", "--keep", "2").lines[0] == "2 versions removed."
    assert "born in" in erda("versions").out
    assert erda("versions", "--purge").lines[0] == "2 versions removed."
    assert "born in" not in erda("versions").out
    assert erda("relations").lines[-1] == "my-extractor knows 1 relation from 3 examples (version 4)."


def test_a_damaged_version_is_left_by_undo_and_never_entered(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    erda("teach", "born in", *BORN)
    erda("forget", "born in")
    store = Store(Path("my-extractor"))
    for object_file in store.version_file(2).relations[1].objects():
        (store.objects.folder / object_file).write_bytes(b"damaged")
    for words in (("--undo",), ("--to", "2")):
        assert "is not what was written" in erda("versions", *words).err
        assert store.head().current == 3
    version = store.version_file(3)
    write_json(
        Path("my-extractor/versions/3.json"), sealed(replace(version, stamp=replace(version.stamp, time="soon")))
    )
    assert "soon" in erda("versions").lines[-1]
    store.point(2)
    assert erda("versions", "--undo").lines[0].startswith("Undone: taught born in.")
    assert store.head().current == 1


def test_undo_takes_back_what_another_process_teaches_meanwhile(erda: Erda, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version before is chosen under the lock; else two changes would be undone, one of them unseen."""
    erda("teach", "founded by", *FOUNDED)
    erda("teach", "born in", *BORN)
    writing = Store.writing

    def late(store: Store, **asked: bool) -> object:
        monkeypatch.setattr(Store, "writing", writing)
        Extractor.open("my-extractor").teach("left", ["[[Ann]] left {{Rome}}."])
        return writing(store, **asked)

    monkeypatch.setattr(Store, "writing", late)
    assert erda("versions", "--undo").lines[0].startswith("Undone: taught left.")
    assert Store(Path("my-extractor")).head().current == 2


def test_a_sentence_may_be_long_and_standard_input_closed(erda: Erda, monkeypatch: pytest.MonkeyPatch) -> None:
    erda("teach", "founded by", *FOUNDED)
    asked = erda("predict", f"{{{{Elon}}}} founded {'far // away ' * 100} [[SpaceX]]")
    assert asked.status == 0
    assert json.loads(asked.out)["text"].startswith("{{Elon}} founded far / / away")
    monkeypatch.setattr("erda.cli.store_options.sys", SimpleNamespace(stdin=None))
    assert "Standard input is closed; name a file." in erda("predict").err


def test_every_line_has_its_row_though_it_cannot_be_read(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    first, second, _ = QUESTIONS
    Path("q.txt").write_bytes(f"{first}\n[[Fran\xe7ois]] met {{{{Ada}}}}\n{second}\n\xe7\n".encode("latin-1"))
    done = erda("predict", "q.txt", "--out", "a.jsonl")
    assert (done.status, done.lines) == (2, ["a.jsonl: 4 rows"])
    assert ["error" in json.loads(line) for line in Path("a.jsonl").read_text().splitlines()] == [0, 1, 0, 1]
    assert "q.txt:2: not UTF-8 (byte 0xe7)" in done.err
    assert [json.loads(line)["line"] for line in erda("predict", "q.txt").lines] == [1, 2, 3, 4]


def test_an_existing_output_file_is_replaced_only_if_asked(erda: Erda, monkeypatch: pytest.MonkeyPatch) -> None:
    erda("teach", "founded by", *FOUNDED)
    Path("q.txt").write_text("\n".join(QUESTIONS))
    Path("thesis.jsonl").write_text("mine")
    monkeypatch.setattr(Extractor, "suggest", lambda self, *given, **asked: [])
    commands = [
        ("predict", "q.txt"),
        ("extract", "q.txt"),
        ("data", "convert", "q.txt"),
        ("review", "--list", "--relation", "founded by", "--corpus", "c"),
    ]
    for command in commands:
        done = erda(*command, "--out", "thesis.jsonl")
        assert (done.status, Path("thesis.jsonl").read_text()) == (2, "mine")
        assert "--overwrite" in done.err
    for command in commands:
        assert erda(*command, "--out", "thesis.jsonl", "--overwrite").status == 0
        assert Path("thesis.jsonl").read_text() != "mine"


def test_a_table_may_name_its_entities_and_its_own_columns(erda: Erda) -> None:
    rows = "Tesla was founded by Martin .,Tesla,Martin,x\nBill founded Microsoft .,Microsoft,Bill,Other\n"
    Path("t.csv").write_text("Sentence,subject,object,label\n" + rows)
    columns = ("--columns", "text=sentence,head=subject,tail=object,relation=label", "--no-relation", "Other")
    said = erda("teach", "--file", "t.csv", *columns).lines
    assert said[0] == "Version 1: 1 new example, 1 sentence without a relation; new: x."
    assert erda("relations", "x").lines[0].endswith("[[Tesla]] was founded by {{Martin}} .")
    assert json.loads(erda("predict", "t.csv", *columns[:2]).lines[1])["head"] == "Microsoft"
    assert "of 2 questions" in erda("evaluate", "t.csv", *columns).lines[0]
    assert "never taught" not in erda("evaluate", "t.csv", *columns).out.lower()
    assert "Unknown column 'txt'" in erda("predict", "t.csv", "--columns", "txt=sentence").err
    assert "no column 'sentences'" in erda("predict", "t.csv", "--columns", "text=sentences").err
    assert "(2 rows were taught and do not count)" in erda("tune", "t.csv", *columns).err


def test_a_table_of_texts_may_name_its_own_columns(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    Path("t.csv").write_text("No,Text,Sentence\n7,short,Tesla was founded by Martin .\n")
    asked = ("extract", "t.csv", "--pairs", "all", "--entity", "Tesla", "--entity", "Martin")
    row = json.loads(erda(*asked, "--columns", "text=sentence,id=no").lines[0])
    assert (row["id"], row["text"], row["input"]) == ("7", "Tesla was founded by Martin .", {"Text": "short"})
    assert "Unknown column 'head'" in erda("extract", "t.csv", "--columns", "head=sentence").err
    assert "relations: 1 founded by" in erda("review", "t.csv", "--columns", "text=sentence").out


def test_rows_that_say_no_relation_are_not_taught_as_the_named_one(erda: Erda) -> None:
    write_rows("t.jsonl", ((FOUNDED[0], None), (FOUNDED[1], "no_relation"), (FOUNDED[2], "Other")))
    said = erda("teach", "founded by", "--file", "t.jsonl", "--no-relation", "Other").lines
    assert said[0] == "Version 1: 1 new example, 2 sentences without a relation; new: founded by."


def test_a_terminal_is_shown_lines_to_read(erda: Erda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    erda("teach", "founded by", *FOUNDED)
    assert re.match(r" [01]\.\d\d  .*founded by.*  \[\[SpaceX\]\] was", erda("predict", QUESTIONS[0]).out)
    wrong = erda("predict", "[[SpaceX]] was founded")
    assert (wrong.out, wrong.err.count("no tail is marked")) == ("", 1)
    Path("news.txt").write_text("Ann Lee met Bob Roe. She was born in Rome.\n")
    shown = erda("extract", "news.txt", "--min-confidence", "0", "--entity", "Ann Lee", "--entity", "Rome").out
    assert "(She = Ann Lee)" in shown


def test_a_sentence_is_shown_as_a_statement_and_a_reversed_one_is_swapped(
    erda: Erda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erda.app.teach.direction_scores", lambda examples, encoder: -np.ones(len(examples)))
    assert erda("teach", "founded by", FOUNDED[0]).err == "Tesla -> founded by -> Martin\n"
    assert "looks like the reverse of the other examples of 'founded by'" in erda("teach", "founded by", FOUNDED[1]).err
    monkeypatch.setattr("erda.cli.teach_commands.on_terminal", lambda: True)
    asked = erda("teach", "founded by", FOUNDED[2], stdin="?\ns\n").err
    assert "Apple -> founded by -> Steve: looks like the reverse" in asked
    assert "{{Apple}} , founded by [[Steve]]" in erda("relations", "founded by").out
    assert "nothing was taught" in erda("teach", "founded by", FOUNDED[2], stdin="n\n").err
