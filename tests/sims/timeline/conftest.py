"""What the tests of timelines share."""

import functools

import pytest

from iriscw_sims.timeline.watching import replay


@functools.cache
def _replayed(seed):
    return replay(seed)


@pytest.fixture(scope="session")
def replayed():
    """Return what came of a seed, and its timeline: each seed runs once."""
    return _replayed
