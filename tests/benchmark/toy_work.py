"""Pieces of work for the engines. Other processes import them by name, so this module imports little."""

import os
import signal

from erda.errors import DataError


def double_but_trip_on_three(number: int) -> int:
    if number == 3:
        raise DataError("three is bad")
    return 2 * number


def double_but_die_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number
