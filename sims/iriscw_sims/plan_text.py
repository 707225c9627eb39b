"""Plans as text: Python that can be pasted into a test, read back without running it, and packed into one word.

Theory of operation. A plan is made of values: attrs classes, enumerations, tuples, numbers and texts. :func:`plan_text`
writes it as the expression that makes it, without what is as it would be anyway. :func:`read_plan` reads such an
expression by its syntax tree: calls of the classes in :data:`VOCABULARY`, their enumerations' members, tuples, numbers
and texts, products of numbers. Nothing is evaluated, so the text of a stranger does no more than fail.

:func:`pack` makes one word of it that no shell looks into; ``python -m iriscw_sims.rerun WORD`` runs it.
"""

from __future__ import annotations

import ast
import base64
import enum
import json
import zlib
from collections.abc import Iterator
from typing import Any

import attrs

from iriscw._errors import InvalidArgument
from iriscw.cloud.model import Attributes, Capacity, Constraint, Mode, Op
from iriscw.fleet.model import GroupConfig, Timing
from iriscw.jobs.model import Band, Entrypoint, EntrypointKind, Existing, JobSpec, Preemption
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw_sims.nodes.swarm import MachinePlan, NodesPlan, OrderPlan, WorkloadPlan
from iriscw_sims.pace import TIMING
from iriscw_sims.swarm import GIB, Fault, Plan, PlannedJob

CLASSES: tuple[type[Any], ...] = (Attributes, Capacity, Constraint, Entrypoint, Fault, GroupConfig, JobSpec, Plan)
MORE_CLASSES: tuple[type[Any], ...] = (PlannedJob, Timing, NodesPlan, MachinePlan, WorkloadPlan, OrderPlan)
ENUMERATIONS: tuple[type[enum.Enum], ...] = (Band, EntrypointKind, Existing, Mode, Op, Preemption)
VOCABULARY: dict[str, Any] = {each.__name__: each for each in (*CLASSES, *MORE_CLASSES, *ENUMERATIONS)}
"""The classes that a plan's text may name."""

ENTRYPOINT = Entrypoint(EntrypointKind.COMMAND, "0" * 64)
"""What simulated jobs run: nobody looks into it."""

UNITS = {"SECOND": SECOND, "MILLISECOND": MILLISECOND, "GIB": GIB}
VALUES: dict[str, Any] = {"ENTRYPOINT": ENTRYPOINT, "TIMING": TIMING, **UNITS}
"""Values with names of their own."""

HOMES = {"ENTRYPOINT": __name__, "SECOND": "iriscw.runtime.vocabulary", "MILLISECOND": "iriscw.runtime.vocabulary"}

MAX_TEXT_CHARS = 1 << 20
"""The longest text of a plan: a thousand times what a large one needs, and nothing that could exhaust memory."""

MAX_LINE = 110
INDENT = "    "


def plan_text(plan: Plan | NodesPlan) -> str:
    """Return the expression that makes a plan, over several lines."""
    return "\n".join(_written(plan, ""))


def imports_for(text: str) -> str:
    """Return the imports that a plan's text needs, in the order in which linters want them."""
    used = {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
    homes: dict[str, list[str]] = {}
    for name in sorted(used):
        home = VOCABULARY[name].__module__ if name in VOCABULARY else HOMES.get(name, "iriscw_sims.swarm")
        homes.setdefault(home, []).append(name)
    lines = []
    for home, names in sorted(homes.items()):
        lines.append(f"from {home} import {', '.join(sorted(names, key=lambda name: (not name.isupper(), name)))}")
    return "\n".join(lines)


def _written(value: Any, lead: str) -> Iterator[str]:
    """Write a value: on one line where it fits, else a line per part. ``lead`` stands before its first line."""
    short = lead + _short(value)
    parts = list(_parts(value))
    if len(short) <= MAX_LINE or not parts:
        yield short
        return
    name = type(value).__name__ if attrs.has(type(value)) else ""
    yield f"{lead}{name}("
    for label, part in parts:
        lines = list(_written(part, f"{label}=" if label else ""))
        yield from (INDENT + line for line in lines[:-1])
        yield f"{INDENT}{lines[-1]},"
    yield ")"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value is made of, with its name where it has one; defaults apart."""
    if _name_of(value):
        return
    if isinstance(value, tuple):
        yield from (("", each) for each in value)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            part = getattr(value, field.name)
            if field.init and (field.default is attrs.NOTHING or part != _default(field.default)):
                yield field.name, part


def _name_of(value: Any) -> str:
    return "ENTRYPOINT" if value == ENTRYPOINT else "TIMING" if value == TIMING else ""


def _default(default: Any) -> Any:
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def _short(value: Any) -> str:
    """Write a value on one line."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if name := _name_of(value):
        return name
    if isinstance(value, tuple):
        inner = ", ".join(_short(each) for each in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if attrs.has(type(value)):
        inner = ", ".join(f"{name}={_short(part)}" for name, part in _parts(value))
        return f"{type(value).__name__}({inner})"
    if type(value) is int:
        return _number(value)
    if type(value) is str:
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _number(value: int) -> str:
    for name, unit in UNITS.items():
        if value and value % unit == 0:
            return f"{value // unit} * {name}"
    return str(value)


# Reading


def read_plan(text: str) -> Plan:
    """Return the plan of a fleet that a text describes: see :func:`read_any_plan`.

    Raises:
        InvalidArgument: the text is not a plan, or that of another world.
    """
    plan = read_any_plan(text)
    if not isinstance(plan, Plan):
        raise InvalidArgument("this is the plan of a world of nodes, and not of a fleet")
    return plan


def read_any_plan(text: str) -> Plan | NodesPlan:
    """Return the plan that a text describes: the last expression or assignment in it, so that a whole file will do.

    Raises:
        InvalidArgument: the text is not a plan.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidArgument(f"a plan's text has at most {MAX_TEXT_CHARS} characters, not {len(text)}")
    try:
        statements = [each for each in ast.parse(text).body if isinstance(each, ast.Expr | ast.Assign)]
        plan = _value(statements[-1].value) if statements else None
    except (SyntaxError, TypeError, ValueError, LookupError, RecursionError, MemoryError) as error:
        raise InvalidArgument(f"this is not a plan: {error}") from error
    if not isinstance(plan, Plan | NodesPlan):
        raise InvalidArgument("this is not a plan: it makes something else")
    return plan


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, int | str):
            return value
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return tuple(_value(each) for each in elements)
        case ast.Name(id=name) if name in VALUES:
            return VALUES[name]
        case ast.Attribute(value=ast.Name(id=name), attr=member) if VOCABULARY.get(name) in ENUMERATIONS:
            return VOCABULARY[name].__members__[member]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -int(_value(operand))
        case ast.BinOp(op=ast.Mult(), left=left, right=ast.Name(id=name)) if name in UNITS:
            return int(_value(left)) * UNITS[name]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in VOCABULARY:
            named = {each.arg: _value(each.value) for each in keywords if each.arg is not None}
            return VOCABULARY[name](*map(_value, args), **named)
    raise ValueError(f"line {node.lineno}: {ast.unparse(node)[:60]!r} is not part of one")


# One word


def pack(plan: Plan | NodesPlan) -> str:
    """Return a plan as one word of letters, digits, ``-`` and ``_``."""
    return base64.urlsafe_b64encode(zlib.compress(plan_text(plan).encode(), 9)).decode().rstrip("=")


def unpack(word: str) -> Plan:
    """Return the plan of a fleet that :func:`pack` was given.

    Raises:
        InvalidArgument: the word holds no plan, or that of another world.
    """
    plan = unpack_any(word)
    if not isinstance(plan, Plan):
        raise InvalidArgument("this word holds the plan of a world of nodes, and not of a fleet")
    return plan


def unpack_any(word: str) -> Plan | NodesPlan:
    """Return the plan that :func:`pack` was given.

    Raises:
        InvalidArgument: the word holds no plan.
    """
    try:
        packed = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
        text = zlib.decompressobj().decompress(packed, MAX_TEXT_CHARS + 1).decode()
    except (ValueError, zlib.error) as error:
        raise InvalidArgument(f"this word holds no plan: {error}") from error
    return read_any_plan(text)
