"""A store under hostile hands: backups put back, files swapped, links, foreign files."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from toy_extractor import BORN, CAPITAL, FOUNDED, open_toy, scores, taught

from erda.app.store import Store
from erda.errors import DataError, ErdaError, ModelError
from erda.files import sealed, write_json


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- a store that changes under a running process ----------------------------------------------------------------------


def test_a_backup_put_back_is_noticed_though_the_numbers_are_the_same(tmp_path: Path) -> None:
    running = taught(tmp_path / "mine")
    running.undo()
    shutil.copytree(tmp_path / "mine", tmp_path / "backup")
    (tmp_path / "backup" / "versions" / "2.json").unlink()
    (tmp_path / "backup" / "extractor.json").write_bytes((tmp_path / "mine" / "extractor.json").read_bytes())
    running.rollback(2)
    before = scores(running)
    shutil.rmtree(tmp_path / "mine")
    shutil.copytree(tmp_path / "backup", tmp_path / "mine")
    write_head(tmp_path / "mine", current=1, last=1)
    assert open_toy(tmp_path / "mine").teach("moved to", ["[[a]] moved to {{b}}"]).version == 2
    assert running.refresh() == 2
    assert [one.id for one in running.relations] == ["founded by", "moved to"], "not the version 2 in memory"
    running.teach_many({"born in": BORN, "capital of": CAPITAL})
    again = open_toy(tmp_path / "mine")
    assert len(again.relations) == 4
    np.testing.assert_array_equal(scores(again), scores(running))
    assert before.shape[1] == 3


def write_head(folder: Path, **fields: object) -> None:
    """Change `extractor.json` as if erda had written it so."""
    head = {**json.loads((folder / "extractor.json").read_text()), **fields}
    current = json.loads((folder / "versions" / f"{head['current']}.json").read_text())
    write_json(folder / "extractor.json", sealed({**head, "identity": current["stamp"]["identity"]}))


def test_an_older_head_put_back_costs_no_version(tmp_path: Path) -> None:
    extractor = open_toy(tmp_path)
    extractor.teach("founded by", FOUNDED)
    old = (tmp_path / "extractor.json").read_bytes()
    extractor.teach("born in", BORN)
    extractor.teach("capital of", CAPITAL)
    before = contents(tmp_path)
    (tmp_path / "extractor.json").write_bytes(old)
    assert open_toy(tmp_path).teach("moved to", ["[[a]] moved to {{b}}"]).version == 4
    after = contents(tmp_path)
    assert {name: after[name] for name in before if name != "extractor.json"} == {
        name: content for name, content in before.items() if name != "extractor.json"
    }
    assert [(one.number, one.parent) for one in open_toy(tmp_path).history()] == [
        *((0, None), (1, 0), (2, 1), (3, 2)),
        (4, 1),
    ]
    assert len(open_toy(tmp_path, version=3).relations) == 3


@pytest.mark.parametrize("fault", ["swapped", "renamed", "unsealed", "of another store"])
def test_a_version_file_that_is_not_what_its_name_says_is_rejected(tmp_path: Path, fault: str) -> None:
    taught(tmp_path / "mine").teach("moved to", ["[[a]] moved to {{b}}"])
    one, three = (tmp_path / "mine" / "versions" / f"{number}.json" for number in (1, 3))
    if fault == "swapped":
        content = one.read_bytes()
        one.write_bytes(three.read_bytes())
        three.write_bytes(content)
    elif fault == "renamed":
        three.write_bytes(one.read_bytes())
    elif fault == "unsealed":
        value = json.loads(three.read_text())
        del value["seal"]
        three.write_text(json.dumps(value))
    else:
        other = taught(tmp_path / "other")
        other.forget("born in")
        three.write_bytes((tmp_path / "other" / "versions" / "3.json").read_bytes())
    with pytest.raises(ModelError, match=r"3\.json: .*The store is damaged") as caught:
        open_toy(tmp_path / "mine")
    assert "\n" not in str(caught.value)
    if fault != "of another store":
        with pytest.raises(ModelError):
            Store(tmp_path / "mine").history()
    assert len(open_toy(tmp_path / "mine", version=2).relations) == 3


@pytest.mark.parametrize("above", ["new", "a/b/new", "mine", "mine/c/new"])
def test_a_first_teaching_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: str
) -> None:
    (tmp_path / "mine").mkdir()
    extractor = open_toy(tmp_path / above)
    with monkeypatch.context() as patch:
        patch.setattr("erda.app.version_log.VersionLog._relearned", lambda *given, **more: 1 / 0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                extractor.teach("founded by", FOUNDED)
            assert {path.name for path in tmp_path.rglob("*")} <= {"mine"}
    assert extractor.teach("founded by", FOUNDED).version == 1, "and can be tried again"


# -- pruning -----------------------------------------------------------------------------------------------------------


def test_pruning_leaves_every_foreign_file_alone(tmp_path: Path) -> None:
    extractor = taught(tmp_path / "mine")
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / ("0" * 64 + ".json")).write_text("mine")
    foreign = ["objects/my-notes.txt", "versions/README.md", "versions/sub/a.json", "versions/9.json", "notes.txt"]
    for name in foreign:
        (tmp_path / "mine" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_text("{}")
    (tmp_path / "mine" / "versions" / "empty").mkdir()
    (tmp_path / "mine" / "objects" / "link").symlink_to(outside)
    (tmp_path / "mine" / "objects" / ("0" * 64 + ".json")).symlink_to(outside / ("0" * 64 + ".json"))
    (tmp_path / "mine" / "objects" / ("f" * 64 + ".json")).write_text("of a version that was never written")
    assert extractor.prune(keep=0) == 2
    assert (tmp_path / "mine" / "versions" / "empty").is_dir()
    left = {str(path.relative_to(tmp_path / "mine")) for path in (tmp_path / "mine").rglob("*") if path.is_file()}
    assert left >= {*foreign, f"objects/{'0' * 64}.json"}
    assert f"objects/{'f' * 64}.json" not in left
    assert contents(outside) == {"0" * 64 + ".json": b"mine"}
    assert len([name for name in left if name.startswith("objects/")]) == 3 * 2 + 1 + 2, "and all else is needed"
    assert len(open_toy(tmp_path / "mine").relations) == 3


@pytest.mark.parametrize("name", ["objects", "versions"])
def test_a_link_in_place_of_a_folder_is_not_written_through(tmp_path: Path, name: str) -> None:
    extractor = taught(tmp_path / "mine")
    (tmp_path / "mine" / name).rename(tmp_path / "theirs")
    (tmp_path / "mine" / name).symlink_to(tmp_path / "theirs")
    before = contents(tmp_path / "theirs")
    for change in (extractor.prune, extractor.undo, lambda: extractor.teach("moved to", ["[[a]] moved to {{b}}"])):
        with pytest.raises(ModelError, match="is a symbolic link"):
            change()
    assert contents(tmp_path / "theirs") == before


@pytest.mark.parametrize(
    "name",
    ["objects/a.txt", "versions/README.md", "versions/0.json", "versions/1.json", "objects/sub/x", "versions/x/y"],
)
def test_a_folder_that_only_looks_like_a_store_is_rejected(tmp_path: Path, name: str) -> None:
    for folder in ("objects", "versions"):
        (tmp_path / folder).mkdir()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    for attempt in (lambda: open_toy(tmp_path), lambda: open_toy(tmp_path, version=1)):
        with pytest.raises(ErdaError):
            attempt()
    assert contents(tmp_path) == {name: b"{}"}


def test_purging_removes_every_trace_of_what_was_forgotten(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    extractor.forget("born in")
    extractor.take_back(CAPITAL[0])
    expected = scores(extractor)
    assert b"Warsaw" in b"".join(contents(tmp_path).values())
    assert extractor.prune(purge=True) == 5
    everything = b"".join(contents(tmp_path).values())
    assert not any(word in everything for word in (b"Warsaw", b"born in", b"Paris"))
    assert [(one.number, one.parent) for one in extractor.history()] == [(5, None)]
    for one in (extractor, open_toy(tmp_path)):
        np.testing.assert_array_equal(scores(one), expected)
        with pytest.raises(DataError, match="nothing to undo"):
            one.undo()


def test_optional_fields_are_stored_and_objects_without_them_have_no_field(tmp_path: Path) -> None:
    typed = {"text": "Ann met Bo.", "head": {"span": [0, 3], "type": "PER"}, "tail": {"span": [8, 10]}}
    extractor = open_toy(tmp_path / "typed")
    extractor.teach("meets", [typed])
    assert extractor.teach("meets", ["[[Ann]] met {{Bo}}."]).n_examples == 0, "the same example without its type"
    (lesson,) = open_toy(tmp_path / "typed").examples("meets")
    assert (lesson.example.head.type, lesson.example.tail.type) == ("PER", None)
    (stored,) = (tmp_path / "typed" / "objects").glob("*.json")
    known = json.loads(stored.read_text())["known"]["lessons"][0]
    assert known["example"]["head"]["type"] == "PER"
    assert "type" not in known["example"]["tail"]
    assert "is_judged" not in known
    for text in ("[[Ann]] met {{Bo}}.", "[[Cy]] met {{Di}}."):
        extractor.judge(text, "meets")
    assert [one.is_judged for one in open_toy(tmp_path / "typed").examples("meets")] == [False, True], "taught stays"
    learned = extractor.version.state.learned
    assert len(extractor.teach("meets", ["[[Cy]] met {{Di}}."] * 2).duplicates) == 2
    assert not any(one.is_judged for one in open_toy(tmp_path / "typed").examples("meets")), "judged, then taught"
    assert extractor.version.state.learned is learned
    assert extractor.history()[-1].what == "taught meets"


@pytest.mark.parametrize("method", ["posterior", "seqrun"])
def test_forgetting_leaves_what_the_method_would_leave(tmp_path: Path, method: str) -> None:
    extractor = taught(tmp_path, method=method)
    expected = open_toy(tmp_path, method=method).version.method
    expected.forget("born in")
    assert extractor.forget("born_in") == 3
    found = open_toy(tmp_path, method=method).version.method
    assert [*found.index] == ["founded by", "capital of"] == [*expected.index]
    assert found.kept == expected.kept
    for name, rows in expected.checkpoint().rows.items():
        for relation, row in rows.items():
            np.testing.assert_array_equal(found.checkpoint().rows[name][relation], row)


def test_a_damaged_version_does_not_become_current(tmp_path: Path) -> None:
    extractor = open_toy(tmp_path)
    extractor.teach("founded by", FOUNDED)
    (files,) = Store(tmp_path).version_file(1).relations
    extractor.forget("founded by")
    (tmp_path / "objects" / f"{files.rows}.safetensors").write_bytes(b"damaged")
    for change in (extractor.undo, lambda: extractor.rollback(1)):
        with pytest.raises(ModelError):
            change()
    assert Store(tmp_path).head().current == 2


@pytest.mark.parametrize(
    "asked", [{"method": "seqrun"}, {"method": "seqrun", "method_settings": {"nope": 1}, "relearn": True}]
)
def test_a_rejected_request_does_not_move_the_current_version(tmp_path: Path, asked: dict[str, object]) -> None:
    taught(tmp_path)
    with pytest.raises(ErdaError):
        open_toy(tmp_path, version=1, **asked)
    assert Store(tmp_path).head().current == 2


@pytest.mark.parametrize("part", ["about", "rows"])
def test_damage_to_the_current_version_stops_neither_undo_nor_forget(tmp_path: Path, part: str) -> None:
    """A damaged relation can be forgotten; without the name in its file, by any name that no other has."""
    extractor, store = taught(tmp_path), Store(tmp_path)
    digest = getattr(store.version_file(2).relations[1], part)
    (tmp_path / "objects" / f"{digest}.{'json' if part == 'about' else 'safetensors'}").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="not what was written"):
        open_toy(tmp_path)
    assert extractor.forget("born in") == 3
    assert [one.id for one in open_toy(tmp_path).relations] == ["founded by", "capital of"]
    store.point(2)
    assert extractor.undo() == 1
    assert [one.id for one in open_toy(tmp_path).relations] == ["founded by"]


def test_undo_passes_over_a_damaged_version_file(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    (tmp_path / "versions" / "2.json").write_bytes(b"damaged")
    assert extractor.undo() == 1
    extractor.teach("born in", ["[[Ada]] was born in {{London}} ."])
    extractor.prune(keep=1)
    with pytest.raises(DataError, match="version 1 was removed"):
        extractor.undo()
