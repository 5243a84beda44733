"""A pipe as the input of a command: `erda predict <(cat q.txt)`."""

import os

import pytest

from erda.cli.store_options import input_file
from erda.errors import DataError


def test_a_pipe_can_be_read_twice_and_faults_name_it() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"[[a]] b {{c}}\n")
    os.close(write_end)
    name = f"/dev/fd/{read_end}"
    with pytest.raises(DataError, match=rf"^{name}:1: wrong$"), input_file(name) as path:  # noqa: PT012
        assert path.read_bytes() == path.read_bytes() == b"[[a]] b {{c}}\n"
        raise DataError(f"{path}:1: wrong")
    os.close(read_end)
