"""Makes the world of the jobs tests importable, and gives one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jobs_world import World


@pytest.fixture
def world():
    """A world without workers."""
    return World()
