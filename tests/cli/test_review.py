"""`erda review`: commands by line and by key, marks, resumption."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import Erda
from toy_extractor import BORN, CAPITAL, FOUNDED

from erda.app.extractor import Extractor

TEXT = "Bob was born in Oslo.\nMary was born in Rome.\nAcme was founded by Hugo.\n"


@pytest.fixture
def store(erda: Erda) -> Erda:
    """A taught store and a text in the current folder."""
    extractor = Extractor.open("my-extractor")
    extractor.teach_many({"founded by": FOUNDED, "born in": BORN, "capital of": CAPITAL})
    Path("my-text.txt").write_text(TEXT)
    return erda


def test_a_review_by_lines_judges_undoes_and_resumes(store: Erda) -> None:
    done = store("review", "my-text.txt", stdin="y\nu\nn\n3\nx\nq\n")
    assert done.status == 0
    assert done.lines[0].startswith("y yes, n no, s skip, ")
    assert done.lines[1] == "relations: 1 founded by, 2 born in, 3 capital of"
    assert any(line.startswith("[") and "{" in line for line in done.lines), "both entities are marked"
    assert "\x1b" not in done.out
    assert "'x' is not a command" in done.out
    assert "To continue: erda review my-text.txt" in done.out
    counts = [line[line.index("(") :] for line in done.lines if "left" in line]
    assert counts[0].startswith("(judged 0, ")
    assert counts[0].endswith(" left)"), "no counts of a relation that nobody has judged"
    assert "capital of: 1 right, 0 wrong" in done.out
    assert sum(line.startswith("Expected: ") for line in done.lines) == 4, "after each judgement"
    extractor = Extractor.open("my-extractor")
    assert extractor.history()[-1].what == "judged 2 sentences: 1 right, 1 wrong"
    assert len(extractor.examples("capital of")) == len(CAPITAL) + 1
    again = store("review", "my-text.txt", stdin="s\n" * 50)
    assert again.status == 0
    assert "judged 2, " in again.out
    nothing = store("review", "--list", "--relation", "born in", "--text", "my-text.txt")
    assert nothing.lines == ["Nothing new is likely to be an example of 'born in'; try other text."]
    last = store("review", "my-text.txt")
    assert "Every likely pair of the text was shown" in last.out
    Path("none.txt").write_text("nothing here\n")
    assert "No entity was found in the text. Entities were guessed" in store("review", "none.txt").out


def test_a_review_of_one_relation_names_the_store_in_its_hints(store: Erda) -> None:
    Path("my-extractor").rename("other store")
    done = store("review", "my-text.txt", "--relation", "born in", "--store", "other store", stdin="u\nq\n")
    assert " | born in | " in done.out
    assert "quit, then: erda versions --undo --store 'other store'" in done.out
    assert "To continue: erda review my-text.txt --relation 'born in' --store 'other store'" in done.out
    wrong = store("review", "my-text.txt", "--relation", "born inn", "--store", "other store")
    assert (wrong.status, "Did you mean 'born in'?" in wrong.err) == (2, True)
    nothing = store("review", "my-text.txt")
    assert (nothing.status, nothing.err.count("\n")) == (2, 1)


KEYS = """
import sys
from erda.cli.review_commands import _command
from erda.cli.store_options import keys
with keys() as read:
    print("ready", flush=True)
    while (key := _command(read, 12)) != "q":
        print(f"got {key}", flush=True)
"""


def test_on_a_terminal_single_keys_need_no_enter() -> None:
    master, slave = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", KEYS], stdin=slave, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        for keys, said in ((b"y", "got y\n"), (b"\x1b[A", "got ?\n"), (b"7", "got 7\n"), (b"12", "1 got 12\n")):
            os.write(master, keys)
            assert child.stdout.readline() == said
        os.write(master, b"q")
        assert child.wait(timeout=30) == 0
    finally:
        child.kill()
        child.stdout.close()
        os.close(master)
        os.close(slave)


def test_a_review_needs_standard_input(store: Erda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erda.cli.review_commands.sys", SimpleNamespace(stdin=None))
    assert "Standard input is closed; your answers are read from it." in store("review", "my-text.txt").err
