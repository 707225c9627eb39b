"""Specifications, states and ids."""

import attrs
import pytest
from hypothesis import given, strategies as st
from jobs_world import command_spec

from iriscw._errors import InvalidArgument
from iriscw.cloud.model import Capacity, Constraint, Op
from iriscw.jobs.model import (
    JOB_TERMINAL,
    MAX_ENVIRONMENT_BYTES,
    TASK_LIVE,
    TASK_TERMINAL,
    Attempt,
    AttemptEnd,
    Ending,
    TaskState,
    attempt_uid,
    canonical_spec,
    check_spec,
    job_uid,
    spec_fingerprint,
    task_id,
)
from raised import that

FRESH = st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=12, max_size=12)


def test_states_partition():
    """A task is pending, live, terminal, or (of attempts only) MISSING; job states are named as task states are."""
    rest = set(TaskState) - set(TASK_LIVE) - set(TASK_TERMINAL)
    assert rest == {TaskState.PENDING, TaskState.MISSING}
    assert {state.value for state in JOB_TERMINAL} <= {state.value for state in TASK_TERMINAL}


@given(FRESH, FRESH)
def test_attempt_uids_are_as_unique_as_ids(one, other):
    """Different ids give different uids of 16 hexadecimal characters."""
    assert (attempt_uid(one) == attempt_uid(other)) == (one == other)
    assert len(attempt_uid(one)) == 16
    assert int(attempt_uid(one), 16) < 1 << 60


def test_ids():
    """A task is named below its job; a job's uid follows from its id."""
    assert task_id("job-a", 3) == "job-a/3"
    assert job_uid("job-a") == job_uid("job-a") != job_uid("job-b")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"replicas": 0}, "replicas"),
        ({"replicas": 100_001}, "replicas"),
        ({"timeout_ns": -1}, "timeout"),
        ({"max_retries_failure": -1}, "max_retries_failure"),
        ({"max_retries_preemption": 10_001}, "max_retries_preemption"),
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"environment": (("A=", "b"),)}, "environment"),
        ({"environment": (("A", "b" * MAX_ENVIRONMENT_BYTES),)}, "environment"),
        ({"ports": ("a", "a")}, "ports"),
        ({"group_by": ""}, "coscheduling"),
        ({"demand": Capacity(cpu_milli=-1, gpu_count=1)}, "cpu"),
        ({"demand": Capacity()}, "resources"),
        ({"constraints": (Constraint("zone", Op.EXISTS),) * 65}, "constraints"),
    ],
)
def test_impossible_specifications(fields, named):
    """Each impossible value is refused by name."""
    with pytest.raises(InvalidArgument, check=that(names=named)):
        check_spec(attrs.evolve(command_spec(), **fields))


def test_good_specification():
    """An ordinary specification passes."""
    check_spec(command_spec(replicas=100_000, ports=("http",), environment=(("A", "b"),)))


def test_secrets_stay_out():
    """Neither a repr nor a fingerprint shows the environment, but the fingerprint depends on it."""
    one, other = (command_spec(environment=(("TOKEN", value),)) for value in ("secret", "public"))
    assert "secret" not in repr(one)
    assert spec_fingerprint(one) != spec_fingerprint(other)
    assert "secret" not in spec_fingerprint(one)


def test_canonical_constraints():
    """Constraint values become texts, as which they are compared."""
    spec = command_spec(constraints=(Constraint("n", Op.GE, (3,)),))
    assert canonical_spec(spec).constraints[0].values == ("3",)


def test_attempt_lives_until_it_ends():
    """An attempt without an ending may have a process."""
    attempt = Attempt("u", 1, "w", "a", TaskState.ASSIGNED, 0)
    assert attempt.live
    attempt.end = AttemptEnd(Ending.KILLED)
    assert not attempt.live


def test_words_compare_with_texts():
    """``attempt.ending == "KILLED"`` is true, as ``attempt.state == "KILLED"`` is; never silently false."""
    assert [str(each) for each in (Ending.KILLED, TaskState.KILLED)] == ["KILLED", "KILLED"]
    assert all(each == each.value for each in (*Ending, *TaskState))
