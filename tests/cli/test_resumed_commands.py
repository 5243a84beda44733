"""`erda predict` and `erda extract` continue where they were stopped, with the same result."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_line import Erda
from toy_extractor import BORN, FOUNDED, QUESTIONS

from erda.app import answer_files
from erda.app.version import Version


@pytest.mark.parametrize("ending", [".jsonl", ".csv.gz", ".parquet"])
def test_a_stopped_prediction_goes_on_to_the_same_result(
    erda: Erda, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(answer_files, "PIECE", 4)
    erda("teach", "founded by", *FOUNDED)
    lines = [f"[[X{i}]] was founded by {{{{Y{i}}}}}" if i != 5 else "[[broken" for i in range(11)]
    Path("q.txt").write_text("\n".join(lines))
    whole, stopped = f"whole{ending}", f"stopped{ending}"
    done = erda("predict", "q.txt", "--out", whole)
    assert (done.status, done.lines) == (2, [f"{whole}: 11 rows"])
    assert done.err == "erda: q.txt:6: '[[' is never closed; write ']]' where the head ends.\n"
    answer, asked = Version.predict, []

    def stop(self: Version, given: list, **options: object) -> list:
        asked.append(len(given))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return answer(self, given, **options)

    monkeypatch.setattr(Version, "predict", stop)
    done = erda("predict", "q.txt", "--out", stopped)
    assert done.status == 130
    assert f"{stopped}.partial; the same command resumes there" in done.err
    assert not Path(stopped).exists()
    with Path(f"{stopped}.partial/rows.jsonl").open("ab") as file:
        file.write(b'{"id": "cut sh')
    left, others = (Path(f".{name}.0123456789abcdef.tmp") for name in (stopped, whole))  # by a killed process
    left.touch()
    others.touch()
    done = erda("predict", "q.txt", "--out", stopped)
    assert (left.exists(), others.exists()) == (False, True)
    assert done.lines == [f"{stopped}: 11 rows (4 of them by an earlier run)"]
    assert asked == [4, 3, 3, 3], "the first piece is not asked again"
    assert not Path(f"{stopped}.partial").exists()
    if ending == ".parquet":
        assert pq.read_table(stopped).equals(pq.read_table(whole))
        assert pq.read_table(stopped).column("error").to_pylist()[5].startswith("'[[' is never closed")
    else:
        assert Path(stopped).read_bytes() == Path(whole).read_bytes()


@pytest.mark.parametrize("pairs", [(), ("--pairs=both",), ("--pairs=all",)])
def test_a_stopped_extraction_goes_on_to_the_same_result(
    erda: Erda, monkeypatch: pytest.MonkeyPatch, pairs: tuple[str, ...]
) -> None:
    monkeypatch.setattr(answer_files, "PIECE", 5)
    erda("teach", "founded by", *FOUNDED)
    erda("teach", "born in", *BORN)
    lines = [
        "X was founded by Y.",
        "",
        "X and Y and Z.",
        "nobody",
        "Y was born in Z.",
        "X \x07 Y",
        "Z has X.",
        "X met Y",
        "",
    ]
    Path("news.txt").write_text("\n".join(lines))
    Path("names.txt").write_text("X\nY\nZ\n")
    command = ("extract", "news.txt", "--names", "names.txt", *pairs, "--out")
    assert erda(*command, "whole.jsonl").status == 2
    rows = [json.loads(line) for line in Path("whole.jsonl").read_text().splitlines()]
    assert ["error" in row for row in rows if row["line"] == 6] == [True]
    answer, asked = Version.answer_texts, []

    def stop(self: Version, given: list, **options: object) -> list:
        asked.append(sum(len(one.examples) for one in given))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return answer(self, given, **options)

    monkeypatch.setattr(Version, "answer_texts", stop)
    done = erda(*command, "stopped.jsonl")
    assert (done.status, Path("stopped.jsonl").exists()) == (130, False)
    assert "stopped.jsonl.partial; the same command resumes there" in done.err
    done = erda(*command, "stopped.jsonl")
    assert f"stopped.jsonl: {len(rows)} rows (" in done.out
    assert asked == [8, 2, 4, 4], "what was answered is not asked again"
    assert Path("stopped.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    Path("names.txt").write_text("X\nY\n")
    asked.clear()
    with monkeypatch.context() as patched:
        patched.setattr(answer_files, "writer_for", lambda out: lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        erda(*command, "other.jsonl")
    Path("names.txt").write_text("X\nY\nZ\n")
    assert "by an earlier run" not in erda(*command, "other.jsonl").out, "other names are another job"


def test_a_prediction_of_another_version_begins_anew(erda: Erda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_files, "PIECE", 1)
    erda("teach", "founded by", *FOUNDED)
    Path("q.txt").write_text("\n".join(QUESTIONS))
    with monkeypatch.context() as patched:
        patched.setattr(answer_files, "writer_for", lambda out: lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        erda("predict", "q.txt", "--out", "a.jsonl")
    erda("teach", "born in", *BORN)
    assert erda("predict", "q.txt", "--out", "a.jsonl").lines == ["a.jsonl: 3 rows"]
    assert all(len(json.loads(line)["ranked"]) == 2 for line in Path("a.jsonl").read_text().splitlines())
