"""Amounts, attributes and constraints as values and as messages of the wire. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iriscw._errors import InvalidArgument
from iriscw.cloud.model import Attributes, AttributeValue, Capacity, Constraint, Mode, Op
from iriscw.proto.iriscw import v1


def read_amount(sent: v1.Amount | None) -> Capacity:
    """Read an amount; none is nothing."""
    if sent is None:
        return Capacity()
    return Capacity(sent.cpu_milli, sent.memory_bytes, sent.disk_bytes, sent.gpu_count, sent.gpu_class)


def amount(value: Capacity) -> v1.Amount:
    """Write an amount."""
    return v1.Amount(
        cpu_milli=value.cpu_milli,
        memory_bytes=value.memory_bytes,
        disk_bytes=value.disk_bytes,
        gpu_count=value.gpu_count,
        gpu_class=value.gpu_class,
    )


def read_attributes(sent: Mapping[str, v1.AttributeValue]) -> Attributes:
    """Read what a worker is like."""
    return Attributes({name: read_value(value) for name, value in sent.items()})


def read_value(sent: v1.AttributeValue) -> AttributeValue:
    """Read the value of an attribute."""
    return sent.number if sent.number is not None else sent.text or ""


def attributes(value: Attributes) -> dict[str, v1.AttributeValue]:
    """Write what a worker is like."""
    return {name: _value(each) for name, each in value.pairs}


def _value(given: AttributeValue) -> v1.AttributeValue:
    return v1.AttributeValue(number=given) if isinstance(given, int) else v1.AttributeValue(text=given)


def constraint(given: Constraint) -> v1.Constraint:
    """Write a constraint."""
    return v1.Constraint(
        key=given.key,
        op=v1.ConstraintOp[given.op.name],
        values=[_value(each) for each in given.values],
        mode=v1.ConstraintMode.REQUIRED if given.mode is Mode.REQUIRED else v1.ConstraintMode.PREFERRED,
    )


def read_constraint(sent: v1.Constraint) -> Constraint:
    """Read a constraint.

    Raises:
        InvalidArgument: it has no operation that is known here.
    """
    if sent.op.name not in Op.__members__:
        raise InvalidArgument(f"constraint on {sent.key!r}: no such operation")
    mode = Mode.PREFERRED if sent.mode is v1.ConstraintMode.PREFERRED else Mode.REQUIRED
    values: list[Any] = [str(read_value(each)) for each in sent.values]
    return Constraint(sent.key, Op[sent.op.name], values, mode)
