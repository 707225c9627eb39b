"""Makes the shells of these tests importable, and gives a server to talk to."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kube_shell import Server


@pytest.fixture
def server():
    """A simulated API server of one's own, with node pools and the namespace ``iris``."""
    return Server()
