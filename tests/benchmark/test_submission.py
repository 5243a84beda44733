"""Bundles: valid records only, the same bytes every time, and every tampering found."""

import json
import random
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from toy_runs import toy_record

from erda.benchmark.audit import audit_record, compact_record
from erda.benchmark.records import FoundRecord, Record, read_record, write_record
from erda.benchmark.submission import check_bundle, pack_bundle
from erda.cli.main import main
from erda.errors import RecordError
from erda.files import sealed

METHOD = "class Toy: ..."


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in (1, 2):
        toy_record(tmp_path / "runs", seed=seed)
    (tmp_path / "toy.py").write_text(METHOD)
    return tmp_path / "runs"


def pack(runs: Path, out: Path) -> Path:
    pack_bundle(runs, out, name="toys", method_files=[runs.parent / "toy.py"])
    return out


def rewritten(bundle: Path, out: Path, change: dict[str, bytes | None]) -> Path:
    """Copy of a bundle with other members."""
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(out, "w") as new:
        members = {name: old.read(name) for name in old.namelist()} | change
        for name, content in members.items():
            if content is not None:
                new.writestr(name, content)
    return out


def test_a_bundle_holds_records_environment_and_method_and_is_the_same_every_time(runs: Path, tmp_path: Path) -> None:
    first, second = pack(runs, tmp_path / "a.zip"), pack(runs, tmp_path / "b.zip")
    assert first.read_bytes() == second.read_bytes()
    checked = check_bundle(first)
    assert sorted(record.seed for record in checked.records) == [1, 2]
    assert checked.records[0].accuracy == read_record(runs / "toy/1").accuracy
    assert checked.method_files == ("method/toy.py",)
    assert any(one.startswith("numpy==") for one in checked.bundle.environment["packages"])
    with zipfile.ZipFile(first) as packed:
        assert not [name for name in packed.namelist() if "predictions" in name]


def test_records_that_nobody_can_trust_are_rejected_all_at_once(runs: Path, tmp_path: Path) -> None:
    path = runs / "toy/1/record.json"
    value = json.loads(path.read_text())
    del value["seal"]
    path.write_text(json.dumps(value))
    toy_record(tmp_path / "runs/other", evaluate_on="validation")
    with pytest.raises(RecordError) as caught:
        pack(runs, tmp_path / "a.zip")
    said = str(caught.value)
    assert "has no seal" in said
    assert "validation" in said
    assert not (tmp_path / "a.zip").exists()


def test_a_method_that_erda_lacks_needs_its_source(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="--method-file"):
        pack_bundle(runs, tmp_path / "a.zip", name="toys")


def broken(record: Record) -> list[Record]:
    counts = record.relation_right["all-seen"]
    name = record.order[0][0]
    better = {**counts, name: [*counts[name][:-1], counts[name][-1] - 1]}
    return [
        replace(record, accuracy={**record.accuracy, "all-seen": [1.0, 1.0, 1.0]}),
        replace(record, relation_right={**record.relation_right, "all-seen": better}),
        replace(record, forgetting={**record.forgetting, "candidates": None}),
        replace(record, relation_right={}, relation_tests={}),
        replace(record, relation_tests={**record.relation_tests, name: 9}),
        replace(record, accuracy={"all-seen": record.accuracy["all-seen"]}),
        replace(record, protocols={}),
        replace(record, relation_right={"all-seen": counts}),
        overstated(record),
    ]


def overstated(record: Record) -> Record:
    """The right predictions of one relation moved to another one that has fewer questions; sums stay."""
    counts = {protocol: dict(rows) for protocol, rows in record.relation_right.items()}
    one, other = record.order[0][:2]
    for rows in counts.values():
        rows[one], rows[other] = [a + b for a, b in zip(rows[one], rows[other], strict=True)], [0] * len(rows[other])
    assert counts["all-seen"][one][0] > record.relation_tests[one]
    return replace(record, relation_right=counts)


def test_a_sealed_record_that_contradicts_itself_is_rejected(runs: Path) -> None:
    record = read_record(runs / "toy/1")
    assert audit_record(record) == []
    for one in broken(record):
        assert audit_record(one), one


@pytest.mark.parametrize(
    ("member", "content"),
    [
        ("records/toy/1/record.json", b"{}"),
        ("records/toy/1/record.json", None),
        ("method/toy.py", b"class Toy: pass"),
        ("records/toy/3/record.json", b"{}"),
        ("../escape", b""),
        ("bundle.json", b"{}"),
        ("bundle.json", None),
    ],
)
def test_a_changed_bundle_is_rejected(runs: Path, tmp_path: Path, member: str, content: bytes | None) -> None:
    bundle = pack(runs, tmp_path / "a.zip")
    with pytest.raises(RecordError):
        check_bundle(rewritten(bundle, tmp_path / "b.zip", {member: content}))


def test_a_bundle_sealed_anew_around_an_unsealed_record_is_rejected(runs: Path, tmp_path: Path) -> None:
    import hashlib

    bundle = pack(runs, tmp_path / "a.zip")
    with zipfile.ZipFile(bundle) as packed:
        about = json.loads(packed.read("bundle.json"))
        record = json.loads(packed.read("records/toy/1/record.json"))
    record["n_test"] = [1, 1, 1]
    content = json.dumps(record).encode()
    about["members"]["records/toy/1/record.json"] = hashlib.sha256(content).hexdigest()
    change = {"records/toy/1/record.json": content, "bundle.json": json.dumps(sealed(about)).encode()}
    with pytest.raises(RecordError, match="changed or damaged"):
        check_bundle(rewritten(bundle, tmp_path / "b.zip", change))


def test_files_that_are_no_bundles_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("no zip")
    for name in ("text.zip", "nowhere.zip"):
        with pytest.raises(RecordError):
            check_bundle(tmp_path / name)


def test_a_compact_record_keeps_the_seal_valid_and_drops_paths_and_provenance(tmp_path: Path) -> None:
    record = toy_record(tmp_path)
    long = {"augmentation": ["x" * 3000], "n_tasks": 3}
    spec = {"name": "/models/minilm", "settings": {"adapter": "/home/me/adapter", "mode": "markers"}}
    paths = {"corpus": "/home/me/wiki", "encoder_spec": spec}
    old = replace(record, notes=long, relation_right={}, relation_tests={}, **paths)
    compact = compact_record(FoundRecord(old, tmp_path / "toy/1"))
    assert (compact.corpus, compact.notes) == ("wiki", {"n_tasks": 3, "left_out": ["augmentation"]})
    assert compact.encoder_spec == {"name": "minilm", "settings": {"adapter": "adapter", "mode": "markers"}}
    assert compact.relation_right == record.relation_right, "counted from predictions.npz"
    write_record(tmp_path / "again", compact)
    assert read_record(tmp_path / "again") == compact


def test_the_command_packs_and_checks(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.zip"
    words = ["submit", str(runs), "--method-file", str(tmp_path / "toy.py"), "--out", str(out), "--name", "Mine"]
    assert main(words) == 0
    assert main(words) == 2, "an existing bundle is kept"
    assert main(["submit", "--check", str(out)]) == 0
    assert "Valid: Mine, 2 records of toy." in capsys.readouterr().out
    assert main(["submit", "--check", str(out), "--name", "x"]) == 2
    assert main(["submit", str(runs), "--out", str(tmp_path / "b.zip")]) == 2


def test_a_bundle_never_replaces_what_it_packs(runs: Path, tmp_path: Path) -> None:
    source = tmp_path / "toy.py"
    (tmp_path / "link.zip").hardlink_to(source)
    for out in (source, tmp_path / "link.zip", runs / "toy/1/record.json", runs / "toy/1/predictions.npz"):
        content = out.read_bytes()
        words = ["submit", str(runs), "--method-file", str(source), "--out", str(out), "--overwrite"]
        assert main(words) == 2
        assert out.read_bytes() == content


def test_a_run_counts_once(runs: Path, tmp_path: Path) -> None:
    content = (runs / "toy/1/record.json").read_bytes()
    (runs / "again").mkdir()
    (runs / "again/record.json").write_bytes(content)
    with pytest.raises(RecordError, match="1 of 3 records repeat"):
        pack(runs, tmp_path / "a.zip")


@pytest.mark.parametrize("name", ["\udcff", "a\\b", "a\nb", "\x1b[31m"])
def test_folders_that_cannot_be_in_a_bundle_are_named(name: str, tmp_path: Path) -> None:
    toy_record(tmp_path / "runs" / name)
    (tmp_path / "toy.py").write_text(METHOD)
    with pytest.raises(RecordError, match="cannot be in a bundle"):
        pack(tmp_path / "runs", tmp_path / "a.zip")


@pytest.mark.parametrize("name", ["", ".", "./", "records//record.json", "records/./record.json", "method/a\x1b"])
def test_a_member_with_a_strange_path_is_rejected(name: str, runs: Path, tmp_path: Path) -> None:
    bundle = pack(runs, tmp_path / "a.zip")
    with zipfile.ZipFile(bundle, "a") as packed:
        packed.writestr(zipfile.ZipInfo(name), b"{}")
    with pytest.raises(RecordError, match="unexpected"):
        check_bundle(bundle)


def test_a_damaged_bundle_is_rejected(runs: Path, tmp_path: Path) -> None:
    content, rng, n_rejected = pack(runs, tmp_path / "a.zip").read_bytes(), random.Random(1), 0
    for _ in range(200):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (tmp_path / "b.zip").write_bytes(damaged)
        try:
            check_bundle(tmp_path / "b.zip")
        except RecordError:
            n_rejected += 1
    assert n_rejected > 150, "the other bits are times and attributes"


def test_enormous_counts_are_rejected(runs: Path) -> None:
    path = runs / "toy/1/record.json"
    value = json.loads(path.read_text())
    value["n_test"] = [10**400] * len(value["n_test"])
    path.write_text(json.dumps(sealed(value)))
    with pytest.raises(RecordError, match="n_test"):
        read_record(path)
