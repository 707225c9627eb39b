"""Hosted calls keep their word in a world of faults, and the same seed gives the same run."""

import pytest

from iriscw_sims.hosted.world import HostedWorld

SEEDS = range(8)


def test_seeds_break_nothing():
    """Few here; a soak runs others. They are worth running: calls end in every way."""
    ends = set()
    for seed in SEEDS:
        run = HostedWorld(seed).run()
        assert run.violations == (), f"seed {seed}"
        ends.update(run.ends)
    assert {"call value", "call CallLost", "call cancelled", "keyed value", "stream value", "tell taken"} <= ends


def test_a_seed_gives_one_run():
    """To the byte."""
    first, second = (HostedWorld(3).run() for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_more_seeds_break_nothing():
    """As many as a commit can afford."""
    for seed in range(100, 200):
        assert HostedWorld(seed).run().violations == (), f"seed {seed}"
