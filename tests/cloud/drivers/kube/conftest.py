"""What these tests share: a served simulation, a real API server where one was built, and servers of ill will."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3] / "kube" / "real"))

from kube_kubelet import find_kubelet, running_kubelet
from kube_server import NoBinariesError, find_binaries, running_server


@pytest.fixture(scope="session")
def real_server(tmp_path_factory):
    """One API server for all tests of this process; the test is skipped where there is none."""
    try:
        binaries = find_binaries()
    except NoBinariesError as error:
        pytest.skip(f"no real API server: {error}")
    with running_server(binaries, tmp_path_factory.mktemp("kube") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def kubelet(real_server, tmp_path_factory):
    """What the server proxies to when it is asked for the inside of a pod; skipped where it was not built."""
    try:
        program = find_kubelet()
    except NoBinariesError as error:
        pytest.skip(f"no kubelet: {error}")
    with running_kubelet(program, real_server, tmp_path_factory.mktemp("kubelet")) as running:
        yield running
