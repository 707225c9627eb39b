"""How many slices a group should have, said by somebody else."""

from __future__ import annotations

from asyncio import CancelledError

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.model import Availability
from iriscw.fleet.policy import (
    MAX_ERROR_CHARS,
    CandidateGroup,
    DemandView,
    GroupView,
    ask,
    ask_routing,
    default_policy,
    default_routing,
)

VIEW = GroupView(
    group="gpu",
    min_slices=1,
    max_slices=9,
    buffer_slices=1,
    wanted=2,
    ready=5,
    booting=1,
    waiting=1,
    fresh=1,
    going=1,
    idle=(50, 20),
    availability=Availability.AVAILABLE,
    retry_in=None,
    boot_estimate=30,
    now=100,
    wall=100,
)


def raising(error):
    def policy(view):
        raise error

    return policy


class Unspeakable(Exception):
    """Cannot even be written down."""

    def __str__(self):
        raise ValueError


def test_a_view_adds_up():
    """Busy, fresh and idle slices are the ready ones; those and the ones on their way are alive."""
    assert (VIEW.alive, VIEW.busy, VIEW.absorbing, VIEW.needed) == (7, 2, 3, 4)


def test_the_default_policy():
    """Demand and the buffer on top, at least min; while demand misses slices no idle one is too many."""
    assert default_policy(VIEW) == 2 + 2 + 1
    assert default_policy(attrs.evolve(VIEW, wanted=4)) == 2 + 4 + 2
    assert default_policy(attrs.evolve(VIEW, wanted=0, min_slices=6)) == 6
    assert default_policy(attrs.evolve(VIEW, kept=2)) == 2 + 2 + 2 + 1
    assert default_policy(attrs.evolve(VIEW, wanted=4, kept=1, buffer_slices=0)) == 2 + 4 + 1 + 1


@given(st.integers())
def test_an_answer_is_brought_within_bounds(slices):
    """However large, however negative."""
    answer = ask(lambda view: slices, VIEW)
    assert answer.slices == min(max(slices, 1), 9)
    assert answer.error == ""


def test_slices_beyond_a_changed_bound_may_stay():
    """A bound that was lowered sends nobody away: no more are asked for."""
    assert ask(lambda view: 20, attrs.evolve(VIEW, max_slices=4)).slices == VIEW.alive


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (raising(ZeroDivisionError("no slices")), "ZeroDivisionError: no slices"),
        (raising(RecursionError("deep\n" * 100)), "RecursionError: deep"),
        (raising(Unspeakable()), "Unspeakable"),
        (raising(SystemExit("no licence")), "StrayExit: SystemExit: no licence"),
        (raising(CancelledError()), "StrayExit: CancelledError"),
        (lambda view: 2.5, "TypeError: 'float' object"),
        (lambda view: None, "TypeError: 'NoneType' object"),
        (lambda view: "3", "TypeError: 'str' object"),
        (lambda: 3, "TypeError"),
        (lambda view: view.no_such_field, "AttributeError"),
        (lambda view: setattr(view, "wanted", 0), "FrozenInstanceError"),
    ],
)
def test_a_policy_that_fails_is_replaced(policy, said):
    """The default decides, and what went wrong is said in a few words."""
    answer = ask(policy, VIEW)
    assert answer.slices == default_policy(VIEW)
    assert said in answer.error
    assert len(answer.error) <= MAX_ERROR_CHARS


def test_the_end_of_the_process_is_no_failure():
    """Ctrl-C inside of a policy goes where it was meant to go."""
    with pytest.raises(KeyboardInterrupt):
        ask(raising(KeyboardInterrupt()), VIEW)


@pytest.mark.parametrize("kind", [bool, type("Own", (int,), {})])
def test_what_is_a_whole_number_will_do(kind):
    """And is a plain one afterwards."""
    answer = ask(lambda view: kind(1), VIEW)
    assert (type(answer.slices), answer.slices, answer.error) == (int, 1, "")


def candidate(name):
    worker = Capacity(4000, 1)
    open_ = (Availability.AVAILABLE, "", None)
    return CandidateGroup(name, 100, 0, Attributes(), worker, 1, "", *open_, 1, 0, 0, 0, 0, 1, 0)


DEMAND = DemandView(
    "d", 3, Capacity(1000, 1), (), 1, "slice-id", 0, 5, tuple(candidate(name) for name in ("b", "a", "c")), 100, 100
)


B, A, C = DEMAND.groups


@pytest.mark.parametrize("chosen", [(), (C,), (A, B), (C, B, A)])
def test_a_routing_policy_gives_groups_in_order(chosen):
    """Some, all or none, as a tuple, a list or one by one."""
    for policy in (lambda view: chosen, lambda view: [*chosen], lambda view: (each for each in chosen)):
        answer = ask_routing(policy, DEMAND)
        assert (answer.groups, answer.error) == (tuple(each.name for each in chosen), "")


def forever(view):
    """Never end."""
    while True:
        yield A


def in_the_middle(view):
    """Fail after the first group."""
    yield A
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (raising(ZeroDivisionError("no groups")), "ZeroDivisionError: no groups"),
        (raising(SystemExit("no licence")), "StrayExit: SystemExit: no licence"),
        (in_the_middle, "ZeroDivisionError"),
        (forever, "the group 'a' is there twice"),
        (lambda view: A, "TypeError: 'CandidateGroup' object is not iterable"),
        (lambda view: None, "TypeError: 'NoneType' object"),
        (lambda view: ["a"], "'a' is none of the groups of the view"),
        (lambda view: [A, candidate("elsewhere")], "is none of the groups"),
        (lambda view: [[A]], "is none of the groups of the view"),
    ],
)
def test_a_routing_policy_that_fails_is_replaced(policy, said):
    """The default decides on that demand, and what went wrong is said in a few words."""
    answer = ask_routing(policy, DEMAND)
    assert answer.groups == tuple(each.name for each in default_routing(DEMAND)) == ("b", "a", "c")
    assert said in answer.error
    assert len(answer.error) <= MAX_ERROR_CHARS
