"""Bugs planted in the layer of hosted calls: a seed shows each of them, so the laws bite."""

import functools
import sys
from pathlib import Path

import pytest

from iriscw_sims.hosted.world import HostedWorld
from iriscw_sims.transport.errors import CallbackFailed, HorizonPassed, SpinningLoop, StuckLoop

sys.path.insert(0, str(Path(__file__).parent))

from hosted_bugs import BUGS, planted

FURTHER = range(40)
"""Tried where the code has changed, and the seed of a bug shows it no more."""


@functools.cache
def broken(seed):
    """What a seed breaks without a bug."""
    return HostedWorld(seed).run().violations


def shown(bug, seed):
    """Whether a seed shows a bug: by what it breaks, or because the run cannot go on."""
    try:
        with planted(bug):
            return bool(HostedWorld(seed).run().violations)
    except (CallbackFailed, HorizonPassed, SpinningLoop, StuckLoop):
        return True


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug_is_caught(bug):
    """By a seed that breaks nothing without it."""
    found = next((seed for seed in (bug.seed, *FURTHER) if shown(bug, seed)), None)
    assert found is not None
    assert broken(found) == ()
