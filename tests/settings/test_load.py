"""Settings from five places: which wins, what is refused, and that all faults come at once."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from erda.cli.main import build_parser
from erda.cli.settings_options import FLAGS
from erda.cli.settings_options import load_settings as load_options
from erda.errors import SettingsError
from erda.methods import METHODS
from erda.settings.load import preset_names, read_preset, run_settings
from erda.settings.runs import RunSettings

PAPER = {"methods": "erda", "encoder": "bilstm"}
run_parser = cache(partial(build_parser, "run"))


def load_settings(
    preset: str | None = None,
    file: Path | None = None,
    sets: Sequence[str] = (),
    flags: Mapping[str, str] | None = None,
) -> RunSettings:
    """What `erda run` makes of its options."""
    words = [f"--set={text}" for text in sets]
    words += [f"{FLAGS[name][0]}={text}" for name, text in (flags or {}).items()]
    words += [f"--preset={preset}"] if preset else []
    words += [f"--config={file}"] if file else []
    return load_options(run_parser().parse_args(["run", "--out", "x", *words]))


def faults(**given: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(**given)
    return str(caught.value).splitlines()


def toml(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_defaults_are_a_run_on_the_embedded_dataset() -> None:
    settings = load_settings()
    assert (settings.dataset, settings.shots, settings.methods) == ("atlas", 5, ("posterior",))
    assert (settings.encoder, settings.encoder_settings) == ("minilm", {})
    assert settings.seeds == (100, 110, 120, 130, 140, 150)
    assert load_settings(flags=PAPER).method_settings["erda"]["contrastive_weight"] == 0.1


def test_flag_over_set_over_file_over_preset(tmp_path: Path) -> None:
    file = toml(tmp_path, 'shots = 3\nway = 4\nencoder = "minilm"\n')
    flags = {"shots": "7"}
    sets = ["shots=6", "way=6", "encoder=bilstm", "order-family=sckd"]
    assert load_settings(preset="fewrel-10-shot").shots == 10
    assert load_settings(preset="fewrel-10-shot", file=file, sets=["encoder=bilstm"]).shots == 3
    settings = load_settings(preset="fewrel-10-shot", file=file, sets=sets, flags=flags)
    assert settings.shots == 7
    assert settings.stream_settings == {"way": 6}
    assert settings.encoder == "bilstm"
    assert settings.dataset == "fewrel"
    assert settings.order_family == "sckd", "hyphens and underscores are the same"


def test_one_method_over_all_methods_within_a_place_but_the_later_place_wins(tmp_path: Path) -> None:
    file = toml(tmp_path, "[settings]\nerda.batch_size = 3\nbatch_size = 2\n")
    both = {"methods": "erda,seqrun"}
    settings = load_settings(file=file, flags=both).method_settings
    assert (settings["erda"]["batch_size"], settings["seqrun"]["batch_size"]) == (3, 2)
    settings = load_settings(file=file, sets=["batch_size=9"], flags=both).method_settings
    assert (settings["erda"]["batch_size"], settings["seqrun"]["batch_size"]) == (9, 9)


def test_a_method_whose_name_has_a_hyphen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "two-words", METHODS["erda"])
    settings = load_settings(sets=["two-words.batch-size=3"], flags={"methods": "two-words"})
    assert settings.method_settings["two-words"]["batch_size"] == 3


def test_the_cache_is_no_setting_of_the_experiment() -> None:
    settings = load_settings(sets=["cache_gb=0.5", "cache_dir=/tmp/frozen"])
    assert (settings.cache_gb, settings.cache_dir) == (0.5, "/tmp/frozen")
    assert settings.runs() == load_settings().runs()
    assert "cache_gb: must be at least 0" in faults(sets=["cache_gb=-1"])[0]


def test_all_faults_at_once() -> None:
    found = faults(
        sets=["btch_size=7", "memory_size=-1", "temperature=abc", "encoder.dropout=1", "nothing", "shots=0"],
        flags={"dataset": "fewrell", "seeds": "100,100", "methods": "erda,emrr"},
    )
    assert len(found) == 9
    text = "\n".join(found)
    assert "Did you mean 'batch_size'?" in text
    assert "--set memory_size: must be at least 0, got -1." in text
    assert "--set temperature: expected a number, got 'abc'." in text
    assert "--set encoder.dropout: must be less than 1, got 1." in text
    assert "--set nothing: expected name=value." in text
    assert "--set shots: must be at least 1, got 0." in text
    assert "Did you mean 'fewrel'?" in text
    assert "Unknown method 'emrr'." in text
    assert "seeds: 100 given twice." in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shots = 2.5", "mine.toml: shots: expected a whole number, got 2.5."),
        ("shots = true", "mine.toml: shots: expected a whole number, got True."),
        ("seeds = 'x'", "mine.toml: seeds: expected a whole number, got 'x'."),
        ("methods = 3", "mine.toml: methods: expected text, got 3."),
        ("methods = ['erda', 3]", "mine.toml: methods: expected text, got 3."),
        ("shotz = 5", "Did you mean 'shots'?"),
        ("settings = 3", "'settings' must be a table"),
        ("shots = ", "is not valid TOML"),
        ("shots = " + "9" * 5000, "holds a number that is too long"),
        ("shots = " + "[" * 5000, "nested too deeply"),
        ("seeds = " + "[" * 500 + "]" * 500, "mine.toml"),
        ("methods='erda'\n[settings]\nsearch_matched = 1", "expected true or false, got 1."),
        ("methods='erda'\n[settings]\ntemperature = inf", "temperature: expected a finite number, got inf."),
    ],
)
def test_faults_of_a_file_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    found = "\n".join(faults(file=toml(tmp_path, text)))
    assert message in found
    assert len(found) < 600
    assert "mine.toml" in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shots=1.5", "--set shots: expected a whole number, got '1.5'."),
        ("search_matched=1", "--set search_matched: expected true or false, got '1'."),
        ("search_matched=yes", "--set search_matched: expected true or false, got 'yes'."),
        ("temperature=nan", "--set temperature: expected a finite number, got nan."),
        ("cache_gb=1e300", "--set cache_gb: must be at most 10000, got 1e+300."),
        ("seeds=18446744073709551616", "--set seeds: must be less than 9.22337e+18, got 18446744073709551616."),
        ("seeds=" + "9" * 5000, "--set seeds: "),
        ("evaluate_on=tset", "--set evaluate_on: Unknown word 'tset'. Did you mean 'test'?"),
        ("seed=3", "--set seed: a run's seed also orders its stream; give it with --seeds."),
        ("dataset=~nobody.jsonl", "Unknown dataset '~nobody.jsonl'."),
        ("erda.agreement=foo", "--set erda.agreement: Unknown word 'foo'. Known: mean, none."),
        ("encoder.reads=spam", "--set encoder.reads: Unknown word 'spam'. Did you mean 'span'?"),
    ],
)
def test_text_is_read_strictly(text: str, message: str) -> None:
    (found,) = faults(sets=[text], flags=PAPER)
    assert found.startswith(message)
    assert len(found) < 200


def test_text_becomes_the_value_it_stands_for() -> None:
    sets = ["seeds= 1 , 2,", "search_matched=TRUE", "temperature=1", "encoder.vectors=7"]
    settings = load_settings(sets=sets, flags=PAPER)
    assert settings.seeds == (1, 2)
    assert settings.method_settings["erda"]["search_matched"] is True
    assert settings.method_settings["erda"]["temperature"] == 1.0
    assert settings.encoder_settings == {"vectors": "7"}


def test_a_program_passes_values() -> None:
    given = {"erda.memory_size": 2, "batch-size": 3, "encoder.dropout": 0.5}
    settings = run_settings(preset="demo", methods="erda", seeds=[1, 2], n_tasks=None, settings=given)
    assert (settings.methods, settings.seeds, settings.stream_settings) == (("erda",), (1, 2), {})
    assert {"memory_size": 2, "batch_size": 3}.items() <= settings.method_settings["erda"].items()
    assert settings.encoder_settings == {"dropout": 0.5}


def test_faults_of_a_program_are_named_by_the_setting() -> None:
    with pytest.raises(SettingsError) as caught:
        run_settings(**PAPER, shots="5", seeds=[1.5], settings={"erda.memory_size": "2", "nothing": 1, "batch_size": 0})
    *values, name = str(caught.value).splitlines()
    assert values == [
        "shots: expected a whole number, got '5'.",
        "seeds: expected a whole number, got 1.5.",
        "batch_size: must be at least 1, got 0.",
        "erda.memory_size: expected a whole number, got '2'.",
    ]
    assert name.startswith("nothing: Unknown setting 'nothing'.")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in faults(file=tmp_path / "none.toml")[0]
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    assert "is not UTF-8 text (byte 0); save it as UTF-8" in faults(file=tmp_path / "bad.toml")[0]
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbfshots = 7\n")  # as Windows begins a text
    assert run_settings(file=tmp_path / "marked.toml").shots == 7


def test_a_setting_that_no_chosen_method_has_is_a_fault_on_the_command_line_only(tmp_path: Path) -> None:
    only_seqrun = {"methods": "seqrun"}
    for text in ("memory_size=2", "erda.memory_size=2"):
        assert "but the run has only seqrun" in faults(sets=[text], flags=only_seqrun)[0]
    nobody = {"methods": "seqrunn"}
    assert any("but the run has no known method." in one for one in faults(sets=["memory_size=2"], flags=nobody))
    file = toml(tmp_path, "[settings]\nmemory_size = 2\n")
    assert "memory_size" not in load_settings(file=file, flags=only_seqrun).method_settings["seqrun"]


@pytest.mark.parametrize("device", ["mps", "meta", "cpu:1", "cuda:x", "", "cuda:"])
def test_devices_of_another_kind_are_refused_with_those_that_are_known(device: str) -> None:
    assert faults(flags={"device": device}) == [
        f"device: unknown device '{device}'. Known: cpu, cuda, cuda:0, cuda:1, ..."
    ]


def test_runs_are_all_methods_of_a_seed_before_the_next_seed() -> None:
    runs = load_settings(flags={"methods": "erda,joint", "seeds": "1,2"}, sets=["n_tasks=3"]).runs()
    assert [(run.seed, run.method) for run in runs] == [(1, "erda"), (1, "joint"), (2, "erda"), (2, "joint")]
    assert runs[0].settings["stream"] == {"n_tasks": 3}
    assert "memory_size" in runs[0].settings["method"]
    assert "memory_size" not in runs[1].settings["method"]


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid_and_says_what_it_is(name: str) -> None:
    assert load_settings(preset=name).methods
    assert read_preset(name)["description"].endswith(".")
    assert "dataset" in read_preset(name)
