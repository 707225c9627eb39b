"""How the members of a gang find their leader, and where tasks are reached: the decisions of one job."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given, strategies as st
from jobs_world import command_spec, job_context

from iriscw.jobs.job.decisions import JobDecisions
from iriscw.jobs.job.ledger import JobLedger, compact, evolve
from iriscw.jobs.meeting.messages import EndpointRow, EndpointsChanged, ListEndpoints
from iriscw.jobs.meeting.places import ranks
from iriscw.jobs.messages import AttemptsObserved, LinkNeedsDesired, Placed, Placement, RunAttempts, StopAttempts
from iriscw.jobs.model import AttemptEnd, Ending, Observation, Suspension, TaskState
from iriscw.jobs.suspension.moves import after, keep, kept, resumption_of
from iriscw.jobs.suspension.records import AttemptFreezing, AttemptVacated
from iriscw.runtime.vocabulary import Continue, Decision, Emit, Reply, ReplyTo, Tell

WORKERS = ("w0", "w1", "w0", "w1")
"""Of the members of the gang, by index."""


class Bench:
    """A job of four tasks on two workers, whose decisions are called directly."""

    def __init__(self, group_by="slice-id", **fields):
        self.ledger = JobLedger("job-a", 0, command_spec(replicas=4, group_by=group_by, **fields), 0)
        self.rules = JobDecisions().rules()
        self.ctx = job_context()
        self.events = []
        self.uids = {}
        self.rounds = itertools.count()

    def send(self, message):
        """Decide, and on what it tells itself; give what others are told."""
        outcome = self.rules[type(message)](self.ledger, message, self.ctx)
        decided = outcome if isinstance(outcome, Decision) else Decision(commands=outcome or ())
        for record in decided.records:
            evolve(self.ledger, record)
        self.events += [command.event for command in decided.commands if isinstance(command, Emit)]
        told = [command.message for command in decided.commands if isinstance(command, Tell)]
        for command in decided.commands:
            if isinstance(command, Continue):
                told += self.send(command.message)
        return told

    def place(self, indexes=range(4)):
        """Place tasks; give the orders by index."""
        turn = next(self.rounds)
        self.uids.update({index: f"u{index}-{turn}" for index in indexes})
        placements = tuple(Placement(index, self.uids[index], WORKERS[index], "a") for index in indexes)
        return orders(self.send(Placed(placements)))

    def sees(self, index, state=TaskState.RUNNING, **fields):
        """Have a worker say how a task is."""
        seen = Observation(self.uids[index], state, **{"started": state is TaskState.RUNNING, **fields})
        return self.send(AttemptsObserved(WORKERS[index], "a", (seen,)))

    def leader_runs(self, **fields):
        """Have the leader run; give the orders that follow."""
        return orders(self.sees(0, **{"host": "10.0.0.1", "rendezvous_port": 20_000, **fields}))

    def desired(self):
        """Return what links are told that ask, by index."""
        told = [each for worker in ("w0", "w1") for each in self.send(LinkNeedsDesired(worker, "a"))]
        return {each.order.index: each.order for desired in told for each in desired.attempts}

    def endpoints(self, start=0, limit=10):
        """Ask where the tasks are reached."""
        self.ctx.reply_to = ReplyTo(1)
        (reply,) = self.rules[ListEndpoints](self.ledger, ListEndpoints(start, limit), self.ctx)
        self.ctx.reply_to = None
        assert isinstance(reply, Reply)
        return reply.value

    def restarted(self):
        """Have the job begin anew from a snapshot: notes are lost."""
        again = JobLedger(self.ledger.job_id, 0, self.ledger.spec, 0)
        for record in compact(self.ledger):
            evolve(again, record)
        for each in (again, self.ledger):
            each.counts = {state: count for state, count in each.counts.items() if count}
            each.counts.setdefault(TaskState.PENDING, 0)
        assert again == self.ledger
        self.ledger = again
        return self


def orders(told):
    """Return the orders to run, by index."""
    return {order.index: order for each in told if isinstance(each, RunAttempts) for order in each.orders}


def waiting(ordered):
    """Return the indexes of the members that are to wait."""
    return [index for index, order in sorted(ordered.items()) if order.gang.waits]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_ranks(workers):
    """Local ranks count the members of a worker from 0, node ranks the workers by their first members."""
    found = ranks({index: str(worker) for index, worker in enumerate(workers)})
    nodes = [*dict.fromkeys(workers)]
    for index, worker in enumerate(workers):
        place = found[index]
        assert place.local_rank == workers[:index].count(worker)
        assert place.local_world_size == workers.count(worker)
        assert (place.node_rank, place.nodes, place.leads) == (nodes.index(worker), len(nodes), index == 0)


def test_a_gang_begins_with_its_leader():
    """All are ordered at once, and all but the leader wait; when that runs, they are told where, and go."""
    gang = Bench()
    first = gang.place()
    assert waiting(first) == [1, 2, 3]
    assert not first[0].gang.leader_host
    assert waiting(gang.desired()) == [1, 2, 3]
    second = gang.leader_runs()
    assert (sorted(second), waiting(second)) == ([0, 1, 2, 3], [])
    assert {(each.gang.leader_host, each.gang.leader_port) for each in second.values()} == {("10.0.0.1", 20_000)}
    for index, order in second.items():
        assert (order.uid, order.gang.local_rank) == (first[index].uid, first[index].gang.local_rank)
    assert gang.leader_runs() == {}  # said again, it changes nothing


def test_a_job_that_comes_back_tells_the_same():
    """Where the leader is, is a record: whoever asks after a restart hears it, and nobody waits who did not."""
    gang = Bench()
    gang.place()
    assert waiting(gang.restarted().desired()) == [1, 2, 3]
    gang.leader_runs()
    before = gang.desired()
    assert gang.restarted().desired() == before
    assert waiting(before) == []


@pytest.mark.parametrize("ending", [None, Ending.SUCCEEDED])
def test_a_leader_without_an_address_is_not_waited_for(ending):
    """A worker of an earlier version names no port, and a leader may end before it is seen to run: the others go."""
    gang = Bench()
    gang.place()
    told = orders(gang.sees(0, end=None if ending is None else AttemptEnd(ending, 0)))
    assert waiting(told) == []
    assert {order.gang.leader_host for order in told.values()} == {""}


def test_a_leader_that_fails_stops_its_gang():
    """Nobody goes on without it: members that wait are stopped, and the next gang meets its own leader."""
    gang = Bench(max_retries_failure=1)
    gang.place()
    told = gang.sees(0, end=AttemptEnd(Ending.FAILED, 1))
    assert orders(told) == {}
    stopped = [uid for each in told if isinstance(each, StopAttempts) for uid in each.uids]
    assert sorted(stopped) == [gang.uids[index] for index in (1, 2, 3)]
    for index in (1, 2, 3):
        gang.sees(index, TaskState.BUILDING, end=AttemptEnd(Ending.GANG_STOPPED))
    assert waiting(gang.place()) == [1, 2, 3]


def test_another_leader_is_another_address():
    """After a retry what is known of the leader's earlier attempt means nothing, for a job that came back either."""
    gang = Bench(max_retries_failure=1)
    gang.place()
    gang.leader_runs()
    for index in (1, 2, 3):
        gang.sees(index)
    gang.sees(2, end=AttemptEnd(Ending.FAILED, 1))
    for index in (0, 1, 3):
        gang.sees(index, end=AttemptEnd(Ending.GANG_STOPPED))
    assert waiting(gang.place()) == [1, 2, 3]
    assert waiting(gang.restarted().desired()) == [1, 2, 3]
    told = gang.leader_runs(host="10.0.0.2", rendezvous_port=20_001)
    assert {(each.gang.leader_host, each.gang.leader_port) for each in told.values()} == {("10.0.0.2", 20_001)}


def test_what_has_succeeded_is_not_met_again():
    """Members that are run again after the leader has succeeded do not wait, and are told where it was."""
    gang = Bench(max_retries_failure=1)
    gang.place()
    gang.leader_runs()
    for index in (1, 2, 3):
        gang.sees(index)
    gang.sees(0, end=AttemptEnd(Ending.SUCCEEDED, 0))
    gang.sees(1, end=AttemptEnd(Ending.FAILED, 1))
    for index in (2, 3):
        gang.sees(index, end=AttemptEnd(Ending.GANG_STOPPED))
    told = gang.place((1, 2, 3))
    assert waiting(told) == []
    assert {order.gang.leader_host for order in told.values()} == {"10.0.0.1"}
    assert [told[index].gang.local_rank for index in (1, 2, 3)] == [0, 1, 1]  # counted as of all four


def test_a_job_that_is_no_gang_has_no_places():
    """Its tasks are told nothing of a leader, and none waits."""
    job = Bench(group_by=None)
    assert {order.gang for order in job.place().values()} == {None}
    assert orders(job.sees(0, host="h", rendezvous_port=1)) == {}
    assert job.ledger.met is None


def test_endpoints_are_those_of_attempts_that_run():
    """Each is there from its worker's word on, and gone with its attempt (INV-J9)."""
    job = Bench(group_by=None, ports=("a",), max_retries_failure=1)
    job.place()
    assert job.endpoints().rows == ()
    for index in (0, 2):
        job.sees(index, host=f"h{index}", ports=(("a", index),))
    assert job.endpoints().rows == tuple(
        EndpointRow(index, job.uids[index], f"h{index}", (("a", index),)) for index in (0, 2)
    )
    job.sees(2, end=AttemptEnd(Ending.FAILED, 1), host="h2", ports=(("a", 2),))
    assert [row.index for row in job.endpoints().rows] == [0]
    job.sees(0, end=AttemptEnd(Ending.SUCCEEDED, 0))
    page = job.endpoints()
    assert (page.rows, page.over, page.ended) == ((), (0,), False)
    assert job.ledger.reached == {}  # nor is anything kept of them
    job.place((2,))
    job.sees(2, host="h", ports=(("a", 9),))
    assert [(row.uid, row.ports) for row in job.endpoints().rows] == [(job.uids[2], (("a", 9),))]


def test_endpoints_are_told_again_after_a_restart():
    """They are notes: a job that comes back has none until workers speak, and says so to those who wait."""
    job = Bench(group_by=None)
    job.place()
    job.sees(1, host="h", ports=(("a", 1),))
    rows = job.restarted().endpoints().rows
    job.events.clear()
    job.sees(1, host="h", ports=(("a", 1),))
    assert (rows, [row.host for row in job.endpoints().rows]) == ((), ["h"])
    assert job.events.count(EndpointsChanged("job-a")) == 1
    job.sees(1, host="h", ports=(("a", 1),))
    assert job.events.count(EndpointsChanged("job-a")) == 1  # the same again is no news


def test_a_suspended_attempt_is_not_reached():
    """What its worker says of one that is suspended is not an address."""
    job = Bench(group_by=None)
    job.place()
    job.sees(1, suspension=Suspension.SUSPENDED, host="h")
    assert job.endpoints().rows == ()


def test_endpoints_come_in_pages():
    """A page names where the next one begins."""
    job = Bench(group_by=None)
    job.place()
    for index in range(4):
        job.sees(index, host="h")
    pages = [job.endpoints(start, 3) for start in (0, 3)]
    assert [[row.index for row in page.rows] for page in pages] == [[0, 1, 2], [3]]
    assert [page.next for page in pages] == [3, -1]


STEPS = st.lists(
    st.tuples(st.sampled_from(["runs", "builds", "succeeds", "fails", "restart", "place"]), st.integers(0, 3)),
    max_size=30,
)


@given(STEPS)
def test_nobody_waits_for_ever(steps):
    """Whatever happens: who waits has a leader that lives and is not known to run, and all who go are told the same."""
    gang = Bench(max_retries_failure=100)
    gang.place()
    for kind, index in steps:
        ledger = gang.ledger
        if kind == "restart":
            gang.restarted()
        elif kind == "place" and not ledger.live and ledger.open:
            gang.place([each for each in range(4) if ledger.state_of(each) is TaskState.PENDING])
        elif kind in ("runs", "builds") and ledger.holder(index) is not None:
            state = TaskState.RUNNING if kind == "runs" else TaskState.BUILDING
            gang.sees(index, state, host=f"h{gang.uids[index]}", rendezvous_port=1)
        elif kind in ("succeeds", "fails") and ledger.holder(index) is not None:
            ending = Ending.SUCCEEDED if kind == "succeeds" else Ending.FAILED
            gang.sees(index, end=AttemptEnd(ending, int(kind == "fails")))
        desired = gang.desired()
        met = gang.ledger.met
        leader = gang.ledger.holder(0)
        for order in desired.values():
            assert order.gang.leads == (order.index == 0)
            if order.gang.waits:
                assert leader is not None
                assert leader.state is not TaskState.RUNNING
        hosts = {order.gang.leader_host for order in desired.values() if not order.gang.waits and not order.gang.leads}
        assert len(hosts) <= 1
        if met is not None and leader is not None and met.uid == leader.uid and desired:
            assert hosts <= {met.host}


@pytest.mark.parametrize("vacated", [False, True])
def test_a_suspended_attempt_takes_its_address_along(vacated):
    """Whoever brings it back is told where it was reached, whether its worker said so while it was frozen or after."""
    ports, host = (("web", 80),), "10.0.0.1"
    said = [
        AttemptFreezing(0, "u", "/u", 1, *(((), 0, "") if vacated else (ports, 0, host))),
        AttemptVacated(0, "u", "/u", ports if vacated else (), 0, 0, 2, host if vacated else ""),
    ]
    move = attrs.evolve(after(None, said), grant="g")
    kept_move = kept(keep(0, move))
    for each in (move, kept_move):
        leave = resumption_of(each, ())
        assert (leave.ports, leave.host) == (ports, host)
