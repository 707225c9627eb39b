"""What submit refuses, and how callables travel."""

import functools
import subprocess
import sys
import threading
from pathlib import PurePath

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.client.errors import InvalidJob
from iriscw.client.submission import Command, build_submission, is_own_file, parse_constraints, parse_preferred
from iriscw.cloud.model import Mode, Op
from iriscw.jobs.model import Band, Existing
from iriscw.resources import Resources
from iriscw.task.environment import AttemptFacts, InvalidPortName, task_environment
from iriscw.task.payload import NotPicklable, PayloadTooLarge
from raised import that

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
    (
        {"environment": {"IRIS_TASK_INDEX": "7"}},
        that(comes_from="submission._environment", names="IRIS_TASK_INDEX"),
    ),
    (
        {"environment": {"IRIS_PORT_HTTP": "80"}},
        that(comes_from="submission._environment", names="IRIS_PORT_HTTP"),
    ),
    ({"name": ""}, that(names="name")),
    ({"name": 7}, that(names="name")),
    ({"name": "a/b"}, that(names="name")),
    ({"replicas": 0}, that(names="replicas")),
    ({"replicas": 100_001}, that(names="replicas")),
    ({"replicas": True}, that(names="replicas")),
    ({"replicas": 1.5}, that(names="replicas")),
    ({"resources": {"cpu": 1}}, that(comes_from="submission.build_submission")),
    ({"environment": [("A", "1")]}, that(comes_from="submission._environment")),
    ({"environment": {"A": 1}}, that(names="A")),
    ({"environment": {"A=B": "1"}}, that(names="A=B")),
    ({"environment": {"A": "x\0"}}, that(comes_from="submission._text")),
    ({"environment": {"A": "x" * 70_000}}, that(comes_from="model.check_spec", names="70001")),
    ({"ports": "http"}, that(comes_from="submission.build_submission")),
    ({"ports": ["a", "a"]}, that(comes_from="model.check_spec")),
    ({"constraints": "a=b"}, that(comes_from="submission.parse_constraints")),
    ({"constraints": ["="]}, that(comes_from="submission._constraint")),
    ({"coscheduling": ""}, that(comes_from="model.check_spec")),
    ({"preferred": ["="]}, that(comes_from="submission._constraint", names="preferred")),
    ({"preemption": "hibernate"}, that(names=("kill", "freeze", "never"))),
    ({"preemption": "freeze", "coscheduling": "slice-id"}, that(comes_from="model.check_spec", names="gang")),
    ({"priority": "urgent"}, that(names=("production", "interactive", "batch"))),
    ({"timeout": 0}, that(names="timeout")),
    ({"timeout": -1.0}, that(names="timeout")),
    ({"timeout": float("nan")}, that(names="timeout")),
    ({"timeout": "30m"}, that(names="timeout")),
    ({"scheduling_timeout": float("inf")}, that(names="scheduling_timeout")),
    ({"max_retries_failure": -1}, that(names="max_retries_failure")),
    ({"max_retries_preemption": "1"}, that(names="max_retries_preemption")),
    ({"existing": "replace"}, that(names=("error", "keep", "recreate"))),
]


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_a_slip_is_named(changes, said):
    """Each argument that cannot be is refused, and the text says which it is."""
    with pytest.raises(InvalidArgument, check=said):
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
    for wrong in ("http", [80]):
        with pytest.raises(InvalidJob, check=that(names=("ports", "names"))):
            build(ports=wrong)


@pytest.mark.parametrize("argv", [[], [""], ["a\0"], [1], "ls -l", ["x" * 200_000]])
def test_what_is_no_command(argv):
    """A command is a list of texts with a program."""
    with pytest.raises(InvalidJob, check=that(names="command")):
        Command(argv)


def test_command_takes_no_more_arguments():
    """What belongs into the list is not taken elsewhere."""
    with pytest.raises(InvalidJob, check=that(comes_from="submission._entrypoint")):
        build(Command(["ls"]), args=("-l",))


def one_argument(items):
    """A job's function."""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("retries", "max_retries_failure"),
        ("max_retries", "max_retries_failure"),
        ("env", "environment"),
        ("replica", "replicas"),
        ("time_out", "timeout"),
        ("prioritty", "priority"),
        ("cpu", "resources=Resources(cpu=...)"),
        ("memory", "resources=Resources(memory=...)"),
    ],
)
@pytest.mark.parametrize("entrypoint", [one_argument, Command(["ls"])], ids=["callable", "command"])
def test_a_misspelt_option_is_named(entrypoint, given, meant):
    """Options that are none end up among the arguments: by their parts first, then by letters in common."""
    with pytest.raises(InvalidJob, check=that(names=(given, meant))):
        build_submission(entrypoint, (), {given: 2}, **USUAL)


def test_an_argument_like_no_option_has_no_hint():
    """What a function does not take is not always meant for somebody else."""
    with pytest.raises(InvalidJob) as caught:
        build_submission(one_argument, ([],), {"x": 1, "quux": 2}, **USUAL)
    assert "misspelt" not in str(caught.value)


def test_commands_are_values():
    """Equal commands are equal and show themselves as they are made."""
    assert Command(["a", "b"]) == Command(("a", "b")) != Command(["a"])
    assert repr(Command(["a"])) == "Command(['a'])"
    assert len({Command(["a"]), Command(["a"])}) == 1


def test_what_cannot_be_pickled_is_named():
    """A lock among the arguments is found and named."""
    with pytest.raises(NotPicklable, check=that(comes_from="payload._pickled", names="0")):
        build(len, args=(threading.Lock(),))


def test_a_large_argument_is_refused():
    """Data does not travel in a submission, and the text says what to do instead."""
    with pytest.raises(PayloadTooLarge, check=that(comes_from="submission._entrypoint")):
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
    with pytest.raises(InvalidJob, check=that(names="cores>nan")):
        parse_constraints(["cores>nan"])  # no worker has more
    assert parse_preferred({"slots": 3}) == (attrs.evolve(equal, mode=Mode.PREFERRED),)


# What cannot be called, or not so


@pytest.mark.parametrize("entrypoint", ["echo hi", ["echo", "hi"], None, 7])
def test_a_program_is_no_callable(entrypoint):
    """Whoever gives a shell line, or a list, is told of Command."""
    with pytest.raises(InvalidJob, check=that(comes_from="submission._entrypoint", names="iriscw.Command([")):
        build(entrypoint, ())


def add(left, right=0, *, scale=1):
    return (left + right) * scale


class Scaled:
    """A class, and its instances, are callables."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, value):
        return value * self.scale


@pytest.mark.parametrize(
    ("entrypoint", "args", "kwargs", "said"),
    [
        (add, (3,), {"replica": 2}, that(names=("right=0", "scale=1", "replica"))),
        (add, (3,), {"colour": 2}, that(names="colour")),
        (add, (), {}, that(names="left")),
        (add, (1, 2, 3), {}, that(names="add")),
        (add, (1,), {"left": 2}, that(names="left")),
        (functools.partial(add, 1), (), {"timout": 2}, that(names="timout=")),
        (Scaled, (), {}, that(names=("Scaled(scale", "scale"))),
        (Scaled(2), (), {}, that(names=("Scaled(value", "value"))),
        (lambda: None, (1,), {}, that(names="<lambda>")),
    ],
)
def test_arguments_that_do_not_fit(entrypoint, args, kwargs, said):
    """Told at once instead of by the task; a slip in an option's name is guessed."""
    with pytest.raises(InvalidJob, check=said):
        build_submission(entrypoint, args, kwargs, **USUAL)


def injecting(function):
    """Give a first argument to a function that looks as if the caller had to."""

    @functools.wraps(function)
    def outer(*args, **kwargs):
        return function(1, *args, **kwargs)

    return outer


@pytest.mark.parametrize(
    ("entrypoint", "args", "kwargs"),
    [
        (add, (1,), {"scale": 2}),
        (functools.partial(add, scale=3), (1, 2), {}),
        (Scaled(2), (3,), {}),
        (Scaled(2).__call__, (3,), {}),
        (dict, (), {"any": 1}),
        (max, (1, 2), {}),
        (injecting(add), (), {}),
    ],
)
def test_arguments_that_fit(entrypoint, args, kwargs):
    """Partials, bound methods, objects, wrappers, and what was written in C and says nothing of itself."""
    assert build_submission(entrypoint, args, kwargs, **USUAL).spec.name == "n"


@given(st.sampled_from(sorted(task_environment(AttemptFacts("j", "t", "u", 0, 1, ports={"http": 1}), PurePath("/w")))))
def test_no_variable_of_ours_can_be_given(name):
    """Whatever a task finds in its environment from iriscw is refused as the user's; names beside them are not."""
    with pytest.raises(InvalidJob, check=that(names=name)):
        build(environment={name: "x"})
    assert dict(build(environment={f"MY_{name}": "x"}).spec.environment) == {f"MY_{name}": "x"}


LOST = "\udcff"
"""How Python writes the byte FF of an argument or a file's name."""


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"name": LOST}, "name"),
        ({"environment": {"X": LOST}}, "'X'"),
        ({"environment": {LOST: "x"}}, "environment"),
        ({"constraints": [f"zone={LOST}"]}, "constraints"),
        ({"constraints": {"zone": LOST}}, "constraints"),
    ],
)
def test_texts_that_are_not_utf8(changes, named):
    """They are refused by name before anything travels, as zero bytes are."""
    with pytest.raises(InvalidJob, check=that(names="UTF-8")) as told:
        build(**changes)
    assert named in str(told.value)
    with pytest.raises(InvalidJob, check=that(names=("command", "UTF-8"))):
        Command(["echo", LOST])


def generates():
    """Yield."""
    yield 1


async def generates_later():
    """Yield."""
    yield 1


class Generating:
    """An object whose call yields."""

    def __call__(self):
        yield 1


class Callable:
    """An object that can be called."""

    def __call__(self, value=2):
        return value


class Plain:
    """Cannot be called, once it is made."""


@pytest.mark.parametrize(
    ("entrypoint", "said"),
    [
        (generates, that(comes_from="submission.check_useful", names="generates")),
        (generates_later, that(comes_from="submission.check_useful", names="generates_later")),
        (functools.partial(generates), that(comes_from="submission.check_useful", names="generates")),
        (Generating(), that(comes_from="submission.check_useful", names="Generating")),
        (Callable, that(comes_from="submission.check_useful", names="Callable")),
    ],
)
def test_calls_that_are_known_to_be_useless(entrypoint, said):
    """Nobody iterates over a generator, and a class that is called is its instance only."""
    with pytest.raises(InvalidJob, check=said):
        build(entrypoint, args=())


@pytest.mark.parametrize("entrypoint", [Callable(), Plain, functools.partial(sorted, [1]), dict])
def test_calls_that_are_not(entrypoint):
    """An instance, a class whose instance is the value, and what wraps a call."""
    assert build(entrypoint, args=()).entrypoint.callable is not None
