"""What the tests of the simulated CoreWeave behind a real API server share."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "kube" / "real"))

from kube_server import NoBinariesError, find_binaries, running_server


@pytest.fixture
def anyio_backend():
    """The controllers' task is asyncio's."""
    return "asyncio"


@pytest.fixture(scope="module")
def hands():
    """A thread that starts servers again: they die with the thread that did, so it lives longer than they."""
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.fixture(scope="module")
def real_server(hands, tmp_path_factory):
    """A real API server; the test is skipped where there is none."""
    try:
        binaries = find_binaries()
    except NoBinariesError as error:
        pytest.skip(f"no real API server: {error}")
    with running_server(binaries, tmp_path_factory.mktemp("kube") / "server") as server:
        yield server
