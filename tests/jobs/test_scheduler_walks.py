"""The scheduler in any order of events that jobs, links and fleet can bring: room, order, demand, answers."""

from __future__ import annotations

from hypothesis import given, strategies as st
from scheduler_walk import CPUS, SPECS, WORKERS, Walk

from iriscw.jobs.scheduling.scheduler import DEMAND_REPEAT
from profiles import examples

WALKS = examples(60)
STEPS = 25


def steps(walk, data, words=("",)):
    """Take steps, each drawn from all that may come next, or from those with one of these words in their names."""
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = {name: each for name, each in walk.choices() if any(word in name for word in words)}
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
        known |= {each.uid for mail in walk.mail.values() for each in mail}
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
def test_suspended_attempts_wait_as_jobs_have_it(data):
    """Exactly those that are to go on; in the end none of them, if a worker of its machine has room."""
    walk = busy()
    for _ in steps(walk, data, ABOUT_SUSPENDED):
        if not (walk.asked or walk.state.syncing):
            assert {*walk.state.returns.waiting} == {each.uid for name in walk.jobs for each in walk.waits(name)}
    walk.settle()
    for name in walk.jobs:
        for each in walk.waits(name):
            hosts = walk.state.inventory.nodes[each.node].values()
            assert not any(host.takes(SPECS[name].demand) for host in hosts)


ABOUT_SUSPENDED = ("suspended", "go on", "stay", "read", "report", "anew", "restart", "is announced", "links", "lost")


def busy():
    """Return a walk in which tasks of two jobs run."""
    walk = Walk()
    for worker in WORKERS:
        walk.announce(worker, fresh=True)
        walk.link(worker)
    walk.introduce("a")
    walk.introduce("c")
    return walk


def test_a_wish_between_two_parts_of_a_report():
    """One of which the job has said already that it stays suspended is not forgotten when it is to go on."""
    walk = busy()
    uids = [*walk.jobs["a"]]
    for uid in uids:
        walk.suspend("a", uid)
    walk.awake("a")
    walk.report_part("a")
    walk.want("a", uids[0])
    assert walk.mail["a"] == [], "nothing is placed for a job that reports"
    walk.report_part("a")
    walk.report_part("a")
    assert [each.uid for each in walk.mail["a"]] == uids[:1]


def test_a_pass_between_two_parts_of_a_report():
    """One that a part has named waits for the end of the report, and is looked for then."""
    walk = busy()
    uids = [*walk.jobs["a"]]
    for uid in uids:
        walk.suspend("a", uid)
    walk.awake("a")
    walk.want("a", uids[0])
    walk.report_part("a")
    for name in ("b", "g"):
        walk.introduce(name)
    walk.report_part("a")
    walk.report_part("a")
    assert [each.uid for each in walk.mail["a"]] == uids[:1]


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
    # Of suspended ones only those count that further workers may help.
    hosts = walk.state.inventory.hosts.values()
    helped = [name for name in walk.jobs if not any(host.takes(SPECS[name].demand) for host in hosts)]
    suspended = sum(len(walk.waits(name)) for name in helped)
    assert sum(walk.demand.values()) == waiting + gangs + suspended
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
            here += [
                name
                for name, mail in walk.mail.items()
                for each in mail
                if (each.worker_id, each.incarnation) == (worker, incarnation)
            ]
            walk.expects.clear()
            walk.link(worker)
            assert {*walk.expects[worker].job_ids} == {*here}
