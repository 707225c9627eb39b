"""Amounts, attributes and constraints come back from the wire as they went."""

import pytest

from iriscw._errors import InvalidArgument
from iriscw.cloud import wire
from iriscw.cloud.model import Attributes, Capacity, Constraint, Mode, Op
from iriscw.proto.iriscw import v1


def test_amounts_and_attributes() -> None:
    """Amounts and attributes come back as they went."""
    capacity = Capacity(1, 2, 3, 4, "H100")
    assert wire.read_amount(wire.amount(capacity)) == capacity
    assert wire.read_amount(None) == Capacity()
    attributes = Attributes({"a": "b", "n": 7})
    assert wire.read_attributes(wire.attributes(attributes)) == attributes


@pytest.mark.parametrize(
    "constraint",
    [Constraint("k", Op.IN, ["x", "2"]), Constraint("l", Op.EXISTS, mode=Mode.PREFERRED), Constraint("n", Op.GE, [3])],
    ids=str,
)
def test_constraints(constraint: Constraint) -> None:
    """Values are compared as texts, so a number comes back as one."""
    read = wire.read_constraint(wire.constraint(constraint))
    assert (read.key, read.op, read.mode) == (constraint.key, constraint.op, constraint.mode)
    assert read.values == tuple(str(value) for value in constraint.values)


def test_an_unknown_operation() -> None:
    """A constraint that says nothing is refused."""
    with pytest.raises(InvalidArgument):
        wire.read_constraint(v1.Constraint(key="k"))
