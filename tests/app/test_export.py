"""An exported extractor answers as the extractor does, where there is neither erda nor PyTorch."""

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sanity_sentences import TAUGHT
from tiny_models import build_model
from toy_extractor import open_toy

from erda.app import standalone
from erda.app.export import FILES
from erda.app.extractor import Extractor
from erda.app.standalone import Predictor
from erda.app.state import Thresholds
from erda.cli.checking import help_texts
from erda.cli.main import main
from erda.encoders.onnx_encoder import OnnxEncoder
from erda.errors import DataError, ErdaError, ModelError

LESSONS = {
    "capital of": ["[[paris]] is the capital of {{france}}.", "the capital of {{germany}} is [[berlin]]"],
    "born in": ["[[marie curie]] was born in {{paris}}.", "{{berlin}}, a city: the queen [[marie]] was born in it"],
    "river in": ["the [[river]] in {{france}}", "a [[river]] of {{germany}}, in a city"],
}
QUESTIONS = [
    "[[berlin]] is the capital of {{germany}}.",
    "{{france}}: the king [[curie]] was born in it, as is [SEP] [E1] \u200b",
    "[[\u200b-]] of {{river}}",
    "the king of [[paris]] " + "was born in the city of a river " * 20 + "{{france}}",
    "the " * 80 + "[[paris]] {{france}}" + " city" * 80,
]
REJECTED = "[[berlin]] , the capital of {{france}}"
ROWS = [
    {"tokens": ["berlin", "is", "in", "germany"], "head": {"span": [0, 1]}, "tail": {"span": [3, 4]}},
    {"text": "berlin is in germany", "head": {"span": [13, 20]}, "tail": {"span": [0, 6]}},
    {"text": "[[berlin]] is in {{germany}}"},
    {"text": "the cafe\u0301 [[berlin]] is in {{germany}}"},
]
TEXT = "berlin is the capital of germany. He, who was born in paris, is the king of france."
NEWS = """SpaceX was founded by Elon Musk, who was born in Pretoria. It left Reykjavi\u0301k. nobody

Bill Gates and Paul Allen started Microsoft in Albuquerque; its rival Apple was founded by Steve Jobs in Los Altos.
Marie Curie was born in Warsaw."""
BARE = """
import json, sys
before, folder = {*sys.modules}, sys.argv[1]
sys.path.insert(0, folder)
from predict import Predictor
predictor, (asked, text) = Predictor(), json.load(sys.stdin)
answers, found = predictor.predict(asked), [*predictor.extract(text).rows(pairs="all")]
loaded = {name.partition(".")[0] for name in {*sys.modules} - before} - {*sys.stdlib_module_names}
print(json.dumps([answers, found, sorted(loaded)]))
"""


@pytest.fixture(scope="module", params=["bert", "mpnet"])
def taught(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Extractor:
    place = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ERDA_CACHE", str(place / "cache"))
        model = build_model(place / "model", request.param)
        extractor = Extractor.open(
            place / "store",
            encoder=str(model.path),
            encoder_settings={"mode": "markers", "trained_layers": 0, "engine": "onnx-int8"},
        )
        extractor.teach_many(LESSONS)
        extractor.judge(REJECTED, "capital of", holds=False)
        extractor.export(place / "exported")
    return extractor


@pytest.fixture
def exported(taught: Extractor) -> Path:
    return taught.folder.parent / "exported"


def test_it_answers_as_the_extractor_does_and_needs_three_packages(
    taught: Extractor, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERDA_TAGGER", "capitals")
    asked = [*QUESTIONS, *ROWS, REJECTED, *LESSONS["born in"]]
    command = [sys.executable, "-I", "-c", BARE, str(exported)]
    ran = subprocess.run(command, input=json.dumps([asked, TEXT]), capture_output=True, text=True, check=True)
    answers, found, loaded = json.loads(ran.stdout)
    assert loaded == ["erda_export", "numpy", "onnxruntime", "predict", "tokenizers"]
    assert isinstance(taught.version.method.encoder, OnnxEncoder)
    assert answers == [one.to_json() for one in taught.predict(asked)]
    assert found == list(taught.extract(TEXT).rows(pairs="all"))
    assert {one["tail"] for one in found} >= {"germany", "france"}, "names of taught examples"


def test_it_extracts_as_the_extractor_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ERDA_TAGGER", "capitals")
    extractor = Extractor.open(tmp_path / "store")  # its encoder reads a sentence once for all its pairs
    extractor.teach_many(TAUGHT)
    rejected = extractor.extract(NEWS).found[0]
    extractor.judge(rejected.example, str(rejected.relation), holds=False)
    several = Thresholds(1e-7, {"founded by": 0.6}, 0.9, 1, in_text=True)
    for name in ("default", "tuned"):
        if name == "tuned":
            extractor._log.change(lambda state: state.changed("tuned", thresholds=several))
        pairs = Predictor(extractor.export(tmp_path / name)).extract(NEWS), extractor.extract(NEWS)
        facts = [[(a.example, a.place, a.relations) for a in (*one.found, *one.answers)] for one in pairs]
        confidences = [[ranked.confidence for a in one.answers for ranked in a.ranked] for one in pairs]
        assert facts[0] == facts[1]
        assert confidences[0] == pytest.approx(confidences[1], abs=1e-6)
        assert (name == "tuned") == any(len(relations) > 1 for *_, relations in facts[0])
    news, predict = tmp_path / "news.txt", [sys.executable, str(tmp_path / "tuned/predict.py"), "--extract"]
    news.write_text(f"\ufeff{NEWS}\na control character: \0\n")
    erda = [sys.executable, "-m", "erda", "extract", str(news), "--store", str(extractor.folder)]
    both = [subprocess.run(one, capture_output=True, check=False) for one in ([*predict, str(news)], erda)]
    rows, expected = ([json.loads(line) for line in one.stdout.splitlines()] for one in both)
    assert rows == expected
    assert (rows[0]["line"], "control character" in rows[-1]["error"], both[0].returncode) == (1, True, 2)
    assert standalone.main(["nobody"]) == 2
    assert "encoder.json: cannot be read (No such file or directory); export" in capsys.readouterr().err
    monkeypatch.setattr(Predictor.__init__, "__defaults__", (tmp_path / "tuned",))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"nobody")))
    assert standalone.main(["--extract"]) == 0
    assert "No relation was found." in capsys.readouterr().err
    assert standalone.main(["--extract", "nowhere.txt"]) == 2
    assert "nowhere.txt: cannot be read (No such file or directory); name a text file" in capsys.readouterr().err


def test_it_runs_as_a_command(exported: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(exported / "predict.py")]
    silent = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS")  # each of them silences ONNX Runtime
    environment = {name: value for name, value in os.environ.items() if name not in silent}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    ran = subprocess.run([*command, QUESTIONS[0]], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(ran.stdout)["relation"] in LESSONS
    assert not list(tmp_path.iterdir()), "ONNX Runtime (`open_session`) reports nothing to its maker"
    lines = f"{json.dumps(ROWS[0])}\nno marks\n".encode() + b"Fran\xe7ois\n"
    asked = subprocess.run(command, input=lines, capture_output=True, check=False)
    first, second, third = map(json.loads, asked.stdout.splitlines())
    assert (asked.returncode, first["relation"] in LESSONS) == (2, True)
    assert second == {"error": "no head is marked; put the first entity in [[ ]] and the second in {{ }}, once each."}
    assert "can't decode byte 0xe7" in third["error"]
    assert "3 relations" in (exported / "README.md").read_text()


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "scores.npz"])
def test_a_damaged_export_is_refused(exported: Path, tmp_path: Path, name: str) -> None:
    for file in filter(Path.is_file, exported.iterdir()):
        content = file.read_bytes()
        (tmp_path / file.name).write_bytes(content[:-1] + b"x" if file.name == name else content)
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        Predictor(tmp_path)


def test_a_store_names_its_engine_and_rejects_another(taught: Extractor) -> None:
    assert taught.version.state.stamp.setup.encoder.settings["engine"] == "onnx-int8"
    with pytest.raises(ModelError, match=r"\(engine onnx-int8\), not to .* \(engine torch\)"):
        Extractor.open(taught.folder, encoder_settings={"engine": "torch"})


def test_what_a_killed_export_left_is_removed_and_nothing_of_the_users(taught: Extractor, tmp_path: Path) -> None:
    left, mine = tmp_path / ".x.0123456789abcdef.tmp", tmp_path / ".x.fedcba9876543210.tmp"
    for folder, name in ((left, "predict.py"), (mine, "notes.txt")):
        folder.mkdir()
        (folder / name).write_text("half")
    taught.export(tmp_path / "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == [mine.name, "x"]
    assert (mine / "notes.txt").read_text() == "half"
    assert {path.relative_to(tmp_path / "x").as_posix() for path in (tmp_path / "x").rglob("*.*")} == {*FILES}


def test_what_cannot_be_exported(taught: Extractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="name a new folder in it"):
        taught.export(".")
    with pytest.raises(DataError, match="is not empty"):
        taught.export(taught.folder)
    with pytest.raises(ErdaError, match="expected onnx or onnx-int8"):
        taught.export(tmp_path / "out", engine="torch")
    with pytest.raises(DataError, match="No relation is known"):
        Extractor.open(tmp_path / "empty").export(tmp_path / "out")
    words = open_toy(tmp_path / "words")
    words.teach_many(LESSONS)
    with pytest.raises(ErdaError, match="only transformers"):
        words.export(tmp_path / "out")
    means = open_toy(tmp_path / "trained", method="emr")
    means.teach_many(LESSONS)
    with pytest.raises(ErdaError, match="Method 'emr' cannot be exported"):
        means.export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command(
    taught: Extractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ERDA_CACHE", str(taught.folder.parent / "cache"))
    monkeypatch.setenv("ERDA_STORE", str(taught.folder))
    first, second = (
        shlex.split(line)[1:] for line in help_texts()["export"]["more"].rpartition("examples:\n")[2].splitlines()
    )
    assert main(first) == 0
    assert f"{Path('my-export') / 'predict.py'}" in capsys.readouterr().out
    assert main(second) == 0
    assert main([*first[:1], "exact", "--engine", "onnx"]) == 0
    engines = [json.loads((tmp_path / name / "encoder.json").read_text())["engine"] for name in ("my-export", "exact")]
    assert engines == ["onnx-int8", "onnx"]
    assert main(first) == 2
    assert "my-export exists and is not empty" in capsys.readouterr().err
