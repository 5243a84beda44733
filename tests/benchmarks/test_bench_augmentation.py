from pathlib import Path

import pytest

from augmentation import main
from erda.benchmark.method_demo import atlas_corpus


@pytest.mark.slow
def test_right_ones_only_has_no_wrong_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = atlas_corpus(tmp_path / "corpus", n=200)
    kinds = ["none", "the demo's", "the demo's, right ones only"]
    assert main([str(corpus), "--seeds", "110", *(word for kind in kinds for word in ("--kind", kind))]) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == kinds
    assert rows[0][4:] == ["–", "–", "–"]
    assert all(0 < int(cell.split()[1]) < 100 for cell in rows[1][5:])
    assert all(cell == "–" or cell.endswith("100 %") for cell in rows[2][4:])
