"""Makes the caller of the store's tests importable, and gives one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kube_caller import Caller


@pytest.fixture
def caller():
    """A caller of a store of its own."""
    return Caller()
