from pathlib import Path
from typing import Any

import pytest

import augmentation
from erda.cli.demo_commands import atlas_corpus
from erda.settings.load import run_settings


@pytest.mark.parametrize("n_tasks", [2, pytest.param(None, marks=pytest.mark.long)])
def test_right_ones_only_has_no_wrong_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, n_tasks: int | None
) -> None:
    def small(*, settings: dict[str, Any], **given: Any) -> Any:
        return run_settings(
            settings={"n_tasks": n_tasks, "first_shots": 5, "test_per_relation": 2, **settings}, **given
        )

    if n_tasks:
        monkeypatch.setattr(augmentation, "run_settings", small)
    corpus = atlas_corpus(tmp_path / "corpus", n=100 if n_tasks else 200)
    kinds = ["none", "the demo's", "the demo's, right ones only"]
    command = [str(corpus), "--seeds", "110", *(word for kind in kinds for word in ("--kind", kind))]
    assert augmentation.main(command) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == kinds
    assert rows[0][4:] == ["–", "–", "–"]
    assert any(cell != "–" and not cell.endswith("100 %") for cell in rows[1][4:]), "the demo's finds wrong examples"
    assert all(cell == "–" or cell.endswith("100 %") for cell in rows[2][4:])
