"""What these tests share: one real server for all of them, and both worlds."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the kube_ modules beside the tests

from kube_crds import CRDS
from kube_real_world import RealWorld
from kube_server import NoBinariesError, find_binaries, running_server
from kube_store_world import StoreWorld


@pytest.fixture(scope="session")
def binaries():
    """The folder with kube-apiserver and etcd; the test is skipped where there is none."""
    try:
        return find_binaries()
    except NoBinariesError as error:
        pytest.skip(f"no real API server: {error}")


@pytest.fixture(scope="session")
def real_server(binaries, tmp_path_factory):
    """One API server for all tests of this process."""
    with running_server(binaries, tmp_path_factory.mktemp("kube") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def real_world(real_server):
    """Programs against the real server."""
    world = RealWorld(real_server, CRDS)
    yield world
    world.close()


@pytest.fixture(scope="session")
def store_world():
    """Programs against the simulated store."""
    return StoreWorld(CRDS)
