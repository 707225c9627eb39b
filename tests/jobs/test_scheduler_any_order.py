"""The scheduler in any order of events that jobs, links and fleet can bring: room, order, demand, answers."""

from __future__ import annotations

from hypothesis import given, strategies as st
from scheduler_walk import CPUS, SPECS, WORKERS, Walk

from iriscw.jobs.scheduling.scheduler import DEMAND_REPEAT
from profiles import examples

STEPS = 25
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


@examples(120)
@given(st.data(), st.booleans())
def test_any_history(data, suspends):
    """After each step room, losses and what others know fit what lives; in the end what fits is placed, and demand is
    what does not.
    """
    walk, words = (busy(), ABOUT_SUSPENDED) if suspends else (Walk(), ("",))
    looks = data.draw(st.sampled_from([(), (cordons_are_answered,), (links_hear_of_all_jobs,)]))
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = {name: each for name, each in walk.choices() if any(word in name for word in words)}
        choices[data.draw(st.sampled_from(list(choices)))]()
        if walk.state.syncing:
            continue
        if not walk.asked:
            for check in (room_is_what_lives, the_fleet_knows, losses_are_called, suspended_wait):
                check(walk)
        for look in looks:
            look(walk)
    walk.settle()
    assert not walk.state.syncing
    what_fits_is_placed(walk)
    demand_is_what_waits(walk)


def room_is_what_lives(walk):
    """By worker and incarnation, absent ones included, never more than there is (J3)."""
    state = walk.state
    known = {uid for attempts in walk.jobs.values() for uid in attempts}
    known |= {each.uid for mail in walk.mail.values() for each in mail}
    assert {*state.inventory.where, *state.absent_of} == known
    for host in state.inventory.hosts.values():
        used = sum(SPECS[each.job_id].demand.cpu_milli for each in host.commitments.values())
        assert used == CPUS * 1000 - host.free.cpu_milli <= CPUS * 1000
    assert all(state.absent.values())
    assert all(host.commitments for host in state.older.values())


def the_fleet_knows(walk):
    """How many attempts live on each worker that it has announced, in its present incarnation."""
    taken = walk.taken()
    for worker, incarnation in walk.workers.items():
        if worker in walk.state.inventory.hosts:
            assert walk.activity.get(worker) == (incarnation, taken[worker, incarnation])


def losses_are_called(walk):
    """Attempts on workers that are gone are; those whose worker nobody tells of are asked for again (J11)."""
    for place in walk.state.absent:
        assert place in walk.missed or "missed" in walk.clocks
    lost = {(each.worker_id, each.incarnation) for each in walk.lost}
    for worker, incarnation in walk.taken():
        host = walk.state.inventory.hosts.get(worker)
        here = host is not None and host.info.incarnation == incarnation
        assert here or (worker, incarnation) in lost or (worker, incarnation) in walk.state.absent


def suspended_wait(walk):
    """Exactly those wait for a worker that are to go on."""
    assert {*walk.state.returns.waiting} == {each.uid for name in walk.jobs for each in walk.waits(name)}


def cordons_are_answered(walk):
    """With what lives there, at once or when all have reported; by then nothing is placed there any more (INV-F3)."""
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


def links_hear_of_all_jobs(walk):
    """A link that begins waits for exactly those that have attempts on its worker."""
    if walk.asked:
        return
    for place in list(walk.workers.items()):
        worker = place[0]
        if worker not in walk.state.inventory.hosts:
            continue
        here = {name for name, attempts in walk.jobs.items() for where in attempts.values() if where[1:] == place}
        mail = ((name, each) for name, mail in walk.mail.items() for each in mail)
        here |= {name for name, each in mail if (each.worker_id, each.incarnation) == place}
        walk.expects.clear()
        walk.link(worker)
        assert {*walk.expects[worker].job_ids} == here


def what_fits_is_placed(walk):
    """With all workers there, what waits is too large for what is free, and a gang for each slice (INV-J4, INV-J7).
    What is suspended and to go on waits for a worker of its machine.
    """
    free = [host.free for host in walk.state.inventory.hosts.values()]
    assert len(free) == len(WORKERS)
    for name, waits in walk.pending.items():
        spec = SPECS[name]
        if waits and spec.group_by is None:
            assert not any(room.fits(spec.demand) for room in free)
        elif waits and not walk.jobs[name]:
            assert not any(room.times(spec.demand) >= spec.replicas for room in free)
    for name in walk.jobs:
        for each in walk.waits(name):
            hosts = walk.state.inventory.nodes[each.node].values()
            assert not any(host.takes(SPECS[name].demand) for host in hosts)


def demand_is_what_waits(walk):
    """The fleet knows how many tasks of each kind no worker takes, and hears it again, as long as any do."""
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
    assert walk.clocks["demand"].delay == DEMAND_REPEAT


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
