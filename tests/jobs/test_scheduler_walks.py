"""The scheduler in any order of events that jobs, links and fleet can bring: room, order, demand, answers."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st
from scheduler_walk import CPUS, SPECS, WORKERS, Walk

from iriscw.jobs.scheduler import DEMAND_REPEAT

WALKS = settings(max_examples=60, deadline=None, derandomize=True)
STEPS = 25


def steps(walk, data):
    """Take steps, each drawn from all that may come next."""
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = dict(walk.choices())
        choices[data.draw(st.sampled_from(list(choices)))]()
        yield


@WALKS
@given(st.data())
def test_room_is_the_sum_over_attempts_that_live(data):
    """Once all jobs have reported: by worker and incarnation, absent ones included, never more than there is (J3)."""
    walk = Walk()
    for _ in steps(walk, data):
        state = walk.state
        if walk.asked or state.syncing:
            continue
        known = {uid for attempts in walk.jobs.values() for uid in attempts}
        held = {*state.inventory.where, *state.absent_of}
        assert held == known
        for host in state.inventory.hosts.values():
            used = sum(SPECS[each.job_id].demand.cpu_milli for each in host.commitments.values())
            assert used == CPUS * 1000 - host.free.cpu_milli <= CPUS * 1000
        assert all(state.absent.values())
        assert all(host.commitments for host in state.older.values())


@WALKS
@given(st.data())
def test_the_fleet_knows_how_many_attempts_live(data):
    """Of each worker that it has announced, in its present incarnation."""
    walk = Walk()
    for _ in steps(walk, data):
        if walk.asked or walk.state.syncing:
            continue
        taken = walk.taken()
        for worker, incarnation in walk.workers.items():
            if worker in walk.state.inventory.hosts:
                assert walk.activity.get(worker) == (incarnation, taken[worker, incarnation])


@WALKS
@given(st.data())
def test_a_cordon_is_answered_with_what_lives_there(data):
    """At once, or when all jobs have reported; by then nothing is placed there any more (INV-F3)."""
    walk = Walk()
    for _ in steps(walk, data):
        if walk.state.syncing:
            continue
        rounds = {each.round: each for each in walk.answers}
        for worker, round_ in walk.cordons.items():
            assert round_ in rounds
            host = walk.state.inventory.hosts.get(worker)
            assert host is None or not host.placeable or host.cordon is None
        for worker in WORKERS:
            if worker in walk.cordons:
                walk.cordon(worker)
                if not walk.asked:
                    live = sum(count for (name, _), count in walk.taken().items() if name == worker)
                    assert walk.answers[-1].live_attempts == live


@WALKS
@given(st.data())
def test_what_fits_is_placed(data):
    """With all workers there, what waits is too large for what is free, and a gang for each slice (INV-J4, INV-J7)."""
    walk = Walk()
    for _ in steps(walk, data):
        pass
    walk.settle()
    assert not walk.state.syncing
    free = [host.free for host in walk.state.inventory.hosts.values()]
    assert len(free) == len(WORKERS)
    for name, waits in walk.pending.items():
        spec = SPECS[name]
        if waits and spec.group_by is None:
            assert not any(room.fits(spec.demand) for room in free)
        elif waits and not walk.jobs[name]:
            assert not any(room.times(spec.demand) >= spec.replicas for room in free)


@WALKS
@given(st.data())
def test_demand_is_what_waits(data):
    """The fleet knows how many tasks of each kind no worker takes, and hears it again, as long as any do."""
    walk = Walk()
    for _ in steps(walk, data):
        pass
    walk.settle()
    waiting = sum(len(waits) for name, waits in walk.pending.items() if SPECS[name].group_by is None)
    gangs = sum(len(waits) for name, waits in walk.pending.items() if SPECS[name].group_by and not walk.jobs[name])
    assert sum(walk.demand.values()) == waiting + gangs
    told, walk.demand = walk.demand, {}
    assert walk.clocks["demand"].delay == DEMAND_REPEAT
    walk.ring("demand")
    assert walk.demand == told


@WALKS
@given(st.data())
def test_attempts_on_workers_that_are_gone_are_called_lost(data):
    """Fenced if their worker is; those whose worker nobody tells of are asked for, again and again (J11)."""
    walk = Walk()
    for _ in steps(walk, data):
        if walk.asked or walk.state.syncing:
            continue
        for place in walk.state.absent:
            assert place in walk.missed or "missed" in walk.clocks
        lost = {(each.worker_id, each.incarnation) for each in walk.lost}
        for worker, incarnation in walk.taken():
            host = walk.state.inventory.hosts.get(worker)
            here = host is not None and host.info.incarnation == incarnation
            assert here or (worker, incarnation) in lost or (worker, incarnation) in walk.state.absent


@WALKS
@given(st.data())
def test_links_hear_of_all_jobs_on_their_worker(data):
    """A link that begins waits for exactly those."""
    walk = Walk()
    for _ in steps(walk, data):
        if walk.asked or walk.state.syncing:
            continue
        for worker, incarnation in list(walk.workers.items()):
            if worker not in walk.state.inventory.hosts:
                continue
            here = [
                name
                for name, attempts in walk.jobs.items()
                for where in attempts.values()
                if where[1:] == (worker, incarnation)
            ]
            walk.expects.clear()
            walk.link(worker)
            assert {*walk.expects[worker].job_ids} == {*here}
