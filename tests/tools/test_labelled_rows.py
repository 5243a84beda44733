"""Labelled training data: nothing that is measured, and pairs without a relation."""

import json
import random

import pytest
from labelled_rows import FOLDS, NO_RELATION, denied, inserted, letters, measured_sentences, written

from erda.files import data_folder

ROW = {
    "tokens": ["Tesla", "was", "founded", "by", "Musk", "."],
    "head": {"span": [0, 1]},
    "tail": {"span": [4, 5]},
    "relation": "P112",
    "source": "made",
}


def test_a_sentence_is_denied_or_doubted():
    found = [denied(ROW, random.Random(seed)) for seed in range(30)]
    assert "Tesla was not founded by Musk ." in {" ".join(one["tokens"]) for one in found if one}
    for one in (*found, inserted(ROW, 4, ["the", "young"])):
        assert one
        assert one["relation"] == NO_RELATION
        assert [one["tokens"][slice(*one[side]["span"])][-1] for side in ("head", "tail")] == ["Tesla", "Musk"]


@pytest.mark.skipif(not (data_folder() / "redoc41").is_dir(), reason="needs the data folder: set ERDA_DATA")
def test_no_measured_sentence_and_no_relation_of_a_fold_is_in_the_training_data():
    rows, measured = list(written(data_folder(), ["fewrel-40"])), measured_sentences(data_folder())
    assert not any(letters(row["tokens"]) in measured for row in rows)
    assert not any(row["source"].startswith("re-docred:dev") for row in rows)
    assert all("something" in row["tokens"] for row in rows if row["source"] == "name")
    held_out = json.loads(FOLDS.read_text())["folds"]["fewrel-40"]["held_out"]
    assert (
        len({row["relation"] for row in rows} - {NO_RELATION, *held_out}) == len({row["relation"] for row in rows}) - 1
    )
