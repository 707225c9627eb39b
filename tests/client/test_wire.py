"""States as users write them: texts, members, and neither."""

import pytest
from hypothesis import given, strategies as st

from iriscw.client import wire
from iriscw.errors import InvalidArgument
from iriscw.jobs.model import JobState, TaskState
from iriscw.proto.iriscw import v1


@pytest.mark.parametrize(
    ("write", "kind", "sent"), [(wire.job_states, JobState, v1.JobState), (wire.task_states, TaskState, v1.TaskState)]
)
def test_a_state_is_written_as_a_member_or_as_its_name(write, kind, sent):
    """Both give the same number on the wire, for every state."""
    for state in kind:
        assert write([state]) == write([state.value]) == [sent[state.name]]
    assert write(iter(())) == []


@pytest.mark.parametrize("wrong", ["NONE", "running", "", 3, None, b"RUNNING", v1.JobState.RUNNING])
def test_what_is_no_state_is_named(wrong):
    """The error says what the states are."""
    for write in (wire.job_states, wire.task_states):
        with pytest.raises(InvalidArgument, match="is none of PENDING, "):
            write(["RUNNING", wrong])


@pytest.mark.parametrize("one", ["RUNNING", JobState.RUNNING])
def test_a_single_state_is_not_taken_for_its_letters(one):
    """A text alone is a slip, and the error shows what is meant."""
    with pytest.raises(InvalidArgument, match=r"give several: \['RUNNING'\]"):
        wire.job_states(one)


def test_states_of_tasks_are_not_those_of_jobs():
    """A job is never ASSIGNED."""
    with pytest.raises(InvalidArgument, match="ASSIGNED"):
        wire.job_states([TaskState.ASSIGNED])


@given(st.sampled_from([*JobState, *TaskState]))
def test_states_are_texts(state):
    """They compare, print and hash as their names, and are read back as members."""
    assert state == state.name == str(state) == f"{state}" == state.value
    assert {state: 1}[state.name] == 1
    assert type(state)(state.name) is state
