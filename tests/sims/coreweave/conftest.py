"""Makes the cloud's world importable, and gives one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cloud_world import World


@pytest.fixture
def world():
    """A world without faults."""
    return World()


@pytest.fixture
def pooled(world):
    """A world with a pool of two nodes that are ready."""
    world.make_pool(nodes=2)
    world.until(world.whole)
    return world
