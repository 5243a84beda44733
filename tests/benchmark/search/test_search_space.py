"""Search spaces: parsing, suggested values, and all faults at once."""

import math

import pytest

from erda.benchmark.search.space import Choice, default_space, parse_space
from erda.errors import SettingsError


def parse(*texts: str, grid: bool = False) -> tuple[Choice, ...]:
    return parse_space(texts, method="erda", encoder="bilstm", grid=grid)


def test_the_papers_grid() -> None:
    choices = {one.name: one.values for one in parse(*default_space("erda", with_corpus=True), grid=True)}
    alpha = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
    assert choices == {
        "erda.match_threshold": alpha,
        "erda.n_neighbours": (1, 2, 3),
        "erda.multi_margin": (0.1, 0.2, 0.3),
        "erda.pairwise_margin": (0.1, 0.2, 0.3),
        "erda.contrastive_margin": (0.01, 0.02, 0.03),
        "erda.memory_iterations": (1, 2, 3),
    }
    assert math.prod(map(len, choices.values())) == 2673
    without = [one.name for one in parse(*default_space("erda", with_corpus=False))]
    assert "erda.match_threshold" not in without
    assert len(without) == 4
    with pytest.raises(SettingsError):
        default_space("emr", with_corpus=False)


def test_lists_ranges_and_owners() -> None:
    found = parse(
        "agreement=none,mean", "augmentation=true,false", "encoder.hidden_size=50,100,200", "temperature=0.05:1:log"
    )
    assert [one.name for one in found] == [
        "erda.agreement",
        "erda.augmentation",
        "encoder.hidden_size",
        "erda.temperature",
    ]
    assert [one.values for one in found] == [("none", "mean"), (True, False), (50, 100, 200), ()]
    assert found[3].log
    assert [str(one) for one in found[1:]] == [
        "erda.augmentation=true,false",
        "encoder.hidden_size=50,100,200",
        "erda.temperature=0.05:1.0:log",
    ]
    assert found[3].has(0.2)
    assert not found[3].has(2)


def test_every_fault_is_reported_at_once() -> None:
    bad = {
        "multi_margin": "expected NAME=v1,v2",
        "multi_margn=0.1,0.2": "Did you mean 'multi_margin'?",
        "shots=1,2": "changes what is measured",
        "batch_size=1.5,2": "expected a whole number, got '1.5'",
        "augmentation=yes,no": "expected true or false, got 'yes'",
        "temperature=0.1,0.1": "given twice",
        "temperature=0.1": "nothing to search",
        "learning_rate=1:0.1": "low (1) must be below high (0.1)",
        "dropout=0:1:log:2": "Unknown setting 'dropout'",
        "multi_margin_weight=0:1:log": "must start above 0",
        "pairwise_margin=0.1:0.2:5": "expected low:high or low:high:log",
        "contrastive_weight=0:inf": "must be finite",
        "batch_size=1:100000": "makes 100,000 values",
        "unit_embeddings=0:1": "expected true or false",
    }
    with pytest.raises(SettingsError) as caught:
        parse(*bad, grid=True)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(bad)
    for line, (text, reason) in zip(lines, bad.items(), strict=True):
        assert line.startswith(f"--space {text}: ")
        assert reason in line


def test_a_grid_needs_a_list() -> None:
    assert parse("temperature=0.1:1")[0].values == ()
    with pytest.raises(SettingsError):
        parse("temperature=0.1:1", grid=True)


class FixedTrial:
    """Suggests the upper end of every range with a floating-point error."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return high + 1e-12

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        return high

    def suggest_categorical(self, name: str, values: tuple[object, ...]) -> object:
        return values[-1]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("multi_margin=0.1,0.2,0.3", 0.3),
        ("batch_size=1:4", 4),
        ("agreement=none,mean", "mean"),
        ("temperature=0.1:1", 1.0),
    ],
)
def test_suggested_values_are_rounded_to_the_space(text: str, value: object) -> None:
    suggested = parse(text)[0].suggest(FixedTrial())
    assert suggested == value
    assert type(suggested) is type(value)
