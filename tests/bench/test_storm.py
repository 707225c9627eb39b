"""A storm of workers: the gate keeps the loop's turns short, and other callers are answered in between."""

from functools import partial

import pytest
from ratios import compare
from worker_storm import storm

from iriscw.bench.turns import TooFewDescriptors, allow_descriptors
from iriscw.rpc.limits import RpcLimits


@pytest.fixture(autouse=True)
def descriptors(request):
    """Skip where the hard limit of open files is too low for as many workers."""
    try:
        allow_descriptors(request.getfixturevalue("workers"))
    except TooFewDescriptors as error:
        pytest.skip(str(error))


MANY = (1_000, 5_000)

COSTS = {"longest_turn_ms": 1, "answer_longest_cpu_ms": 1, "cpu_ms_per_worker": 4}
"""What the gate may cost of what a storm without one does. The CPU is about the same; a busy machine makes it up to
twice as much, because probes go on being answered for as long as a storm takes. The longest answer is of probes and
calls together: without a gate there are a dozen of each, and all of one kind may happen to fall between the waves."""


@pytest.mark.parametrize(
    "workers", [pytest.param(200, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.soak) for n in MANY)]
)
def test_waves(workers):
    """All get in, a few per turn, while probes and clients are answered; without a gate they come by the hundred."""
    ungated, gated = compare(partial(storm, workers, gated=False), partial(storm, workers), COSTS)
    assert gated["most_begun_in_turn"] <= RpcLimits().connections_per_turn
    assert ungated["most_begun_in_turn"] >= 5 * gated["most_begun_in_turn"]
    assert min(gated["health_answers"], gated["call_answers"]) >= workers / 50
    assert gated["turned_away"] == gated["retries"] == 0
    assert gated["most_waiting"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [200])
def test_a_short_queue(workers):
    """Workers for whom there is no room to wait are told when to come back, and all get in."""
    figures = storm(workers, waiting=20)
    assert figures["most_waiting"] == 20
    assert figures["turned_away"] == figures["retries"] > 0
    assert figures["redials"] == 0
