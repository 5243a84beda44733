"""The methods of this package keep the public contract, and `erda` finds methods, datasets and presets by name."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from erda.data.catalogue import DATASETS
from erda.methods import METHODS, find_method
from erda.settings.load import preset_names, run_settings
from erda.testing import CHECKS, Toy, scores_do_not_depend_on_the_batch
from toy_world import CopiedToy

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
POINTS = PROJECT["project"]["entry-points"]
PRESETS = sorted(path.stem for path in (Path(__file__).parents[1] / "src/erda_peers/presets").glob("*.toml"))
CHECKED = [name for name in POINTS["erda.methods"] if not name.endswith("-rescored")] + ["cpl-rescored"]


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract(name: str, check: Callable[[Toy], None]) -> None:
    if "transductive" in name and check is scores_do_not_depend_on_the_batch:
        with pytest.raises(AssertionError):
            check(CopiedToy(METHODS[name]))
    else:
        check(CopiedToy(METHODS[name]))


def test_everything_is_found_by_name() -> None:
    assert all(find_method(name).name == name for name in POINTS["erda.methods"])
    assert {*POINTS["erda.datasets"]} <= {*DATASETS}
    assert {*PRESETS} <= {*preset_names()}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_run_every_method_over_the_same_encoder(name: str) -> None:
    settings = run_settings(preset=name)
    assert settings.encoder_settings == {"adapter": "shipped", "trained_layers": 1}
    if name.endswith("-adapter"):
        assert {*settings.methods} >= {"seqrun", "joint", "emr", "emar", "idlvq-c", "sckd", "cpl", "erda", "posterior"}
    if name.endswith("-rescored"):
        assert all(own["names"] and own["whiten"] for own in settings.method_settings.values())
