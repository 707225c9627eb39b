"""Plans of faults: the same from the same number; and everything that may happen does in some."""

import sys
from pathlib import Path

import attrs

from iriscw.jobs.model import JobState
from iriscw_sims.coreweave.fault_points import NAMES

sys.path.insert(0, str(Path(__file__).parent))

from fault_plans import CONTROLLER_KILLED, DISK_LOST, SERVER_STRIKES, STRIKES, WINDOW_S, draw_plan

PLANS = [draw_plan(seed) for seed in range(220)]


def test_a_plan_follows_from_its_number():
    """And from nothing else; another number is another plan."""
    assert [draw_plan(seed) for seed in range(220)] == PLANS
    assert len({attrs.evolve(plan, seed=0) for plan in PLANS}) == len(PLANS)


def test_each_plan_kills_the_controller_and_has_jobs_of_each_kind():
    """Within its window, in order."""
    for plan in PLANS:
        assert CONTROLLER_KILLED in [each.kind for each in plan.strikes]
        assert {each.ends for each in plan.jobs} == {JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED}
        for each in (plan.strikes, plan.jobs):
            moments = [one.at_s for one in each]
            assert moments == sorted(moments)
            assert 0 <= moments[0] <= moments[-1] <= WINDOW_S


def test_everything_is_drawn_by_some_of_the_first_twenty():
    """Those are the plans that run before anything lands; what they leave out, the others have."""
    first = {each.kind for plan in PLANS[:20] for each in plan.strikes}
    assert {CONTROLLER_KILLED, DISK_LOST, *SERVER_STRIKES} <= first
    assert {each.kind for plan in PLANS for each in plan.strikes} == {*first, *STRIKES}
    assert {name for plan in PLANS for name, _ in plan.moods} == set(NAMES)


def test_a_plan_says_how_to_run_it_again():
    """One command, and all that it does."""
    text = PLANS[7].text
    assert "plan 7" in text
    assert text.splitlines()[-1].endswith("-k plan7_ tests/e2e/test_faults_coreweave.py")
    for each in PLANS[7].strikes:
        assert f"{each.kind} ({each.pick})" in text
