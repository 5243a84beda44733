import json
from pathlib import Path

import pytest
from toy_runs import toy_run

from erda.benchmark.run.progress import refuse_mixing
from erda.corpus.build import build_corpus
from erda.corpus.manifest import read_manifest
from erda.errors import SettingsError

WORDS = "Ada met Bob in town today"


def corpus(folder: Path, *sentences: str) -> Path:
    rows = [
        {
            "tokens": sentence.split(),
            "head": {"name": "Ada", "span": [0, 1]},
            "tail": {"name": "Bob", "span": [2, 3]},
            "relation": None,
        }
        for sentence in sentences
    ]
    source = folder.with_suffix(".jsonl")
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_corpus([source], folder)
    return folder


def asked(corpus: str, **changes: object) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(toy_run(corpus=corpus)), **changes}


def test_with_and_without_a_corpus_are_never_mixed(tmp_path: Path) -> None:
    here = corpus(tmp_path / "wiki", WORDS)
    with pytest.raises(SettingsError, match=r"corpus: none there, wiki now"):
        refuse_mixing(tmp_path, then=asked(""), now=asked(str(here)))
    with pytest.raises(SettingsError, match=r"corpus: wiki there, none now"):
        refuse_mixing(tmp_path, then=asked(str(here)), now=asked(""))


def test_corpora_are_told_apart_by_what_they_hold_not_by_where_they_lie(tmp_path: Path) -> None:
    first, moved = corpus(tmp_path / "a", WORDS), corpus(tmp_path / "b", WORDS)
    other = corpus(tmp_path / "c", WORDS, WORDS + " again")
    then = asked(str(first), notes={"corpus": {"digest": read_manifest(first).digest}})
    refuse_mixing(tmp_path, then=then, now=asked(str(moved)))
    with pytest.raises(SettingsError, match=r"corpus: a \(\w{12}\) there, c \(\w{12}\) now"):
        refuse_mixing(tmp_path, then=then, now=asked(str(other)))


def test_a_record_that_does_not_know_its_corpus_goes_by_the_folders_name(tmp_path: Path) -> None:
    refuse_mixing(tmp_path, then=asked("/elsewhere/wiki"), now=asked("corpora/wiki"))
    with pytest.raises(SettingsError, match="corpus: wiki there, news now"):
        refuse_mixing(tmp_path, then=asked("/elsewhere/wiki"), now=asked("corpora/news"))


def test_a_setting_that_came_later_had_its_default(tmp_path: Path) -> None:
    def erda(**settings: object) -> dict[str, object]:
        return asked("", method="erda", settings={"method": settings, "encoder": {}, "stream": {}})

    refuse_mixing(tmp_path, then=erda(batch_size=5), now=erda(batch_size=5, future_relations=False))
    with pytest.raises(SettingsError, match=r"method\.future_relations: False there, True now"):
        refuse_mixing(tmp_path, then=erda(batch_size=5), now=erda(batch_size=5, future_relations=True))
