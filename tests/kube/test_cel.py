"""The rules in CEL that guard custom resources."""

import pytest

from iriscw._errors import InvalidArgument
from iriscw_sims.kube.cel import compiled, holds
from raised import that


@pytest.mark.parametrize(
    ("rule", "value", "wanted"),
    [
        ("self.min <= self.max", {"min": 1, "max": 2}, True),
        ("self.min <= self.max", {"min": 3, "max": 2}, False),
        ("has(self.a) != has(self.b)", {"a": 1}, True),
        ("has(self.a) != has(self.b)", {}, False),
        ("!has(self.a) || self.a > 0", {}, True),
        ("!has(self.a) || self.a > -1", {"a": -1}, False),
        ("self.kind in ['x', \"y\"] && size(self.kind) == 1", {"kind": "y"}, True),
        ("self.items.size() < 2 && self.items[0] == 1.5", {"items": [1.5]}, True),
        ("self.flag == true && self.none == null", {"flag": True, "none": None}, True),
        ("(self.a == 1 || self.a == 2) && self.a != 2", {"a": 2}, False),
    ],
)
def test_rules(rule, value, wanted):
    """Comparison, logic, has, size, membership, literals."""
    assert holds(rule, value, None) is wanted


def test_a_rule_about_before_holds_where_there_is_none():
    """Transition rules are for updates."""
    assert holds("self == oldSelf", "b", None)
    assert holds("self == oldSelf", "a", "a")
    assert not holds("self == oldSelf", "b", "a")


@pytest.mark.parametrize("rule", ["self.missing == 1", "self.items[3] == 1", "self.text < 1"])
def test_an_error_is_a_refusal(rule):
    """A rule that cannot be evaluated does not hold, as in the server."""
    assert not holds(rule, {"items": [], "text": "a"}, None)


@pytest.mark.parametrize("rule", ["self.all(x, x > 0)", "self +", "foo(self)", "self == ", "self ? 1 : 2", "self self"])
def test_what_is_not_understood_is_told(rule):
    """The author of a definition learns at once that a rule is beyond this subset."""
    with pytest.raises(InvalidArgument, check=that(names="CEL")):
        compiled(rule)
