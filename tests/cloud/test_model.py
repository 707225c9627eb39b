"""Quantities, attributes, constraints and names."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.client.submission import parse_constraints
from iriscw.cloud.model import (
    UNLIMITED,
    Attributes,
    Capacity,
    CloudError,
    Condition,
    Constraint,
    InvalidName,
    Mode,
    Node,
    NodePool,
    Op,
    PodPhase,
    Throttled,
    rfc1123,
)
from raised import that

amounts = st.integers(0, 10**6)
capacities = st.builds(Capacity, amounts, amounts, amounts, st.integers(0, 16), st.sampled_from(["", "H100", "L40"]))
values = st.one_of(st.text(max_size=5), st.integers(-100, 100))
attributes = st.dictionaries(st.sampled_from(["region", "zone", "gpus"]), values).map(Attributes)


@given(capacities, capacities)
def test_fits_exactly_when_nothing_lacks(have, want):
    """`fits` and `lacking` never contradict each other."""
    assert have.fits(want) == (have.lacking(want) == ())


@given(capacities, capacities)
def test_what_is_taken_comes_back(have, want):
    """Taking and giving back is exact, whatever the amounts."""
    assert have.minus(want).plus(want) == attrs.evolve(have, gpu_class=have.gpu_class or want.gpu_class)


@given(capacities, capacities)
def test_times_is_how_often_it_fits(have, want):
    """Taking it `times` times works; once more does not."""
    count = have.times(want)
    if count == UNLIMITED:
        return
    left = have
    for _ in range(min(count, 50)):
        assert left.fits(want)
        left = left.minus(want)
    if count <= 50:
        assert not left.fits(want)


def test_gpu_class_matters_only_with_gpus():
    """A demand without GPUs takes any worker; one that names a class takes only that."""
    worker = Capacity(1000, 1000, 0, 8, "H100")
    assert worker.fits(Capacity(1, 1, 0, 0, "L40"))
    assert worker.fits(Capacity(1, 1, 0, 1, ""))
    assert worker.lacking(Capacity(1, 1, 0, 1, "L40")) == ("gpu_class",)


@given(attributes, attributes)
def test_merging_prefers_the_later(one, other):
    """In a merge the other's values win, and no name is lost."""
    both = one.merged(other)
    for name in (*one, *other):
        assert both.get(name) == (other.get(name) if name in other else one.get(name))
    assert hash(both) == hash(Attributes(dict(both.pairs)))
    assert len(both) == len(both.pairs)


@given(attributes, values)
def test_equality_and_its_opposite(known, value):
    """EQ and NE are each other's opposite, and so are EXISTS and NOT_EXISTS."""
    assert Constraint("region", Op.EQ, (value,)).satisfied(known) != Constraint("region", Op.NE, (value,)).satisfied(
        known
    )
    assert Constraint("region", Op.EXISTS).satisfied(known) != Constraint("region", Op.NOT_EXISTS).satisfied(known)


@given(st.integers(-100, 100), st.integers(-100, 100))
def test_orders_agree_with_integers(have, want):
    """Orders compare as integers do, texts that spell integers included."""
    for known in (Attributes({"gpus": have}), Attributes({"gpus": str(have)})):
        assert Constraint("gpus", Op.GT, (want,)).satisfied(known) == (have > want)
        assert Constraint("gpus", Op.GE, (want,)).satisfied(known) == (have >= want)
        assert Constraint("gpus", Op.LT, (want,)).satisfied(known) == (have < want)
        assert Constraint("gpus", Op.LE, (str(want),)).satisfied(known) == (have <= want)


def test_orders_of_words_do_not_hold():
    """What is not an integer, or missing, satisfies no order; IN needs a value."""
    known = Attributes({"region": "lga1"})
    for op in (Op.GT, Op.GE, Op.LT, Op.LE):
        assert not Constraint("region", op, (1,)).satisfied(known)
        assert not Constraint("zone", op, (1,)).satisfied(known)
    assert Constraint("region", Op.IN, ("ord1", "lga1")).satisfied(known)
    assert not Constraint("zone", Op.IN, ("a",)).satisfied(known)
    assert str(Constraint("region", Op.IN, ("ord1", "lga1"))) == "region in ord1,lga1"


@pytest.mark.parametrize(("op", "given_values"), [(Op.EQ, ()), (Op.EXISTS, (1,)), (Op.IN, ()), (Op.LT, (1, 2))])
def test_wrong_number_of_values_is_refused(op, given_values):
    """Each operation takes its number of values, and says so."""
    with pytest.raises(InvalidArgument, check=that(names=op.value)):
        Constraint("region", op, given_values)


def test_required_is_the_default():
    """A constraint must hold unless it says otherwise."""
    assert Constraint("region", Op.EXISTS).required
    assert not Constraint("region", Op.EXISTS, mode=Mode.PREFERRED).required


def test_newer_condition_names_come_first():
    """Of renamed conditions the newer name wins, wherever it stands."""
    pool = NodePool("p", "u", "1", {}, conditions=(Condition("Valid", "True"), Condition("Validated", "False")))
    found = pool.condition("Validated", "Valid")
    assert found is not None
    assert found.type == "Validated"
    assert pool.condition("Quota") is None


def test_only_ready_and_usable_nodes_count():
    """A node in triage or not ready takes no pod."""
    nodes = (Node("a", "1", ready=True), Node("b", "2"), Node("c", "3", ready=True, usable=False))
    assert NodePool("p", "u", "1", {}, nodes=nodes).ready_nodes == 1


def test_phases_that_are_over():
    """Only in two phases no process can run any more."""
    assert [phase for phase in PodPhase if phase.over] == [PodPhase.SUCCEEDED, PodPhase.FAILED]


@given(st.text(max_size=100), st.integers(1, 63))
def test_names_are_labels(text, limit):
    """A name is a label of RFC 1123 within its limit, or is refused."""
    try:
        name = rfc1123(text, limit)
    except InvalidName:
        return
    assert 1 <= len(name) <= limit
    assert all(char.isascii() and (char.isdigit() or char.islower() or char == "-") for char in name)
    assert name[0] != "-"
    assert name[-1] != "-"


def test_names_of_the_seeds():
    """Underscores of group names become dashes."""
    assert rfc1123("h100_8x") == "h100-8x"


def test_cloud_errors_say_whether_to_retry():
    """The base cannot be raised; what the API asked to wait is kept."""
    with pytest.raises(TypeError, check=that(comes_from="_errors.IriscwError.__init__")):
        CloudError("x")
    assert Throttled("slow", 5).retry_after == 5
    assert Throttled("slow", 5).retryable


@pytest.mark.parametrize(
    "text", ["region=mars", "region!=mars", "gpus>=4", "gpus<=4", "gpus>4", "gpus<4", "zone in a,b", "spot", "!spot"]
)
def test_a_constraint_is_shown_as_it_is_written(text: str) -> None:
    """What a reason says of a constraint is what its user wrote."""
    (constraint,) = parse_constraints([text])
    assert str(constraint) == text
