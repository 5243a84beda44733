"""The contract of all methods: python -m pytest examples/own_method."""

from nearest_example import NearestExample

from erda.testing import check_method


def test_nearest_example_keeps_the_contract() -> None:
    """Every promise that the built-in methods make."""
    check_method(NearestExample)
