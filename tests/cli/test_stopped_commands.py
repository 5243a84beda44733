"""Ctrl-C in `erda predict` keeps the finished rows."""

import gzip
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_line import Erda
from toy_extractor import FOUNDED

from erda.app import answer_files
from erda.app.version import Version


@pytest.mark.parametrize("ending", [".jsonl", ".csv.gz", ".parquet"])
def test_a_stopped_prediction_keeps_the_finished_rows(erda: Erda, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.setattr(answer_files, "BATCH", 4)
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
    left = Path(f".{stopped}.0123456789abcdef.tmp")  # by a killed process
    left.touch()
    done = erda("predict", "q.txt", "--out", stopped)
    assert (done.status, left.exists()) == (130, False)
    stopped = f"stopped.partial{ending}"
    assert f"{stopped} holds the first 4 rows. To start again: erda predict q.txt --out stopped{ending}" in done.err
    if ending == ".parquet":
        assert pq.read_table(stopped).equals(pq.read_table(whole).slice(0, 4))
    else:
        read = gzip.decompress if ending == ".csv.gz" else bytes
        found, expected = (read(Path(one).read_bytes()).splitlines() for one in (stopped, whole))
        assert found == expected[: 5 if ending == ".csv.gz" else 4]
    assert erda("predict", "q.txt", "--out", whole).status == 2, "it exists"
    assert erda("predict", "q.txt", "--out", f"stopped{ending}").lines == [f"stopped{ending}: 11 rows"]
