"""How tests have a scale group decide, and read what it said."""

from iriscw.fleet.groups import group as groups, rules as group_rules
from iriscw.fleet.model import SliceRow, SliceState, Trouble
from iriscw.fleet.records import SliceRequested
from iriscw.fleet.signals import (
    CordonAnswered,
    PodsListed,
    PoolsListed,
    SliceReported,
    SliceStarted,
    SlicesWanted,
    Takeover,
)
from iriscw.runtime.vocabulary import Continue, Decision, Tell


def send(group, ctx, message):
    """Decide, apply the records, and follow with the looks that were asked for."""
    outcome = group_rules.RULES[type(message)](group, message, ctx)
    records = outcome.records if isinstance(outcome, Decision) else ()
    commands = list(outcome.commands if isinstance(outcome, Decision) else outcome or ())
    for each in records:
        groups.apply(group, each)
    facts = list(records)
    for command in list(commands):
        if isinstance(command, Continue):
            more, further = send(group, ctx, command.message)
            facts += more
            commands += further
    return facts, commands


def told(commands, kind):
    """Return the messages of a kind that are told to anybody."""
    return [c.message for c in commands if isinstance(c, Tell) and isinstance(c.message, kind)]


def requested(facts):
    """Return the slices that are promised."""
    return [fact.slice_id for fact in facts if isinstance(fact, SliceRequested)]


def begin(group, ctx):
    """Have a group know all that it waits for."""
    groups.resume(group, ctx)
    for message in (PoolsListed(()), PodsListed(()), Takeover()):
        send(group, ctx, message)
    assert group.sight.opened
    return group


def row(name, state, ctx, trouble=Trouble.NONE, *, idle=False, bare=False, uid="u"):
    """Return the report of a slice."""
    return SliceReported(
        row=SliceRow(name, "gpu", state, trouble, "why", ctx.wall, ctx.wall, workers=("w",)),
        pool_uid=uid,
        idle_since=ctx.now if idle else None,
        ready_since=ctx.now if state is SliceState.READY else None,
        used=True,
        stuck=False,
        bare=bare,
    )


def ready_slices(it, ctx, count):
    """Have so many slices requested and ready, each idle from a second later than the one before."""
    facts, _ = send(it, ctx, SlicesWanted(count))
    names = [fact.slice_id for fact in facts if isinstance(fact, SliceRequested)]
    assert len(names) == count
    for name in names:
        send(it, ctx, SliceStarted(name))
        send(it, ctx, row(name, SliceState.READY, ctx, idle=True))
        ctx.later(1)
    send(it, ctx, SlicesWanted(0))
    return names


def answer(it, ctx, name, live, round_, **changes):
    """Send the scheduler's answer as it comes by way of the slice, which knows what its last report said."""
    told = {"idle_since": it.sight.reports[name].idle_since, "at": ctx.now, **changes}
    return send(it, ctx, CordonAnswered(name, live, round_, **told))
