"""Runs ``python -m repro`` in this process, and gives every test a folder of its own to run it in."""

import pytest

from repro.cli.main import app
from tests.cli.conftest import alone as alone
from tests.cli.conftest import run_command


@pytest.fixture(scope="session")
def repro():
    """A function that runs ``python -m repro`` with these arguments and returns its exit code and output."""

    def run(*arguments):
        return run_command(app, "repro", arguments)

    return run
