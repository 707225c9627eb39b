"""Decisions of ``/jobs/scheduler``: who runs where.

Plain state: all it knows it was told, and asks for again when it starts. Until all live jobs have reported
what they hold, it places nothing (it could give a worker away twice) and answers no cordon (it could call a
busy slice idle). Workers that jobs name and the fleet does not (yet) are *absent*: after ``ADOPTION_GRACE``
their attempts are called lost, not fenced. Meanwhile the fleet is asked for them every ``MISSED_REPEAT``: one
that went while nobody here could hear it (the controller was closing, or is new) is gone for certain, and its
attempts are fenced at once.

Room is taken under a fresh attempt uid the moment a worker is chosen, and is given back only when the job
says that this attempt is over. So what is committed on a worker is always the sum over the attempts that live
there or are on their way (INV-J3), and a worker that comes back finds its room still taken.

A worker is used when the fleet says ``WorkerReady``, its link has synced, and its slice is not cordoned.

Placing goes in passes of at most ``CHUNK`` attempts at a placement, then tells itself to go on; with nothing
new there is no pass. At the end of a pass the fleet is told what cannot be placed, if that changed, and again
every ``DEMAND_REPEAT`` while something waits, since a new fleet knows nothing of it. Demand that only the
wrong Python stands against is not told: more workers of the same image would not help.

The state is changed in place: when a decision fails, the actor is restarted with nothing and asks for
everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from iriscw.fleet.messages import (
    Cordon,
    Cordoned,
    DemandChanged,
    DemandRouted,
    SchedulerStarted,
    SliceGone,
    Uncordon,
    WorkerLost,
    WorkerReady,
    WorkersMissed,
)
from iriscw.fleet.model import slice_of
from iriscw.jobs.job.ledger import Place
from iriscw.jobs.messages import (
    AttemptsLost,
    AttemptsOver,
    Due,
    GoneRest,
    JobAbsent,
    JobAwake,
    JobIntroduced,
    JobReport,
    JobsKnown,
    JobWithdrawn,
    LinkGone,
    LinkRest,
    LinksAwake,
    LinkStarted,
    LinkSynced,
    LinkUnwanted,
    LinkWanted,
    Pass,
    Placed,
    Placement,
    ReportJob,
    Resend,
    Rested,
    SchedulerAwake,
    SchedulerFigures,
)
from iriscw.jobs.model import Band, attempt_uid
from iriscw.jobs.scheduling import preempting
from iriscw.jobs.scheduling.explaining import explain_demand_jobs, explain_jobs, explain_pending
from iriscw.jobs.scheduling.fleet_reports import demand_routed, figures, tell_activity, tell_demand, tell_never
from iriscw.jobs.scheduling.link_briefing import brief, link_some, links_of
from iriscw.jobs.scheduling.messages import ExplainDemandJobs, ExplainJobs, ExplainPending
from iriscw.jobs.scheduling.placement import Commitment, Host
from iriscw.jobs.scheduling.queues import Shape, Waiting
from iriscw.jobs.scheduling.refusals import note_beginning, note_refusal, rest, said_of
from iriscw.jobs.scheduling.repositories import REPOSITORIES, follow, follow_again, take_note
from iriscw.jobs.scheduling.resuming import place_some
from iriscw.jobs.scheduling.state import Scheduler, host_of
from iriscw.jobs.step_limits import STEP_WORKERS, parts_of
from iriscw.jobs.suspension.messages import PlaceSuspended, SuspendedPlaced, SuspendedUnwanted
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    Arrived,
    Closed,
    Command,
    Context,
    Continue,
    DecisionFunction,
    Outcome,
    SetTimer,
    Tell,
    Undelivered,
)

CHUNK = 256
"""Attempts at a placement per decision: about 2 ms."""

REPORT_WINDOW = 64
"""Jobs that are asked for a report at a time, so that a new scheduler's mailbox stays short."""

SYNC_LIMIT = 30 * SECOND
"""After this a new scheduler goes on without the jobs that have not reported."""

ADOPTION_GRACE = 60 * SECOND
"""How long the fleet has to find a worker again that a job's attempt runs on, after the scheduler started."""

MISSED_REPEAT = 1 * SECOND
"""How often the fleet is asked for absent workers: it answers once it has listed what exists."""

DEMAND_REPEAT = 10 * SECOND
"""How often unmet demand is told again."""

AGAIN = 1 * SECOND
"""How long the scheduler waits before it tells a full mailbox again."""


class SchedulerDecisions:
    """The decisions, for one place of the fleet in the tree."""

    def __init__(self, fleet: ActorPath, *, preempts: bool = True) -> None:
        self.fleet = fleet
        self.preempts = preempts

    def rules(self) -> dict[type, DecisionFunction]:
        """Return the decision for each message."""
        return {
            JobsKnown: self.jobs_known,
            JobIntroduced: self.job_introduced,
            JobAwake: self.job_awake,
            JobReport: self.job_report,
            JobWithdrawn: self.job_withdrawn,
            JobAbsent: self.job_absent,
            AttemptsOver: self.attempts_over,
            Rested: self.rested,
            WorkerReady: self.worker_ready,
            WorkerLost: self.worker_lost,
            SliceGone: self.slice_gone,
            Cordon: self.cordon,
            Uncordon: self.uncordon,
            DemandRouted: demand_routed,
            LinksAwake: self.links_awake,
            LinkStarted: self.link_started,
            LinkSynced: self.link_synced,
            LinkGone: self.link_gone,
            LinkRest: self.link_rest,
            GoneRest: self.gone_rest,
            Pass: self.place,
            Due: self.due,
            PlaceSuspended: self.place_suspended,
            SuspendedUnwanted: self.suspended_unwanted,
            ExplainPending: explain_pending,
            ExplainJobs: explain_jobs,
            ExplainDemandJobs: explain_demand_jobs,
            SchedulerFigures: figures,
            Arrived: self.repositories,
            Closed: follow_again,
            Undelivered: self.undelivered,
            Resend: self.resend,
        }

    def resume(self, state: Scheduler, ctx: Context) -> tuple[Command, ...]:
        """Ask for everything."""
        state.preempts = self.preempts
        return (
            Tell(self.fleet, SchedulerStarted()),
            Tell(ctx.path.parent, SchedulerAwake()),
            SetTimer("sync", SYNC_LIMIT, Due("sync")),
            SetTimer("adoption", ADOPTION_GRACE, Due("adoption"), attentive=True),
            SetTimer("demand", DEMAND_REPEAT, Due("demand")),
            follow(),
        )

    def repositories(self, state: Scheduler, message: Arrived, ctx: Context) -> Outcome:
        """Take note of which machines share a repository."""
        take_note(state.returns, message)
        return self._go(state)

    # Jobs

    def jobs_known(self, state: Scheduler, message: JobsKnown, ctx: Context) -> Outcome:
        """Ask each job for what it holds, some at a time."""
        state.known = True
        state.unasked = list(reversed(message.job_ids))
        commands: list[Command] = []
        self._ask_more(state, ctx, commands)
        return self._opened(state, ctx, commands)

    def _ask_more(self, state: Scheduler, ctx: Context, commands: list[Command]) -> None:
        while state.unasked and len(state.asked) < REPORT_WINDOW:
            job_id = state.unasked.pop()
            state.asked[job_id] = None
            commands.append(self._ask(state, job_id, ctx))

    def _ask(self, state: Scheduler, job_id: str, ctx: Context) -> Command:
        job = state.jobs.setdefault(job_id, Waiting(job_id))
        state.queues.drop(job)
        state.returns.drop_job(job_id)
        state.tokens += 1
        job.token = state.tokens
        job.reporting = True
        job.reported.clear()
        return Tell(ctx.path.parent / job_id, ReportJob(job.token))

    def job_awake(self, state: Scheduler, message: JobAwake, ctx: Context) -> Outcome:
        """A job's actor is new: what was told to the old one may be lost."""
        return (self._ask(state, message.job_id, ctx),)

    def job_introduced(self, state: Scheduler, message: JobIntroduced, ctx: Context) -> Outcome:
        """A job was accepted."""
        if message.job_id in state.jobs:
            return None
        job = state.jobs[message.job_id] = Waiting(message.job_id, message.order, message.spec, accepted_here=True)
        state.queues.add(job, ((0, message.spec.replicas),))
        return self._go(state)

    def job_report(self, state: Scheduler, message: JobReport, ctx: Context) -> Outcome:
        """Replace what is known of a job, with the last part. Only the answer to the latest question counts."""
        job = state.jobs.get(message.job_id)
        if job is None or message.token != job.token or not job.reporting:
            return None
        job.order, job.spec, job.withdrawn = message.order, message.spec, not message.open
        job.reported.update((each.uid, None) for each in message.live)
        commands: list[Command] = []
        if not message.more:
            self._release(state, job, [uid for uid in job.live if uid not in job.reported])
            job.reported.clear()
        for each in message.live:
            if each.uid not in job.live:
                job.live[each.uid] = None
                commitment = Commitment(job.job_id, each.index, message.spec.demand, placed_wall_ns=each.placed_wall_ns)
                if each.leaves:
                    state.claims.leaving.setdefault(each.uid, None)
                self._hold(state, (each.worker_id, each.incarnation), each.uid, commitment)
        for attempt in message.suspended:
            state.returns.add(job.job_id, attempt)
        if message.more:
            return None
        job.reporting = False
        state.returns.wake_job(job.job_id)
        state.queues.drop(job)
        state.queues.add(job, message.pending)
        self._discard_if_over(state, job)
        if state.asked.pop(message.job_id, message) is None:
            self._ask_more(state, ctx, commands)
        if not state.syncing:
            commands += self._ask_missed(state)
        commands += preempting.remind(state, job, ctx)
        return self._opened(state, ctx, commands)

    def _ask_missed(self, state: Scheduler) -> Iterator[Command]:
        """Ask the fleet what became of absent workers, as long as there are any."""
        if state.absent:
            yield Tell(self.fleet, WorkersMissed(tuple(state.absent)), conflate="missed")
            yield SetTimer("missed", MISSED_REPEAT, Due("missed"))

    def _hold(self, state: Scheduler, place: Place, uid: str, commitment: Commitment) -> None:
        host = host_of(state, place)
        if host is None:
            state.absent.setdefault(place, {})[uid] = commitment
            state.absent_of[uid] = place
        else:
            state.inventory.commit(host, uid, commitment)
            state.active[place[0]] = None

    def job_withdrawn(self, state: Scheduler, message: JobWithdrawn, ctx: Context) -> Outcome:
        """Place nothing more for a job."""
        job = state.jobs.get(message.job_id)
        if job is None:
            return None
        state.queues.drop(job)
        state.returns.drop_job(job.job_id)
        job.withdrawn = True
        self._discard_if_over(state, job)
        return self._go(state)

    def job_absent(self, state: Scheduler, message: JobAbsent, ctx: Context) -> Outcome:
        """A job does not answer: place nothing for it, and do not wait for it. Its room stays taken."""
        commands: list[Command] = []
        job = state.jobs.get(message.job_id)
        if job is not None:
            state.queues.drop(job)
        if state.asked.pop(message.job_id, message) is None:
            self._ask_more(state, ctx, commands)
        elif message.job_id in state.unasked:
            state.unasked.remove(message.job_id)
        return self._opened(state, ctx, commands)

    def _discard_if_over(self, state: Scheduler, job: Waiting) -> None:
        if job.withdrawn and not job.live and not job.reporting:
            state.jobs.pop(job.job_id, None)

    def attempts_over(self, state: Scheduler, message: AttemptsOver, ctx: Context) -> Outcome:
        """Take room back; have tasks wait again."""
        job = state.jobs.get(message.job_id)
        if job is None:
            return None
        commands: list[Command] = []
        for uid in message.began:
            job.refused = ""
            note_beginning(state.inventory, uid)
        refused = message.refused
        if refused is not None:
            job.refused = said_of(refused.worker_id, refused.reason)
            commands += note_refusal(state.inventory, refused, ctx)
        self._release(state, job, message.uids)
        for uid in message.uids:
            state.returns.drop(uid)
        if message.pending and not job.reporting and not job.withdrawn and job.spec is not None:
            if job.spec.group_by is not None:
                state.queues.drop(job)
            if message.rest_ns:
                commands.append(rest(job, message.pending, message.rest_ns, ctx))
            else:
                state.queues.add(job, message.pending)
        self._discard_if_over(state, job)
        return (*commands, *self._go(state))

    def place_suspended(self, state: Scheduler, message: PlaceSuspended, ctx: Context) -> Outcome:
        """Have a suspended attempt wait for a worker on its machine.

        If its job reports, it waits for the end of that as well: the part that it was in may have been told before.
        """
        job = state.jobs.get(message.job_id)
        if job is None or job.withdrawn:
            return None
        state.returns.add(message.job_id, message.attempt)
        return self._go(state)

    def suspended_unwanted(self, state: Scheduler, message: SuspendedUnwanted, ctx: Context) -> Outcome:
        """Have it stay suspended."""
        state.returns.drop(message.uid)
        return self._go(state)

    def rested(self, state: Scheduler, message: Rested, ctx: Context) -> Outcome:
        """Have tasks wait for a worker again, unless their job has said since what waits."""
        job = state.jobs.get(message.job_id)
        ranges = None if job is None else job.resting.pop(message.first, None)
        if job is None or ranges is None:
            return None
        state.queues.add(job, ranges)
        return self._go(state)

    def _release(self, state: Scheduler, job: Waiting, uids: Iterable[str]) -> None:
        for uid in uids:
            job.live.pop(uid, None)
            state.claims.left(uid)
            place = state.absent_of.pop(uid, None)
            if place is not None:
                state.absent[place].pop(uid)
                if not state.absent[place]:
                    del state.absent[place]
            host = state.inventory.release(uid)
            if host is None:
                continue
            worker_id = host.info.worker_id
            if state.inventory.hosts.get(worker_id) is host:
                state.active[worker_id] = None
                state.queues.wake(host, state.inventory)
                state.returns.wake(host.info.node)
            elif not host.commitments:
                state.older.pop((worker_id, host.info.incarnation), None)

    # Workers

    def worker_ready(self, state: Scheduler, message: WorkerReady, ctx: Context) -> Outcome:
        """Take a worker in, or back; have a link to it."""
        info = message.info
        commands: list[Command] = []
        host = state.inventory.hosts.get(info.worker_id)
        if host is not None and host.info != info:
            same = host.info.incarnation == info.incarnation
            moved = self._retire(state, host) if same else {}
            if not same:
                commands += self._losses(host, fenced=False, reason="replaced by another incarnation", ctx=ctx)
                self._retire(state, host, keep=True)
                if host.commitments:  # certain losses are not waited for: the fleet knows whether its pod is gone
                    before = (host.info.worker_id, host.info.incarnation)
                    commands.append(Tell(self.fleet, WorkersMissed((before,)), conflate=f"missed {before[0]}"))
            refusing, host = host if same else None, None
        else:
            moved, refusing = {}, None
        if host is None:
            host = state.inventory.add(info)
            if refusing is not None and refusing.refusing is not None:
                host.paused = refusing.paused
                state.inventory.demote(host, refusing.refusing)
            place = (info.worker_id, info.incarnation)
            moved |= state.absent.pop(place, {})
            for uid, commitment in moved.items():
                state.absent_of.pop(uid, None)
                state.inventory.commit(host, uid, commitment)
        host.lost = False
        host.cordon = None
        state.active[info.worker_id] = None
        commands.append(Tell(links_of(ctx), LinkWanted(info.worker_id, info.incarnation)))
        self._offer(state, host)
        return (*commands, *self._go(state))

    def _retire(self, state: Scheduler, host: Host, *, keep: bool = False) -> dict[str, Commitment]:
        """Take a worker out; give what it held, or keep it under the old incarnation."""
        state.inventory.drop(host)
        if keep:
            if host.commitments:
                state.older[host.info.worker_id, host.info.incarnation] = host
            return {}
        held = dict(host.commitments)
        for uid in held:
            state.inventory.release(uid)
        return held

    def worker_lost(self, state: Scheduler, message: WorkerLost, ctx: Context) -> tuple[Command, ...]:
        """Use a worker no more; tell the jobs that have attempts there."""
        place = (message.worker_id, message.incarnation)
        commands: list[Command] = []
        host = host_of(state, place)
        if host is not None:
            host.lost = True
            commands += self._losses(host, fenced=message.fenced, reason=message.reason, ctx=ctx)
        elif place in state.absent:
            commands += self._absent_losses(state, place, message.reason, message.fenced, ctx)
        if message.fenced:
            commands.append(Tell(links_of(ctx), LinkUnwanted(*place)))
            if host is not None and state.inventory.hosts.get(message.worker_id) is host:
                self._retire(state, host, keep=True)
                state.active.pop(message.worker_id, None)
        return (*commands, *self._go(state))

    def slice_gone(self, state: Scheduler, message: SliceGone, ctx: Context) -> Outcome:
        """Take every worker of a slice for lost and fenced that nobody has told so of."""
        places = [(host.info.worker_id, host.info.incarnation) for host in state.inventory.hosts.values()]
        places += [*state.older, *state.absent]
        for place in dict.fromkeys(places):
            if slice_of(place[0]) == message.slice_id:
                state.gone[place] = None
        return self._take_out_some(state, ctx)

    def _take_out_some(self, state: Scheduler, ctx: Context) -> tuple[Command, ...]:
        commands: list[Command] = []
        for place in list(islice(state.gone, STEP_WORKERS)):
            del state.gone[place]
            commands += self.worker_lost(state, WorkerLost(*place, "its slice is gone", fenced=True), ctx)
        if state.gone:
            commands.append(Continue(GoneRest()))
        return tuple(commands)

    def gone_rest(self, state: Scheduler, message: GoneRest, ctx: Context) -> Outcome:
        """Go on taking workers out."""
        return self._take_out_some(state, ctx)

    def _losses(self, host: Host, *, fenced: bool, reason: str, ctx: Context) -> Iterator[Command]:
        lost = AttemptsLost(host.info.worker_id, host.info.incarnation, fenced, reason)
        for job_id in dict.fromkeys(each.job_id for each in host.commitments.values()):
            yield Tell(ctx.path.parent / job_id, lost)

    def _absent_losses(
        self, state: Scheduler, place: Place, reason: str, fenced: bool, ctx: Context
    ) -> Iterator[Command]:
        for job_id in dict.fromkeys(each.job_id for each in state.absent[place].values()):
            yield Tell(ctx.path.parent / job_id, AttemptsLost(*place, fenced, reason))

    def cordon(self, state: Scheduler, message: Cordon, ctx: Context) -> Outcome:
        """Place nothing on a slice; say how much lives there, once that is known."""
        for worker_id in message.worker_ids:
            host = state.inventory.hosts.get(worker_id)
            if host is not None:
                host.cordon = message.round
        if state.syncing:
            state.cordons[message.slice_id] = message
            return None
        return (self._cordoned(state, message),)

    def _cordoned(self, state: Scheduler, cordon: Cordon) -> Command:
        wanted = dict.fromkeys(cordon.worker_ids)
        hosts = [*state.inventory.hosts.values(), *state.older.values()]
        live = sum(len(host.commitments) for host in hosts if host.info.worker_id in wanted)
        live += sum(len(held) for (worker_id, _), held in state.absent.items() if worker_id in wanted)
        return Tell(self.fleet, Cordoned(cordon.slice_id, live, cordon.round))

    def uncordon(self, state: Scheduler, message: Uncordon, ctx: Context) -> Outcome:
        """Place on a slice again."""
        pending = state.cordons.get(message.slice_id)
        if pending is not None and pending.round <= message.round:
            del state.cordons[message.slice_id]
        for host in state.inventory.hosts.values():
            if host.info.slice_id == message.slice_id and (host.cordon or 0) <= message.round:
                host.cordon = None
                self._offer(state, host)
        return self._go(state)

    # Links

    def links_awake(self, state: Scheduler, message: LinksAwake, ctx: Context) -> Outcome:
        """All links are gone: have them again."""
        for host in state.inventory.hosts.values():
            host.linked = False
            state.unlinked[host.info.worker_id] = None
        return tuple(link_some(state, ctx))

    def link_rest(self, state: Scheduler, message: LinkRest, ctx: Context) -> Outcome:
        """Go on with links."""
        return tuple(link_some(state, ctx))

    def link_started(self, state: Scheduler, message: LinkStarted, ctx: Context) -> Outcome:
        """Tell a link whom to hear, and these jobs to tell it."""
        place = (message.worker_id, message.incarnation)
        if state.syncing:
            state.links[place] = None
            return None
        return tuple(brief(state, place, ctx))

    def link_synced(self, state: Scheduler, message: LinkSynced, ctx: Context) -> Outcome:
        """A worker can be told what to run."""
        host = state.inventory.hosts.get(message.worker_id)
        if host is None or host.info.incarnation != message.incarnation:
            return None
        host.linked = True
        self._offer(state, host)
        return self._go(state)

    def link_gone(self, state: Scheduler, message: LinkGone, ctx: Context) -> Outcome:
        """A worker cannot be told anything."""
        host = state.inventory.hosts.get(message.worker_id)
        if host is not None and host.info.incarnation == message.incarnation:
            host.linked = False
        return None

    # Placing

    def _offer(self, state: Scheduler, host: Host) -> None:
        """A worker may have become placeable: let what waits for it take part again."""
        if host.placeable:
            state.inventory.freed(host)
            state.queues.wake(host, state.inventory)
            state.returns.wake(host.info.node)

    def _opened(self, state: Scheduler, ctx: Context, commands: list[Command]) -> tuple[Command, ...]:
        """Open for placement if all jobs have reported."""
        if not state.syncing or not state.known or state.asked or state.unasked:
            return (*commands, *self._go(state))
        return (*commands, *self._open(state, ctx))

    def _open(self, state: Scheduler, ctx: Context) -> Iterator[Command]:
        state.syncing = False
        for cordon in state.cordons.values():
            yield self._cordoned(state, cordon)
        state.cordons.clear()
        yield from link_some(state, ctx)
        yield from self._ask_missed(state)
        yield from self._go(state)

    def _go(self, state: Scheduler) -> tuple[Command, ...]:
        """Something changed: place, and tell the fleet, at the next turn."""
        state.demand_changed = True
        preempting.let_go(state)
        if state.passing or state.syncing:
            return ()
        state.passing = True
        return (Continue(Pass()),)

    def place(self, state: Scheduler, message: Pass, ctx: Context) -> Outcome:
        """Place some tasks; go on at the next turn, or tell the fleet what is left."""
        state.passes += 1
        placed: dict[str, list[Placement]] = {}
        for shape, hosts in preempting.ripe(state):
            self._take(state, shape, hosts, placed, ctx)
        commands: list[Command] = []
        for band in Band:
            returned = [*place_some(state, band, CHUNK - len(commands), ctx.wall)]
            commands += (Tell(ctx.path.parent / job_id, told) for job_id, told in returned)
            self._place_band(state, band, CHUNK - len(commands), placed, ctx)
        if placed:
            preempting.let_go(state)
        commands += [Tell(ctx.path.parent / job_id, told) for job_id, batch in placed.items() for told in _told(batch)]
        commands += tell_activity(state, self.fleet)
        if state.queues.head() is not None or state.active or state.returns.due:
            commands.append(Continue(Pass()))
        else:
            state.passing = False
            commands += preempting.consider(state, ctx)
            commands += tell_demand(state, self.fleet, ctx)
            commands += tell_never(state, ctx)
            if state.queues.head() is not None or state.returns.due or state.claims.ripe:
                commands += self._go(state)
        return tuple(commands)

    def _place_band(
        self, state: Scheduler, band: Band, budget: int, placed: dict[str, list[Placement]], ctx: Context
    ) -> None:
        budget -= sum(map(len, placed.values()))
        head = state.queues.head()
        while head is not None and head.band is band and budget > 0:
            chosen = self._choose(state, head)
            budget -= 1 + len(chosen)
            if chosen:
                self._take(state, head, chosen, placed, ctx)
            else:
                state.queues.block(head, ctx.now)
            head = state.queues.head()

    def _take(
        self, state: Scheduler, shape: Shape, hosts: Sequence[Host], placed: dict[str, list[Placement]], ctx: Context
    ) -> None:
        """Place tasks of the head of a ring on these workers, one on each."""
        job = shape.jobs[0]
        indexes = state.queues.take(shape, len(hosts))
        placed.setdefault(job.job_id, []).extend(
            self._commit(state, job, index, host, ctx) for index, host in zip(indexes, hosts, strict=True)
        )

    def _choose(self, state: Scheduler, shape: Shape) -> list[Host]:
        pools = shape.candidates(state.inventory)
        if shape.gang is None:
            host = state.inventory.find(shape.wish, pools)
            return [] if host is None else [host]
        size = shape.jobs[0].count
        return state.inventory.find_gang(shape.wish, pools, shape.gang, size) or []

    def _commit(self, state: Scheduler, job: Waiting, index: int, host: Host, ctx: Context) -> Placement:
        uid = attempt_uid(ctx.new_id())
        assert job.spec is not None
        refusals = 0 if host.refusing is None else host.refusing.count
        state.inventory.commit(host, uid, Commitment(job.job_id, index, job.spec.demand, refusals, ctx.wall))
        job.live[uid] = None
        state.active[host.info.worker_id] = None
        state.placements += 1
        return Placement(index, uid, host.info.worker_id, host.info.incarnation)

    # Clocks, questions, full mailboxes

    def due(self, state: Scheduler, message: Due, ctx: Context) -> Outcome:
        """A timer's time has come."""
        if message.what == "demand":
            again = SetTimer("demand", DEMAND_REPEAT, Due("demand"))
            if not state.told:
                return (again,)
            return (Tell(self.fleet, DemandChanged(state.told), conflate="demand"), again)
        if message.what == "refusal":
            host = host_of(state, (message.worker_id, message.incarnation))
            if host is not None:
                host.paused = False
                self._offer(state, host)
            return self._go(state)
        if message.what == "preempt":
            return self._go(state)
        if message.what == "missed":
            return tuple(self._ask_missed(state))
        if message.what == REPOSITORIES:
            return (follow(),)
        if message.what == "adoption":
            reason = "the fleet does not know its worker any more"
            return tuple(
                command
                for place in list(state.absent)
                for command in self._absent_losses(state, place, reason, False, ctx)
            )
        if not state.syncing:
            return None
        if not state.known:
            again = SetTimer("sync", SYNC_LIMIT, Due("sync"))
            return (Tell(ctx.path.parent, SchedulerAwake()), again)
        state.unasked.clear()
        state.asked.clear()
        return tuple(self._open(state, ctx))

    def undelivered(self, state: Scheduler, message: Undelivered, ctx: Context) -> Outcome:
        """A mailbox was full: take room back that was offered, tell anything else again in a while."""
        told = message.message
        if isinstance(told, WorkersMissed):
            return None  # Asked again anyway.
        if isinstance(told, (Placed, SuspendedPlaced, ReportJob)):
            job_id = message.to.name
            job = state.jobs.get(job_id)
            if job is None:
                return None
            if isinstance(told, Placed):
                self._release(state, job, [each.uid for each in told.placements])
            elif isinstance(told, SuspendedPlaced):
                self._release(state, job, [told.uid])
            state.queues.drop(job)
            job.reporting = True
            return (SetTimer(("awake", job_id), AGAIN, JobAwake(job_id)),)
        state.tokens += 1
        return (SetTimer(("again", state.tokens), AGAIN, Resend(message.to, told)),)

    def resend(self, state: Scheduler, message: Resend, ctx: Context) -> Outcome:
        """Tell again."""
        return (Tell(message.to, message.message),)


def _told(batch: list[Placement]) -> Iterator[Placed]:
    """Return what a job is told of its placements: in parts, if it is a large gang's."""
    parts = tuple(parts_of(tuple(batch)))
    return (Placed(part, number, number + 1 < len(parts)) for number, part in enumerate(parts))
