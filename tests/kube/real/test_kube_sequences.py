"""Random programs are about few things, of every kind of request, and can be written down."""

import collections
import json
import random

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from kube_golden import step_as_json
from kube_program import Ask, Drain, Memory, OpenWatch, complete
from kube_sequences import LONGEST, programs
from kube_subjects import SUBJECTS

from profiles import examples

SETTINGS = settings(phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck))


def _drawn(number, count):
    found = []

    @seed(number)
    @examples(count, SETTINGS)
    @given(programs())
    def draw(program):
        found.append(program)

    draw()
    return found


@pytest.mark.slow
def test_all_kinds_of_request_are_drawn():
    """On every kind of object, as each user, with every kind of patch; watches are opened and drained."""
    steps = [step for number in range(4) for program in _drawn(number, 20) for step in program]
    asked = [step for step in steps if isinstance(step, Ask)]
    methods = collections.Counter(step.method for step in asked)
    assert {*methods} == {"GET", "POST", "PUT", "PATCH", "DELETE"}
    assert len({step.content_type for step in asked if step.method == "PATCH"}) == 4
    assert {step.user for step in asked} == {"admin", "dev", "eve", ""}
    assert {type(step) for step in steps} == {Ask, OpenWatch, Drain}
    for name, subject in SUBJECTS.items():
        assert any(step.path.startswith(subject.path) for step in asked), name


def test_programs_are_plain_values_of_limited_length():
    """They can be printed as JSON, and resolved in a world that has seen nothing."""
    for program in _drawn(2, 20):
        assert len(program) <= LONGEST + 5
        memory = Memory(1)
        for step in complete(program):
            assert json.loads(json.dumps(step_as_json(step)))["step"] == type(step).__name__
            if not isinstance(step, Drain):
                assert "${" not in json.dumps(step_as_json(memory.resolve_step(step)))


def test_a_seed_gives_the_same_programs():
    """Whatever else is random in this process."""
    random.seed(1)
    first = _drawn(3, 10)
    random.seed(2)
    assert _drawn(3, 10) == first
