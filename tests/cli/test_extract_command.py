"""`erda extract`: entities, files that cannot be read in part, and pairs left out."""

import json
from pathlib import Path

import pytest
from command_line import Erda
from toy_extractor import FOUNDED

from erda.text.names import NameTagger


def test_extraction_takes_a_sentence_and_says_why_nothing_came_out(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    named = ("--entity", "SpaceX", "--entity", "Elon Musk")
    assert len(erda("extract", "SpaceX was founded by Elon Musk.", "--pairs=all", *named).lines) == 2
    nothing = erda("extract", "It rained.", *named)
    assert (nothing.status, nothing.out, nothing.err) == (0, "", "No entity was found in the text.\n")
    assert erda("extract", "SpaceX rained.", "--pairs=all", *named).err == "No line has two entities.\n"
    said = erda("extract", "It rained.").err.splitlines()
    assert said[0] == "No entity was found in the text. Entities can be named: --entity NAME, or --names FILE."
    assert said[-1].endswith("erda data get entities")


def test_plain_text_is_answered_without_a_model_and_the_last_line_says_so(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    done = erda("extract", "Acme was founded by Jo Lee.", "--pairs=all")
    assert [(row["head"], row["tail"], row["entities"]) for row in map(json.loads, done.lines)] == [
        ("Acme", "Jo Lee", "capitalised"),
        ("Jo Lee", "Acme", "capitalised"),
    ]
    assert done.err.splitlines()[-1].startswith("Entities were guessed by capital letters. A trained tagger: ")


def test_the_tagger_is_named_only_where_it_ran(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    row = {"text": "Acme was founded by Jo Lee.", "entities": [{"span": [0, 4]}, {"span": [20, 26]}]}
    Path("given.jsonl").write_text(json.dumps(row) + "\n")
    Path("mixed.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({"text": row["text"]}) + "\n")
    assert erda("extract", "given.jsonl", "--pairs=all").err == ""
    assert erda("extract", "given.jsonl", "--pairs=all", "--out", "found.csv").err == ""
    assert erda("extract", "mixed.jsonl", "--pairs=all").err.startswith("Entities were guessed by capital letters.")


def test_extraction_names_the_lines_it_could_not_read_and_the_pairs_left_out(
    erda: Erda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erda.app.version.MOST_PAIRS", 3)
    erda("teach", "founded by", *FOUNDED)
    Path("news.txt").write_bytes(b"Ann \x07 met Bo.\nAnn \xe7 met Bo.\nAnn met Bo. Ann met Bo. Ann met Bo.\n")
    done = erda("extract", "news.txt", "--entity", "Ann", "--entity", "Bo", "--pairs=all", "--out", "found.csv")
    assert (done.status, done.lines) == (2, ["found.csv: 6 rows"])
    said = done.err.splitlines()
    assert said[0].startswith("erda: news.txt:1: the text holds a control character")
    assert said[1].startswith("  news.txt:2: not UTF-8")
    assert said[2].startswith("  news.txt:3: 3 pairs of entities left out")


@pytest.mark.parametrize("more", [(), ("--names", "names.txt")])
def test_names_are_made_ready_once_for_all_lines(erda: Erda, monkeypatch: pytest.MonkeyPatch, more: tuple) -> None:
    monkeypatch.setattr("erda.app.entities.find_spec", lambda name: None)
    erda("teach", "founded by", *FOUNDED)
    Path("names.txt").write_text("Ann\nBo\n")
    Path("news.txt").write_text("Ann met Bo.\n" * 5)
    made, make = [], NameTagger.__init__
    monkeypatch.setattr(NameTagger, "__init__", lambda self, names: made.append(names) or make(self, names))
    assert erda("extract", "news.txt", *more).status == 0
    assert len(made) == 1
