"""Freezes and thaws with the real CRIU that are cut off at drawn instants, and what is true after they were taken up.

What is drawn stands in ``crash_plans.py``, the instants are reached by ``crash_launcher.py``, and ``crash_judge.py``
looks from outside: the tree runs with its state, or a checkpoint is there from which it does; and nothing is left.
"""

import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for crash_stage

from crash_judge import judge
from crash_plans import (
    CRIU,
    DURING_HELPER,
    HELPER,
    IN_BYTES,
    OPERATIONS,
    PARTS,
    PHASES,
    VERBS,
    VICTIMS,
    WITH_CRIU,
    draw_plan,
)
from crash_stage import Stage
from real_trees import why_not
from stand_in import compile_into

FIRST, ALL = 10, 70
PLANS = [draw_plan(seed) for seed in range(ALL)]


@pytest.fixture(scope="module")
def compiled():
    """The library that stands in for NVIDIA's driver; skip where nothing can be frozen, and say why."""
    if why_not():
        pytest.skip(why_not())
    with tempfile.TemporaryDirectory() as folder:
        made = compile_into(Path(folder))
        if made is None:
            pytest.skip("there is no gcc to compile the stand-in for NVIDIA's driver with")
        yield made


def holds(plan, compiled):
    """Carry a plan out; a failure says all that there is to say."""
    stage = None
    try:
        stage = Stage(plan, compiled)
        stage.prepare()
        stage.cut_off()
        stage.recover()
        judge(stage)
    except BaseException as error:
        error.add_note(stage.report() if stage is not None else plan.text)
        raise
    finally:
        if stage is not None:
            stage.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST), ids=lambda seed: f"plan{seed}_")
def test_a_crash(compiled, seed):
    """Whoever is killed, and whenever: the tree runs whole, or lies whole; nothing is lost, locked or left."""
    holds(draw_plan(seed), compiled)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(FIRST, ALL), ids=lambda seed: f"plan{seed}_")
def test_another_crash(compiled, seed):
    """The same, sixty times more."""
    holds(draw_plan(seed), compiled)


def test_a_plan_follows_from_its_number():
    """And from nothing else."""
    assert [draw_plan(seed) for seed in range(ALL)] == PLANS
    assert len({plan.text.partition(":")[2] for plan in PLANS}) == ALL


def test_a_plan_can_be_carried_out():
    """Its instant is one of its operation, and whom it kills lives then."""
    for plan in PLANS:
        assert plan.at.phase in (WITH_CRIU if plan.victim == CRIU else PHASES)[plan.operation]
        assert (plan.at.by != "share") or plan.at.phase in IN_BYTES
        assert (plan.call is None) or (plan.cuda and plan.call[0] in VERBS[plan.operation])
        assert plan.text.splitlines()[-1].endswith(f"-k plan{plan.seed}_ tests/agent/test_crashes.py")


def test_everything_is_drawn():
    """Each operation and each victim by the first ten; each phase, part and call, one death and two, by all of them."""
    assert {(plan.operation) for plan in PLANS[:FIRST]} == {*OPERATIONS}
    assert {(plan.victim) for plan in PLANS[:FIRST]} == {*VICTIMS}
    assert {(plan.operation, plan.victim) for plan in PLANS} == {(a, b) for a in OPERATIONS for b in VICTIMS}
    assert {plan.at.phase for plan in PLANS} == {phase for phases in PHASES.values() for phase in phases}
    assert {part for plan in PLANS for part in plan.parts} == {*PARTS}
    for victim in (HELPER, DURING_HELPER):
        called = {(plan.operation, plan.call[0]) for plan in PLANS if plan.victim == victim}
        assert called == {(operation, verb) for operation, verbs in VERBS.items() for verb in verbs}
    assert {plan.again is None for plan in PLANS[:FIRST]} == {True, False}
    assert {plan.by_agent for plan in PLANS[:FIRST]} == {True, False}
