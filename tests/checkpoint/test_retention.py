"""Retention: what a policy lets go, and what it never does."""

import pytest
from hypothesis import given, strategies as st

from iriscw.checkpoint.retention import KeptCheckpoint, RetentionPolicy, expired
from profiles import examples

NOW_MS = 1000
JOBS = ("a", "b", "")

CANDIDATES = st.lists(
    st.builds(
        KeptCheckpoint,
        checkpoint=st.integers(0, 99).map(lambda number: f"ck-{number}"),
        size_bytes=st.integers(0, 9),
        sealed_at_ms=st.integers(0, 1200),  # the clock may have been set back
        labels=st.sampled_from([(), (("job", "a"),), (("job", "b"),)]),
        needed=st.sampled_from(["", "", "a thaw uses it"]),
    ),
    max_size=12,
    unique_by=lambda each: each.checkpoint,
)
POLICIES = st.builds(
    RetentionPolicy,
    max_checkpoints=st.none() | st.integers(0, 5),
    max_total_size_bytes=st.none() | st.integers(0, 20),
    max_checkpoint_size_bytes=st.none() | st.integers(0, 9),
    max_age_ms=st.none() | st.integers(0, 900),
    per=st.sampled_from(["", "job"]),
)


def ages(*sizes, **more):
    """Return checkpoints of these sizes, the oldest first."""
    return [KeptCheckpoint(f"ck-{at}", size, at + 1, **more) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        (RetentionPolicy(), []),
        (RetentionPolicy(max_checkpoints=2), ["ck-0", "ck-1"]),
        (RetentionPolicy(max_total_size_bytes=12), ["ck-0", "ck-1"]),
        (RetentionPolicy(max_total_size_bytes=11), ["ck-0", "ck-1", "ck-2"]),
        (RetentionPolicy(max_checkpoint_size_bytes=7), ["ck-2"]),
        (RetentionPolicy(max_age_ms=997), ["ck-0", "ck-1"]),
        (RetentionPolicy(max_checkpoints=2, max_checkpoint_size_bytes=7), ["ck-0", "ck-2"]),
    ],
)
def test_what_each_bound_lets_go(policy, gone):
    """The oldest first; what goes by itself counts for none of the others."""
    found = expired(ages(1, 2, 8, 4), policy, NOW_MS)
    assert [each.checkpoint for each in found] == gone
    assert all(each.why for each in found)


def test_groups_are_counted_apart():
    """By the values of one label; those without it are a group, too."""
    of_jobs = [
        KeptCheckpoint(f"ck-{job}{age}", 1, age, (("job", job),) if job else ())
        for age in (1, 2)
        for job in ("a", "b", "")
    ]
    found = expired(of_jobs, RetentionPolicy(max_checkpoints=1, per="job"), NOW_MS)
    assert [each.checkpoint for each in found] == ["ck-a1", "ck-b1", "ck-1"]


@examples(80)
@given(CANDIDATES, POLICIES)
def test_the_law(candidates, policy):
    """What is needed or cannot be read stays; the bounds hold for what is left, or all of that is needed; no more goes
    than has to; and what stays of those that nobody needs is never older than what went for want of room.
    """
    gone = {each.checkpoint for each in expired(candidates, policy, NOW_MS)}
    known = [each for each in candidates if each.sealed_at_ms]
    assert gone <= {each.checkpoint for each in known if not each.needed}
    for group in (
        [each for each in known if part(each, policy) == name] for name in {part(each, policy) for each in known}
    ):
        check_group([each for each in group if each.checkpoint not in gone], policy)
        check_no_more(group, gone, policy)
    assert expired([each for each in candidates if each.checkpoint not in gone], policy, NOW_MS) == []


def part(each, policy):
    """Return the group of a checkpoint."""
    return dict(each.labels).get("job") if policy.per else ""


def goes_alone(each, policy):
    """Whether a checkpoint is too old or too large, whatever else there is."""
    old = policy.max_age_ms is not None and NOW_MS - each.sealed_at_ms > policy.max_age_ms
    return old or (policy.max_checkpoint_size_bytes is not None and each.size_bytes > policy.max_checkpoint_size_bytes)


def within(group, policy):
    """Whether as many may stay together."""
    few = policy.max_checkpoints is None or len(group) <= policy.max_checkpoints
    total = sum(each.size_bytes for each in group)
    return few and (policy.max_total_size_bytes is None or total <= policy.max_total_size_bytes)


def check_group(left, policy):
    """What is left is within the bounds, but for what is needed."""
    assert all(each.needed for each in left) or within(left, policy)
    assert not any(goes_alone(each, policy) for each in left if not each.needed)


def check_no_more(group, gone, policy):
    """Had the youngest of those that went for want of room stayed, there would have been too many."""
    left = [each for each in group if each.checkpoint not in gone]
    crowded = [each for each in group if each.checkpoint in gone and not goes_alone(each, policy)]
    if not crowded:
        return
    youngest = max(crowded, key=age)
    assert not within([*left, youngest], policy)
    assert all(age(each) > age(youngest) for each in left if not each.needed)


def age(each):
    """Return what orders checkpoints."""
    return (each.sealed_at_ms, each.checkpoint)
