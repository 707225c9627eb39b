"""One worker's link: the table of agreement, row by row."""

import attrs
import pytest
from jobs_world import command_spec, job_context

from iriscw.fleet.messages import DialAgain
from iriscw.jobs.links.link import MAX_KNOWN, Link, LinkDecisions
from iriscw.jobs.messages import (
    AttemptsObserved,
    Desired,
    DesiredOn,
    Due,
    LinkExpects,
    LinkSynced,
    ReleaseAttempts,
    RunAttempts,
    StopAttempts,
)
from iriscw.jobs.model import (
    AttemptEnd,
    Ending,
    GangPlace,
    Observation,
    Observed,
    Orders,
    Redial,
    Resumption,
    RunOrder,
    StopOrder,
    StreamUp,
    Suspension,
    TaskState,
)
from iriscw.jobs.step_limits import STEP_ATTEMPTS, STEP_BYTES
from iriscw.jobs.traits import Fault
from iriscw.runtime.vocabulary import (
    ActorPath,
    Arrived,
    CancelTimer,
    Close,
    Closed,
    Feed,
    FeedRefused,
    Open,
    SetTimer,
    Tell,
    Undelivered,
    replace,
)

SPEC = command_spec()
RUNNING = Observation("u", TaskState.RUNNING, started=True)
ENDED = Observation("u", TaskState.RUNNING, AttemptEnd(Ending.SUCCEEDED, exit_code=0), True)
SUSPENDED = Observation("u", TaskState.RUNNING, started=True, suspension=Suspension.SUSPENDED, folder="/u")


def order(uid="u", job_id="job-a"):
    """Return an order."""
    return RunOrder(uid, job_id, "0", 0, 1, SPEC)


class Wire:
    """A link whose decisions are called directly."""

    def __init__(self):
        self.ctx = job_context(path=ActorPath("/jobs/links/w"))
        self.decisions = LinkDecisions(stop_grace_ns=7)
        self.link = Link("w", "a")
        self.rules = self.decisions.rules()

    def tell(self, message):
        """Decide; give what is fed, and what is told to whom."""
        out = self.rules[type(message)](self.link, message, self.ctx) or ()
        self.out = out
        self.fed = [command.item for command in out if isinstance(command, Feed)]
        self.told = [(command.to, command.message) for command in out if isinstance(command, Tell)]
        return self

    def synced(self, *desired):
        """Let a job say what it wants, and nothing be missing."""
        self.tell(LinkExpects("a", ("job-a",)))
        return self.tell(DesiredOn("job-a", "a", desired))

    def up(self, *observed):
        """Let the worker begin a stream."""
        return self.tell(Arrived("stream", StreamUp(observed)))


ROWS = [
    # wanted, what the worker knows: run, stop, release, told to the job
    (Desired(order(), False, None), RUNNING, ["u"], [], [], None),
    (Desired(order(), True, None), ENDED, [], [], [], Ending.SUCCEEDED),
    (Desired(order(), False, None), None, ["u"], [], [], "silence"),
    (Desired(order(), True, None), None, [], [], [], Ending.MISSING),
    (Desired(order(), True, Ending.KILLED), RUNNING, [], ["u"], [], None),
    (Desired(order(), True, Ending.TIMED_OUT), None, [], [], [], Ending.MISSING),
    (Desired(order(), False, Ending.KILLED), None, [], [], [], Ending.KILLED),
    (None, RUNNING, [], ["u"], [], "silence"),
    (None, ENDED, [], [], ["u"], "silence"),
]


@pytest.mark.parametrize("stream_first", [True, False])
@pytest.mark.parametrize(("wanted", "known", "run", "stop", "release", "told"), ROWS)
def test_agreement(wanted, known, run, stop, release, told, stream_first):
    """Each row of the table, whether the stream or the wishes come first."""
    wire = Wire()
    desired = () if wanted is None else (wanted,)
    observed = () if known is None else (known,)
    if stream_first:
        assert wire.up(*observed).fed == []
        wire.synced(*desired)
    else:
        assert (ActorPath("/jobs/scheduler"), LinkSynced("w", "a")) in wire.synced(*desired).told
        wire.up(*observed)
    (orders,) = wire.fed
    assert orders.complete
    assert [each.uid for each in orders.run] == run
    assert [each.uid for each in orders.stop] == stop
    assert list(orders.release) == release
    seen = [message.observations[0] for _, message in wire.told if isinstance(message, AttemptsObserved)]
    if told == "silence":
        assert seen == []
    else:
        assert [each.ending for each in seen] == [told]


def made_up(count, start=0):
    """Return observations of attempts that nobody ever ordered."""
    return tuple(Observation(f"x{number}", TaskState.RUNNING) for number in range(start, start + count))


@pytest.mark.parametrize("briefed", [True, False])
def test_made_up_attempts_are_bounded(briefed):
    """While the link cannot answer it remembers what a worker says it has, up to a bound; then the stream ends."""
    wire = Wire()
    if briefed:  # synced by time, while a job is silent
        wire.tell(LinkExpects("a", ("job-a",)))
        wire.tell(Due("sync"))
    wire.up(*made_up(10))
    for start in range(10, MAX_KNOWN, 2):
        wire.tell(Arrived("stream", Observed(made_up(2, start))))
        assert not wire.out
    kept = wire.link.unclaimed if briefed else wire.link.arrived
    assert len(kept) == MAX_KNOWN
    wire.tell(Arrived("stream", Observed(made_up(10))))
    assert not wire.out, "what is known may change"
    wire.tell(Arrived("stream", Observed(made_up(1, MAX_KNOWN))))
    assert [type(command) for command in wire.out] == [Close, Open]
    assert (wire.link.up, wire.link.unclaimed, wire.link.arrived) == (False, None, None)
    wire.tell(LinkExpects("a", ("job-a",)))
    wire.tell(DesiredOn("job-a", "a", (Desired(order(), True, None),)))
    assert [message.observations for _, message in wire.up(RUNNING).told] == [(RUNNING,)], "the next stream is served"


def test_what_the_controller_gave_is_never_too_much():
    """The record with which a stream begins is taken whole, however long: only what comes on top is bounded."""
    wire = Wire()
    wire.up(*made_up(MAX_KNOWN + 50))
    assert len(wire.link.arrived) == MAX_KNOWN + 50
    wire.tell(Arrived("stream", Observed(made_up(MAX_KNOWN + 50))))
    assert not wire.out
    wire.tell(Arrived("stream", Observed(made_up(1, 9999))))
    assert [type(command) for command in wire.out] == [Close, Open]


def test_nothing_is_stopped_before_all_jobs_have_spoken():
    """Until each expected job has said what it wants the worker's attempts are left alone."""
    wire = Wire()
    wire.tell(LinkExpects("a", ("job-a", "job-b")))
    assert wire.up(RUNNING).fed == []
    assert wire.tell(DesiredOn("job-b", "a", ())).fed == []
    (orders,) = wire.tell(DesiredOn("job-a", "a", (Desired(order(), True, None),))).fed
    assert orders.stop == ()


def test_silent_job_is_not_waited_for_forever():
    """After a while the link serves those that have spoken, and does nothing to what the others may want."""
    wire = Wire()
    wire.tell(LinkExpects("a", ("job-a", "job-b")))
    wire.up(RUNNING, attrs.evolve(ENDED, uid="v"), attrs.evolve(RUNNING, uid="x"))
    wire.tell(DesiredOn("job-b", "a", (Desired(order("w", "job-b"), False, None),)))
    assert wire.fed == []
    wire.tell(Due("sync"))
    assert (ActorPath("/jobs/scheduler"), LinkSynced("w", "a")) in wire.told
    assert wire.fed == [Orders(run=(order("w", "job-b"),))]
    assert wire.tell(Arrived("stream", Observed((attrs.evolve(ENDED, uid="x"),)))).fed == []


@pytest.mark.parametrize("stream_first", [True, False])
def test_a_job_that_speaks_late_finds_all_that_it_wants(stream_first):
    """Ends that came meanwhile are told to it; what nobody wants is stopped or forgotten only then (INV-J1, R9)."""
    wire = Wire()
    wire.tell(LinkExpects("a", ("job-a",)))
    observed = (RUNNING, attrs.evolve(ENDED, uid="v"), attrs.evolve(ENDED, uid="x"), attrs.evolve(RUNNING, uid="y"))
    if stream_first:
        wire.up(*observed)
        assert wire.tell(Due("sync")).fed == []
    else:
        wire.tell(Due("sync"))
        assert wire.up(*observed).fed == []
    wanted = tuple(Desired(order(uid), started, None) for uid, started in (("u", True), ("v", True), ("z", True)))
    wire.tell(DesiredOn("job-a", "a", (*wanted, Desired(order("w"), False, None))))
    orders = wire.fed[-1]
    assert orders.complete
    assert [each.uid for each in orders.run] == ["u", "w"]
    assert [(each.uid, each.ending) for each in orders.stop] == [("y", Ending.KILLED)]
    assert orders.release == ("x",)
    (told,) = [message for _, message in wire.told if isinstance(message, AttemptsObserved)]
    endings = [(seen.uid, seen.ending) for seen in told.observations]
    assert endings == [("u", None), ("v", Ending.SUCCEEDED), ("z", Ending.MISSING)]


def test_a_stream_that_breaks_meanwhile_begins_with_all_that_is_known():
    """The worker says everything again, so nothing unclaimed is kept from an earlier stream."""
    wire = Wire()
    wire.tell(LinkExpects("a", ("job-a",)))
    wire.up(RUNNING)
    wire.tell(Due("sync"))
    wire.tell(Closed("stream", None))
    assert wire.up(attrs.evolve(ENDED, uid="x")).fed == []
    (orders,) = wire.tell(DesiredOn("job-a", "a", ())).fed
    assert (orders.complete, orders.stop, orders.release) == (True, (), ("x",))


def test_a_new_stream_begins_with_the_latest_orders():
    """A member of a gang that need not wait any more is told so by each stream that follows, not only by the first."""
    waits = GangPlace(0, 1, 1, 2, leads=False, waits=True)
    goes = GangPlace(0, 1, 1, 2, leads=False, leader_host="10.0.0.1", leader_port=9)
    wire = Wire().synced()
    wire.up()
    for place in (waits, goes):
        (orders,) = wire.tell(RunAttempts("a", (replace(order(), gang=place),))).fed
        assert [each.gang for each in orders.run] == [place]
    wire.tell(Closed("stream", None))
    (orders,) = wire.up(Observation("u", TaskState.BUILDING)).fed
    assert [each.gang for each in orders.run] == [goes]


def test_orders_pass_while_the_stream_is_up():
    """Runs, stops and releases go down as they come; while the stream is down they wait for the next."""
    wire = Wire()
    wire.synced()
    assert wire.tell(RunAttempts("a", (order(),))).fed == []
    assert [each.uid for each in wire.up().fed[0].run] == ["u"]
    assert wire.tell(RunAttempts("a", (order("v"),))).fed == [Orders(run=(order("v"),))]
    (stop,) = wire.tell(StopAttempts("a", ("v",), Ending.KILLED)).fed[0].stop
    assert (stop.uid, stop.ending, stop.grace_ns) == ("v", Ending.KILLED, 7)
    assert wire.tell(ReleaseAttempts("a", ("v",))).fed == [Orders(release=("v",))]
    assert list(wire.link.held) == ["u"]


def test_other_incarnations_are_not_served():
    """What is meant for another incarnation changes nothing."""
    wire = Wire()
    assert wire.tell(RunAttempts("b", (order(),))).out == ()
    assert wire.tell(DesiredOn("job-a", "b", (Desired(order(), True, None),))).out == ()
    assert wire.tell(LinkExpects("b", ())).out == ()
    assert wire.link.held == {}


def test_observations_go_to_their_jobs():
    """One message per job with the latest of each attempt; strangers are stopped or released."""
    wire = Wire()
    wire.synced(Desired(order(), False, None), Desired(order("v"), False, None))
    wire.up()
    seen = (RUNNING, attrs.evolve(RUNNING, uid="x"), attrs.evolve(ENDED, uid="y"), ENDED)
    wire.tell(Arrived("stream", Observed(seen)))
    assert wire.told == [(ActorPath("/jobs/job-a"), AttemptsObserved("w", "a", (ENDED,)))]
    (orders,) = wire.fed
    assert ([each.uid for each in orders.stop], orders.release) == (["x"], ("y",))


def test_job_is_told_again():
    """After a restart, or a full mailbox, a job hears all that is known of its attempts."""
    wire = Wire()
    wire.synced(Desired(order(), False, None))
    wire.up()
    wire.tell(Arrived("stream", Observed((ENDED,))))
    (timer,) = wire.tell(Undelivered(ActorPath("/jobs/job-a"), None)).out
    assert isinstance(timer, SetTimer)
    expected = [(ActorPath("/jobs/job-a"), AttemptsObserved("w", "a", (ENDED,)))]
    assert wire.tell(timer.message).told == expected
    assert wire.tell(DesiredOn("job-a", "a", (Desired(order(), False, None),))).told == expected


@pytest.mark.parametrize(
    ("number", "fault", "parts"),
    [(STEP_ATTEMPTS + 1, "", [STEP_ATTEMPTS, 1]), (5, "f" * (STEP_BYTES // 4 - 100) + "\nend", [2, 2, 1])],
    ids=["attempts", "bytes"],
)
def test_a_job_is_told_what_one_decision_may_record(number, fault, parts):
    """Not more attempts at a time, nor more of what they say, than a step has (INV-R10); nothing is left out."""
    wire = Wire()
    seen = tuple(
        attrs.evolve(ENDED, uid=f"u{each}", end=AttemptEnd(Ending.FAILED, fault=Fault("", fault) if fault else None))
        for each in range(number)
    )
    wire.synced(*(Desired(order(each.uid), True, None) for each in seen))
    told = [message.observations for _, message in wire.up(*seen).told]
    assert [len(each) for each in told] == parts
    assert tuple(each for part in told for each in part) == seen


def test_a_stop_that_found_no_room_is_made_up_for():
    """A job then tells all that it wants: what is to stop since is stopped, once."""
    wire = Wire()
    wire.synced(Desired(order(), True, None))
    wire.up(RUNNING)
    stopped = DesiredOn("job-a", "a", (Desired(order(), True, Ending.KILLED),))
    assert wire.tell(stopped).fed == [Orders(stop=(StopOrder("u", Ending.KILLED, 7),))]
    assert wire.tell(stopped).fed == []


def test_who_has_heard_all_jobs_waits_for_none():
    """The clock for those that are silent is stopped with the last word: that it is ready is told once."""
    wire = Wire()
    wire.tell(LinkExpects("a", ("job-a", "job-b")))
    assert [each.message for each in wire.out if isinstance(each, SetTimer)] == [Due("sync")]
    wire.tell(DesiredOn("job-a", "a", ()))
    assert CancelTimer("sync") not in wire.out
    wire.tell(DesiredOn("job-b", "a", ()))
    assert wire.out == (CancelTimer("sync"), Tell(ActorPath("/jobs/scheduler"), LinkSynced("w", "a")))


def test_streams_end_and_begin_again():
    """A stream that ends is opened again; one that failed after a pause; a slow one is closed first."""
    wire = Wire()
    wire.synced()
    wire.up()
    assert [type(command) for command in wire.tell(Closed("stream", None)).out] == [Open]
    assert wire.tell(Closed("stream", OSError("x"))).out[0].message == Due("open")
    wire.up()
    assert [type(command) for command in wire.tell(FeedRefused("stream", None)).out] == [Close, Open]
    assert wire.tell(FeedRefused("stream", None)).out == ()


def test_redial():
    """A fleet that forgot the worker has it registered again over the stream."""
    wire = Wire()
    wire.synced()
    assert wire.tell(DialAgain("w", "a")).fed == []
    wire.up()
    assert wire.tell(DialAgain("w", "a")).fed == [Redial()]


# /jobs/links


def leave(grant, **fields):
    """Return an order with a grant."""
    return attrs.evolve(order(), resumption=Resumption(grant, "/u", **fields))


def test_an_order_that_overtakes_a_release():
    """What came before an attempt left is not true any more when it comes back to the same worker.

    Its job told that it may be forgotten when the mailbox was full. It has not begun here since, as far as is known: a
    worker that has not heard of it is ordered again, and nobody is told that it is missing.
    """
    wire = Wire()
    wire.synced(Desired(order(), True, None))
    wire.up(RUNNING)
    wire.tell(Arrived("stream", Observed((SUSPENDED,))))
    wire.tell(RunAttempts("a", (leave("g"),)))
    assert wire.fed == [Orders(run=(leave("g"),))]
    wire.tell(Closed("stream", None))
    wire.up()
    assert (wire.fed, wire.told) == ([Orders(complete=True, run=(leave("g"),))], [])


@pytest.mark.parametrize("tell", ["run", "desired"])
def test_one_leave_in_other_words(tell):
    """How long it was suspended is known better later: it is the same order, and an end that was told stays told."""
    wire = Wire()
    wire.synced(Desired(leave("g"), False, None))
    wire.up()
    wire.tell(Arrived("stream", Observed((ENDED,))))
    later = leave("g", paused_ns=5)
    if tell == "run":
        wire.tell(RunAttempts("a", (later,)))
        wire.tell(Due("job-a"))
    else:
        wire.tell(DesiredOn("job-a", "a", (Desired(later, True, None),)))
    assert [message.observations for _, message in wire.told] == [(ENDED,)]


@pytest.mark.parametrize("kind", [StopAttempts, ReleaseAttempts])
def test_what_is_for_an_earlier_incarnation(kind):
    """An attempt may have come back to the next one: what is said of where it was before changes nothing here."""
    wire = Wire()
    wire.synced(Desired(leave("g"), False, None))
    wire.up()
    more = (Ending.KILLED,) if kind is StopAttempts else ()
    assert wire.tell(kind("earlier", ("u",), *more)).fed == []
    wire.tell(Arrived("stream", Observed((RUNNING,))))
    assert (wire.fed, len(wire.told)) == ([], 1)


def test_a_suspended_one_that_is_claimed_late():
    """It waits for its grant, and gets it, although other jobs have not spoken."""
    wire = Wire()
    wire.tell(LinkExpects("a", ("job-a", "job-b")))
    wire.tell(Due("sync"))
    wire.up(SUSPENDED)
    assert wire.fed == []
    wire.tell(DesiredOn("job-a", "a", (Desired(leave("g"), False, None),)))
    assert wire.fed == [Orders(run=(leave("g"),))]


def test_one_that_comes_back_to_the_worker_that_still_has_it():
    """While other jobs have not spoken, what nobody claims is left alone: it is claimed now, and not let go later."""
    wire = Wire()
    wire.tell(LinkExpects("a", ("job-b",)))
    wire.tell(Due("sync"))
    wire.up(SUSPENDED)
    assert wire.tell(RunAttempts("a", (leave("g"),))).fed == [Orders(run=(leave("g"),))]
    wire.tell(DesiredOn("job-b", "a", ()))
    assert wire.fed == [Orders(complete=True, run=(leave("g"),))]
