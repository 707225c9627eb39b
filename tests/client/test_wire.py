"""States as users write them: texts, members, and neither. What is read of a message is all that is in it."""

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.client import wire
from iriscw.jobs.model import JobState, TaskState
from iriscw.proto.iriscw import v1
from raised import that


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
        with pytest.raises(InvalidArgument, check=that(comes_from="wire._states", names="PENDING")):
            write(["RUNNING", wrong])


@pytest.mark.parametrize("one", ["RUNNING", JobState.RUNNING])
def test_a_single_state_is_not_taken_for_its_letters(one):
    """A text alone is a slip, and the error shows what is meant."""
    with pytest.raises(InvalidArgument, check=that(comes_from="wire._states", names="RUNNING")):
        wire.job_states(one)


def test_states_of_tasks_are_not_those_of_jobs():
    """A job is never ASSIGNED."""
    with pytest.raises(InvalidArgument, check=that(names="ASSIGNED")):
        wire.job_states([TaskState.ASSIGNED])


@given(st.sampled_from([*JobState, *TaskState]))
def test_states_are_texts(state):
    """They compare, print and hash as their names, and are read back as members."""
    assert state == state.name == str(state) == f"{state}" == state.value
    assert {state: 1}[state.name] == 1
    assert type(state)(state.name) is state


def filled(kind, name=""):
    """Make a message, or a value of a field, of which nothing is as it is where nothing is said."""
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return [filled(of[0], name)]
    if origin is dict:
        return {"key": filled(of[1], name)}
    if origin is types.UnionType:
        return filled(next(each for each in of if each is not type(None)), name)
    if kind in (str, int, bool):
        return {str: name, int: 7, bool: True}[kind]
    if issubclass(kind, enum.Enum):
        return list(kind)[-1]
    hints, groups, fields = typing.get_type_hints(kind), {}, {}
    for field in dataclasses.fields(kind):
        group = field.metadata["betterproto"].group
        if group is None or groups.setdefault(group, field.name) == field.name:
            fields[field.name] = filled(hints[field.name], field.name)
    return kind(**fields)


def empty(value, path):
    """Yield the places in a value that are as they are where nothing is said."""
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from empty(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, Mapping):
        yield from (found for key in value or [None] for found in empty(value.get(key), f"{path}[{key}]"))
    elif isinstance(value, tuple | list):
        yield from (found for each in value or [None] for found in empty(each, f"{path}[]"))
    elif not value:
        yield path


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (wire.job_status, v1.JobStatus),
        (wire.task_status, v1.TaskStatus),
        (wire.slice_status, v1.SliceStatus),
        (wire.pool_status, v1.PoolStatus),
        (wire.cluster_status, v1.ClusterStatus),
    ],
)
def test_what_is_sent_is_read(read, kind):
    """No field of what users are given stays empty where the message has all of its own."""
    assert list(empty(read(filled(kind)), kind.__name__)) == []
    assert list(empty(read(kind()), kind.__name__)) != []
