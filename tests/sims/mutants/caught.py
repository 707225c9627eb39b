"""Planted bugs that no drawn world shows, each with the one test that has to fail: all drawn workers are alike."""

import attrs
from planted import SCALING, SUSPENDING

from anchors import Mutant


@attrs.frozen
class Caught(Mutant):
    """A planted bug with its catcher."""

    catcher: str = ""


SPREAD = "tests/sims/test_spread_gangs.py::"
PREEMPTED = "tests/jobs/test_preempting.py::"
MOVES, MOVED = "jobs/suspension/moves.py", "tests/jobs/test_suspending.py::"

CAUGHT = (
    Caught(
        "a-slice-of-use-goes-for-another",
        ((SCALING, "_useless_idle", "[each for each in census.idle if each[1] in named]", "list(census.idle)"),),
        catcher=f"{SPREAD}test_of_idle_slices_the_one_that_nothing_could_use_goes",
    ),
    Caught(
        "a-slice-that-no-new-one-betters-goes-again-and-again",
        ((SCALING, "_next_useless", "sight.renewal.may_begin(trial, ctx.now)", "trial"),),
        catcher=f"{SPREAD}test_slices_that_no_new_one_betters_are_replaced_ever_less_often",
    ),
    Caught(
        "slices-that-could-not-run-what-waits-are-bought-without-a-pause",
        (("fleet/routing.py", "_try_one", "waiting.doubts[name].due", "True"),),
        catcher=f"{SPREAD}test_slices_that_could_not_run_what_waits_are_tried_ever_less_often[None]",
    ),
    Caught(
        "demand-that-changes-waits-anew",
        (("fleet/root.py", "demand_changed", "fleet.since.get(demand_id, ctx.now)", "ctx.now"),),
        catcher="tests/fleet/test_root.py::test_a_routing_policy_is_asked_again_as_time_goes_by",
    ),
    Caught(
        "a-group-that-was-left-out-is-tried-last",
        (("fleet/routing.py", "_chosen", "[offers[name].config for name in order]", "fitting"),),
        catcher="tests/fleet/test_choosing.py::test_a_group_that_is_not_named_gets_nothing",
    ),
    Caught(
        "any-word-of-being-suspended-gives-a-grant-back",
        ((SUSPENDING, "SuspendDecisions.heard", "seen.withdrawn and seen.withdrawn == move.grant", "True"),),
        catcher="tests/jobs/test_move_any_order.py::test_only_a_word_about_its_grant_gives_it_back",
    ),
    Caught(
        "a-grant-counts-as-given-back-when-its-thaw-was-refused",
        (
            (
                SUSPENDING,
                "SuspendDecisions._refused",
                "step(ledger, index, uid, ends, ctx, ThawRefused(index, uid, said, ctx.wall))",
                "self._unplaced(ledger, index, Observation(uid, TaskState.RUNNING), ledger.moves[uid], ends, ctx)",
            ),
        ),
        catcher=f"{MOVED}test_a_grant_that_was_taken_before_it_could_be_given_back",
    ),
    Caught(
        "what-is-stored-is-thawed-where-it-was-frozen",
        ((MOVES, "thawed_on", "move.at or move.node", "move.node"),),
        catcher=f"{MOVED}test_it_goes_on_on_another_node",
    ),
    Caught(
        "a-fetched-copy-outlives-its-attempt",
        ((MOVES, "drop_of", "tuple(tried)", "()"),),
        catcher=f"{MOVED}test_it_goes_on_on_another_node",
    ),
    Caught(
        "who-gave-way-comes-back-to-leave-again",
        (("jobs/scheduling/resuming.py", "_find", "preempting.held(state, host, band)", "False"),),
        catcher=f"{PREEMPTED}test_it_stays_frozen_while_a_task_of_a_higher_band_waits_that_would_have_it_leave_again",
    ),
    Caught(
        "who-was-frozen-to-give-way-stays",
        (
            (
                "jobs/suspension/yielding.py",
                "YieldDecisions._freeze",
                "ResumptionWanted(index, uid, key, True, ctx.wall)",
                "ResumptionWanted(index, uid, key, False, ctx.wall)",
            ),
        ),
        catcher=f"{PREEMPTED}test_one_that_is_frozen_keeps_its_budget_and_comes_back_by_itself",
    ),
    Caught(
        "one-leaves-too-many",
        (("jobs/scheduling/victims.py", "_Bench.let_off", "del self.taken[victim]", "pass"),),
        catcher="tests/jobs/test_victims.py::test_the_fewest_then_those_that_lose_least",
    ),
)
