"""Decisions of ``/attempts``: which attempts are here, and one actor for each of them.

An attempt is known from the order that brought it until its release has removed everything of it. The last
``MAX_RELEASED`` released uids are remembered, so that an order that comes late does not start one again.

The GPUs of the worker are divided here. Whose each is stands in a record before anybody is told, so it outlives the
worker's process: an attempt that is adopted has those that it had. They are free again when their attempt says that
nothing of it runs, which it does before anybody else hears of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import attrs

from iriscw.jobs.model import AttemptEnd, Ending, Observation, TaskState
from iriscw.jobs.traits import Fault
from iriscw.runtime.behavior import ChildSpec
from iriscw.runtime.vocabulary import (
    SECOND,
    Command,
    Completed,
    Context,
    Decision,
    DecisionFunction,
    Failed,
    Forget,
    Outcome as Returned,
    ReviveChild,
    Run,
    SetTimer,
    Spawn,
    StopChild,
    StopReason,
    Tell,
    Terminated,
    Undelivered,
    Watch,
)
from iriscw.worker.effects import DropStrangers
from iriscw.worker.gpus import GpuOffer
from iriscw.worker.messages import (
    SESSION,
    AttemptReleased,
    AttemptReport,
    ComesAnew,
    ContinueAttempt,
    Due,
    ForgetAttempt,
    GpusGiven,
    GpusLacking,
    GpusLeft,
    GpusWanted,
    Holding,
    ReportNow,
    Resync,
    RunAttempt,
    StopAll,
    StopAttempt,
    SuspendAttempt,
    WithdrawGrant,
)
from iriscw.worker.model import MAX_ATTEMPTS
from iriscw.worker.records import AttemptDropped, AttemptKnown, GpusAssigned, GpusReturned

MAX_RELEASED = 4096
"""Released uids that are remembered: eight times what a worker holds at once."""

AGAIN_NS = 1 * SECOND

_NO_GPUS = GpuOffer()


@attrs.define(eq=False)
class AttemptRegistry:
    """The uids, in the order in which they came."""

    known: dict[str, None] = attrs.field(factory=dict)
    released: dict[str, None] = attrs.field(factory=dict)
    going: dict[str, None] = attrs.field(factory=dict)
    """Released, and their actors are not gone yet. Not kept over a restart, and then nobody is."""
    anew: dict[str, RunAttempt] = attrs.field(factory=dict)
    """Orders to bring attempts back whose former lives are being removed. Not kept over a restart."""
    gpus: dict[str, GpusAssigned] = attrs.field(factory=dict)
    """Whose GPUs are not free, by uid."""


def evolve(registry: AttemptRegistry, record: object) -> None:
    """Apply a record."""
    match record:
        case AttemptKnown(uid=uid):
            registry.released.pop(uid, None)
            registry.known[uid] = None
        case GpusAssigned(uid=uid):
            registry.gpus[uid] = record
        case GpusReturned(uid=uid):
            registry.gpus.pop(uid, None)
        case AttemptDropped(uid=uid):
            registry.known.pop(uid, None)
            registry.gpus.pop(uid, None)
            registry.released[uid] = None
            while len(registry.released) > MAX_RELEASED:
                del registry.released[next(iter(registry.released))]


def compact(registry: AttemptRegistry) -> Iterable[object]:
    """Yield records that say the same."""
    yield from (AttemptDropped(uid) for uid in registry.released)
    yield from (AttemptKnown(uid) for uid in registry.known)
    yield from registry.gpus.values()


class AttemptRegistryDecisions:
    """The decisions, for one way to make an attempt's actor.

    Args:
        child: gives the child spec of the attempt with a uid.
        offer: the GPUs that are divided among attempts.
    """

    def __init__(self, child: Callable[[str], ChildSpec], offer: GpuOffer = _NO_GPUS) -> None:
        self.child = child
        self.offer = offer

    def rules(self) -> dict[type, DecisionFunction]:
        """Return the decision for each message."""
        return {
            RunAttempt: self.run,
            StopAttempt: self.stop,
            SuspendAttempt: self.pass_on,
            ContinueAttempt: self.pass_on,
            WithdrawGrant: self.pass_on,
            ForgetAttempt: self.forget,
            AttemptReleased: self.released,
            ComesAnew: self.comes_anew,
            GpusWanted: self.gpus_wanted,
            GpusLeft: self.gpus_left,
            StopAll: self.stop_all,
            Resync: self.resync,
            Terminated: self.terminated,
            Completed: self.completed,
            Failed: self.failed,
            DropStrangers: self.strangers,
            Due: self.due,
            Undelivered: self.undelivered,
        }

    def resume(self, registry: AttemptRegistry, ctx: Context) -> Iterator[Command]:
        """Have an actor for each attempt, and nothing running that is none of them."""
        for uid in registry.known:
            yield Spawn(self.child(uid))
        yield Run("strangers", DropStrangers(tuple(registry.known)))

    def run(self, registry: AttemptRegistry, message: RunAttempt, ctx: Context) -> Returned:
        """Give it an actor if it has none."""
        uid = message.order.uid
        pass_on = Tell(ctx.path / uid, message)
        if uid in registry.known:
            return (ReviveChild(uid), pass_on)
        if uid in registry.going and message.order.resumption is not None:  # it was suspended here, and comes back
            return (SetTimer(("comes back", uid), AGAIN_NS, message),)
        if uid in registry.released and message.order.resumption is None:
            return (_refused(uid, Ending.MISSING, "AttemptReleased", "this attempt was here, and was released"),)
        if len(registry.known) >= MAX_ATTEMPTS:
            text = f"this worker holds {MAX_ATTEMPTS} attempts already"
            life = "" if message.order.resumption is None else message.order.resumption.grant
            return (_refused(uid, Ending.REFUSED, "TooManyAttempts", text, life),)
        return Decision(records=(AttemptKnown(uid),), commands=(Spawn(self.child(uid)), pass_on))

    def stop(self, registry: AttemptRegistry, message: StopAttempt, ctx: Context) -> Returned:
        """Pass it on."""
        return self.pass_on(registry, message, ctx)

    def pass_on(
        self,
        registry: AttemptRegistry,
        message: StopAttempt | SuspendAttempt | ContinueAttempt | WithdrawGrant,
        ctx: Context,
    ) -> Returned:
        """Pass it on, if it is here."""
        return (Tell(ctx.path / message.uid, message),) if message.uid in registry.known else None

    def forget(self, registry: AttemptRegistry, message: ForgetAttempt, ctx: Context) -> Returned:
        """Pass it on; what is not here is released already."""
        if message.uid in registry.known:
            return (Tell(ctx.path / message.uid, message),)
        return (Tell(SESSION, AttemptReleased(message.uid)),)

    def released(self, registry: AttemptRegistry, message: AttemptReleased, ctx: Context) -> Returned:
        """Nothing of it is left on this machine: its actor goes too."""
        if message.uid not in registry.known:
            return None
        registry.going[message.uid] = None
        commands: tuple[Command, ...] = (StopChild(message.uid), Watch(ctx.path / message.uid), Tell(SESSION, message))
        again = registry.anew.pop(message.uid, None)
        if again is not None:
            commands = (*commands, SetTimer(("comes back", message.uid), AGAIN_NS, again))
        return Decision(records=(AttemptDropped(message.uid),), commands=commands)

    def comes_anew(self, registry: AttemptRegistry, message: ComesAnew, ctx: Context) -> Returned:
        """Order it again once what is here of it is gone. Not kept over a restart: then it is ordered again anyway."""
        registry.anew[message.run.order.uid] = message.run
        return None

    def gpus_wanted(self, registry: AttemptRegistry, message: GpusWanted, ctx: Context) -> Returned:
        """Return an attempt GPUs that nobody has; the same again if it has not heard which."""
        uid, grant = message.order.uid, message.order.grant
        if uid not in registry.known:
            return None
        has = registry.gpus.get(uid)
        if has is not None and has.grant == grant:
            return (Tell(ctx.path / uid, GpusGiven(message.order, has.gpus)),)
        others = [each.gpus for each in registry.gpus.values() if each.uid != uid]  # what it had before it has no more
        free = self.offer.free(others)
        gpus = self.offer.choose(free, message.count, message.before)
        if gpus is None:
            return (Tell(ctx.path / uid, GpusLacking(message, len(free))),)
        given = Tell(ctx.path / uid, GpusGiven(message.order, gpus))
        return Decision(records=(GpusAssigned(uid, gpus, grant),), commands=(given,))

    def gpus_left(self, registry: AttemptRegistry, message: GpusLeft, ctx: Context) -> Returned:
        """They are free, unless it has had others since."""
        has = registry.gpus.get(message.uid)
        if has is None or has.grant != message.grant:
            return None
        return Decision(records=(GpusReturned(message.uid),))

    def terminated(self, registry: AttemptRegistry, message: Terminated, ctx: Context) -> Returned:
        """Drop the records of a released attempt; a quarantined one waits for its next order."""
        uid = message.path.name
        registry.going.pop(uid, None)
        if uid in registry.known or message.reason is StopReason.QUARANTINED:
            return None
        return (Forget(uid),)

    def stop_all(self, registry: AttemptRegistry, message: StopAll, ctx: Context) -> Returned:
        """Have every attempt end."""
        return tuple(Tell(ctx.path / uid, StopAttempt(uid, message.cause, message.grace_ns)) for uid in registry.known)

    def resync(self, registry: AttemptRegistry, message: Resync, ctx: Context) -> Returned:
        """Say what is here; each attempt says how it is."""
        uids = tuple(registry.known)
        return (Tell(SESSION, Holding(uids)), *(Tell(ctx.path / uid, ReportNow()) for uid in uids))

    def completed(self, registry: AttemptRegistry, message: Completed, ctx: Context) -> Returned:
        """The strangers are gone."""
        return None

    def failed(self, registry: AttemptRegistry, message: Failed, ctx: Context) -> Returned:
        """They do not die: try again."""
        return (SetTimer("strangers", 30 * AGAIN_NS, message.effect),)

    def strangers(self, registry: AttemptRegistry, message: DropStrangers, ctx: Context) -> Returned:
        """Look for strangers again."""
        return (Run("strangers", DropStrangers(tuple(registry.known))),)

    def due(self, registry: AttemptRegistry, message: Due, ctx: Context) -> Returned:
        """A mailbox was full a while ago."""
        return self.resync(registry, Resync(), ctx)

    def undelivered(self, registry: AttemptRegistry, message: Undelivered, ctx: Context) -> Returned:
        """A mailbox was full. The controller repeats its orders; what is here is said again, and so are GPUs."""
        match message.message:
            case GpusGiven(order=order, gpus=gpus):
                return (SetTimer(("gpus", order.uid), AGAIN_NS, GpusWanted(order, len(gpus))),)
            case GpusLacking(wanted=wanted):
                return (SetTimer(("gpus", wanted.order.uid), AGAIN_NS, wanted),)
        return (SetTimer("again", AGAIN_NS, Due("again")),)


def _refused(uid: str, ending: Ending, kind: str, text: str, life: str = "") -> Command:
    end = AttemptEnd(ending, fault=Fault(kind, text, retryable=True))
    seen = Observation(uid, TaskState.ASSIGNED, end, life=life)
    return Tell(SESSION, AttemptReport(seen), conflate=uid)
