"""The instance types of a configuration."""

from doctor_world import configured, lines

from iriscw.doctor.findings import Health
from iriscw.doctor.instance_types import Type, look_at_types, types_of


def test_types_are_named_with_what_uses_them():
    """Once each, and apart for spot: it has a quota of its own."""
    config = configured("turin-gp", "turin-gp", "turin-gp", "b200-8x", controller="turin-gp", preemptible=(2,)).config
    assert types_of(config) == (
        Type("turin-gp", "default", "the controller, group g0, group g1"),
        Type("turin-gp", "spot", "group g2"),
        Type("b200-8x", "default", "group g3"),
    )


def test_types_that_are_not_in_the_catalogue_are_a_warning():
    """They may be new."""
    found = look_at_types(configured("turin-gp", "turing-gp").config)
    assert lines(found) == ["types: turin-gp", "type turing-gp: not known here (used by group g1)"]
    assert [each.verdict for each in found] == [Health.OK, Health.WARNING]
