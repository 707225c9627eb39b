"""What follows when the wish for an attempt meets its worker's word: the table of INV-J5.

A job wants an attempt to run, or to be frozen, or not to come back there, or to stop with an ending (``ordered``); or
nobody wants it. Its
worker, at the beginning of a stream, speaks of everything it has. So there are these cases, and :data:`AGREEMENT` is
the answer to each:

=======  ==================  ===========================================================================
wanted   the worker's word   what follows
=======  ==================  ===========================================================================
run      alive               told to the job; ordered again, which is harmless
run      suspending          told to the job; ordered to go on
run      suspended           told to the job; ordered again: with a grant it is brought back
run      ended as E          the job is told: E
run      unknown, fresh      ordered (again)
run      unknown, started    the job is told: MISSING
freeze   alive               told to the job; ordered to let it be frozen
freeze   suspending          told to the job; nothing is ordered
freeze   suspended           told to the job; nothing is ordered
freeze   ended as E          the job is told: E
freeze   unknown, fresh      ordered to run (again)
freeze   unknown, started    the job is told: MISSING
return   alive               told to the job; ordered to take its grant back
return   suspending          told to the job; ordered to go on
return   suspended           told to the job; nothing is ordered
return   ended as E          the job is told: E
return   unknown, fresh      ordered to run (again)
return   unknown, started    the job is told: MISSING
stop X   alive               told to the job; ordered to stop, to be reported as X
stop X   suspending          likewise
stop X   suspended           likewise
stop X   ended as E          the job is told: E
stop X   unknown, fresh      the job is told: X, never started
stop X   unknown, started    the job is told: MISSING
nothing  alive               ordered to stop
nothing  suspending          ordered to stop
nothing  suspended           the worker may forget it, and leaves its files
nothing  ended as E          the worker may forget it
=======  ==================  ===========================================================================

*What is suspended and not wanted here* may be wanted elsewhere: nothing of it runs, and its files are whoever's has it
now. So its worker is told to let it go, and never to stop it. One that is being brought back is *alive*.

*Who saw the end says what it was.* A worker that ends an attempt keeps what became of it until it is released, so
its word stands whatever was ordered: a program may have ended by itself before the order came, and one that was
ordered to stop for its timeout may have been lost before that.

*An order is no observation.* Of an attempt that had started and is unknown to its worker nobody saw the end: it is
lost, and counts as the infrastructure's doing, even if a stop had been ordered. Its timeout says only that it would
have run for too long, had it lived; and its log ended with it (INV-J8), so it must not get an ending whose log is
called complete. The same holds when the worker itself is gone: then the job ends it as WORKER_LOST, whatever was
ordered.

*What never started* was stopped before it began: that is all there is to know of it, it has no log, and it counts
against nothing. It never will start, because nothing that was sent down an older stream is acted on any more.

``fresh`` means that neither the job nor any earlier word of the worker says that it had started.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from iriscw.jobs.model import AttemptEnd, Ending, Observation, Suspension, TaskState
from iriscw.jobs.traits import Fault

LOST_REASON = "its worker knows nothing of it any more"


class Wish(enum.StrEnum):
    """What is wanted of an attempt."""

    RUN = "run"
    FREEZE = "freeze"
    """It may be frozen."""
    RETURN = "return"
    """It has a grant to come back there, which is to be taken back."""
    STOP = "stop"
    NOTHING = "nothing"


class Word(enum.StrEnum):
    """What its worker says of it."""

    ALIVE = "alive"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    ENDED = "ended"
    FRESH = "unknown, fresh"
    GONE = "unknown, started"


class Step(enum.Enum):
    """What follows."""

    RUN = "run"
    """Order it to run. Telling twice is harmless."""
    STOP = "stop"
    """Order it to stop."""
    FREEZE = "freeze"
    """Order it to let it be frozen."""
    GO_ON = "go on"
    """Tell it that it was not frozen."""
    WITHDRAW = "withdraw"
    """Tell it to take the grant back."""
    LEAVE = "leave"
    """Order nothing: its job has the last word."""
    RELEASE = "release"
    """Let the worker forget it."""


class Told(enum.Enum):
    """What the job is told."""

    NOTHING = "nothing"
    WORD = "the worker's word"
    MISSING = "missing"
    STOPPED = "stopped before it started"


AGREEMENT: Mapping[tuple[Wish, Word], tuple[Step, Told]] = {
    (Wish.RUN, Word.ALIVE): (Step.RUN, Told.WORD),
    (Wish.RUN, Word.SUSPENDING): (Step.GO_ON, Told.WORD),
    (Wish.RUN, Word.SUSPENDED): (Step.RUN, Told.WORD),
    (Wish.RUN, Word.ENDED): (Step.LEAVE, Told.WORD),
    (Wish.RUN, Word.FRESH): (Step.RUN, Told.NOTHING),
    (Wish.RUN, Word.GONE): (Step.LEAVE, Told.MISSING),
    (Wish.FREEZE, Word.ALIVE): (Step.FREEZE, Told.WORD),
    (Wish.FREEZE, Word.SUSPENDING): (Step.LEAVE, Told.WORD),
    (Wish.FREEZE, Word.SUSPENDED): (Step.LEAVE, Told.WORD),
    (Wish.FREEZE, Word.ENDED): (Step.LEAVE, Told.WORD),
    (Wish.FREEZE, Word.FRESH): (Step.RUN, Told.NOTHING),
    (Wish.FREEZE, Word.GONE): (Step.LEAVE, Told.MISSING),
    (Wish.RETURN, Word.ALIVE): (Step.WITHDRAW, Told.WORD),
    (Wish.RETURN, Word.SUSPENDING): (Step.GO_ON, Told.WORD),
    (Wish.RETURN, Word.SUSPENDED): (Step.LEAVE, Told.WORD),
    (Wish.RETURN, Word.ENDED): (Step.LEAVE, Told.WORD),
    (Wish.RETURN, Word.FRESH): (Step.RUN, Told.NOTHING),
    (Wish.RETURN, Word.GONE): (Step.LEAVE, Told.MISSING),
    (Wish.STOP, Word.ALIVE): (Step.STOP, Told.WORD),
    (Wish.STOP, Word.SUSPENDING): (Step.STOP, Told.WORD),
    (Wish.STOP, Word.SUSPENDED): (Step.STOP, Told.WORD),
    (Wish.STOP, Word.ENDED): (Step.LEAVE, Told.WORD),
    (Wish.STOP, Word.FRESH): (Step.LEAVE, Told.STOPPED),
    (Wish.STOP, Word.GONE): (Step.LEAVE, Told.MISSING),
    (Wish.NOTHING, Word.ALIVE): (Step.STOP, Told.NOTHING),
    (Wish.NOTHING, Word.SUSPENDING): (Step.STOP, Told.NOTHING),
    (Wish.NOTHING, Word.SUSPENDED): (Step.RELEASE, Told.NOTHING),
    (Wish.NOTHING, Word.ENDED): (Step.RELEASE, Told.NOTHING),
}
"""What nobody wants and nobody knows is not a case."""


def wish_for(ordered: Ending | None, *, freeze: bool = False, withdraw: bool = False) -> Wish:
    """Return the wish of a job that ordered a stop with this ending.

    Without an ending: of one that runs, or has its attempt frozen, or its grant taken back.
    """
    if ordered is not None:
        return Wish.STOP
    if withdraw:
        return Wish.RETURN
    return Wish.FREEZE if freeze else Wish.RUN


_WORDS = {Suspension.SUSPENDING: Word.SUSPENDING, Suspension.SUSPENDED: Word.SUSPENDED}


def word_of(seen: Observation | None, *, started: bool) -> Word:
    """Read what a worker says: ``seen`` is None if it does not know the attempt."""
    if seen is None:
        return Word.GONE if started else Word.FRESH
    return _WORDS.get(seen.suspension, Word.ALIVE) if seen.ending is None else Word.ENDED


def step_for(
    ordered: Ending | None,
    seen: Observation | None,
    *,
    started: bool,
    freeze: bool = False,
    withdraw: bool = False,
) -> Step:
    """Return what to order of the worker; the arguments are those of :func:`tell_of` and :func:`wish_for`."""
    alive = seen is not None and seen.ending is None and seen.suspension is Suspension.NONE
    if alive and not freeze and not withdraw:
        return _ALIVE[ordered is None]  # the common case, without a look at names
    wish = wish_for(ordered, freeze=freeze, withdraw=withdraw)
    return AGREEMENT[wish, word_of(seen, started=started)][0]


def step_for_unwanted(seen: Observation) -> Step:
    """Return what to order of the worker about an attempt that nobody wants there."""
    return AGREEMENT[Wish.NOTHING, word_of(seen, started=True)][0]


_ALIVE = {each is Wish.RUN: AGREEMENT[each, Word.ALIVE][0] for each in (Wish.RUN, Wish.STOP)}


def tell_of(uid: str, ordered: Ending | None, seen: Observation | None, *, started: bool) -> Observation | None:
    """Return what to tell the job; None: nothing.

    Args:
        uid: of the attempt.
        ordered: the ending of the stop that was ordered; None if it should run.
        seen: the worker's word; None if it does not know the attempt.
        started: whether it is known to have started, by the job or by an earlier word.
    """
    if seen is not None:
        return seen  # Told.WORD, the common case: a thousand workers may come back at once
    match AGREEMENT[wish_for(ordered), word_of(None, started=started)][1]:
        case Told.MISSING:
            return Observation(uid, TaskState.RUNNING, AttemptEnd(Ending.MISSING, fault=Fault("", LOST_REASON)), True)
        case Told.STOPPED:
            assert ordered is not None
            return Observation(uid, TaskState.ASSIGNED, AttemptEnd(ordered))
        case _:
            return None
