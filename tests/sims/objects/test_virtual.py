"""The driver in virtual time: the port's contract without faults, and its laws under all of them."""

import inspect

import attrs
import pytest
from driver_laws import check_acknowledged, check_claims, check_log, check_readers, perform
from hypothesis import given, strategies as st
from laws import ALL_RATES
from objects_world import SMALL

from iriscw.testing.conformance.object_store import BAD_KEYS, ObjectStoreConformance
from iriscw_sims.objects.fault_points import NAMES
from iriscw_sims.objects.rules import Etags
from iriscw_sims.objects.virtual import MAX_TRACE
from profiles import examples

CASES = [
    (name, (key,) if "key" in inspect.signature(method).parameters else ())
    for name, method in inspect.getmembers(ObjectStoreConformance, inspect.isfunction)
    if name.startswith("test_")
    for key in (BAD_KEYS if "key" in inspect.signature(method).parameters else ("",))
]
RATES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((50, 200)), max_size=6)
SEEDS = st.integers(0, 10**6)


@pytest.mark.parametrize(("name", "more"), CASES, ids=lambda value: str(value)[:40])
def test_the_public_suite(name, more):
    """It passes in virtual time too, in which requests take time and overlap."""

    async def play(stage):
        await getattr(ObjectStoreConformance(), name)(stage.store(part_bytes=64 << 10), *more)

    perform(play, rules=attrs.evolve(SMALL, etags=Etags.WRITE))


@given(SEEDS, RATES)
@examples(12)
def test_one_of_many_claims(seed, rates):
    """A conditional create wins exactly once."""
    check_claims(seed, rates)


@given(SEEDS, RATES)
@examples(6)  # one takes 350 ms
def test_readers_see_one_version(seed, rates):
    """Never a torn or mixed object."""
    check_readers(seed, rates)


@given(SEEDS, RATES)
@examples(12)
def test_what_was_acknowledged_is_there(seed, rates):
    """For all who look."""
    check_acknowledged(seed, rates)


@given(SEEDS, RATES)
@examples(12)
def test_a_log_loses_and_doubles_nothing(seed, rates):
    """Compare-and-swap holds, though replies are lost and requests land late."""
    check_log(seed, rates)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_claims, check_readers, check_acknowledged, check_log])
def test_at_the_highest_rates(check):
    """All of it, with every fault there is."""
    for seed in range(15):
        check(seed, ALL_RATES)


def test_the_trace_is_bounded():
    """It keeps the last lines, and time passes in it."""

    async def play(stage):
        for number in range(MAX_TRACE + 5):
            stage.surroundings.note("line", number)
        assert stage.surroundings.trace[0][1:] == ("line", 5)
        assert len(stage.surroundings.trace) == MAX_TRACE

    perform(play)


def test_calm():
    """Once told so, nothing goes wrong any more."""

    async def play(stage):
        assert stage.surroundings.chance("object throttled")
        stage.surroundings.calm()
        assert not stage.surroundings.chance("object throttled")

    trace = perform(play, rates={"object throttled": 1000}).result
    assert [line[1:] for line in trace] == [("fault", "object throttled")]
