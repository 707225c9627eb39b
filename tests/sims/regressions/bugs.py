"""The bugs of the past that can be planted again: what a kept plan has to show."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))

from lessons import LESSONS
from planted import MUTANTS, Mutant

BY_NAME = {mutant.name: mutant for mutant in (*MUTANTS, *LESSONS)}


def again(name, *edits):
    """Give a bug of the past: one that is planted anyway, or these edits."""
    return Mutant(name, edits) if edits else BY_NAME[name]


BUGS = {
    5: again("missed-workers-never-asked-for"),
    24: again("group-decides-while-the-journal-takes-nothing"),
    53: again(
        "an-old-answer-is-believed",
        ("fleet/scaling.py", "    fresh = ctx.now - message.at <= ANSWER_AGE\n", "    fresh = True\n"),
    ),
    730: again("a-call-of-unknown-outcome-is-repeated"),
    2104: again("missed-workers-never-looked-for"),
    2712: again(
        "a-link-speaks-for-jobs-that-have-not-spoken",
        (
            "jobs/link.py",
            "        if link.expected:\n            run, stop",
            "        if False:\n            run, stop",
        ),
        (
            "jobs/link.py",
            "            elif link.unclaimed is not None:\n                unclaimed.append(seen)\n",
            "",
        ),
    ),
    2745: again(
        "a-holder-that-may-not-be-seen-is-silence",
        ("cloud/lifecycle.py", "    (Unseen, Refusal.FORBIDDEN),  # before what it is a kind of\n", ""),
        ("cloud/lifecycle.py", "    Unseen,\n", ""),
    ),
    9179: again(
        "a-pool-of-another-size-is-the-slices",
        ("fleet/slices.py", "    if pool.target_nodes != piece.seed.config.num_vms:\n", "    if False:\n"),
    ),
    10370: again(
        "a-stray-is-gone-and-nobody-is-told",
        ("fleet/pods.py", "[Tell(place.seed.scheduler, loss)] if incarnation and", "[] if incarnation and"),
    ),
}
"""By the seed that found it first, in the world of then. Of the others nothing is left that could be planted. No plan
is kept for 24 and 53, looked for in vain for a while, and none for 2712, which needs all links to begin anew while the
disk is full: ``test_coverage.py`` arranges that, and with the bug no stream waits for jobs there. That of 9179
needs eleven faults, too many for a reader: ``tests/fleet/test_slice_laws.py`` has what it comes to."""
