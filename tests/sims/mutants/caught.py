"""Planted bugs that no drawn world shows, each with the one test that has to fail: all drawn workers are alike."""

import attrs
from planted import SCALING

from anchors import Mutant


@attrs.frozen
class Caught(Mutant):
    """A planted bug with its catcher."""

    catcher: str = ""


SPREAD = "tests/sims/test_spread_gangs.py::"

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
)
