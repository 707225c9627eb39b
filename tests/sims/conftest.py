"""What the tests of the simulated world share."""

import attrs
import pytest

from iriscw_sims.swarm import draw_plan


@pytest.fixture
def calm_plan():
    """Return the plan of a seed without any faults."""

    def make(seed):
        return attrs.evolve(draw_plan(seed), faults=(), rates=())

    return make
