"""Events about pools: one for each reason, counted, found again by name; few, and never more than what happened."""

from collections import Counter
from random import Random

import attrs
import pytest
from hypothesis import given, strategies as st
from kube_shell import LOST, OK, SETTINGS, SILENT, Server, refusal

from iriscw._errors import InvalidArgument
from iriscw.cloud.kube.notices import MAX_TEXT_CHARS, Notice, NoticeDue, NoticeLimits, Notices, write
from iriscw.cloud.model import Forbidden, InvalidSpec, Throttled, Unavailable
from iriscw.runtime.vocabulary import SECOND
from profiles import examples
from raised import that

EVENTS = "/api/v1/namespaces/default/events"
WALL = 1_800_000_000 * SECOND
LIMITS = NoticeLimits(waiting=4, known=3, spacing=60 * SECOND, qps=1.0, burst=2)


def notice(reason="NoCapacity", text="the zone has no free machines now", *, pool="iris-h100-a", uid="u1", at=WALL):
    """Return something to tell."""
    return Notice(pool, uid, reason, text, warning=reason != "SliceReady", at=at)


def due(told=None, *, count=1, before=None):
    """Return an Event that is to be written now."""
    told = told or notice()
    return NoticeDue(told, count, told.at, before)


@pytest.fixture
def events(server):
    """Write, and read what there is then."""

    def run(what, fates=()):
        return server.run(write(attrs.evolve(SETTINGS, attempts=2), what, Random(1)), fates)

    run.there = lambda: server.objects(EVENTS)
    return run


# What is written


def test_an_event_is_about_the_pool(events, server):
    """By name, uid and kind, in the namespace where the API takes it, with its reason and its text."""
    assert events(due()) == 1
    (event,) = events.there()
    assert event["involvedObject"] == {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "name": "iris-h100-a",
        "uid": "u1",
    }
    assert (event["reason"], event["type"], event["count"]) == ("NoCapacity", "Warning", 1)
    assert event["message"] == "the zone has no free machines now"
    assert event["source"] == {"component": "iriscw-controller"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2027-01-15T08:00:00Z"
    assert server.said() == [("POST", EVENTS)]


def test_what_went_well_is_no_warning(events):
    """And a slice without a pool names none by uid: no other pool shows it."""
    events(due(notice("SliceReady", uid="")))
    (event,) = events.there()
    assert event["type"] == "Normal"
    assert "uid" not in event["involvedObject"]


def test_a_text_that_is_too_long_is_cut(events):
    """The API server takes no more."""
    events(due(notice(text="x" * 5000)))
    assert events.there()[0]["message"] == "x" * MAX_TEXT_CHARS


def test_it_counts_on(events, server):
    """The same Event, with the latest text and time, and the first time it was."""
    events(due())
    later = notice(text="still none", at=WALL + 90 * SECOND)
    assert events(due(later, count=4, before=1)) == 5
    (event,) = events.there()
    assert (event["count"], event["message"]) == (5, "still none")
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2027-01-15T08:00:00Z", "2027-01-15T08:01:30Z")
    assert [method for method, _ in server.said()] == ["POST", "PATCH"]


def test_a_controller_that_starts_anew_counts_on(events, server):
    """It knows nothing, reads nothing, and still finds the Event and its count."""
    events(due(count=3))
    assert events(due(count=2)) == 5
    (event,) = events.there()
    assert event["count"] == 5
    assert {method for method, _ in server.said()} == {"POST", "PATCH"}


def test_an_event_that_was_forgotten_begins_anew(events, server):
    """The API server keeps them for an hour."""
    assert events(due(count=2, before=40)) == 2
    assert events.there()[0]["count"] == 2


def test_what_is_in_its_place_without_a_count_counts_from_nothing(events, server):
    """Somebody may have written it."""
    events(due())
    name = events.there()[0]["metadata"]["name"]
    server.do("PATCH", f"{EVENTS}/{name}", {"count": None})
    assert events(due()) == 1


@pytest.mark.parametrize(
    ("fates", "error"),
    [
        ([refusal(403, "Forbidden", 'cannot create resource "events"')], Forbidden),
        ([refusal(422, "Invalid", "no")], InvalidSpec),
        ([refusal(429), refusal(429)], Throttled),
        ([LOST], Unavailable),
        ([SILENT], Unavailable),
        ([refusal(409, "AlreadyExists", "there is one"), refusal(404, "NotFound", "there is none")], Unavailable),
    ],
)
def test_what_is_not_written_says_why(events, fates, error):
    """And a post that nobody answered is not made again: it may have landed."""
    with pytest.raises(error):
        events(due(), fates)
    assert len(events.there()) == (fates == [SILENT])


def test_a_patch_that_nobody_answered_is_made_again(events):
    """It says which count it is: twice is once."""
    events(due())
    assert events(due(before=1), [SILENT]) == 2
    assert events.there()[0]["count"] == 2


def test_names_tell_apart_what_is_apart():
    """Pools, their incarnations and reasons; not texts."""
    names = {notice(reason, pool=pool, uid=uid).event for reason in "AB" for pool in "pq" for uid in ("1", "2")}
    assert len(names) == 8
    assert notice(text="one").event == notice(text="other").event
    assert len(notice(pool="p" * 253).event) <= 253


# When


def test_what_happens_again_waits_in_one_line():
    """With the latest text, though an earlier one came later."""
    notices = Notices(LIMITS)
    for at, text in ((1, "b"), (0, "a"), (2, "c"), (1, "b")):
        notices.add(notice(text=text, at=WALL + at))
    taken = notices.take(0)
    assert (taken.notice.text, taken.count, taken.first, taken.before) == ("c", 4, WALL, None)
    assert notices.wait(0) is None


def test_what_waits_is_bounded():
    """What finds no room is dropped and counted; what waits already is counted on."""
    notices = Notices(LIMITS)
    for number in range(LIMITS.waiting + 3):
        notices.add(notice(f"R{number}"))
    notices.add(notice("R0"))
    assert (notices.statistics().waiting, notices.statistics().dropped) == (LIMITS.waiting, 3)
    assert notices.take(0).count == 2


def test_what_is_remembered_is_bounded():
    """The Event that was written longest ago is forgotten: it is found again by its name."""
    notices, now = Notices(LIMITS), 0
    for number in range(LIMITS.known + 1):
        notices.add(notice(f"R{number}"))
        notices.wrote(notices.take(now), 1, now)
    for number, known in ((1, 1), (0, None)):
        notices.add(notice(f"R{number}"))
        assert notices.take(1000 * SECOND).before == known


def test_the_same_event_is_written_once_a_while():
    """What flaps is counted meanwhile; others pass."""
    notices = Notices(LIMITS)
    notices.add(notice())
    notices.wrote(notices.take(0), 1, 0)
    for _ in range(100):
        notices.add(notice())
    assert notices.wait(5 * SECOND) == 55 * SECOND
    notices.add(notice("SlowBoot"))
    assert notices.wait(5 * SECOND) == 0
    assert notices.take(5 * SECOND).notice.reason == "SlowBoot"
    again = notices.take(60 * SECOND)
    assert (again.count, again.before) == (100, 1)


def test_there_is_a_rate():
    """After a burst they leave evenly."""
    notices = Notices(LIMITS)
    for each in "abc":
        notices.add(notice(each))
    for _ in range(2):
        assert notices.wait(0) == 0
        notices.take(0)
    assert notices.wait(0) == SECOND


def test_a_refusal_gives_the_server_a_rest_that_grows():
    """What was refused is lost, but for what had certainly no effect; only the first of a row is news."""
    notices = Notices(LIMITS)
    notices.add(notice())
    rests = []
    for _ in range(5):
        notices.add(notice())
        now = 1000 * SECOND * (len(rests) + 1)
        news = notices.failed(notices.take(now), Forbidden("no"), now, Random(1))
        assert news == (not rests)
        notices.add(notice())
        rests.append(notices.wait(now))
    assert all(SECOND // 2 <= each <= LIMITS.pause_most for each in rests)
    assert rests[-1] > 8 * rests[0] // 2
    assert notices.statistics().lost > 0
    slow = notices.take(10**6 * SECOND)
    notices.failed(slow, Throttled("slower", 30 * SECOND), 0, Random(1))
    assert notices.statistics().waiting == 1
    assert notices.wait(0) >= 30 * SECOND


def test_one_that_is_not_accepted_holds_up_nothing():
    """The next is written at once."""
    notices = Notices(LIMITS)
    notices.add(notice("A"))
    notices.add(notice("B"))
    assert notices.failed(notices.take(0), InvalidSpec("no"), 0, Random(1))
    assert notices.wait(0) == 0


@pytest.mark.parametrize("field", [each.name for each in attrs.fields(NoticeLimits)])
def test_limits_are_positive(field):
    """Each of them."""
    with pytest.raises(InvalidArgument, check=that(names=field)):
        NoticeLimits(**{field: 0})


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["tell", "tell", "tell", "write", "restart", "wait"]),
        st.integers(0, 5),
        st.sampled_from([OK, OK, OK, LOST, SILENT, refusal(403, "Forbidden"), refusal(429), refusal(500)]),
    ),
    max_size=60,
)


@examples(25)
@given(STEPS)
def test_no_count_is_more_than_what_happened(steps):
    """Whatever is lost, refused or forgotten, and with any restart; memory is bounded, and each is accounted for."""
    server, notices = Server(), Notices(LIMITS)
    now, happened, since = 0, Counter(), 0
    one = attrs.evolve(SETTINGS, attempts=1)
    for what, number, fate in steps:
        if what == "tell":
            happened[f"R{number}"] += 1
            since += 1
            notices.add(notice(f"R{number}", at=WALL + now))
        elif what == "restart":
            notices, since = Notices(LIMITS), 0
        elif what == "wait":
            now += 40 * SECOND
        elif notices.wait(now) == 0:
            taken = notices.take(now)
            try:
                notices.wrote(taken, server.run(write(one, taken, Random(1)), [fate]), now)
            except (Forbidden, Throttled, Unavailable) as error:
                notices.failed(taken, error, now, Random(1))
        figures = notices.statistics()
        assert figures.waiting <= LIMITS.waiting
        assert len(notices._known) <= LIMITS.known
        counts = {event["reason"]: event["count"] for event in server.objects(EVENTS)}
        assert all(counts[reason] <= happened[reason] for reason in counts)
        waiting = sum(each.count for each in notices._waiting.values())
        assert figures.told + figures.dropped + figures.lost + waiting == since
    assert len(server.objects(EVENTS)) <= 6, "one for each reason"


def test_with_nothing_wrong_nothing_is_lost(server):
    """All that happened is counted in the end, in one Event for each reason."""
    notices, now = Notices(LIMITS), 0
    happened = Counter(Random(5).choices("ABC", k=50))
    for reason in happened.elements():
        notices.add(notice(reason))
        while notices.wait(now) == 0:
            taken = notices.take(now)
            notices.wrote(taken, server.run(write(SETTINGS, taken, Random(1))), now)
    while (span := notices.wait(now)) is not None:
        now += span
        taken = notices.take(now)
        notices.wrote(taken, server.run(write(SETTINGS, taken, Random(1))), now)
    assert {each["reason"]: each["count"] for each in server.objects(EVENTS)} == happened
    assert notices.statistics() == attrs.evolve(notices.statistics(), told=50, dropped=0, lost=0, waiting=0)
