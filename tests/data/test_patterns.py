"""Written patterns of Wikidata's relations, and the streams that have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_fewrel import write_derived, write_split

from erda.data.fewrel_dataset import published_stream
from erda.data.streams import with_patterns, with_written_patterns, written_patterns
from erda.errors import StreamError
from erda.settings.build import open_run_stream
from erda.settings.load import run_settings
from erda.text.descriptions import meaning_of, patterns_of, tidy_description
from erda.types import Relation


def test_every_written_pattern_marks_both_entities() -> None:
    assert len(written_patterns()) == 93
    for relation, lines in written_patterns().items():
        assert len(set(lines)) == 5, relation
        assert patterns_of(tidy_description("\n".join(lines))) == list(lines)


def test_patterns_become_lines_of_the_description() -> None:
    director = with_written_patterns(Relation("P57", "director", "director of a film"))
    assert meaning_of(director.description) == "director of a film"
    assert "[[X]] is a film directed by {{Y}}." in patterns_of(director.description)


def test_a_stream_with_patterns_differs_from_one_without_in_its_digest_alone(tmp_path: Path) -> None:
    write_split(tmp_path)
    write_derived(tmp_path)
    plain = published_stream(tmp_path, shots=5)
    found = with_patterns(plain)
    assert found.manifest.digest != plain.manifest.digest
    assert found.manifest.notes[-1].startswith("written patterns for ")
    for k, (task, before) in enumerate(zip(found, plain, strict=True)):
        assert task.examples == before.examples
        assert found.test(k) == plain.test(k)
        for relation, old in zip(task.relations, before.relations, strict=True):
            assert (relation.id, relation.name) == (old.id, old.name)
            assert len(patterns_of(relation.description)) == (5 if relation.id in written_patterns() else 0)


def test_a_stream_whose_relations_have_no_patterns_is_refused() -> None:
    (run,) = run_settings(dataset="atlas", seeds=100, settings={"patterns": True}).runs()
    with pytest.raises(StreamError, match="no relation of this stream has written patterns"):
        open_run_stream(run)
