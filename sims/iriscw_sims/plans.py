"""Plans as JSON: to keep one that found something, to change one by hand, to run it again elsewhere.

Theory of operation. A :class:`~iriscw_sims.swarm.Plan` is values all the way down, so one rule for each kind of value
writes and reads it: a class as an object with all of its fields, an enum as its value, a tuple as a list. All fields
are written, so that a plan does not change its meaning with the defaults of the day; a field that is missing when a
plan is read takes its default, so that plans outlive new fields. What cannot be is refused with the place where it
stands. A file says which version of this form it has.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

import attrs

from iriscw._errors import UsageError
from iriscw.files import decode_json
from iriscw.fleet.model import Timing
from iriscw.jobs.model import check_spec
from iriscw_sims.nodes import swarm
from iriscw_sims.nodes.swarm import NodesPlan
from iriscw_sims.swarm import FAULTS, RATES, Plan

FORMAT: Final = "iriscw-plan"
VERSION: Final = 1

FLEET: Final = "fleet"
NODES: Final = "nodes"
"""Which world a plan is of; one that does not say is of a fleet."""

MAX_PLAN_BYTES: Final = 16 * 1024 * 1024
"""The largest plan that is read: a plan that a seed draws has 30 KB, one of 10,000 jobs 10 MB."""

MOST: Final = 2**63 - 1
"""The largest number: times are ns in 64 bits wherever they leave Python."""

_THOUSANDTHS: Final = 1_000


class BadPlan(UsageError, ValueError, abstract=True):
    """A text is not a plan."""


class PlanUnreadable(BadPlan):
    """It is no JSON, or too long, or not of this form."""


class PlanVersionUnknown(BadPlan):
    """It was written by a version that this one does not know."""


class PlanInvalid(BadPlan):
    """A value in it cannot be; the text says which, and where."""


def dump_plan(plan: Plan | NodesPlan) -> str:
    """Write a plan as JSON."""
    world = {"world": NODES} if isinstance(plan, NodesPlan) else {}
    return json.dumps({"format": FORMAT, "version": VERSION, **world, "plan": _written(plan)}, indent=1) + "\n"


def load_plan(data: str | bytes) -> Plan:
    """Read the plan of a fleet that :func:`dump_plan` wrote, or somebody by hand.

    Raises:
        PlanUnreadable: it is no JSON, too long, or not of this form.
        PlanVersionUnknown: it was written by another version.
        PlanInvalid: a value in it cannot be.
    """
    plan = load_any_plan(data)
    if not isinstance(plan, Plan):
        raise PlanUnreadable("it is the plan of a world of nodes, and not of a fleet")
    return plan


def load_any_plan(data: str | bytes) -> Plan | NodesPlan:
    """Read the plan of a fleet, or of a world of nodes.

    Raises:
        PlanUnreadable, PlanVersionUnknown, PlanInvalid: as :func:`load_plan`.
    """
    encoded = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(encoded) > MAX_PLAN_BYTES:
        raise PlanUnreadable(f"a plan has at most {MAX_PLAN_BYTES} bytes, not {len(encoded)}")
    try:
        found = decode_json(encoded)
    except ValueError as error:
        raise PlanUnreadable(f"it is no JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise PlanUnreadable(f"it is not a plan: it does not say 'format': {FORMAT!r}")
    if found.get("version") != VERSION:
        raise PlanVersionUnknown(f"it has version {found.get('version')!r}; this one reads version {VERSION}")
    world = found.get("world", FLEET)
    if world not in (FLEET, NODES):
        raise PlanUnreadable(f"it is the plan of a world {world!r}, which this one does not know")
    plan: Plan | NodesPlan = _read(NodesPlan if world == NODES else Plan, found.get("plan"), "plan")
    check_values(plan)
    return plan


def check_plan(plan: Plan | NodesPlan) -> None:
    """Refuse what would fail in the middle of a run, whoever made it: a file, a seed, or a program.

    Raises:
        PlanInvalid: a value in it cannot be.
    """
    _read(NodesPlan if isinstance(plan, NodesPlan) else Plan, _written(plan), "plan")  # that each value is of its type
    check_values(plan)


def check_values(plan: Plan | NodesPlan) -> None:
    """Refuse values that are of their type, and cannot be.

    Raises:
        PlanInvalid: see there.
    """
    if isinstance(plan, NodesPlan):
        _check_luck(plan, swarm.FAULTS, swarm.RATES)
        _check_nodes(plan)
        return
    _check_luck(plan, FAULTS, RATES)
    _check_fleet(plan)


def _check_luck(plan: Plan | NodesPlan, kinds: tuple[str, ...], most: tuple[tuple[str, int], ...]) -> None:
    rates = dict(most)
    for index, fault in enumerate(plan.faults):
        if fault.kind not in kinds:
            raise PlanInvalid(f"plan.faults[{index}].kind: there is no fault {fault.kind!r}")
        _check_range(fault.at, f"plan.faults[{index}].at")
        _check_range(fault.pick, f"plan.faults[{index}].pick")
    for index, (name, rate) in enumerate(plan.rates):
        if name not in rates:
            raise PlanInvalid(f"plan.rates[{index}]: there is no chance {name!r}")
        _check_range(rate, f"plan.rates[{index}]", _THOUSANDTHS)
    _check_range(plan.safety, "plan.safety")


def _check_nodes(plan: NodesPlan) -> None:
    if not plan.machines or not plan.workloads:
        raise PlanInvalid("plan: a world of nodes has at least one machine and one workload")
    for index, machine in enumerate(plan.machines):
        for field in attrs.fields(type(machine)):
            _check_range(getattr(machine, field.name), f"plan.machines[{index}].{field.name}", swarm.MOST_MIB)
    for index, workload in enumerate(plan.workloads):
        where = f"plan.workloads[{index}]"
        _check_range(workload.machine, f"{where}.machine", len(plan.machines) - 1)
        if not 1 <= workload.processes <= swarm.MOST_PROCESSES:
            raise PlanInvalid(f"{where}.processes: {workload.processes} is not between 1 and {swarm.MOST_PROCESSES}")
        for each in workload.cuda:
            _check_range(each, f"{where}.cuda", workload.processes - 1)
        for name in ("memory_mib", "device_mib"):
            _check_range(getattr(workload, name), f"{where}.{name}", swarm.MOST_MIB)
        for name in ("threads", "connections"):
            _check_range(getattr(workload, name), f"{where}.{name}", swarm.MOST_PROCESSES)
    for index, order in enumerate(plan.orders):
        where = f"plan.orders[{index}]"
        if order.kind not in swarm.ORDERS:
            raise PlanInvalid(f"{where}.kind: there is no order {order.kind!r}")
        if order.tier not in swarm.TIERS:
            raise PlanInvalid(f"{where}.tier: there is no tier {order.tier!r}")
        _check_range(order.workload, f"{where}.workload", len(plan.workloads) - 1)
        _check_range(order.at, f"{where}.at")
        _check_range(order.cancel_after, f"{where}.cancel_after")


def _check_fleet(plan: Plan) -> None:
    if not plan.groups:
        raise PlanInvalid("plan.groups: a world has at least one scale group")
    names: dict[str, int] = {}
    for index, group in enumerate(plan.groups):
        if names.setdefault(group.name, index) != index:
            raise PlanInvalid(
                f"plan.groups[{index}].name: plan.groups[{names[group.name]}] is called {group.name!r}, too"
            )
        for field in attrs.fields(Timing):
            where = f"plan.groups[{index}].timing.{field.name}"
            _check_range(getattr(group.timing, field.name), where)
    for index, job in enumerate(plan.jobs):
        _check_range(job.at, f"plan.jobs[{index}].at")
        _check_range(job.terminate_after or 0, f"plan.jobs[{index}].terminate_after")
        try:
            check_spec(job.spec)
        except UsageError as error:
            raise PlanInvalid(f"plan.jobs[{index}].spec: {error}") from None
    _check_range(plan.takeover_delay, "plan.takeover_delay")


def _check_range(value: int, where: str, most: int = MOST) -> None:
    if not 0 <= value <= most:
        raise PlanInvalid(f"{where}: {value} is not between 0 and {most}")


# Writing


def _written(value: Any) -> Any:
    if attrs.has(type(value)):
        return {field.name: _written(getattr(value, field.name)) for field in attrs.fields(type(value)) if field.init}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [_written(each) for each in value]
    return value


# Reading


def _read(kind: Any, value: Any, where: str) -> Any:
    """Read a value of a type; ``where`` is its place, for errors."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, value, where)
    if origin is tuple:
        return _read_tuple(arguments, value, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(repr(each.value) for each in kind)
            raise PlanInvalid(f"{where}: {value!r} is none of {known}") from None
    if isinstance(kind, type) and attrs.has(kind):
        return _read_object(kind, value, where)
    if type(value) is not kind:
        raise PlanInvalid(f"{where}: {_name(kind)} is needed, not {_name(type(value))}")
    if kind is int and not -MOST <= value <= MOST:
        raise PlanInvalid(f"{where}: {value} is not between {-MOST} and {MOST}")
    return value


def _read_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    for kind in kinds:
        if kind in (type(value), type(None)) and isinstance(value, kind):
            return _read(kind, value, where) if kind is not type(None) else None
    others = [kind for kind in kinds if kind is not type(None)]
    if len(others) == 1:
        return _read(others[0], value, where)
    raise PlanInvalid(f"{where}: {_name(type(value))} is not allowed here")


def _read_tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise PlanInvalid(f"{where}: a list is needed, not {_name(type(value))}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise PlanInvalid(f"{where}: {len(kinds)} values are needed, not {len(value)}")
    return tuple(
        _read(kind, each, f"{where}[{index}]") for index, (kind, each) in enumerate(zip(kinds, value, strict=True))
    )


def _read_object(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise PlanInvalid(f"{where}: an object is needed, not {_name(type(value))}")
    attrs.resolve_types(kind)
    fields = {field.name: field for field in attrs.fields(kind) if field.init}
    for name in value:
        if name not in fields:
            raise PlanInvalid(f"{where}: {kind.__name__} has no {name!r}")
    given = {
        field.alias or name: _read(field.type, value[name], f"{where}.{name}")
        for name, field in fields.items()
        if name in value
    }
    missing = [name for name, field in fields.items() if name not in value and field.default is attrs.NOTHING]
    if missing:
        raise PlanInvalid(f"{where}: {', '.join(missing)} is missing")
    try:
        return kind(**given)
    except UsageError as error:
        raise PlanInvalid(f"{where}: {error}") from None


def _name(kind: Any) -> str:
    names = {int: "a whole number", str: "a text", bool: "true or false", list: "a list", dict: "an object"}
    return names.get(kind, "null" if kind is type(None) else getattr(kind, "__name__", str(kind)))
