"""The scheduler: its agreements with jobs, links and fleet, what it counts, forgets, and does not tell twice."""

from __future__ import annotations

from jobs_world import command_spec, job_context, worker_info
from scheduler_walk import SPECS, Walk

from iriscw.cloud.model import Capacity
from iriscw.fleet.messages import (
    Cordon,
    Cordoned,
    DemandChanged,
    DemandRouted,
    SliceGone,
    WorkerLost,
    WorkerReady,
    WorkersMissed,
)
from iriscw.jobs.messages import (
    AttemptsLost,
    AttemptsOver,
    Due,
    JobAbsent,
    JobAwake,
    JobIntroduced,
    JobReport,
    JobsKnown,
    JobWithdrawn,
    LinkExpects,
    LinkGone,
    LinkNeedsDesired,
    LinkStarted,
    LinkSynced,
    LinkUnwanted,
    LiveAttempt,
    NeverPlaced,
    Pass,
    Placed,
    Placement,
    ReportJob,
)
from iriscw.jobs.scheduling import explaining
from iriscw.jobs.scheduling.messages import ExplainDemandJobs, ExplainJobs
from iriscw.jobs.scheduling.scheduler import REPORT_WINDOW, SchedulerDecisions
from iriscw.jobs.scheduling.state import DEMAND_INTERVAL, Scheduler
from iriscw.runtime.vocabulary import ActorPath, Continue, ReplyTo, SetTimer, Tell, Undelivered

FLEET = ActorPath("/fleet")
FIRST, OTHER = "slice-0-0", "slice-1-1"
SPEC = command_spec(replicas=3)


class Bench:
    """A scheduler and all that it told."""

    def __init__(self, known=()):
        self.ctx = job_context(path=ActorPath("/jobs/scheduler"))
        self.decisions = SchedulerDecisions(FLEET)
        self.rules = self.decisions.rules()
        self.state = Scheduler()
        self.tell(JobsKnown(tuple(known)))

    def tell(self, message):
        """Decide, and go on as long as it tells itself to; give what it told others."""
        self.told = []
        self.timers = []
        todo = [message]
        while todo:
            item = todo.pop(0)
            for command in self.rules[type(item)](self.state, item, self.ctx) or ():
                if isinstance(command, Continue):
                    todo.append(command.message)
                elif isinstance(command, Tell):
                    self.told.append(command.message)
                elif isinstance(command, SetTimer):
                    self.timers.append(command.message)
        return self.told

    def heard(self, kind):
        """Return what was told of one kind."""
        return [message for message in self.told if type(message) is kind]

    def worker(self, number, **fields):
        """Have a worker that may be used; give what was told."""
        info = worker_info(number, **fields)
        told = self.tell(WorkerReady(info))
        return told + self.tell(LinkSynced(info.worker_id, info.incarnation))

    def report(self, job_id, *live, pending=((0, 3),), open=True):  # noqa: A002 - as the message has it
        """Answer the question that the job was asked last."""
        token = self.state.jobs[job_id].token
        return self.tell(JobReport(job_id, token, 0, SPEC, open, pending, live))


def test_nothing_is_placed_before_all_jobs_have_reported():
    """A new scheduler knows what is taken before it gives anything away."""
    bench = Bench(["job-a", "job-b"])
    bench.worker(0, cpus=1)
    bench.report("job-a")
    assert bench.heard(Placed) == []
    bench.report("job-b", LiveAttempt("u", 0, "slice-0-0", "a"), pending=())
    assert bench.heard(Placed) == []
    assert bench.state.inventory.hosts["slice-0-0"].free.cpu_milli == 0
    bench.tell(AttemptsOver("job-b", ("u",)))
    (placed,) = bench.heard(Placed)
    assert placed.placements[0].worker_id == "slice-0-0"


def test_jobs_are_asked_in_windows():
    """However many jobs there are, only some are asked at a time."""
    bench = Bench([f"job-{number}" for number in range(100)])
    assert len(bench.told) == REPORT_WINDOW
    bench.report("job-0", pending=())
    assert len(bench.heard(ReportJob)) == 1
    for number in range(1, 100):
        bench.report(f"job-{number}", pending=())
    assert not bench.state.syncing


def test_for_a_job_that_is_absent_the_next_is_asked():
    """If it was asked itself; of the others it is not asked any more."""
    bench = Bench([f"job-{number}" for number in range(REPORT_WINDOW + 3)])
    bench.tell(JobAbsent(f"job-{REPORT_WINDOW}"))
    assert bench.heard(ReportJob) == []
    bench.tell(JobAbsent("job-0"))
    assert len(bench.heard(ReportJob)) == 1
    assert [*bench.state.unasked] == [f"job-{REPORT_WINDOW + 2}"]


def test_absent_jobs_are_not_waited_for():
    """A quarantined job, or one that stays silent, does not stop the others for ever."""
    bench = Bench(["job-a", "job-b"])
    bench.report("job-a", pending=())
    bench.tell(JobAbsent("job-b"))
    assert not bench.state.syncing
    bench = Bench(["job-a"])
    bench.tell(Due("sync"))
    assert not bench.state.syncing


def test_a_report_is_a_barrier():
    """Only the answer to the latest question counts, and nothing is placed for the job until then."""
    bench = Bench()
    bench.worker(0)
    bench.tell(JobIntroduced("job-a", 0, SPEC))
    assert len(bench.heard(Placed)[0].placements) == 3
    (first,) = bench.tell(JobAwake("job-a"))
    (second,) = bench.tell(JobAwake("job-a"))
    bench.tell(JobReport("job-a", first.token, 0, SPEC, True, ((0, 3),), ()))
    assert bench.heard(Placed) == []
    bench.tell(JobReport("job-a", second.token, 0, SPEC, True, ((1, 3),), (LiveAttempt("u", 0, "slice-0-0", "a"),)))
    assert [each.index for each in bench.heard(Placed)[0].placements] == [1, 2]
    assert len(bench.state.inventory.hosts["slice-0-0"].commitments) == 3


def test_links_are_briefed():
    """A link is told whose jobs have attempts on its worker, and these are told to speak to it."""
    bench = Bench()
    bench.worker(0)
    bench.tell(JobIntroduced("job-a", 0, SPEC))
    told = bench.tell(LinkStarted("slice-0-0", "a"))
    assert told == [LinkExpects("a", ("job-a",)), LinkNeedsDesired("slice-0-0", "a")]
    assert not bench.state.inventory.hosts["slice-0-0"].placeable


def explained(bench, *job_ids):
    """Ask why jobs wait."""
    bench.ctx.reply_to = ReplyTo(1)
    (reply,) = explaining.explain_jobs(bench.state, ExplainJobs(job_ids), bench.ctx)
    return reply.value


def crowd(bench, *specs):
    """Introduce jobs that nobody has room for."""
    bench.report("job-z", pending=())
    for number, spec in enumerate(specs):
        bench.tell(JobIntroduced(f"job-{number}", number, spec))


def test_whose_demand_it_is():
    """The first jobs whose tasks wait alike; of what nobody waits for nothing is said."""
    bench = Bench(["job-z"])
    alike = [command_spec(demand=Capacity(9_000))] * (explaining.JOBS_TOLD + 1)
    crowd(bench, *alike, command_spec(demand=Capacity(8_000)))
    (big,) = bench.state.told
    bench.ctx.reply_to = ReplyTo(1)
    (reply,) = explaining.explain_demand_jobs(bench.state, ExplainDemandJobs((big.demand_id, "other")), bench.ctx)
    assert reply.value == ((big.demand_id, ("job-0", "job-1", "job-2")),)


def never(bench):
    """Have the fleet say that no group can ever run what it was told of; give what jobs are told."""
    told = bench.state.told or ()
    bench.tell(DemandRouted(tuple((each.demand_id, "because") for each in told), tuple(e.demand_id for e in told)))
    return bench.heard(NeverPlaced)


def test_what_no_group_can_ever_run_is_given_up_once():
    """Its job is told why; what only waits for room is not, nor what a worker that is there could run."""
    bench = Bench(["job-z"])
    bench.worker(0, cpus=1)
    crowd(bench, command_spec(demand=Capacity(9_000)))
    assert never(bench) == [NeverPlaced("because")]
    assert never(bench) == []
    bench.worker(1, cpus=9)
    assert bench.heard(Placed), "a worker may have more than its group promises"
    crowd(bench, command_spec(demand=Capacity(9_000)), command_spec(demand=Capacity(9_000)))
    assert never(bench) == []


def test_a_worker_that_goes_leaves_what_nobody_will_run():
    """What the fleet said before counts."""
    bench = Bench(["job-z"])
    bench.worker(0, cpus=9)
    crowd(bench, command_spec(demand=Capacity(9_000)), command_spec(demand=Capacity(8_000)))
    assert never(bench) == []
    bench.tell(WorkerLost("slice-0-0", "a", "gone", True))
    assert bench.heard(NeverPlaced) == [NeverPlaced("because")]


def test_jobs_of_an_earlier_configuration_wait():
    """They were accepted where they could run: a group that is missing now may be a slip."""
    bench = Bench(["job-0"])
    bench.report("job-0")
    assert bench.state.told
    assert never(bench) == []


def test_the_fleet_is_told_by_what_a_gang_is_held_together():
    """It is the judge of whether that can ever be."""
    for group_by in ("group", "slice-id"):
        bench = Bench()
        bench.tell(JobIntroduced(f"job-{group_by}", 0, command_spec(replicas=9, group_by=group_by)))
        assert [each.gang_by for each in bench.state.told] == [group_by]
        assert never(bench) == [NeverPlaced("because")]


def test_jobs_are_explained_together(monkeypatch):
    """Jobs that are placed alike are looked into once; unknown ones have their sentence, too."""
    bench = Bench(["job-z"])
    bench.worker(0, cpus=0)
    small, large = command_spec(), command_spec(replicas=9, demand=Capacity(9_000))
    crowd(bench, small, large, small)
    looked = []
    explain = explaining.explain
    monkeypatch.setattr(explaining, "explain", lambda *args, **named: looked.append(args) or explain(*args, **named))
    answer = explained(bench, "job-0", "job-1", "job-2", "job-x")
    assert [job_id for job_id, _ in answer.reasons] == ["job-0", "job-1", "job-2", "job-x"]
    reasons = dict(answer.reasons)
    assert (
        reasons["job-0"]
        == reasons["job-2"]
        == ("of 1 worker: 1 is too small (1 CPU asked, 0 there; 1GiB memory asked, 0B there)")
    )
    assert reasons["job-1"] == "of 1 worker: 1 is too small (9 CPU asked, 0 there)"
    assert reasons["job-x"] == "waits for the job that it replaces to end"
    assert (len(looked), answer.rest) == (2, ())


def test_a_step_explains_so_much_and_no_more(monkeypatch):
    """Beyond the looks of one step the rest is given back, and asking again gets through."""
    monkeypatch.setattr(explaining, "EXPLAINED_HOSTS", 3)
    bench = Bench(["job-z"])
    for number in range(2):
        bench.worker(number, cpus=1)
    crowd(bench, *(command_spec(demand=Capacity(2_000, size)) for size in range(1, 6)))
    rest, steps = tuple(f"job-{number}" for number in range(5)), 0
    while rest:
        answer = explained(bench, *rest)
        assert 1 <= len(answer.reasons) <= 2
        rest, steps = answer.rest, steps + 1
    assert steps == 3


def test_a_step_looks_at_no_host_beyond_its_bound(monkeypatch):
    """With one host each look takes one: as many jobs are explained."""
    monkeypatch.setattr(explaining, "EXPLAINED_HOSTS", 3)
    bench = Bench(["job-z"])
    bench.worker(0, cpus=1)
    crowd(bench, *(command_spec(demand=Capacity(2_000, size)) for size in range(1, 6)))
    answer = explained(bench, *(f"job-{number}" for number in range(5)))
    assert ([job_id for job_id, _ in answer.reasons], answer.rest) == (["job-0", "job-1", "job-2"], ("job-3", "job-4"))


def test_cordons_wait_for_knowledge():
    """A cordon is answered when all that lives there is known."""
    bench = Bench(["job-a"])
    bench.worker(0)
    bench.tell(Cordon("slice-0", ("slice-0-0",), 4))
    assert bench.told == []
    bench.report("job-a", LiveAttempt("u", 0, "slice-0-0", "a"), pending=())
    assert bench.heard(Cordoned) == [Cordoned("slice-0", 1, 4)]


def test_attempts_on_unknown_workers_are_called_lost():
    """After the adoption grace the attempts of workers that did not come back are lost, not fenced."""
    bench = Bench(["job-a"])
    bench.report("job-a", LiveAttempt("u", 0, "w", "a"), LiveAttempt("v", 1, "slice-0-0", "a"), pending=())
    bench.worker(0)
    assert bench.state.inventory.hosts["slice-0-0"].commitments.keys() == {"v"}
    (lost,) = bench.tell(Due("adoption"))
    assert lost == AttemptsLost("w", "a", False, "the fleet does not know its worker any more")
    (fenced,) = [each for each in bench.tell(WorkerLost("w", "a", "gone", True)) if isinstance(each, AttemptsLost)]
    assert fenced.fenced
    bench.tell(AttemptsOver("job-a", ("u", "v")))
    assert (bench.state.absent, bench.state.absent_of, bench.state.inventory.where) == ({}, {}, {})


def test_new_incarnation_starts_empty():
    """Another incarnation of a worker has its own room; the old one's attempts are lost and counted there."""
    bench = Bench()
    bench.worker(0)
    bench.tell(JobIntroduced("job-a", 0, SPEC))
    bench.tell(WorkerReady(worker_info(0, incarnation="b")))
    assert bench.heard(AttemptsLost) == [AttemptsLost("slice-0-0", "a", False, "replaced by another incarnation")]
    assert bench.heard(WorkersMissed) == [WorkersMissed((("slice-0-0", "a"),))], "the fleet may know that it is gone"
    host = bench.state.inventory.hosts["slice-0-0"]
    assert (host.info.incarnation, host.commitments) == ("b", {})
    bench.tell(AttemptsOver("job-a", tuple(bench.state.jobs["job-a"].live)))
    assert bench.state.older == {}


def test_full_mailbox_gives_the_room_back():
    """Placements that could not be told are taken back, and the job is asked what it needs."""
    bench = Bench()
    bench.worker(0)
    bench.tell(JobIntroduced("job-a", 0, SPEC))
    bench.tell(Undelivered(ActorPath("/jobs/job-a"), bench.heard(Placed)[0]))
    assert bench.state.inventory.where == {}
    assert bench.timers == [JobAwake("job-a")]


def test_withdrawn_jobs_are_forgotten_when_their_room_is_back():
    """A job is kept for as long as it holds room."""
    bench = Bench()
    bench.worker(0)
    bench.tell(JobIntroduced("job-a", 0, SPEC))
    uids = tuple(bench.state.jobs["job-a"].live)
    bench.tell(JobWithdrawn("job-a"))
    assert "job-a" in bench.state.jobs
    bench.tell(AttemptsOver("job-a", uids))
    assert bench.state.jobs == {}


def test_many_tasks_take_many_short_passes():
    """5,000 tasks go out in chunks, and a pass with nothing to do tells nobody anything."""
    bench = Bench()
    for number in range(79):
        bench.worker(number, cpus=64)
    bench.tell(JobIntroduced("job-a", 0, command_spec(replicas=5000)))
    batches = [len(placed.placements) for placed in bench.heard(Placed)]
    assert sum(batches) == 5000
    assert max(batches) <= 256
    assert bench.tell(Pass()) == []


def test_the_end_of_a_slice_fences_all_that_is_known_there():
    """Workers, older incarnations and absent ones of that slice; nobody of another one."""
    bench = Bench(["job-b"])
    bench.report("job-b", LiveAttempt("u", 0, "slice-0-1", "x"), LiveAttempt("v", 1, "slice-00-0", "x"), pending=())
    bench.worker(0, cpus=3)
    bench.tell(JobIntroduced("job-a", 1, SPEC))
    bench.tell(WorkerReady(worker_info(0, cpus=3, incarnation="b")))
    told = bench.tell(SliceGone("slice-0"))
    why = "its slice is gone"
    assert [each for each in told if isinstance(each, AttemptsLost)] == [
        AttemptsLost("slice-0-0", "a", True, why),
        AttemptsLost("slice-0-1", "x", True, why),
    ]
    assert [each for each in told if isinstance(each, LinkUnwanted)] == [
        LinkUnwanted("slice-0-0", "b"),
        LinkUnwanted("slice-0-0", "a"),
        LinkUnwanted("slice-0-1", "x"),
    ]
    assert bench.state.inventory.hosts == {}


def test_a_new_scheduler_that_hears_of_an_end_too_early_asks_again():
    """Before the jobs have reported nobody is known there; the end is not lost all the same."""
    bench = Bench(["job-a", "job-b"])
    bench.report("job-a", LiveAttempt("u", 0, "slice-7-0", "a"), pending=())
    assert bench.state.syncing
    assert bench.tell(SliceGone("slice-7"))
    bench.report("job-b", LiveAttempt("v", 0, "slice-7-0", "a"), pending=())
    assert bench.heard(WorkersMissed) == [WorkersMissed((("slice-7-0", "a"),))]
    bench.tell(SliceGone("slice-7"))
    assert bench.told.count(AttemptsLost("slice-7-0", "a", True, "its slice is gone")) == 2


def test_workers_that_are_missed_are_asked_for_until_they_are_told():
    """Attempts on workers nobody tells of are fenced as soon as the fleet says that their slice is gone."""
    bench = Bench(["job-a"])
    bench.tell(SliceGone("slice-7"))
    bench.report("job-a", LiveAttempt("u", 0, "slice-7-0", "a"), pending=())
    assert bench.heard(WorkersMissed) == [WorkersMissed((("slice-7-0", "a"),))]
    assert bench.tell(Due("missed")) == [WorkersMissed((("slice-7-0", "a"),))]
    assert bench.timers == [Due("missed")]
    bench.tell(SliceGone("slice-7"))
    assert bench.heard(AttemptsLost) == [AttemptsLost("slice-7-0", "a", True, "its slice is gone")]
    bench.tell(AttemptsOver("job-a", ("u",)))
    assert bench.tell(Due("missed")) == []
    assert bench.timers == []


def test_what_is_said_of_an_earlier_incarnation_is_not_the_present_ones():
    """An attempt on the predecessor takes no room on its successor, and that one survives the other's loss."""
    bench = Bench(["job-a"])
    bench.worker(0, incarnation="b", cpus=1)
    bench.report("job-a", LiveAttempt("u", 0, "slice-0-0", "a"), pending=())
    host = bench.state.inventory.hosts["slice-0-0"]
    assert (host.commitments, host.free.cpu_milli) == ({}, 1000)
    told = bench.tell(WorkerLost("slice-0-0", "a", "gone", True))
    assert told == [AttemptsLost("slice-0-0", "a", True, "gone"), LinkUnwanted("slice-0-0", "a")]
    assert bench.state.inventory.hosts["slice-0-0"] is host
    assert not host.lost


# Walked to


def whole():
    """A scheduler with all workers there and linked."""
    walk = Walk()
    walk.settle()
    return walk


def spoken(walk, message, kind):
    """Have the scheduler decide; give what it tells of a kind."""
    told = []
    walk._told, kept = lambda name, each: (told.append(each), kept(name, each)), walk._told
    walk.send(message)
    walk._told = kept
    return [each for each in told if isinstance(each, kind)]


def test_a_cordon_counts_attempts_on_absent_workers_of_its_slice():
    """They may live there, though nobody has told of the worker; those of another slice do not count."""
    walk = Walk()
    walk.jobs["a"], walk.pending["a"] = {"u": (0, "slice-7-0", "x"), "v": (1, "slice-8-0", "x")}, {}
    walk.restart()
    walk.report("a")
    for worker_ids, live in ((("slice-7-0",), 1), (("slice-7-0", "slice-8-0"), 2), ((FIRST,), 0)):
        walk.send(Cordon("slice", worker_ids, 1))
        assert walk.answers[-1].live_attempts == live


def test_a_cordon_counts_older_incarnations():
    """Their attempts are not over before their jobs say so."""
    walk = whole()
    walk.introduce("b")
    (where,) = {attempt[1] for attempt in walk.jobs["b"].values() if attempt[1] == FIRST}
    assert where == FIRST
    walk.announce(FIRST, fresh=True)
    walk.cordon(FIRST)
    assert walk.answers[-1].live_attempts == 1


def test_a_worker_that_is_announced_is_open():
    """The fleet would not announce what it has closed: that question, or its end, was lost."""
    walk = whole()
    walk.cordon(FIRST)
    host = walk.state.inventory.hosts[FIRST]
    assert not host.placeable
    walk.announce(FIRST, fresh=False)
    assert walk.state.inventory.hosts[FIRST] is host
    assert host.placeable


def test_a_job_that_does_not_answer_waits_for_nothing():
    """Its tasks are no demand any more, and take nobody's turn; the jobs after it are asked."""
    walk = Walk()
    walk.introduce("a")
    assert sum(walk.demand.values()) == 3
    walk.send(JobAbsent("a"))
    while "demand-soon" in walk.clocks:
        walk.ring("demand-soon")
    assert sum(walk.demand.values()) == 0
    walk.settle()
    assert walk.jobs["a"] == {}
    fresh = Walk()
    fresh.state = type(fresh.state)()
    fresh.send(JobsKnown(("x", "y")))
    for name in ("x", "y"):
        fresh.send(JobAbsent(name))
    assert not fresh.state.syncing


def test_demand_is_told_when_it_changed_and_not_too_often():
    """The first at once, the next when the interval is over; what is the same is told by the slow clock alone."""
    walk = Walk()
    walk.introduce("a")
    assert sum(walk.demand.values()) == 3
    walk.introduce("c")
    assert sum(walk.demand.values()) == 3
    assert walk.clocks["demand-soon"].delay == DEMAND_INTERVAL
    walk.ring("demand-soon")
    assert sum(walk.demand.values()) == 5
    walk.withdraw("a")
    walk.ring("demand-soon")
    assert sum(walk.demand.values()) == 2
    walk.ctx.now += DEMAND_INTERVAL
    assert spoken(walk, JobAbsent("nobody"), DemandChanged) == []


def test_nothing_is_repeated_while_nothing_waits():
    """The clock goes on for the day when something does."""
    walk = whole()
    clock = walk.clocks["demand"]
    assert spoken(walk, clock.message, DemandChanged) == []
    assert walk.clocks["demand"] == clock


def test_room_that_a_report_does_not_name_is_free():
    """The job never got it, or has given it back; what it names beyond that is taken."""
    walk = whole()
    walk.introduce("b")
    (gone, kept) = walk.jobs["b"]
    walk.awake("b")
    live = (LiveAttempt(kept, *walk.jobs["b"][kept]), LiveAttempt("new", 0, FIRST, walk.workers[FIRST]))
    walk.pending["b"] = {}
    walk.send(JobReport("b", walk.asked["b"], 0, SPECS["b"], True, (), live))
    assert {*walk.state.inventory.where} == {kept, "new"}
    assert gone not in walk.state.jobs["b"].live


def test_a_worker_that_changed_keeps_its_attempts():
    """The same incarnation with other attributes: what runs there runs on, and is counted there."""
    walk = whole()
    walk.introduce("a")
    host = walk.state.inventory.hosts[FIRST]
    number = len(host.commitments)
    assert number > 0
    info = worker_info(0, cpus=4, incarnation=walk.workers[FIRST], rack="r")
    walk.send(WorkerReady(info))
    again = walk.state.inventory.hosts[FIRST]
    assert again is not host
    assert (again.info, len(again.commitments)) == (info, number)
    assert again.free.cpu_milli == 4000 - number * 1000
    assert walk.lost == []


def test_a_job_without_room_for_a_message_gets_nothing_until_it_has_reported():
    """What it was to be given is free again, and none of its tasks is placed before it has said what it needs."""
    walk = whole()
    walk.introduce("b")
    placed = Placed(tuple(Placement(index, uid, *where) for uid, (index, *where) in walk.jobs["b"].items()))
    walk.send(Undelivered(ActorPath("/jobs/b"), placed))
    assert walk.state.inventory.where == {}
    walk.jobs["b"], walk.pending["b"] = {}, {0: None, 1: None}
    walk.send(AttemptsOver("b", (), ((0, 2),)))
    assert walk.jobs["b"] == {}
    walk.ring(("awake", "b"))
    walk.report("b")
    assert len(walk.jobs["b"]) == 2


def test_a_link_that_began_too_early_is_told_when_all_is_known():
    """Whom to hear: before the jobs have reported the scheduler does not know either."""
    walk = whole()
    walk.introduce("b")
    walk.restart()
    walk.expects.clear()
    for worker in walk.workers:
        walk.link(worker)
    assert walk.expects == {}
    walk.report("b")
    used = {worker for _, worker, _ in walk.jobs["b"].values()}
    assert {name: expects.job_ids for name, expects in walk.expects.items()} == {
        worker: ("b",) if worker in used else () for worker in walk.workers
    }


def test_an_absent_worker_is_asked_for_as_soon_as_a_job_names_it():
    """A job may begin anew long after the scheduler did: it does not wait for the next one to be missed."""
    walk = whole()
    walk.introduce("b")
    walk.awake("b")
    walk.jobs["b"]["u"] = (0, "slice-7-0", "x")
    walk.report("b")
    assert walk.missed == {("slice-7-0", "x"): None}
    assert walk.clocks["missed"].message == Due("missed")
    walk.missed = {}
    walk.ring("missed")
    assert walk.missed == {("slice-7-0", "x"): None}


def test_a_worker_whose_link_is_gone_gets_nothing():
    """Until it has one again; the end of an earlier incarnation's link, or of a stranger's, says nothing of it."""
    walk = whole()
    for name, incarnation in ((FIRST, "earlier"), ("slice-7-0", walk.workers[FIRST])):
        walk.send(LinkGone(name, incarnation))
    assert all(host.placeable for host in walk.state.inventory.hosts.values())
    walk.unlink(FIRST)
    walk.unlink(OTHER)
    walk.introduce("b")
    assert {worker for _, worker, _ in walk.jobs["b"].values()} == {"slice-2-2"}
    walk.link(FIRST)
    assert {worker for _, worker, _ in walk.jobs["b"].values()} == {FIRST, "slice-2-2"}


def test_a_job_that_reports_that_it_is_over_is_forgotten():
    """That it was withdrawn may have been told to the scheduler before this one; what it holds is waited for."""
    walk = whole()
    walk.introduce("b")
    walk.withdraw("b")
    walk.restart()
    walk.report("b")
    assert [*walk.state.jobs] == ["b"]
    walk.over("b", list(walk.jobs["b"]), again=False)
    assert walk.state.jobs == {}
    walk.restart()
    walk.report("b")
    assert walk.state.jobs == {}


def test_a_late_clock_finds_nothing_to_tell():
    """Demand was told by another pass meanwhile: it is not put together again before it changes."""
    walk = Walk()
    walk.introduce("a")
    walk.introduce("c")
    walk.ctx.now += DEMAND_INTERVAL
    walk.introduce("b")
    assert sum(walk.demand.values()) == 7
    late = walk.clocks.pop("demand-soon")
    assert spoken(walk, late.message, DemandChanged) == []
    assert "demand-soon" not in walk.clocks


def test_demand_is_told_by_a_name_of_its_own():
    """Tasks that are placed alike share it, others have another one; after a restart each is called as before."""
    walk = Walk()
    for name in ("a", "b", "c"):
        walk.introduce(name)
    walk.ring("demand-soon")
    told, walk.demand = walk.demand, {}
    assert all(told)
    assert sorted(told.values()) == [2, 5]
    walk.restart()
    for name in ("c", "b", "a"):
        walk.report(name)
    assert walk.demand == told


def test_what_found_no_room_is_told_as_it_was():
    """Each under a clock of its own; what the fleet missed is asked again anyway."""
    walk = whole()
    before = dict(walk.clocks)
    walk.send(Undelivered(ActorPath("/fleet"), WorkersMissed(())))
    assert walk.clocks == before
    messages = [Cordon("s", (), 1), Cordon("s", (), 2)]
    for message in messages:
        walk.send(Undelivered(ActorPath("/somebody"), message))
    later = [each.message for each in walk.clocks.values() if hasattr(each.message, "message")]
    assert [(each.to, each.message) for each in later] == [(ActorPath("/somebody"), each) for each in messages]
