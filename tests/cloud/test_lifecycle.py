"""What observations and errors mean."""

from __future__ import annotations

import pytest

from iriscw.cloud.lifecycle import CallRefusal, PoolHealth, judge_error, judge_pool
from iriscw.cloud.model import (
    Condition,
    Conflict,
    Forbidden,
    Gone,
    InvalidSpec,
    NoCapacity,
    Node,
    NodePool,
    QuotaExceeded,
    Throttled,
    Unavailable,
    Unseen,
)

READY = (Node("a", "1", ready=True), Node("b", "2", ready=True))
INVALID = Condition("Validated", "False", "Invalid", "instance type not in zone")
OLD_INVALID = Condition("Valid", "False", "Invalid")
NOT_SET = Condition("Quota", "False", "NotSet", "quota limit is 0 for instance type x")
OVER = Condition("Quota", "False", "Over")
UNDER = Condition("Quota", "True", "Under", "under quota")
QUEUED = Condition("Capacity", "False", "QueuedAwaitingCapacity")
ENOUGH = Condition("Capacity", "True", "Sufficient")
UNKNOWN = Condition("SomethingNew", "False", "Terrible")


def pool(*conditions, nodes=(), **fields):
    fields = {"target_nodes": 2, **fields}
    return NodePool("p", "u", "1", {}, conditions=conditions, nodes=nodes, **fields)


@pytest.mark.parametrize(
    ("seen", "health"),
    [
        (pool(), PoolHealth.BOOTING),
        (pool(UNDER, ENOUGH), PoolHealth.BOOTING),
        (pool(UNKNOWN), PoolHealth.BOOTING),
        (pool(nodes=READY), PoolHealth.READY),
        (pool(nodes=READY[:1]), PoolHealth.BOOTING),
        (pool(INVALID), PoolHealth.INVALID),
        (pool(OLD_INVALID), PoolHealth.INVALID),
        (pool(INVALID, NOT_SET, QUEUED), PoolHealth.INVALID),
        (pool(NOT_SET), PoolHealth.NO_QUOTA),
        (pool(OVER, QUEUED), PoolHealth.NO_QUOTA),
        (pool(QUEUED), PoolHealth.NO_CAPACITY),
        (pool(UNDER, QUEUED), PoolHealth.NO_CAPACITY),
        # Ready nodes are not taken back by a quota that is exceeded now.
        (pool(OVER, nodes=READY), PoolHealth.READY),
        # Machines that are booked already need no quota and no capacity.
        (pool(OVER, in_progress_nodes=2), PoolHealth.BOOTING),
        (pool(QUEUED, current_nodes=1, in_progress_nodes=1), PoolHealth.BOOTING),
        (pool(QUEUED, current_nodes=1), PoolHealth.NO_CAPACITY),
        (pool(INVALID, nodes=READY, deleting=True), PoolHealth.GOING),
        (pool(target_nodes=0), PoolHealth.BOOTING),
    ],
)
def test_conditions_are_told_apart(seen, health):
    """Each mixture of conditions has one meaning, and a sentence for users (INV-F5)."""
    judgement = judge_pool(seen)
    assert judgement.health is health
    assert judgement.text


def test_the_clouds_own_words_reach_the_user():
    """The message of a condition is part of the sentence."""
    assert "quota limit is 0 for instance type x" in judge_pool(pool(NOT_SET)).text
    assert "instance type not in zone" in judge_pool(pool(INVALID)).text


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (QuotaExceeded("q"), CallRefusal.QUOTA),
        (NoCapacity("c"), CallRefusal.CAPACITY),
        (InvalidSpec("i"), CallRefusal.INVALID),
        (Gone("g"), CallRefusal.ABSENT),
        (Conflict("x"), CallRefusal.CONFLICT),
        (Throttled(retry_after=7), CallRefusal.LATER),
        (Unavailable("u"), CallRefusal.LATER),
        (Unseen("u"), CallRefusal.FORBIDDEN),
        (Forbidden("f"), CallRefusal.FORBIDDEN),
        (ValueError("bug"), CallRefusal.LATER),
    ],
)
def test_errors_are_told_apart(error, refusal):
    """Each error of the ports has one meaning; one outside the contract concludes nothing."""
    judgement = judge_error(error)
    assert judgement.refusal is refusal
    assert judgement.text
    assert judgement.retry_after == getattr(error, "retry_after", 0)


def test_a_bug_of_a_driver_is_told_as_one():
    """An error outside the contract says that the driver failed."""
    assert "driver failed: ValueError: bug" in judge_error(ValueError("bug")).text


def test_a_node_that_takes_no_pods_is_named():
    """Who waits for a slice reads which node keeps it, and why."""
    closed = Node("b", "2", ready=True, usable=False, closed="tainted with dedicated")
    assert judge_pool(pool(nodes=(READY[0], closed))).text == "1 of 2 nodes are ready; b is tainted with dedicated"
