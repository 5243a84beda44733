import pytest

from erda.errors import DataError
from targets import Figure, measure


@pytest.mark.parametrize(
    ("value", "target", "verdict"),
    [
        (49.0, ">= 49", "met"),
        (48.9, ">= 49", "NOT MET"),
        (8.1, "<= 8", "NOT MET"),
        (100.0, "== 100", "met"),
        (None, ">= 49", "not measured"),
        (49.0, "", ""),
    ],
)
def test_a_verdict_compares_a_number_with_a_target(value: float | None, target: str, verdict: str) -> None:
    figure = Figure("accuracy", value, "%", target)
    assert figure.verdict == verdict
    assert figure.line().endswith(verdict or target or "%")


def test_an_error_is_one_message_and_exit_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    def work():
        yield Figure("first", 1.0)
        raise DataError("no data here")

    assert measure(work) == 2
    printed = capsys.readouterr()
    assert "first" in printed.out
    assert printed.err == "no data here\n"
