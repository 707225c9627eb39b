"""When a group asks for slices, when it lets them go, and when it is closed.

Theory of operation. :func:`evaluate` is the only place where a group changes its size. It runs after
anything that may matter, once per batch of messages, and at the latest after ``evaluation_interval``. In
this order: it tells doomed slices to go and asks for the deletion of orphans, both within a rate limit
(INV-F9); counts; requests what is missing, unless the group is closed; gives up what nobody wants; and asks
the scheduler to agree to the removal of the longest idle.

A group that has ``max_slices`` may be full of idle slices that nothing that waits could use. Of those the longest idle
goes, so that another can take its place (:mod:`iriscw.fleet.groups.renewal`), whatever the policy says: that is no
matter of size. Until the other one is there the group has one less, ``min_slices`` or not.

Closed is not one state but four (INV-F5): for quota (a long pause, then another try), for capacity (slices
in the queue keep their place, nothing more is asked for), for an invalid specification (until people act),
and for failures (a pause that doubles). The first slice with ready nodes ends the pauses for quota and
capacity, the first ready one all.

How many slices there should be is the policy's to say (:mod:`iriscw.fleet.policy`), and nothing else is: each step
below holds whatever it says.

Removal takes two steps. The scheduler is asked to place nothing on the slice (``Cordon``); only its answer
that nothing runs there dooms it, if it still is the one to go. The answer comes by way of the slice itself,
which says since when it is idle. Any other answer, or none in time, lifts the cordon.
"""

from __future__ import annotations

from collections.abc import Mapping

from iriscw.fleet.groups.group import Closure, CordonRound, Group, dooming, look, pool_created, slice_gone
from iriscw.fleet.groups.publishing import publish
from iriscw.fleet.groups.renewal import Kind, Newcomers, kind_of
from iriscw.fleet.groups.sizing import Census, SizingPlan, plan, take_census
from iriscw.fleet.messages import Cordon, PolicyFailed, Uncordon
from iriscw.fleet.model import Availability, GroupRow, SliceState, Trouble, slice_name
from iriscw.fleet.newest import Prospect
from iriscw.fleet.pacing import backoff, time_of_day
from iriscw.fleet.policy import GroupView, ask
from iriscw.fleet.records import SliceRequested
from iriscw.fleet.signals import (
    CordonAnswered,
    Dismiss,
    Evaluate,
    GroupReported,
    Overdue,
    SliceReported,
    SliceRowChanged,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    CancelTimer,
    Command,
    Context,
    Decision,
    Emit,
    SetTimer,
    Spawn,
    Tell,
)

KEEP_ABOVE_CHURN_PERCENT = 50
"""With this share of short lives idle slices are kept: Iris blocks its scale-down there."""

ANSWER_AGE = 5 * SECOND
"""How old the answer to a cordon may be: an older one waited for the disk, and much may have happened since."""

POLICY_REPORTS_EVERY = 60 * SECOND
"""Between two reports that a policy fails: it is asked several times a second, and each failure is counted anyway."""

GIVEN_UP = "nobody needs it any more"
"""The reason of a slice that goes before it was ready."""

OF_NO_USE = "nothing that waits could run there"
"""How the reason begins of a slice that goes so that another can take its place."""

_CLOSED_AS: Mapping[Trouble, Availability] = {
    Trouble.QUOTA: Availability.QUOTA_EXCEEDED,
    Trouble.CAPACITY: Availability.NO_CAPACITY,
    Trouble.INVALID: Availability.INVALID,
}
"""All other troubles close a group as failures do."""

_GRAVITY: Mapping[Trouble, int] = {Trouble.QUOTA: 1, Trouble.INVALID: 2}
"""Which trouble closes a group that another one has closed: the one with more."""


# Reports


def slice_reported(group: Group, report: SliceReported, ctx: Context) -> Decision | None:
    """Act on how a slice stands."""
    sight, slice_id = group.sight, report.row.slice_id
    promise = group.promises.get(slice_id)
    if promise is None:
        return None
    before = sight.reports.get(slice_id)
    sight.reports[slice_id] = report
    records = pool_created(promise, report)
    commands = publish(before, report, promise, ctx)
    state = report.row.state
    if state is SliceState.GONE:
        records, gone = slice_gone(group, slice_id, ctx)
        return Decision(records=tuple(records), commands=(*commands, *gone, *look(group)))
    if state is SliceState.FAILED and not promise.doomed:
        close(group, report.row.trouble, report.row.reason, ctx)
        records += dooming(group, slice_id, report.row.reason, ctx, failed=True)
    if state in (SliceState.INITIALIZING, SliceState.READY):
        _machines_came(group, slice_id, report, ctx)
    shown = SliceRowChanged(slice_id, report.row, report.workers)
    commands.append(Tell(ctx.path.parent, shown, conflate=("row", slice_id)))
    if before is None or _matters(before, report):
        commands += look(group)
    return Decision(records=tuple(records), commands=tuple(commands))


def _matters(before: SliceReported, after: SliceReported) -> bool:
    """Whether the group's size may have to change. Attempts coming and going do not matter: idling takes
    time.
    """
    return (
        before.row.state is not after.row.state
        or before.row.trouble is not after.row.trouble
        or before.stuck != after.stuck
    )


def _machines_came(group: Group, slice_id: str, report: SliceReported, ctx: Context) -> None:
    sight = group.sight
    cleared = [Trouble.QUOTA, Trouble.CAPACITY]
    if report.row.state is SliceState.READY and slice_id not in sight.readied:
        sight.readied[slice_id] = ctx.now
        if slice_id in sight.born:
            sight.experience.booted(ctx.now - sight.born.pop(slice_id))
        cleared = list(Trouble)
    for trouble in cleared:
        sight.failures.pop(trouble, None)
        if sight.closure is not None and sight.closure.trouble is trouble:
            sight.closure = None


# Closing


def close(group: Group, trouble: Trouble, reason: str, ctx: Context) -> None:
    """Close the group for what made a slice fail.

    A group that is closed already stays as it is, unless this is worse: of two slices that fail at once the second may
    have learned that the quota is used up, and the short pause of the first must not end that.
    """
    sight, timing = group.sight, group.config.timing
    closed = sight.closure if is_closed(group, ctx.now) else None
    if closed is not None and _GRAVITY.get(trouble, 0) <= _GRAVITY.get(closed.trouble, 0):
        return
    kind = trouble if trouble in _CLOSED_AS else Trouble.WORKERS
    count = sight.failures[kind] = sight.failures.get(kind, 0) + 1
    if kind is Trouble.INVALID:
        sight.closure = Closure(kind, reason, None, None)
        return
    first, longest = timing.failure_backoff, timing.failure_backoff_max
    if kind is Trouble.QUOTA:
        first, longest = timing.quota_backoff, timing.quota_backoff_max
    pause = backoff(count, first, longest, ctx.rng)
    if closed is not None and closed.until is not None:
        pause = max(pause, closed.until - ctx.now)
    sight.closure = Closure(kind, reason, ctx.now + pause, ctx.wall + pause)


def is_closed(group: Group, now: int) -> bool:
    """Whether the group asks for nothing now."""
    closure = group.sight.closure
    return closure is not None and (closure.until is None or now < closure.until)


def availability(group: Group, census: Census, now: int) -> tuple[Availability, str]:
    """Say whether the group takes more demand, and why not."""
    sight, config = group.sight, group.config
    if is_closed(group, now):
        assert sight.closure is not None
        return _CLOSED_AS.get(sight.closure.trouble, Availability.BACKOFF), sight.closure.reason
    if census.waiting:
        return Availability.NO_CAPACITY, f"{census.waiting} slices wait until the zone has free machines"
    if census.counted >= config.max_slices:
        return Availability.AT_MAX, f"it has {census.counted} of at most {config.max_slices} slices"
    if sight.experience.allowed(1, now) == 0:
        churn = sight.experience.churn_percent(now)
        return Availability.CHURNING, f"{churn} percent of its recent slices lived only shortly"
    if _cooling(group, now):
        return Availability.COOLDOWN, "it has asked for slices just now"
    return Availability.AVAILABLE, ""


def _cooling(group: Group, now: int) -> bool:
    last = group.sight.last_request
    return last is not None and now - last < group.config.timing.scale_up_delay


# Evaluating


def evaluate(group: Group, message: Evaluate, ctx: Context) -> Decision | None:
    """Look whether something should be done now, and when to look again."""
    sight = group.sight
    sight.evaluating = False
    if not sight.opened:
        return None
    commands = _remove(group, ctx)
    census = count_slices(group, ctx.now)
    target, failed = _plan(group, census, ctx)
    commands += failed
    records, requested = _request(group, census, target, ctx)
    commands += requested
    dooms = _give_up(group, census, target, ctx)
    records += dooms
    commands += _cordon_useless(group, census, ctx) or _cordon_longest_idle(group, census, target, ctx)
    if requested:
        census = count_slices(group, ctx.now)
    commands += _report(group, census, ctx)
    commands.append(SetTimer("evaluate", _next_look(group, census, ctx.now), Evaluate()))
    return Decision(records=tuple(records), commands=tuple(commands))


def count_slices(group: Group, now: int) -> Census:
    """Count the group's slices: one pass."""
    promises = group.promises
    reports = (
        (slice_id, report, slice_id in promises and bool(promises[slice_id].doomed))
        for slice_id, report in group.sight.reports.items()
    )
    return take_census(group.config, reports, now)


def _plan(group: Group, census: Census, ctx: Context) -> tuple[SizingPlan, list[Command]]:
    """Say how far the group is from the size that its policy wants; a policy that fails is reported."""
    sight = group.sight
    view = view_of(group, census, ctx)
    answer = ask(group.seed.policy, view)
    target = plan(group.config, census, view.wanted, answer.slices)
    if not answer.error:
        return target, []
    sight.policy_failures += 1
    if sight.policy_reported is not None and ctx.now - sight.policy_reported < POLICY_REPORTS_EVERY:
        return target, []
    sight.policy_reported = ctx.now
    return target, [Emit(PolicyFailed(group.config.name, answer.error))]


def view_of(group: Group, census: Census, ctx: Context) -> GroupView:
    """Return what a policy may know."""
    sight, config = group.sight, group.config
    until = sight.closure.until if sight.closure is not None else None
    unfit = dict.fromkeys(sight.wanted.unfit)
    kept = min(sight.wanted.spread, sum(slice_id not in unfit for _, slice_id in census.idle))
    return GroupView(
        group=config.name,
        min_slices=config.min_slices,
        max_slices=config.max_slices,
        buffer_slices=config.buffer_slices,
        wanted=sight.wanted.count - kept,
        ready=census.ready,
        booting=census.moving,
        waiting=census.waiting,
        fresh=census.fresh,
        going=max(0, census.counted - census.alive),
        idle=tuple(ctx.now - since for since, _ in census.idle),
        availability=availability(group, census, ctx.now)[0],
        retry_in=until - ctx.now if until is not None and until > ctx.now else None,
        boot_estimate=_boot_estimate(group),
        now=ctx.now,
        wall=ctx.wall,
        kept=kept,
    )


def _remove(group: Group, ctx: Context) -> list[Command]:
    """Tell doomed slices to go, and ask for the deletion of orphans, as far as the rate limit allows."""
    sight = group.sight
    told = list(sight.dismissals.items())[: sight.removals.available(ctx.now)]
    told = [(name, reason) for name, reason in told if name in sight.started]
    sight.removals.take(len(told), ctx.now)
    commands: list[Command] = []
    for slice_id, reason in told:
        del sight.dismissals[slice_id]
        commands.append(Tell(ctx.path / slice_id, Dismiss(reason)))
    count = sight.removals.take(len(sight.orphans.waiting), ctx.now)
    return commands + sight.orphans.ask(count)


def _request(group: Group, census: Census, target: SizingPlan, ctx: Context) -> tuple[list[object], list[Command]]:
    """Promise the slices that are missing, and start them: their pools are asked for once that is on disk."""
    state, _ = availability(group, census, ctx.now)
    if not target.request or state is not Availability.AVAILABLE:
        return [], []
    sight = group.sight
    count = sight.creates.take(sight.experience.allowed(target.request, ctx.now), ctx.now)
    records: list[object] = []
    commands: list[Command] = []
    for _ in range(count):
        slice_id = slice_name(group.config.name, ctx.new_id())
        assert slice_id not in group.promises
        records.append(SliceRequested(slice_id, ctx.wall))
        commands.append(Spawn(group.seed.slice(slice_id)))
        sight.reports[slice_id] = None
        sight.born[slice_id] = ctx.now
    if count:
        sight.last_request = ctx.now
    assert census.counted + count <= group.config.max_slices, "INV-F4"
    return records, commands


def _give_up(group: Group, census: Census, target: SizingPlan, ctx: Context) -> list[object]:
    """Doom slices on their way that have been too many for a while."""
    sight = group.sight
    if not target.give_up:
        sight.unwanted_since = None
        return []
    if sight.unwanted_since is None:
        sight.unwanted_since = ctx.now
    if ctx.now - sight.unwanted_since < group.config.timing.scale_down_delay:
        return []
    records: list[object] = []
    for _, _, slice_id in census.coming[: target.give_up]:
        report = sight.reports[slice_id]
        assert report is not None
        assert report.bare, "a slice with workers is not given up unasked (INV-F3)"
        if report.row.trouble is Trouble.CAPACITY:
            # Else demand would come straight back to the queue that it just left.
            close(group, Trouble.CAPACITY, report.row.reason, ctx)
        records += dooming(group, slice_id, GIVEN_UP, ctx, failed=False)
    return records


# Scaling down


def _cordon_longest_idle(group: Group, census: Census, target: SizingPlan, ctx: Context) -> list[Command]:
    sight, timing = group.sight, group.config.timing
    if not target.surplus or sight.cordon is not None or ctx.now < sight.quiet_until:
        return []
    if sight.experience.churn_percent(ctx.now) >= KEEP_ABOVE_CHURN_PERCENT:
        return []
    idle_since, slice_id = census.idle[0]
    if ctx.now - idle_since < timing.scale_down_delay:
        return []
    return _ask_cordon(group, slice_id, ctx, useless=False)


def _cordon_useless(group: Group, census: Census, ctx: Context) -> list[Command]:
    sight = group.sight
    if sight.cordon is not None or ctx.now < sight.quiet_until:
        return []
    chosen = _next_useless(group, census, ctx)
    return [] if chosen is None else _ask_cordon(group, chosen[1], ctx, useless=True)


def _next_useless(group: Group, census: Census, ctx: Context) -> tuple[int, str] | None:
    """Say which slice should go now so that another can take its place: since when it is idle, and its id.

    Of those that nothing that waits could use exactly the longest idle, once it was idle for ``scale_down_delay``.
    """
    sight = group.sight
    idle = _useless_idle(group, census, ctx.now)
    if not idle or ctx.now - idle[0][0] < group.config.timing.scale_down_delay:
        return None
    if sight.experience.churn_percent(ctx.now) >= KEEP_ABOVE_CHURN_PERCENT:
        return None
    trial = _trial(group)
    return idle[0] if not _awaits(census, trial) and sight.renewal.may_begin(trial, ctx.now) else None


def _awaits(census: Census, trial: Newcomers) -> bool:
    """Whether slices on their way may show first whether new ones are of use."""
    return census.absorbing > 0 and trial is not Newcomers.HELPED


def _useless_idle(group: Group, census: Census, now: int) -> list[tuple[int, str]]:
    """Return the idle slices of which some should go so that others can come: none where none could."""
    sight = group.sight
    going = census.counted - census.alive
    if sight.wanted.renew <= going or availability(group, census, now)[0] is not Availability.AT_MAX:
        return []
    named = dict.fromkeys(sight.wanted.useless)
    return [each for each in census.idle if each[1] in named]


def _trial(group: Group) -> Newcomers:
    sight = group.sight
    workers: dict[str, Kind] = {
        slice_id: kind_of(report.workers)
        for slice_id, report in sight.reports.items()
        if report is not None and report.row.state is SliceState.READY
    }
    return sight.renewal.trial(sight.wanted.useless, sight.readied, workers)


def _ask_cordon(group: Group, slice_id: str, ctx: Context, *, useless: bool) -> list[Command]:
    sight, timing = group.sight, group.config.timing
    report = sight.reports[slice_id]
    assert report is not None
    assert report.row.state is SliceState.READY
    sight.last_round = max(sight.last_round + 1, ctx.now)
    sight.cordon = CordonRound(slice_id, sight.last_round, useless)
    cordon = Cordon(slice_id, report.row.workers, sight.last_round)
    return [
        Tell(group.seed.scheduler, cordon),
        SetTimer("cordon", timing.cordon_timeout, Overdue("cordon")),
    ]


def cordoned(group: Group, message: CordonAnswered, ctx: Context) -> Decision | None:
    """Doom the slice if nothing runs there and it is still the one to go; else open it again."""
    sight = group.sight
    asked = sight.cordon
    if asked is None or (asked.slice_id, asked.round) != (message.slice_id, message.round):
        return None
    sight.cordon = None
    stop: list[Command] = [CancelTimer("cordon"), *look(group)]
    report = sight.reports.get(message.slice_id)
    if message.slice_id not in group.promises or report is None:
        return Decision(commands=tuple(stop))
    census = count_slices(group, ctx.now)
    # Reports wait while the disk takes nothing, and so may the answer have: what it says must be what is believed
    # here. The others' clocks can only have begun later.
    fresh = ctx.now - message.at <= ANSWER_AGE
    me = (message.idle_since, message.slice_id)
    if asked.useless:
        longest = fresh and _next_useless(group, census, ctx) == me
        surplus, reason = 1, f"{OF_NO_USE}, and its group has max_slices: another takes its place"
    else:
        longest = fresh and bool(census.idle) and census.idle[0] == me
        target, failed = _plan(group, census, ctx)
        surplus, stop = target.surplus, stop + failed
        reason = f"it was the longest idle, for more than {group.config.timing.scale_down_delay // SECOND} s"
    if message.live_attempts == 0 and surplus and longest:
        if asked.useless:
            first = Prospect(group.config, _boot_estimate(group), renewing=True).trial_takes
            sight.renewal.begin(_trial(group), ctx.now, ctx.wall, first, ctx.rng)
        records = dooming(group, message.slice_id, reason, ctx, failed=False)
        return Decision(records=tuple(records), commands=tuple(stop))
    if message.live_attempts or not longest:
        sight.quiet_until = ctx.now + group.config.timing.evaluation_interval
    undo = Tell(group.seed.scheduler, Uncordon(message.slice_id, message.round))
    return Decision(commands=(undo, *stop))


def _boot_estimate(group: Group) -> int:
    return group.sight.experience.boot_estimate(group.config.timing.boot_estimate)


def withdraw_cordon(group: Group, ctx: Context) -> list[Command]:
    """Lift a cordon that was not answered in time."""
    sight = group.sight
    if sight.cordon is None:
        return []
    undo = Uncordon(sight.cordon.slice_id, sight.cordon.round)
    sight.cordon = None
    sight.quiet_until = ctx.now + group.config.timing.cordon_timeout
    return [Tell(group.seed.scheduler, undo), *look(group)]


# Reporting


def _report(group: Group, census: Census, ctx: Context) -> list[Command]:
    """Tell the fleet how the group stands, if that has changed."""
    sight, config = group.sight, group.config
    state, reason = availability(group, census, ctx.now)
    closure = sight.closure if is_closed(group, ctx.now) else None
    if state is Availability.AT_MAX:
        reason += _renewing(group, census, ctx.now)
    row = GroupRow(
        group=config.name,
        availability=state,
        reason=reason,
        slices=census.counted,
        ready=census.ready,
        wanted=sight.wanted.count,
        min_slices=config.min_slices,
        max_slices=config.max_slices,
        boot_estimate=_boot_estimate(group),
        retry_at=None if closure is None else closure.retry_at,
        orphans=sight.orphans.names,
        policy_failures=sight.policy_failures,
    )
    told = GroupReported(
        row=row,
        availability=state,
        absorbing=census.moving + census.fresh,
        fresh=census.fresh,
        waiting=census.waiting,
        room=max(0, config.max_slices - census.counted) if state.accepts else 0,
        expected_at=census.expected_at,
        idle=len(census.idle),
        going=max(0, census.counted - census.alive),
        renewing=_trial(group) is Newcomers.PENDING,
    )
    if told == sight.told:
        return []
    sight.told = told
    return [Tell(ctx.path.parent, told, conflate="group")]


def _renewing(group: Group, census: Census, now: int) -> str:
    """Say what is done about idle slices that nothing that waits could use: it stays the same until something is."""
    sight = group.sight
    leaving = sum(each.doomed.startswith(OF_NO_USE) for each in group.promises.values())
    if leaving:
        return f"; {leaving} of them {'goes' if leaving == 1 else 'go'} for another: nothing that waits could run there"
    idle, trial = _useless_idle(group, census, now), _trial(group)
    if not idle:
        return ""
    text = f"; nothing that waits could run on {len(idle)} that {'is' if len(idle) == 1 else 'are'} idle"
    if _awaits(census, trial):
        return f"{text}: those on their way will show whether new ones are better"
    if sight.renewal.may_begin(trial, now):
        return f"{text}: one goes for another once it was idle for {group.config.timing.scale_down_delay // SECOND} s"
    at = f"{time_of_day(sight.renewal.retry_at, minutes=False)} UTC"
    if trial is Newcomers.PENDING:
        return f"{text}: one went for another, which is awaited until {at}"
    return f"{text}, nor on the last {sight.renewal.tries} that came for others: the next one goes at {at}"


def _next_look(group: Group, census: Census, now: int) -> int:
    """Return the time until something comes due, in ns: at most the evaluation interval.

    What is due already could not be done for another reason, whose end is an event or comes due itself.
    """
    sight, timing = group.sight, group.config.timing
    due = [now + timing.evaluation_interval]
    if sight.closure is not None and sight.closure.until is not None:
        due.append(sight.closure.until)
    if sight.last_request is not None:
        due.append(sight.last_request + timing.scale_up_delay)
    if census.idle:
        due += [census.idle[0][0] + timing.scale_down_delay, sight.quiet_until]
    if sight.unwanted_since is not None:
        due.append(sight.unwanted_since + timing.scale_down_delay)
    if sight.dismissals or sight.orphans.waiting:
        due.append(now + sight.removals.wait(now))
    return min(each for each in due if each > now) - now
