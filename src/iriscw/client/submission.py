"""What ``submit`` takes, checked before anything travels.

Everything a user can get wrong is told here, by name, with what would be right: the controller checks again, since not
every client is this one, but a user should not wait for the network to hear of a slip.

A callable travels as a pickle. What can be imported wherever iriscw is (the standard library, installed packages)
travels by name; the module a callable is defined in travels by value when it is a file of the user's own, so that a
function of a script or a notebook's neighbour runs on workers that have never seen the file.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import attrs

from iriscw.client.errors import InvalidJob
from iriscw.cloud.model import Capacity, Constraint, Mode, Op
from iriscw.jobs.model import Band, Entrypoint, EntrypointKind, Existing, JobSpec, Preemption, check_spec
from iriscw.packages.reading import dependencies_of
from iriscw.packages.requirements import Setup, check_setup_timeout, check_steps
from iriscw.proto.iriscw.v1 import Callable as WireCallable, Command as WireCommand, Entrypoint as WireEntrypoint
from iriscw.resources import Resources
from iriscw.task.environment import is_reserved, port_variable
from iriscw.task.payload import PayloadTooLarge, make_payload, read_summary

PAYLOAD_LIMIT_BYTES: Final = 4 << 20
"""What the protocol lets a call take; gRPC's usual limit for a whole message."""

ARGV_LIMIT_BYTES: Final = 128 << 10
"""Of all arguments together: what Linux takes for a single one."""

_NS_PER_S = 1_000_000_000

Constraints: TypeAlias = Mapping[str, str | int] | Sequence[str | Constraint]
"""``{"region": "LGA1"}``, or texts such as ``"region=LGA1"``, ``"rack>=4"``, ``"zone"`` (is there), ``"!zone"``."""


class Command:
    """A program to run instead of a callable.

    Args:
        argv: the program and its arguments; no shell is involved.

    Raises:
        InvalidJob: there is no program, an argument is no text or holds a zero byte, or they are too long together.
    """

    __slots__ = ("argv",)

    def __init__(self, argv: Sequence[str]) -> None:
        if isinstance(argv, str | bytes):
            raise InvalidJob("command: give a list of arguments; a text would need a shell to be split")
        arguments = tuple(_argument(each) for each in argv)
        if not arguments or not arguments[0]:
            raise InvalidJob("command: there is no program to run")
        size_bytes = sum(len(each.encode()) + 1 for each in arguments)
        if size_bytes > ARGV_LIMIT_BYTES:
            raise InvalidJob(f"command: {size_bytes} bytes of arguments are more than {ARGV_LIMIT_BYTES}")
        self.argv: Final = arguments

    def __repr__(self) -> str:
        return f"Command({list(self.argv)!r})"

    def __eq__(self, other: object) -> bool:
        return self.argv == other.argv if isinstance(other, Command) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.argv)


def _argument(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise InvalidJob(f"command: {value!r:.64} is not an argument: arguments are texts without zero bytes")
    return utf8("command", value)


def utf8(name: str, value: str) -> str:
    """Return a text that can travel.

    Raises:
        InvalidJob: it holds bytes that are no text: Python writes those of its arguments and files as surrogates.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        where = f"it is not UTF-8 at character {error.start + 1}"
        raise InvalidJob(f"{name}: {where}; pass bytes in a file, or encoded as a text") from error
    return value


@attrs.frozen
class Submission:
    """A checked job: its specification, and what it runs as it travels."""

    spec: JobSpec
    entrypoint: WireEntrypoint
    existing: Existing


def build_submission(
    entrypoint: Callable[..., Any] | Command,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    name: str,
    resources: Resources | None,
    replicas: int,
    environment: Mapping[str, str] | None,
    ports: Sequence[str],
    constraints: Constraints,
    coscheduling: str | None,
    priority: str,
    timeout: float | None,
    scheduling_timeout: float | None,
    max_retries_failure: int,
    max_retries_preemption: int,
    existing: str,
    detached: bool = False,
    parent_job_id: str = "",
    checkpoint_every: float | None = None,
    keep_checkpoints: int = 2,
    retry_from_checkpoint: bool = False,
    max_task_failures: int = 0,
    preferred: Constraints = (),
    preemption: str = "kill",
) -> Submission:
    """Check what a user gave and make a submission of it.

    Raises:
        InvalidJob: an argument cannot be, the entrypoint is not a callable, or it does not take its arguments.
        InvalidArgument: an amount, or a combination, cannot be.
        InvalidPortName: a port's name cannot become a variable's.
        NotPicklable: the callable or an argument cannot travel.
        PayloadTooLarge: they take more than ``PAYLOAD_LIMIT_BYTES``.
    """
    if not isinstance(name, str):
        raise InvalidJob(f"name: {name!r:.64} is not a string")
    utf8("name", name)
    if resources is not None and not isinstance(resources, Resources):
        raise InvalidJob(f"resources: {resources!r:.64} is not an iriscw.Resources")
    wanted = resources or Resources()
    sent, description = _entrypoint(entrypoint, args, kwargs)
    if isinstance(ports, str) or not all(isinstance(port, str) for port in ports):
        raise InvalidJob("ports: give a list of names")
    for port in ports:
        port_variable(port)
    spec = JobSpec(
        name=name,
        entrypoint=description,
        demand=Capacity(
            wanted.cpu_milli, wanted.memory_bytes, wanted.disk_bytes, wanted.gpu_count, wanted.gpu_class or ""
        ),
        replicas=_whole("replicas", replicas),
        environment=_environment(environment or {}, gang=coscheduling is not None),
        ports=tuple(ports),
        constraints=(*parse_constraints(constraints), *parse_preferred(preferred)),
        group_by=coscheduling,
        band=_choice("priority", Band, priority),
        timeout_ns=_duration("timeout", timeout),
        scheduling_timeout_ns=_duration("scheduling_timeout", scheduling_timeout),
        max_retries_failure=_whole("max_retries_failure", max_retries_failure),
        max_retries_preemption=_whole("max_retries_preemption", max_retries_preemption),
        parent_job_id=parent_job_id,
        detached=detached,
        checkpoint_every_ns=_duration("checkpoint_every", checkpoint_every),
        keep_checkpoints=_whole("keep_checkpoints", keep_checkpoints),
        retry_from_checkpoint=retry_from_checkpoint,
        max_task_failures=_whole("max_task_failures", max_task_failures),
        preemption=_choice("preemption", Preemption, preemption),
    )
    check_spec(spec)
    if spec.max_task_failures and spec.group_by is not None:
        raise InvalidJob("max_task_failures: the tasks of a gang (coscheduling=) run all together, or not at all")
    return Submission(spec, sent, _choice("existing", Existing, existing))


def build_setup(
    dependencies: Sequence[str] | str | os.PathLike[str], steps: Sequence[Sequence[str]], timeout: float
) -> Setup:
    """Check what is to be done before a task begins. Blocks: dependencies may be listed in a file.

    Raises:
        InvalidDependency, InvalidArgument: see :mod:`iriscw.packages.requirements`.
    """
    timeout_ns = round(check_setup_timeout(timeout) * _NS_PER_S)
    checked = check_steps(steps)
    for step in checked:
        for word in step:
            utf8("setup", word)
    return Setup(dependencies_of(dependencies) if dependencies else (), checked, timeout_ns)


_PARAMETERS: Final = inspect.signature(build_submission).parameters.values()
_OPTIONS: Final = (
    "bundle",
    "image",
    "freezable",
    "detached",
    "checkpoint_every",
    "keep_checkpoints",
    "retry_from_checkpoint",
    "max_task_failures",
    "preferred",
    "preemption",
    "dependencies",
    "setup",
    "setup_timeout",
    *(each.name for each in _PARAMETERS if each.kind is each.KEYWORD_ONLY and each.default is each.empty),
)
"""Of ``submit``: what a misspelt one is compared with."""

_AMOUNTS: Final = tuple(field.name for field in attrs.fields(Resources))
"""What others take as options of their own."""

_LEAST_PART: Final = 3
"""Letters: shorter texts are a part of many a name."""


def _entrypoint(
    entrypoint: Callable[..., Any] | Command, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[WireEntrypoint, Entrypoint]:
    if isinstance(entrypoint, Command):
        if args or kwargs:
            raise InvalidJob(f"command: its arguments belong into the list; submit() was given more{_meant(kwargs)}")
        return (
            WireEntrypoint(command=WireCommand(argv=list(entrypoint.argv))),
            Entrypoint(EntrypointKind.COMMAND, ""),
        )
    if not callable(entrypoint):
        raise InvalidJob(f"entrypoint: {entrypoint!r:.64} is not callable; for a program use iriscw.Command([...])")
    check_call(entrypoint, args, kwargs)
    check_useful(entrypoint)
    with own_code_by_value(entrypoint):
        payload = make_payload(entrypoint, args, kwargs)
    if len(payload) > PAYLOAD_LIMIT_BYTES:
        raise PayloadTooLarge(
            f"the call takes {len(payload)} bytes, more than {PAYLOAD_LIMIT_BYTES}; "
            "pass the names of files or objects instead of their content"
        )
    summary = read_summary(payload)
    shown = f"{getattr(entrypoint, '__module__', None) or '?'}.{summary.name}"
    called = WireCallable(payload=payload, python_version=summary.python, display_name=shown)
    return WireEntrypoint(callable=called), Entrypoint(EntrypointKind.CALLABLE, "", summary.python)


def check_useful(function: Callable[..., Any]) -> None:
    """Refuse what can be called, and gives nothing that a task could have done or could send back."""
    if isinstance(function, type) and any("__call__" in vars(each) for each in function.__mro__[:-1]):
        raise InvalidJob(
            f"entrypoint: {function.__qualname__} is a class; give an instance, which is what can be called"
        )
    called: Any = function
    while isinstance(called, functools.partial):
        called = called.func
    for each in (called, getattr(called, "__call__", None)):  # noqa: B004 - a function is asked, and an object's method
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            name = getattr(called, "__qualname__", None) or type(called).__qualname__
            raise InvalidJob(
                f"entrypoint: {name} yields: nobody would iterate over it; return the values, or write them"
            )


def check_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that the callable cannot take: a slip in an option of ``submit`` ends up among them.

    What wraps another callable is asked itself: it may give it arguments of its own.
    """
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # many a callable written in C has none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = [name for name in kwargs if name not in signature.parameters]
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        raise InvalidJob(f"the arguments do not fit {name}{signature!s:.200}: {error}{_meant(unknown)}") from error


def _meant(names: Iterable[str]) -> str:
    """Say which options of ``submit`` names may have been meant for; empty if they look like none."""
    near = [f"{name}= ({found}?)" for name in names if (found := _option_like(name))]
    return f"; is an option of submit() misspelt: {', '.join(near)}" if near else ""


def _option_like(name: str) -> str:
    """Return the option that a name may have been meant for: a part of its name says more than letters in common."""
    if name in _AMOUNTS:
        return f"resources=Resources({name}=...)"
    parts = [each for each in _OPTIONS if len(name) >= _LEAST_PART and name in each]
    return next(iter(parts or get_close_matches(name, _OPTIONS, 1)), "")


_registering = threading.Lock()


@contextmanager
def own_code_by_value(function: object) -> Iterator[None]:
    """While the block runs, pickle the module that ``function`` is defined in by value if it is the user's own file.

    The registry is the pickler's and global, hence the lock.
    """
    import cloudpickle  # type: ignore[import-untyped]

    module = sys.modules.get(str(getattr(function, "__module__", None)))
    if module is None or not is_own_file(module):
        yield
        return
    with _registering:
        known = module.__name__ in cloudpickle.list_registry_pickle_by_value()
        if not known:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            if not known:
                cloudpickle.unregister_pickle_by_value(module)


def is_own_file(module: ModuleType) -> bool:
    """Whether workers, which have the same packages, cannot be expected to have this module."""
    file = getattr(module, "__file__", None)
    top = module.__name__.partition(".")[0]
    if not file or top in {"__main__", "iriscw", "iriscw_sims"}:  # the pickler treats __main__ so by itself
        return False
    return not is_installed(Path(file).resolve())


def is_installed(file: Path) -> bool:
    """Whether a module's file is one of the standard library or of a package, not the user's own."""
    return any(file.is_relative_to(folder) for folder in _installed_folders())


def _installed_folders() -> list[Path]:
    known = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [Path(each).resolve() for each in (*known, site.getusersitepackages()) if each]


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJob(f"{name}: {value!r:.64} is not a whole number")
    return value


def _duration(name: str, value: float | None) -> int:
    """Return seconds as ns; None becomes 0, which means "for ever"."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidJob(f"{name}: {value!r:.64} is not a number of seconds")
    if not 0.001 <= value < float("inf"):
        raise InvalidJob(f"{name}: {value!r} is not a number of seconds from 0.001; leave it out for no limit")
    return round(value * _NS_PER_S)


def _environment(environment: Mapping[str, str], *, gang: bool) -> tuple[tuple[str, str], ...]:
    if not isinstance(environment, Mapping):
        raise InvalidJob("environment: give a mapping from names to values")
    for name in environment:
        if is_reserved(_text("environment", name), gang=gang):
            raise InvalidJob(f"environment: {name} is set by iriscw for each task{' of a gang' if gang else ''}")
    return tuple((name, _text(f"environment: {name!r:.64}", environment[name])) for name in environment)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidJob(f"{name}: {type(value).__name__} is not a string")  # the value may be secret: not shown
    if "\0" in value:
        raise InvalidJob(f"{name}: it holds a zero byte")
    return utf8(name, value)


def _choice(name: str, kind: type[Any], value: object) -> Any:
    if isinstance(value, kind):
        return value
    members = {member.name.lower(): member for member in kind}
    if not isinstance(value, str) or value.lower() not in members:
        raise InvalidJob(f"{name}: {value!r:.64} is not one of {', '.join(members)}")
    return members[value.lower()]


_CONSTRAINT = re.compile(r"(?P<key>[a-z][a-z0-9._-]{0,62})\s*(?P<op>>=|<=|!=|=|>|<| in )\s*(?P<value>\S.*)")
_OPERATORS = {"=": Op.EQ, "!=": Op.NE, ">": Op.GT, ">=": Op.GE, "<": Op.LT, "<=": Op.LE}
_WHOLE = re.compile(r"[+-]?[0-9]+")
"""What is compared as a number: no worker would ever be beyond anything else, and a job would wait for ever."""
_KEY = re.compile(r"!?[a-z][a-z0-9._-]{0,62}")


def parse_preferred(preferred: Constraints) -> tuple[Constraint, ...]:
    """Read what workers should be like, in the same form, that nothing waits for.

    Raises:
        InvalidJob: a text is none.
    """
    return tuple(attrs.evolve(each, mode=Mode.PREFERRED) for each in parse_constraints(preferred, "preferred"))


def parse_constraints(constraints: Constraints, option: str = "constraints") -> tuple[Constraint, ...]:
    """Read constraints as users write them, given as this option.

    Raises:
        InvalidJob: a text is none of the known forms.
    """
    if isinstance(constraints, Mapping):
        return tuple(_condition(option, key, Op.EQ, value) for key, value in constraints.items())
    if isinstance(constraints, str):
        raise InvalidJob(f"{option}: give a list: [{constraints!r}]")
    return tuple(each if isinstance(each, Constraint) else _constraint(option, each) for each in constraints)


def _condition(option: str, key: str, op: Op, *values: Any) -> Constraint:
    for each in (key, *values):
        if isinstance(each, str):
            utf8(option, each)
    return Constraint(key, op, values)


def _constraint(option: str, text: object) -> Constraint:
    if isinstance(text, str):
        if _KEY.fullmatch(text):
            return Constraint(text.removeprefix("!"), Op.NOT_EXISTS if text.startswith("!") else Op.EXISTS)
        found = _CONSTRAINT.fullmatch(text.strip())
        if found is not None and found["op"] == " in ":
            return _condition(option, found["key"], Op.IN, *(value.strip() for value in found["value"].split(",")))
        if found is not None and (found["op"] in ("=", "!=") or _WHOLE.fullmatch(found["value"].strip())):
            return _condition(option, found["key"], _OPERATORS[found["op"]], found["value"].strip())
    raise InvalidJob(f"{option}: {text!r:.64} is not 'key=value', 'key>=number', 'key in a,b', 'key' or '!key'")
