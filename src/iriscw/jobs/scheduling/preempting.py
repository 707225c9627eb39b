"""How work of a higher band gets room that attempts of lower bands hold.

*When.* A task that no worker takes waits :data:`PATIENCE` first: room that comes free by itself in that time costs
nobody anything. Room that is on its way does not count: a node boots for minutes, and nobody knows for how many. Then
somebody of a strictly lower band has to give way, if that makes room (:mod:`iriscw.jobs.scheduling.victims` chooses
who).

*A claim* is the room that was asked for, on one worker for each task. It is taken from what is free there at once, so
nobody else is placed into it, neither while the victims leave nor when they have left: not a task of the same band, and
not a victim that comes back. When the last victim has left, the task is placed there before anything else. A claim is
dropped if its task found room elsewhere, was withdrawn, or its worker cannot be used any more, and after
:data:`CLAIM_LIMIT`; its room is everybody's then.

*No ping-pong.* A suspended attempt is not brought back where a task of a higher band waits that could have it leave
again (:func:`held`). A task for which there would be no room whoever left holds nobody back.

Nothing of this is durable. Who has to give way is written down by its job; a new scheduler learns from the report what
still lives, sees the room come back as any other, and gives it to who waits in the order of bands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import attrs

from iriscw.cloud.model import Capacity
from iriscw.jobs.messages import Due
from iriscw.jobs.model import Band, Preemption
from iriscw.jobs.scheduling.placement import MAX_ATTEMPTS_PER_WORKER, UNIQUE, Host
from iriscw.jobs.scheduling.queues import Key, Shape, Waiting
from iriscw.jobs.scheduling.victims import Victim, VictimChoice, WorkerRoom, choose, choose_within
from iriscw.jobs.step_limits import parts_of
from iriscw.jobs.suspension.messages import PreemptAttempts
from iriscw.runtime.vocabulary import SECOND, Command, Context, SetTimer, Tell

if TYPE_CHECKING:
    from iriscw.jobs.scheduling.state import Scheduler

PATIENCE = 10 * SECOND
"""How long a task waits for a worker before another one has to give way."""

EVERY = 1 * SECOND
"""Between two looks at who could give way."""

CLAIM_LIMIT = 900 * SECOND
"""How long room is kept that does not come: longer than an attempt may take to be frozen, and then to be stopped."""

CLAIMS_AT_ONCE = 32
"""Tasks placed alike for which room is made in one step."""

ROOMS = 64
"""Workers that are compared for them: on each of these there would be room."""

GROUPS = 8
"""Groups of workers that are compared for a gang: in each of these there would be room."""

LOOKS = 5_000
"""Attempts, and workers, that are looked at in one step: about 5 ms."""


@attrs.define(eq=False)
class RoomClaim:
    """Room that is kept for tasks of one shape, on a worker for each."""

    number: int
    key: Key
    demand: Capacity
    hosts: tuple[Host, ...]
    leaving: dict[str, None]
    """The attempts that have to leave first and have not yet."""
    names: tuple[str, ...]
    """Of the jobs that give way, for people."""
    since: int


@attrs.define(eq=False)
class Claims:
    """Who was asked to give way, and for whom."""

    made: dict[int, RoomClaim] = attrs.field(factory=dict)
    ripe: dict[int, None] = attrs.field(factory=dict)
    """Those for which everybody has left."""
    leaving: dict[str, RoomClaim | None] = attrs.field(factory=dict)
    """The attempts that leave and hold room still, by uid, with what they were asked for, if that is known."""
    stuck: dict[str, None] = attrs.field(factory=dict)
    """Those that had to and did not: nobody waits for them, or asks them again."""
    counts: dict[Key, int] = attrs.field(factory=dict)
    """For how many tasks of each shape room is kept."""
    hopeless: dict[Key, None] = attrs.field(factory=dict)
    """Shapes for which there would be no room whoever left, as of the last look."""
    held: dict[str, None] = attrs.field(factory=dict)
    """Suspended attempts that are not brought back because of somebody who waits."""
    looked_at: int = -EVERY
    first: int = 0
    """The worker from which the next look goes on, as a number in order."""
    first_group: int = 0
    """Likewise of the groups that gangs are placed in."""
    numbers: int = 0
    asked: int = 0
    """How many attempts were ever asked to give way."""

    def left(self, uid: str) -> None:
        """An attempt holds no room any more."""
        self.stuck.pop(uid, None)
        claim = self.leaving.pop(uid, None)
        if claim is not None:
            claim.leaving.pop(uid, None)
            if claim.number in self.made and not claim.leaving:
                self.ripe[claim.number] = None


# Who gives way


def consider(state: Scheduler, ctx: Context) -> Iterator[Command]:
    """Have others give way to what has waited for long enough; look again when the next one has."""
    claims = state.claims
    before = claims.hopeless
    claims.hopeless = {key: None for key in before if key in state.queues.blocked}
    _drop_useless(state, ctx)
    shapes = _waiting(state)
    if not state.preempts or not shapes:
        return
    soonest = claims.looked_at + EVERY
    if soonest > ctx.now:
        yield SetTimer("preempt", soonest - ctx.now, Due("preempt"))
        return
    claims.looked_at = ctx.now
    looks = LOOKS
    again: list[int] = []
    for shape in shapes:
        due = shape.blocked_since + PATIENCE
        if due > ctx.now:
            again.append(due)
        elif looks <= 0:
            again.append(ctx.now + EVERY)
        else:
            commands, looks = _make_room(state, shape, looks, ctx)
            yield from commands
    if any(key not in before for key in claims.hopeless):
        let_go(state)
    again += [claim.since + CLAIM_LIMIT for claim in claims.made.values()]
    if again:
        yield SetTimer("preempt", max(min(again) - ctx.now, EVERY), Due("preempt"))


def remind(state: Scheduler, job: Waiting, ctx: Context) -> Iterator[Command]:
    """Ask the attempts of a job again that were asked to give way: its actor may be new."""
    uids: dict[Key, list[str]] = {}
    for uid in job.live:
        claim = state.claims.leaving.get(uid)
        if claim is not None:
            uids.setdefault(claim.key, []).append(uid)
    for key, each in uids.items():
        shape = state.queues.shapes.get(key)
        if shape is not None:
            for part in parts_of(tuple(each)):
                yield Tell(ctx.path.parent / job.job_id, PreemptAttempts(part, _said(shape)))


def _waiting(state: Scheduler) -> list[Shape]:
    """Return what waits while something of a lower band holds room, or would come back; the highest band first."""
    if not any(shape.band is not Band.BATCH for shape in state.queues.blocked.values()):
        return []
    jobs = [job for job in state.jobs.values() if job.live or job.job_id in state.returns.by_job]
    lowest = max((job.spec.band for job in jobs if job.spec is not None), default=0)
    return sorted(
        (shape for shape in state.queues.blocked.values() if shape.band < lowest), key=lambda shape: shape.band
    )


def _make_room(state: Scheduler, shape: Shape, looks: int, ctx: Context) -> tuple[list[Command], int]:
    claims = state.claims
    wanted = shape.count - claims.counts.get(shape.key, 0)
    if wanted <= 0:
        return [], looks
    if shape.gang is not None:
        found, looks = _for_gang(state, shape, looks)
        choices = [] if found is None else [found]
    else:
        choices, looks = _for_singles(state, shape, min(wanted, CLAIMS_AT_ONCE), looks)
    if choices:
        claims.hopeless.pop(shape.key, None)
    elif looks > 0 and not claims.counts.get(shape.key):
        claims.hopeless[shape.key] = None
    asked: dict[str, list[str]] = {}
    for choice in choices:
        _claim(state, shape, choice, asked, ctx)
    commands: list[Command] = []
    for job_id, uids in asked.items():
        told = (PreemptAttempts(part, _said(shape)) for part in parts_of(tuple(uids)))
        commands += (Tell(ctx.path.parent / job_id, each) for each in told)
    return commands, looks


def _for_singles(state: Scheduler, shape: Shape, wanted: int, looks: int) -> tuple[list[VictimChoice], int]:
    """Choose for some tasks, one by one: the next one knows what was chosen for those before."""
    claims = state.claims
    hosts = [host for pool in shape.candidates(state.inventory) for host in pool.hosts.values()]
    start = claims.first % len(hosts) if hosts else 0
    rooms: dict[str, WorkerRoom] = {}
    seen = 0
    for host in (*hosts[start:], *hosts[:start]):
        if len(rooms) >= ROOMS or looks <= 0:
            break
        seen += 1
        looks -= 1 + len(host.commitments)
        room = _room(state, shape, host)
        if room is not None and _most(room, shape.wish.demand):
            rooms[host.info.worker_id] = room
    claims.first = 0 if seen >= len(hosts) else start + seen
    choices: list[VictimChoice] = []
    taken: dict[str, None] = {}
    placed: dict[str, int] = {}
    heap: list[tuple[tuple[int, int, int, int], int, str]] = []
    order = {worker_id: number for number, worker_id in enumerate(rooms)}
    best: dict[str, VictimChoice] = {}

    def price(worker_id: str) -> None:
        room = _less(rooms[worker_id], shape.wish.demand, placed.get(worker_id, 0), taken)
        found = choose_within([room], shape.wish.demand, 1)
        if found is not None:
            best[worker_id] = found
            heappush(heap, (found.price(), order[worker_id], worker_id))

    for worker_id in rooms:
        price(worker_id)
    heapify(heap)
    while heap and len(choices) < wanted:
        _, _, worker_id = heappop(heap)
        found = best[worker_id]
        if any(uid in taken for victim in found.victims for uid in victim.uids):
            price(worker_id)  # a gang that was chosen for another task leaves here as well
            continue
        choices.append(found)
        placed[worker_id] = placed.get(worker_id, 0) + 1
        taken.update((uid, None) for victim in found.victims for uid in victim.uids)
        price(worker_id)
    return choices, looks


def _less(room: WorkerRoom, demand: Capacity, placed: int, taken: dict[str, None]) -> WorkerRoom:
    """Return what a worker is once some have left and others have come."""
    free, spare = room.free, room.spare
    staying: list[Victim] = []
    for victim in room.victims:
        if victim.uids[0] in taken:
            for worker_id, capacity, attempts in victim.rooms:
                if worker_id == room.worker_id:
                    free, spare = free.plus(capacity), spare + attempts
        else:
            staying.append(victim)
    for _ in range(placed):
        free, spare = free.minus(demand), spare - 1
    return WorkerRoom(room.worker_id, free, spare, tuple(staying))


def _most(room: WorkerRoom, demand: Capacity) -> int:
    """Tell for how many tasks there would be room if everybody left who may have to."""
    free, spare = room.free, room.spare
    for victim in room.victims:
        for worker_id, capacity, attempts in victim.rooms:
            if worker_id == room.worker_id:
                free, spare = free.plus(capacity), spare + attempts
    return max(0, min(spare, free.times(demand)))


def _for_gang(state: Scheduler, shape: Shape, looks: int) -> tuple[VictimChoice | None, int]:
    """Choose among some groups of workers of which each would do, and go on behind these when none did."""
    assert shape.gang is not None
    size, demand = shape.jobs[0].count, shape.wish.demand
    groups: dict[str, list[Host]] = {}
    for pool in shape.candidates(state.inventory):
        for host in pool.hosts.values():
            value = host.info.attributes.get(shape.gang)
            if value is not None:
                groups.setdefault(str(value), []).append(host)
    names = list(groups)
    start = state.claims.first_group % len(names) if names else 0
    found: list[list[WorkerRoom]] = []
    seen = 0
    for name in (*names[start:], *names[:start]):
        if len(found) >= GROUPS or looks <= 0:
            break
        seen += 1
        looks -= sum(1 + len(host.commitments) for host in groups[name])
        rooms = [room for host in groups[name] if (room := _room(state, shape, host)) is not None]
        if sum(_most(room, demand) for room in rooms) >= size:
            found.append(rooms)
    state.claims.first_group = 0 if seen >= len(names) else start + seen
    return choose(found, demand, size), looks


def _room(state: Scheduler, shape: Shape, host: Host) -> WorkerRoom | None:
    """Return what a worker offers a shape; None if that may not run there at all."""
    special = [each for each in shape.wish.required() if each.key in UNIQUE]
    if not host.placeable or not all(each.satisfied(host.info.attributes) for each in special):
        return None
    claims = state.claims
    free = host.free
    spare = MAX_ATTEMPTS_PER_WORKER - len(host.commitments) - sum(host.claimed.values())
    victims: dict[str, Victim] = {}
    for uid, each in host.commitments.items():
        if uid in claims.leaving:
            free, spare = free.plus(each.demand), spare + 1
            continue
        job = state.jobs.get(each.job_id)
        spec = None if job is None or uid in claims.stuck else job.spec
        if job is None or spec is None or job.reporting or job.withdrawn or spec.band <= shape.band:
            continue
        if spec.preemption is Preemption.NEVER:
            continue
        if spec.group_by is None:
            freezes = spec.preemption is Preemption.FREEZE
            rooms = ((host.info.worker_id, each.demand, 1),)
            victims[uid] = Victim((uid,), spec.band, rooms, freezes, each.placed_wall_ns)
        elif job.job_id not in victims:
            gang = _gang(state, job)
            if gang is not None:
                victims[job.job_id] = gang
    return WorkerRoom(host.info.worker_id, free, spare, tuple(victims.values()))


def _gang(state: Scheduler, job: Waiting) -> Victim | None:
    """Return a gang as a victim; None if it leaves already."""
    assert job.spec is not None
    rooms: dict[str, int] = {}
    since = 0
    for uid in job.live:
        if uid in state.claims.leaving:
            return None
        host = state.inventory.where.get(uid)
        if host is not None:
            rooms[host.info.worker_id] = rooms.get(host.info.worker_id, 0) + 1
            since = max(since, host.commitments[uid].placed_wall_ns)
    each = job.spec.demand
    named = tuple((worker_id, _times(each, number), number) for worker_id, number in rooms.items())
    return Victim(tuple(job.live), job.spec.band, named, False, since)


def _times(demand: Capacity, number: int) -> Capacity:
    return Capacity(
        demand.cpu_milli * number,
        demand.memory_bytes * number,
        demand.disk_bytes * number,
        demand.gpu_count * number,
        demand.gpu_class,
    )


def _said(shape: Shape) -> str:
    job = shape.jobs[0]
    assert job.spec is not None
    return f"{job.spec.name} ({shape.band.name.lower()})"


# Claims


def _claim(state: Scheduler, shape: Shape, choice: VictimChoice, asked: dict[str, list[str]], ctx: Context) -> None:
    claims = state.claims
    claims.numbers += 1
    hosts = tuple(state.inventory.hosts[worker_id] for worker_id in choice.worker_ids)
    leaving: dict[str, None] = {}
    names: dict[str, None] = {}
    for victim in choice.victims:
        for uid in victim.uids:
            host = state.inventory.where[uid]
            job = state.jobs[host.commitments[uid].job_id]
            assert job.spec is not None
            names[job.spec.name] = None
            leaving[uid] = None
            asked.setdefault(job.job_id, []).append(uid)
    for host in dict.fromkeys(hosts):  # those that leave already, for somebody else, may be the room of this one
        for uid in host.commitments:
            earlier = claims.leaving.get(uid)
            if uid in claims.leaving and (earlier is None or earlier.number not in claims.made):
                leaving[uid] = None
    claim = RoomClaim(claims.numbers, shape.key, shape.wish.demand, hosts, leaving, tuple(names), ctx.now)
    claims.made[claim.number] = claim
    claims.counts[shape.key] = claims.counts.get(shape.key, 0) + len(hosts)
    claims.asked += len(leaving)
    for uid in leaving:
        claims.leaving[uid] = claim
    for host in hosts:
        host.claim(claim.number, claim.demand)
    if not leaving:
        claims.ripe[claim.number] = None


def drop(state: Scheduler, claim: RoomClaim) -> None:
    """Keep room no longer: it is everybody's."""
    claims = state.claims
    if claims.made.pop(claim.number, None) is None:
        return
    claims.ripe.pop(claim.number, None)
    claims.counts[claim.key] -= len(claim.hosts)
    if not claims.counts[claim.key]:
        del claims.counts[claim.key]
    for host in dict.fromkeys(claim.hosts):
        host.unclaim(claim.number, claim.demand)
        if state.inventory.hosts.get(host.info.worker_id) is host and host.placeable:
            state.inventory.freed(host)
            state.queues.wake(host, state.inventory)
            state.returns.wake(host.info.node)


def _drop_useless(state: Scheduler, ctx: Context) -> None:
    for claim in list(state.claims.made.values()):
        lasts = ctx.now < claim.since + CLAIM_LIMIT
        if not lasts:
            for uid in claim.leaving:
                state.claims.leaving.pop(uid, None)
                state.claims.stuck[uid] = None
        if not (lasts and claim.key in state.queues.shapes and all(usable(state, host) for host in claim.hosts)):
            drop(state, claim)
    for claim in reversed(list(state.claims.made.values())):  # some of its tasks found room elsewhere: the latest go
        if state.claims.counts[claim.key] > state.queues.shapes[claim.key].count:
            drop(state, claim)


def usable(state: Scheduler, host: Host) -> bool:
    """Tell whether a worker may still be given work."""
    return host.placeable and state.inventory.hosts.get(host.info.worker_id) is host


def ripe(state: Scheduler) -> Iterator[tuple[Shape, tuple[Host, ...]]]:
    """Yield what is to be placed where others have left, as the head of its ring; the claims are over."""
    claims = state.claims
    for number in list(claims.ripe):
        claim = claims.made.get(number)
        if claim is None:
            claims.ripe.pop(number, None)
            continue
        shape = state.queues.shapes.get(claim.key)
        drop(state, claim)
        if shape is None or not all(usable(state, host) for host in claim.hosts):
            continue
        wanted = shape.jobs[0].count if shape.gang is not None else 1
        fits = all(_takes(host, claim, claim.hosts.count(host)) for host in dict.fromkeys(claim.hosts))
        if wanted == len(claim.hosts) and fits:
            state.queues.lead(shape)
            yield shape, claim.hosts


def _takes(host: Host, claim: RoomClaim, number: int) -> bool:
    return host.takes(claim.demand) and host.free.times(claim.demand) >= number


# Who comes back


def held(state: Scheduler, host: Host, band: Band) -> bool:
    """Tell whether nothing comes back to a worker, as a task of a higher band waits that could have it leave again."""
    if not state.preempts:
        return False
    return any(
        shape.band < band
        and shape.key not in state.claims.hopeless
        and shape.count > state.claims.counts.get(shape.key, 0)
        and host.pool in shape.candidates(state.inventory)
        for shape in state.queues.blocked.values()
    )


def let_go(state: Scheduler) -> bool:
    """Look again for workers for what was held back. Tell whether there is anything."""
    found = [uid for uid in state.claims.held if uid in state.returns.waiting]
    state.claims.held.clear()
    state.returns.due.update(dict.fromkeys(found))
    return bool(found)


# For people


def waits_for(state: Scheduler, shape: Shape, now: int) -> str:
    """Say who gives way to a shape; empty if nobody does."""
    claims = [claim for claim in state.claims.made.values() if claim.key == shape.key]
    if not claims:
        return ""
    names = dict.fromkeys(name for claim in claims for name in claim.names)
    number = sum(len(claim.leaving) for claim in claims)
    where = dict.fromkeys(host.info.worker_id for claim in claims for host in claim.hosts)
    since = (now - min(claim.since for claim in claims)) // SECOND
    attempts = "1 attempt" if number == 1 else f"{number} attempts"
    return f"{attempts} of {_some(names)} must give way first, on {_some(where)}, since {since} s"


def behind(state: Scheduler, shape: Shape) -> str:
    """Say how many tasks of higher bands wait beside a shape; empty if none do."""
    number = sum(each.count for each in state.queues.blocked.values() if each.band < shape.band)
    if not number:
        return ""
    return "1 task of a higher band waits, too" if number == 1 else f"{number} tasks of higher bands wait, too"


NAMED = 3
"""Jobs, or workers, that a sentence names."""


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more
