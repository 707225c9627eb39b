"""Decisions of ``/jobs/links/<worker_id>``: what one worker should run, and what it does.

A link holds the attempts that jobs want on its worker. While the worker's stream is up it passes orders and
observations on as they come. When a stream begins, the worker says all that it knows, and the link answers
with all that is wanted. What follows from a wish and a word is a table: :mod:`iriscw.jobs.links.agreement`.

Plain state: a new link waits until each job that has attempts on its worker has said which (the scheduler
names these jobs), for at most ``SYNC_LIMIT``; until then it neither orders nor stops anything. After that it
serves those that have spoken. What the worker knows and none of them wants is left alone until all have: it
may be the end of an attempt that is written down nowhere else, or one that has to live on. A job may be
silent for as long as the journal takes nothing.

A link's actor lives as long as the fleet keeps this incarnation of the worker; streams come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from iriscw.fleet.messages import DialAgain
from iriscw.jobs.links.agreement import Step, step_for, step_for_unwanted, tell_of
from iriscw.jobs.messages import (
    AnnounceLink,
    AttemptsObserved,
    DesiredOn,
    Due,
    LinkExpects,
    LinkStarted,
    LinkSynced,
    ReleaseAttempts,
    RunAttempts,
    StopAttempts,
)
from iriscw.jobs.model import (
    Ending,
    Observation,
    Observed,
    Orders,
    Redial,
    RunOrder,
    StopOrder,
    StreamUp,
    Suspension,
    TaskState,
    WorkerStream,
)
from iriscw.jobs.step_limits import steps_of
from iriscw.jobs.suspension.messages import ContinueAttempts, SuspendAttempts, WithdrawGrants
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    Arrived,
    CancelTimer,
    Close,
    Closed,
    Command,
    Context,
    DecisionFunction,
    Feed,
    FeedRefused,
    Open,
    Outcome,
    SetTimer,
    Tell,
    Undelivered,
    replace,
)

STREAM = "stream"

SYNC_LIMIT = 30 * SECOND
"""After this a new link goes on without the jobs that did not say what they want."""

AGAIN = 1 * SECOND
"""Before a stream that failed is opened again, or a full mailbox told again."""

MAX_KNOWN = 1024
"""Attempts that a worker may say it has before the link can answer: it holds 512 at most, and the controller's record
may name as many that it never got. Who speaks of more says what is not so, and the stream ends."""

STOP_GRACE = 10 * SECOND
"""Between asking an attempt to end and killing it. Docker's default is 10 s, Kubernetes' 30 s."""


_NONE = Orders()


@attrs.define(eq=False)
class HeldAttempt:
    """An attempt that a job wants something of."""

    order: RunOrder
    started: bool = False
    stop: Ending | None = None
    seen: Observation | None = None
    freeze: bool = False
    """Whether it may be frozen."""
    withdraw: bool = False
    """Whether its grant is to be taken back."""


@attrs.define(eq=False)
class Link:
    """What is wanted of one worker, and what it says."""

    worker_id: str
    incarnation: str
    held: dict[str, HeldAttempt] = attrs.field(factory=dict)
    expected: dict[str, None] = attrs.field(factory=dict)
    """Jobs that have not said yet what they want."""
    briefed: bool = False
    """Whether the scheduler has said which jobs these are."""
    synced: bool = False
    arrived: dict[str, Observation] | None = None
    """What the worker says it knows, while the link cannot answer yet."""
    up: bool = False
    """Whether the stream is there and was answered."""
    unclaimed: dict[str, Observation] | None = None
    """What the worker knows and no job has claimed, while some have not spoken; None once all have."""


class LinkDecisions:
    """The decisions of one link."""

    def __init__(self, stop_grace_ns: int = STOP_GRACE) -> None:
        self.stop_grace_ns = stop_grace_ns

    def rules(self) -> dict[type, DecisionFunction]:
        """Return the decision for each message."""
        return {
            AnnounceLink: self.announce,
            LinkExpects: self.expects,
            DesiredOn: self.desired_on,
            RunAttempts: self.run,
            StopAttempts: self.stop,
            SuspendAttempts: self.suspend,
            ContinueAttempts: self.go_on,
            WithdrawGrants: self.withdraw,
            ReleaseAttempts: self.release,
            Arrived: self.arrived,
            Closed: self.closed,
            FeedRefused: self.feed_refused,
            Due: self.due,
            DialAgain: self.dial_again,
            Undelivered: self.undelivered,
        }

    def resume(self, link: Link, ctx: Context) -> tuple[Command, ...]:
        """Ask what is wanted, and wait for the worker."""
        return (self._announcement(link, ctx), self._open(link))

    def _open(self, link: Link) -> Open:
        return Open(STREAM, WorkerStream(link.worker_id, link.incarnation))

    def _announcement(self, link: Link, ctx: Context) -> Command:
        return Tell(_scheduler_of_link(ctx), LinkStarted(link.worker_id, link.incarnation))

    # What is wanted

    def announce(self, link: Link, message: AnnounceLink, ctx: Context) -> Outcome:
        """The scheduler is new, or does not know that this link is there."""
        return (self._announcement(link, ctx),)

    def expects(self, link: Link, message: LinkExpects, ctx: Context) -> Outcome:
        """Wait for these jobs."""
        if message.incarnation != link.incarnation:
            return None
        link.briefed = True
        link.expected = dict.fromkeys(message.job_ids)
        if link.expected:
            return (SetTimer("sync", SYNC_LIMIT, Due("sync")),)
        return tuple(self._synced(link, ctx))

    def desired_on(self, link: Link, message: DesiredOn, ctx: Context) -> Outcome:
        """Replace what a job wants; tell it all that is known of that."""
        if message.incarnation != link.incarnation:
            return None
        before = {uid: held for uid, held in link.held.items() if held.order.job_id == message.job_id}
        for uid in before:
            del link.held[uid]
        run, stop, suspend, go_on, withdraw = [], [], [], [], []
        for each in message.attempts:
            uid = each.order.uid
            known = before.pop(uid, None)
            if known is not None and _leave(known.order) != _leave(each.order):
                known = None  # what was known is of before it left
            held = link.held[uid] = HeldAttempt(
                each.order, each.started, each.stop, freeze=each.suspend, withdraw=each.withdraw
            )
            seen = None
            if known is not None:
                held.seen, held.started = known.seen, held.started or known.started
            elif link.unclaimed is not None:
                seen = _of_this_life(held, link.unclaimed.pop(uid, None)) or _absent(held)
            if seen is not None:
                _note(held, seen)
                comes_back = each.stop is None and not each.suspend and not each.withdraw
                if seen.suspension is Suspension.SUSPENDED and comes_back:
                    run.append(each.order)  # it waits here for the grant that it has now
            elif known is None:
                # One that is to stop, too: its worker may never have heard of it, and has the last word.
                run.append(each.order)
            if each.stop is not None and (known is None or known.stop is None):
                stop.append(self._stop_order(uid, each.stop))
            elif each.suspend and (known is None or not known.freeze):
                suspend.append(uid)
            elif each.withdraw and each.stop is None and (known is None or not known.withdraw):
                withdraw.append((uid, _leave(each.order)))
            elif not each.suspend and each.stop is None and _may_be_frozen(known, held):
                go_on.append(uid)
        orders = Orders(
            run=tuple(run),
            stop=tuple(stop),
            release=tuple(before),
            suspend=tuple(suspend),
            go_on=tuple(go_on),
            withdraw=tuple(withdraw),
        )
        commands = [*self._tell_job(link, message.job_id, ctx), *self._feed(link, orders)]
        if message.job_id in link.expected:
            del link.expected[message.job_id]
            if link.briefed and not link.expected:
                commands += self._synced(link, ctx)
        return tuple(commands)

    def run(self, link: Link, message: RunAttempts, ctx: Context) -> Outcome:
        """Have attempts run."""
        if message.incarnation != link.incarnation:
            return None
        for order in message.orders:
            known = link.held.get(order.uid)
            if known is None or _leave(known.order) != _leave(order):
                link.held[order.uid] = HeldAttempt(order)
            else:
                known.order = order  # of a gang: it need not wait any more
            if link.unclaimed is not None:
                link.unclaimed.pop(order.uid, None)  # suspended here, and let go; it comes back to this worker
        return tuple(self._feed(link, Orders(run=message.orders)))

    def stop(self, link: Link, message: StopAttempts, ctx: Context) -> Outcome:
        """Have attempts stopped. What is not wanted by anybody is stopped all the same."""
        if message.incarnation != link.incarnation:
            return None
        for uid in message.uids:
            held = link.held.get(uid)
            if held is not None and held.stop is None:
                held.stop = message.ending
        stops = tuple(self._stop_order(uid, message.ending) for uid in message.uids)
        return tuple(self._feed(link, Orders(stop=stops)))

    def suspend(self, link: Link, message: SuspendAttempts, ctx: Context) -> Outcome:
        """Have the worker let attempts be frozen."""
        if message.incarnation != link.incarnation:
            return None
        uids = tuple(uid for uid in message.uids if uid in link.held)
        for uid in uids:
            link.held[uid].freeze = True
        return tuple(self._feed(link, Orders(suspend=uids)))

    def go_on(self, link: Link, message: ContinueAttempts, ctx: Context) -> Outcome:
        """Have the worker go on with attempts that were not frozen."""
        if message.incarnation != link.incarnation:
            return None
        uids = tuple(uid for uid in message.uids if uid in link.held)
        for uid in uids:
            link.held[uid].freeze = False
        return tuple(self._feed(link, Orders(go_on=uids)))

    def withdraw(self, link: Link, message: WithdrawGrants, ctx: Context) -> Outcome:
        """Have the worker take grants back, as far as nobody has taken them."""
        if message.incarnation != link.incarnation:
            return None
        grants = []
        for uid in message.uids:
            held = link.held.get(uid)
            if held is not None:
                held.withdraw = True
                grants.append((uid, _leave(held.order)))
        return tuple(self._feed(link, Orders(withdraw=tuple(grants))))

    def release(self, link: Link, message: ReleaseAttempts, ctx: Context) -> Outcome:
        """Forget attempts that are over, or that left."""
        if message.incarnation != link.incarnation:
            return None
        for uid in message.uids:
            link.held.pop(uid, None)
        return tuple(self._feed(link, Orders(release=message.uids)))

    def _stop_order(self, uid: str, ending: Ending) -> StopOrder:
        return StopOrder(uid, ending, self.stop_grace_ns)

    def _feed(self, link: Link, orders: Orders) -> Iterator[Command]:
        if link.up and orders != _NONE:
            yield Feed(STREAM, orders)

    # Agreement

    def _synced(self, link: Link, ctx: Context) -> Iterator[Command]:
        link.synced = True
        yield CancelTimer("sync")
        yield Tell(_scheduler_of_link(ctx), LinkSynced(link.worker_id, link.incarnation))
        if link.arrived is not None:
            yield from self._agree(link, ctx)
        elif link.unclaimed is not None and not link.expected:
            yield self._complete(link)

    def _agree(self, link: Link, ctx: Context) -> Iterator[Command]:
        """Answer a stream that began: the table above."""
        known = link.arrived
        assert known is not None
        link.arrived = None
        link.up = True
        told: dict[str, list[Observation]] = {}
        for uid, held in link.held.items():
            seen = _of_this_life(held, known.pop(uid, None)) or _absent(held)
            if seen is not None:
                _note(held, seen)
                told.setdefault(held.order.job_id, []).append(seen)
        link.unclaimed = known
        if link.expected:
            yield from self._feed(link, self._wanted(link))
        else:
            yield self._complete(link)
        yield from self._tell_all(link, told, ctx)

    def _wanted(self, link: Link) -> Orders:
        """Return what is wanted of all that is not known to have ended. What is not named the worker may stop."""
        run, stop, suspend, go_on, withdraw = [], [], [], [], []
        for uid, held in link.held.items():
            step = step_for(held.stop, held.seen, started=held.started, freeze=held.freeze, withdraw=held.withdraw)
            if step is Step.STOP and held.stop is not None:
                stop.append(self._stop_order(uid, held.stop))
                continue
            if step is not Step.LEAVE or (held.seen is not None and held.seen.ending is None):
                run.append(held.order)
            if step is Step.FREEZE:
                suspend.append(uid)
            elif step is Step.GO_ON:
                go_on.append(uid)
            elif step is Step.WITHDRAW:
                withdraw.append((uid, _leave(held.order)))
        return Orders(
            run=tuple(run),
            stop=tuple(stop),
            suspend=tuple(suspend),
            go_on=tuple(go_on),
            withdraw=tuple(withdraw),
        )

    def _complete(self, link: Link) -> Command:
        """Say all that is wanted, once all jobs have spoken: what nobody claims is stopped, or forgotten."""
        unclaimed, link.unclaimed = link.unclaimed or {}, None
        wanted = self._wanted(link)
        steps = {uid: step_for_unwanted(seen) for uid, seen in unclaimed.items()}
        release = tuple(uid for uid, step in steps.items() if step is Step.RELEASE)
        stop = [self._stop_order(uid, Ending.KILLED) for uid, step in steps.items() if step is Step.STOP]
        stops = (*wanted.stop, *stop)
        said = Orders(True, wanted.run, stops, release, wanted.suspend, wanted.go_on, wanted.withdraw)
        return Feed(STREAM, said)

    def _tell_all(self, link: Link, told: dict[str, list[Observation]], ctx: Context) -> Iterator[Command]:
        for job_id, observations in told.items():
            for part in steps_of(observations):
                observed = AttemptsObserved(link.worker_id, link.incarnation, part)
                yield Tell(_job_of_link(ctx, job_id), observed)

    def _tell_job(self, link: Link, job_id: str, ctx: Context) -> Iterator[Command]:
        """Tell a job all that is known of what it wants."""
        seen = [held.seen for held in link.held.values() if held.order.job_id == job_id and held.seen is not None]
        if seen:
            yield from self._tell_all(link, {job_id: seen}, ctx)

    # The stream

    def arrived(self, link: Link, message: Arrived, ctx: Context) -> Outcome:
        """The worker says something."""
        item = message.item
        if isinstance(item, StreamUp):
            link.up, link.unclaimed = False, None
            link.arrived = {seen.uid: seen for seen in item.observed}
            return tuple(self._agree(link, ctx)) if link.synced else None
        assert isinstance(item, Observed)
        if link.up:
            return tuple(self._observed(link, item.observations, ctx))
        if link.arrived is not None and not _keep(link.arrived, item.observations):
            return self._hang_up(link)
        return None

    def _hang_up(self, link: Link) -> tuple[Command, ...]:
        """End the stream; the next one begins with all that is wanted."""
        link.up, link.unclaimed = False, None
        link.arrived = None
        return (Close(STREAM), self._open(link))

    def _observed(self, link: Link, observations: Iterable[Observation], ctx: Context) -> Iterator[Command]:
        told: dict[str, dict[str, Observation]] = {}
        release, stop, unclaimed = [], [], []
        for seen in observations:
            held = link.held.get(seen.uid)
            if held is not None and not _is_of(held, seen):
                continue
            if held is not None:
                _note(held, seen)
                told.setdefault(held.order.job_id, {})[seen.uid] = seen
            elif link.unclaimed is not None:
                unclaimed.append(seen)
            elif step_for_unwanted(seen) is Step.RELEASE:
                release.append(seen.uid)
            else:
                stop.append(self._stop_order(seen.uid, Ending.KILLED))
        yield from self._feed(link, Orders(stop=tuple(stop), release=tuple(release)))
        yield from self._tell_all(link, {job: list(seen.values()) for job, seen in told.items()}, ctx)
        if link.unclaimed is not None and not _keep(link.unclaimed, unclaimed):
            yield from self._hang_up(link)

    def closed(self, link: Link, message: Closed, ctx: Context) -> Outcome:
        """The stream ended: wait for the next one."""
        link.up, link.unclaimed = False, None
        link.arrived = None
        if message.error is not None:
            return (SetTimer("open", AGAIN, Due("open")),)
        return (self._open(link),)

    def feed_refused(self, link: Link, message: FeedRefused, ctx: Context) -> Outcome:
        """The worker does not keep up: end the stream; the next one begins with all that is wanted."""
        return self._hang_up(link) if link.up else None

    def dial_again(self, link: Link, message: DialAgain, ctx: Context) -> Outcome:
        """The fleet has forgotten the worker."""
        if not link.up or message.incarnation != link.incarnation:
            return None
        return (Feed(STREAM, Redial()),)

    # Clocks and full mailboxes

    def due(self, link: Link, message: Due, ctx: Context) -> Outcome:
        """A timer's time has come. ``worker_id`` holds the job to be told again, if it is that."""
        if message.what == "open":
            return (self._open(link),)
        if message.what == "sync":
            return tuple(self._synced(link, ctx))
        if message.what == "announce":
            return (self._announcement(link, ctx),)
        return tuple(self._tell_job(link, message.what, ctx))

    def undelivered(self, link: Link, message: Undelivered, ctx: Context) -> Outcome:
        """A mailbox was full: tell again in a while."""
        if message.to == _scheduler_of_link(ctx):
            return (SetTimer("announce", AGAIN, Due("announce")),)
        job_id = message.to.name
        return (SetTimer(("again", job_id), AGAIN, Due(job_id)),)


def _leave(order: RunOrder) -> str:
    """Return the grant by which the worker has an attempt; empty if it began there. Two words of one are one order."""
    return "" if order.resumption is None else order.resumption.grant


def _may_be_frozen(known: HeldAttempt | None, held: HeldAttempt) -> bool:
    """Tell whether the worker may still have an attempt frozen that shall run."""
    return (known is not None and known.freeze) or (
        held.seen is not None and held.seen.suspension is Suspension.SUSPENDING
    )


def _keep(known: dict[str, Observation], observations: Iterable[Observation]) -> bool:
    """Remember what a worker says it has; whether there is room for it."""
    for seen in observations:
        if seen.uid not in known and len(known) >= MAX_KNOWN:
            return False
        known[seen.uid] = seen
    return True


def _note(held: HeldAttempt, seen: Observation) -> None:
    held.seen = seen
    held.started = held.started or seen.started or seen.state is TaskState.RUNNING


def _absent(held: HeldAttempt) -> Observation | None:
    """Say what to tell the job of an attempt that its worker does not know; None: nothing, it is ordered.

    An end that the worker has told before stays its word: it may have been let forget it since.
    """
    before = held.seen if held.seen is not None and held.seen.ending is not None else None
    told = tell_of(held.order.uid, held.stop, before, started=held.started)
    return told if told is None or before is not None else replace(told, life=_leave(held.order))


def _is_of(held: HeldAttempt, seen: Observation) -> bool:
    """Whether a worker speaks of the life of an attempt that is wanted: one that went back had another one before."""
    given = held.order.resumption
    return given is None or not given.anew or seen.life == given.grant


def _of_this_life(held: HeldAttempt, seen: Observation | None) -> Observation | None:
    """Leave an end out that is of an earlier life: of the one that is wanted its worker knows nothing yet."""
    return None if seen is not None and seen.ending is not None and not _is_of(held, seen) else seen


def _scheduler_of_link(ctx: Context) -> ActorPath:
    return ctx.path.parent.parent / "scheduler"


def _job_of_link(ctx: Context, job_id: str) -> ActorPath:
    return ctx.path.parent.parent / job_id
