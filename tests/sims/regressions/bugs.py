"""The bugs of the past that can be planted again: what a kept plan has to show."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))

from lessons import LESSONS
from planted import MUTANTS

from anchors import Mutant

BY_NAME = {mutant.name: mutant for mutant in (*MUTANTS, *LESSONS)}


def again(name, *edits):
    """Return a bug of the past: one that is planted anyway, or these edits."""
    return Mutant(name, edits) if edits else BY_NAME[name]


BUGS = {
    5: again("missed-workers-never-asked-for"),
    730: again("a-call-of-unknown-outcome-is-repeated"),
    2104: again("missed-workers-never-looked-for"),
    2745: again(
        "a-holder-that-may-not-be-seen-is-silence",
        (
            "cloud/lifecycle.py",
            "",
            (
                "((QuotaExceeded, CallRefusal.QUOTA), (NoCapacity, CallRefusal.CAPACITY), (InvalidSpec, "
                "CallRefusal.INVALID), (Gone, CallRefusal.ABSENT), (Conflict, CallRefusal.CONFLICT), (Throttled, "
                "CallRefusal.LATER), (Unseen, CallRefusal.FORBIDDEN), (Unavailable, CallRefusal.LATER), (Forbidden, "
                "CallRefusal.FORBIDDEN))"
            ),
            (
                "((QuotaExceeded, CallRefusal.QUOTA), (NoCapacity, CallRefusal.CAPACITY), (InvalidSpec, "
                "CallRefusal.INVALID), (Gone, CallRefusal.ABSENT), (Conflict, CallRefusal.CONFLICT), (Throttled, "
                "CallRefusal.LATER), (Unavailable, CallRefusal.LATER), (Forbidden, CallRefusal.FORBIDDEN))"
            ),
        ),
        (
            "cloud/lifecycle.py",
            "",
            (
                "from iriscw.cloud.model import Conflict, Forbidden, Gone, InvalidSpec, NoCapacity, "
                "NodePool, Pod, PodPhase, QuotaExceeded, Throttled, Unavailable, Unseen"
            ),
            (
                "from iriscw.cloud.model import Conflict, Forbidden, Gone, InvalidSpec, NoCapacity, "
                "NodePool, Pod, PodPhase, QuotaExceeded, Throttled, Unavailable"
            ),
        ),
    ),
    10370: again(
        "a-stray-is-gone-and-nobody-is-told",
        ("fleet/pods.py", "_stray_gone", "[Tell(place.seed.scheduler, loss)]", "[]"),
        # since seed 1100824 the scheduler asks, so neither alone is seen
        ("jobs/scheduling/scheduler.py", "SchedulerDecisions.worker_ready", "host.commitments", "False"),
    ),
}
"""By the seed that found it first, in the world of then; a plan of each is kept."""
