"""What submit refuses, and how callables travel."""

import subprocess
import sys
import threading

import pytest

from iriscw.client.errors import InvalidJob
from iriscw.client.submission import Command, build_submission, is_own_file, parse_constraints
from iriscw.cloud.model import Mode, Op
from iriscw.errors import InvalidArgument
from iriscw.jobs.model import Band, Existing
from iriscw.resources import Resources
from iriscw.task.environment import InvalidPortName
from iriscw.task.payload import NotPicklable, PayloadTooLarge

USUAL = {
    "name": "n",
    "resources": None,
    "replicas": 1,
    "environment": None,
    "ports": (),
    "constraints": (),
    "coscheduling": None,
    "priority": "interactive",
    "timeout": None,
    "scheduling_timeout": None,
    "max_retries_failure": 0,
    "max_retries_preemption": 100,
    "existing": "error",
}


def build(entrypoint=len, args=([],), **changes):
    """Build a submission with the usual arguments and some others."""
    return build_submission(entrypoint, args, {}, **{**USUAL, **changes})


WRONG = [
    ({"name": ""}, "name"),
    ({"name": 7}, "name"),
    ({"name": "a/b"}, "name"),
    ({"replicas": 0}, "replicas"),
    ({"replicas": 100_001}, "replicas"),
    ({"replicas": True}, "replicas"),
    ({"replicas": 1.5}, "replicas"),
    ({"resources": {"cpu": 1}}, "resources"),
    ({"environment": [("A", "1")]}, "environment"),
    ({"environment": {"A": 1}}, "'A'"),
    ({"environment": {"A=B": "1"}}, "A=B"),
    ({"environment": {"A": "x\0"}}, "zero byte"),
    ({"environment": {"A": "x" * 70_000}}, "environment: 70001 bytes"),
    ({"ports": "http"}, "ports"),
    ({"ports": ["a", "a"]}, "twice"),
    ({"constraints": "a=b"}, "list"),
    ({"constraints": ["="]}, "constraints"),
    ({"coscheduling": ""}, "coscheduling"),
    ({"priority": "urgent"}, "production, interactive, batch"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": -1.0}, "timeout"),
    ({"timeout": float("nan")}, "timeout"),
    ({"timeout": "30m"}, "timeout"),
    ({"scheduling_timeout": float("inf")}, "scheduling_timeout"),
    ({"max_retries_failure": -1}, "max_retries_failure"),
    ({"max_retries_preemption": "1"}, "max_retries_preemption"),
    ({"existing": "replace"}, "error, keep, recreate"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_a_slip_is_named(changes, said):
    """Each argument that cannot be is refused, and the text says which it is."""
    with pytest.raises(InvalidArgument, match=said):
        build(**changes)


def test_a_secret_value_is_not_shown():
    """The text of an error about a variable does not have its value."""
    with pytest.raises(InvalidJob) as caught:
        build(environment={"TOKEN": b"hunter2"})
    assert "hunter2" not in str(caught.value)


def test_defaults():
    """What is not said is what the documentation says."""
    spec = build().spec
    assert (spec.band, spec.timeout_ns, spec.group_by) == (Band.INTERACTIVE, 0, None)
    assert (spec.demand.cpu_milli, spec.demand.memory_bytes) == (1000, 2**30)
    assert build().existing is Existing.ERROR


def test_gpu_class_travels():
    """A GPU's class is a part of the demand."""
    spec = build(resources=Resources(gpu=2, gpu_class="H100")).spec
    assert (spec.demand.gpu_count, spec.demand.gpu_class) == (2, "H100")


def test_ports_become_variables():
    """A port's name has to be fit for a variable."""
    with pytest.raises(InvalidPortName):
        build(ports=["a-b"])


@pytest.mark.parametrize("argv", [[], [""], ["a\0"], [1], "ls -l", ["x" * 200_000]])
def test_what_is_no_command(argv):
    """A command is a list of texts with a program."""
    with pytest.raises(InvalidJob, match="command"):
        Command(argv)


def test_command_takes_no_more_arguments():
    """What belongs into the list is not taken elsewhere."""
    with pytest.raises(InvalidJob, match="belong into the list"):
        build(Command(["ls"]), args=("-l",))


def test_commands_are_values():
    """Equal commands are equal and show themselves as they are made."""
    assert Command(["a", "b"]) == Command(("a", "b")) != Command(["a"])
    assert repr(Command(["a"])) == "Command(['a'])"
    assert len({Command(["a"]), Command(["a"])}) == 1


def test_what_cannot_be_pickled_is_named():
    """A lock among the arguments is found and named."""
    with pytest.raises(NotPicklable, match="argument 0"):
        build(len, args=(threading.Lock(),))


def test_a_large_argument_is_refused():
    """Data does not travel in a submission, and the text says what to do instead."""
    with pytest.raises(PayloadTooLarge, match="names of files"):
        build(len, args=(b"x" * (5 << 20),))


def helper_of_this_file(number):
    """Used by the function below."""
    return number + 1


def function_of_this_file(number):
    """Needs a global of its module."""
    return helper_of_this_file(number)


def test_functions_of_own_files_travel_by_value():
    """A function of a file that workers do not have runs there with what it uses."""
    payload = build(function_of_this_file, args=(41,)).entrypoint.callable.payload
    code = "import sys; from iriscw.task.payload import load_payload; print(load_payload(sys.stdin.buffer.read())())"
    done = subprocess.run([sys.executable, "-c", code], input=payload, capture_output=True, check=True, timeout=60)
    assert done.stdout.strip() == b"42"


def test_what_is_installed_travels_by_name():
    """The standard library, packages and iriscw itself are there on every worker."""
    import json

    import attrs

    import iriscw.resources

    assert [is_own_file(module) for module in (json, attrs, iriscw.resources, sys)] == [False] * 4
    assert is_own_file(sys.modules[__name__])


def test_constraints_are_read():
    """All forms of constraints say what they seem to."""
    texts = ["region=LGA1", "gpus >= 4", "zone in a, b", "spot", "!spot", "rank!=3"]
    found = [(each.key, each.op, each.values) for each in parse_constraints(texts)]
    assert found == [
        ("region", Op.EQ, ("LGA1",)),
        ("gpus", Op.GE, ("4",)),
        ("zone", Op.IN, ("a", "b")),
        ("spot", Op.EXISTS, ()),
        ("spot", Op.NOT_EXISTS, ()),
        ("rank", Op.NE, ("3",)),
    ]
    [equal] = parse_constraints({"slots": 3})
    assert (equal.op, equal.values, equal.mode) == (Op.EQ, (3,), Mode.REQUIRED)
