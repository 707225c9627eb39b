"""The reflector, one thing at a time; and that it shows the truth in the end, each change once, whatever fails."""

from random import Random

import attrs
import pytest
from hypothesis import given, strategies as st
from kube_json import OBJECTS
from kube_shell import POOLS, SECOND, refusal
from kube_watcher import FAULTS, SETTINGS, Life, Watcher

from iriscw.cloud.kube import reflector as module
from iriscw.cloud.kube.calls import TooManyObjects
from iriscw.cloud.kube.exchange import (
    CloseWatch,
    Fail,
    Fetched,
    FetchFailed,
    FetchObjects,
    ItemChanged,
    Listed,
    OpenWatch,
    Vanished,
    WakeAfter,
    WatchEnded,
    WatchItem,
    Woken,
)
from iriscw.cloud.kube.messages import ApiResponse
from iriscw.cloud.kube.paths import Source, selector
from iriscw.cloud.kube.reflector import Reflector, ReflectorPhase
from iriscw.cloud.kube.view import View
from iriscw.cloud.model import Forbidden, Unavailable
from profiles import examples

SOURCE = Source(POOLS, selector({}))
TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "GOSSIP")


def identity(thing):
    return thing["metadata"]["uid"], thing["metadata"]["resourceVersion"]


class Hand:
    """Drives a reflector by hand: what it wants is kept, what it is told is said here."""

    def __init__(self, **changes):
        self.reflector = Reflector("pools", SOURCE, attrs.evolve(SETTINGS, **changes))
        self.rng, self.now, self.actions = Random(1), 0, []

    def start(self):
        self.actions = self.reflector.start(self.now, self.rng)
        return self.actions

    def tell(self, event):
        self.actions = self.reflector.on(event, self.now, self.rng)
        return self.actions

    def last(self, kind):
        return [action for action in self.actions if isinstance(action, kind)][-1]

    def listed(self, *things, version="10", **metadata):
        """Answer the list."""
        body = {"metadata": {"resourceVersion": version, **metadata}, "items": list(things)}
        return self.tell(Fetched(self.last(FetchObjects).token, ApiResponse(200, body)))

    def rest(self):
        """Let it sleep as long as it wants."""
        wake = self.last(WakeAfter)
        self.now += wake.after
        self.tell(Woken(wake.token))
        return wake.after

    def watching(self, *things):
        """Get to an open watch, and give its token."""
        self.start()
        self.listed(*things)
        if self.reflector.phase is ReflectorPhase.RESTING:
            self.rest()
        return self.last(OpenWatch).token


def pool(name="a", uid="u1", version="1"):
    """Return an object."""
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": version}}


def versions(actions):
    """Return the versions at which watches are opened."""
    return [dict(action.request.query)["resourceVersion"] for action in actions if isinstance(action, OpenWatch)]


def test_a_watch_begins_at_its_list_and_moves_with_events_and_bookmarks():
    """What it is taken up at again is the last thing it was told."""
    hand = Hand()
    token = hand.watching(pool())
    assert versions(hand.actions) == ["10"]
    assert hand.tell(WatchItem(token, {"type": "MODIFIED", "object": pool(version="11")})) == [
        ItemChanged(pool(version="11"))
    ]
    assert hand.tell(WatchItem(token, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "15"}}})) == []
    hand.now += 20 * SECOND
    assert versions(hand.tell(WatchEnded(token, False))) == ["15"]


def test_a_repetition_does_not_move_it_back():
    """An older version that comes again is not where the watch is."""
    hand = Hand()
    token = hand.watching(pool())
    for version in ("11", "12", "11"):
        hand.tell(WatchItem(token, {"type": "MODIFIED", "object": pool(version=version)}))
    assert hand.actions == []
    hand.now += 20 * SECOND
    assert versions(hand.tell(WatchEnded(token, False))) == ["12"]


@pytest.mark.parametrize(
    "status",
    [{"code": 410}, {"code": 410, "reason": "Gone"}, {"reason": "Expired"}, {"code": 410, "reason": "Expired"}],
)
def test_what_is_forgotten_is_listed_and_told_as_differences(status):
    """In each disguise of 410: at once, and what vanished is told as it was last seen."""
    hand = Hand()
    token = hand.watching(pool("a"), pool("b", "u2"))
    hand.now += 20 * SECOND
    hand.tell(WatchItem(token, {"type": "ERROR", "object": status}))
    assert [type(action) for action in hand.actions] == [CloseWatch, FetchObjects]
    shown = hand.listed(pool("b", "u2", "5"), pool("c", "u3"), version="30")
    assert shown[:3] == [Vanished(pool("a")), ItemChanged(pool("b", "u2", "5")), ItemChanged(pool("c", "u3"))]
    assert versions(shown) == ["30"]
    assert hand.reflector.statistics.expired == 1


def test_a_list_comes_in_pages_and_is_shown_as_a_whole():
    """Nothing is shown before the last page; the version is that of the list."""
    hand = Hand()
    hand.start()
    actions = hand.listed(pool("a"), **{"continue": "next"})
    assert dict(actions[0].request.query)["continue"] == "next"
    assert hand.listed(pool("b", "u2"))[0] == Listed((pool("a"), pool("b", "u2")))


def test_pages_that_are_forgotten_are_asked_for_in_one_piece():
    """410 in the middle: from the beginning, without a limit, and nothing of the first page is kept."""
    hand = Hand()
    hand.start()
    hand.listed(pool("a"), **{"continue": "next"})
    (again,) = hand.tell(Fetched(hand.last(FetchObjects).token, refusal(410, "Expired")))
    assert not {"limit", "continue"} & {*dict(again.request.query)}
    assert hand.listed(pool("b", "u2"))[0] == Listed((pool("b", "u2"),))


def test_a_page_that_is_not_answered_is_asked_for_again():
    """After a pause, and only that page."""
    hand = Hand()
    hand.start()
    hand.listed(pool("a"), **{"continue": "next"})
    hand.tell(FetchFailed(hand.last(FetchObjects).token))
    assert hand.rest() > 0
    assert dict(hand.last(FetchObjects).request.query)["continue"] == "next"


def test_what_a_server_asks_for_is_waited_for():
    """Retry-After of a list, and retryAfterSeconds of a watch's error."""
    hand = Hand()
    hand.start()
    hand.tell(Fetched(hand.last(FetchObjects).token, refusal(429, retry_after=50 * SECOND)))
    assert hand.rest() >= 50 * SECOND
    hand.listed()
    token = hand.last(OpenWatch).token
    hand.tell(WatchItem(token, {"type": "ERROR", "object": refusal(503, retryAfterSeconds=70).body}))
    assert hand.rest() >= 70 * SECOND
    assert versions(hand.actions) == ["10"]


def count(hand, answer, span):
    """Count lists and watches while everything is answered by ``answer(action)``, which gives an event."""
    counts = {"list": 0, "watch": 0}
    queue = hand.start()
    while hand.now < span and queue:
        action = queue.pop(0)
        if isinstance(action, Fail):
            break
        if isinstance(action, WakeAfter):
            if action.token == hand.reflector._current:  # not the alarm of a watch that is over
                hand.now += action.after
                queue += hand.tell(Woken(action.token))
        elif isinstance(action, FetchObjects | OpenWatch):
            counts["list" if isinstance(action, FetchObjects) else "watch"] += 1
            assert sum(counts.values()) < 10_000, "it spins"
            for event in answer(action):
                queue += hand.tell(event)
    return counts


EMPTY = ApiResponse(200, {"metadata": {"resourceVersion": "10"}, "items": []})
HOUR = 3600 * SECOND


def listing(action):
    return [Fetched(action.token, EMPTY)]


def ends_at_once(action):
    return [WatchEnded(action.token, False)]


def breaks_at_once(action):
    return [WatchEnded(action.token, True)]


def is_forgotten(action):
    return [WatchItem(action.token, {"type": "ERROR", "object": {"code": 410}}), WatchEnded(action.token, False)]


def repeats_itself(action):
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "10"}}}
    return [WatchItem(action.token, bookmark), WatchEnded(action.token, False)]


@pytest.mark.parametrize("watch", [ends_at_once, breaks_at_once, is_forgotten, repeats_itself])
def test_a_server_that_ends_each_watch_is_not_run_over(watch):
    """Lists succeed, watches bring nothing: in an hour no more requests than the longest pause allows."""
    hand = Hand(watch_pause_most=30 * SECOND, patience=100 * HOUR)
    counts = count(hand, lambda action: (listing if isinstance(action, FetchObjects) else watch)(action), HOUR)
    assert 100 < sum(counts.values()) < 2 * (HOUR // (15 * SECOND)) + 20


def test_a_server_that_moves_and_ends_each_watch_is_asked_once_a_second():
    """Each watch brings something new: no failure, and still no spin."""
    numbers = iter(range(100, 10**6))

    def moves(action):
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(next(numbers))}}}
        return [WatchItem(action.token, bookmark), WatchEnded(action.token, False)]

    counts = count(
        Hand(), lambda action: (listing if isinstance(action, FetchObjects) else moves)(action), 600 * SECOND
    )
    assert counts["list"] == 1
    assert 500 < counts["watch"] <= 601


def test_without_any_answer_it_ends():
    """Unavailable, after its patience, with few requests until then."""
    hand = Hand(patience=120 * SECOND)
    counts = count(hand, lambda action: [FetchFailed(action.token)], HOUR)
    assert isinstance(hand.last(Fail).error, Unavailable)
    assert 120 * SECOND <= hand.now < 160 * SECOND
    assert counts["list"] < 30
    assert hand.tell(FetchFailed(("pools", 1))) == []


def test_refused_credentials_end_it_at_once():
    """In a list, and in a watch, whose connection is let go of."""
    hand = Hand()
    hand.start()
    (failed,) = hand.tell(Fetched(hand.last(FetchObjects).token, refusal(403, "Forbidden", 'User "x" cannot list')))
    assert isinstance(failed.error, Forbidden)
    hand = Hand()
    token = hand.watching()
    closed, failed = hand.tell(WatchItem(token, {"type": "ERROR", "object": refusal(401).body}))
    assert closed == CloseWatch(token)
    assert isinstance(failed.error, Forbidden)
    assert hand.reflector.phase is ReflectorPhase.OVER


def test_more_objects_than_memory_was_meant_for_end_it():
    """By name: in a list, and one by one."""
    hand = Hand(object_limit=2)
    hand.start()
    (failed,) = hand.listed(*(pool(f"p{number}", f"u{number}") for number in range(3)))
    assert isinstance(failed.error, TooManyObjects)
    hand = Hand(object_limit=2)
    token = hand.watching(pool("a"), pool("b", "u2"))
    closed, failed = hand.tell(WatchItem(token, {"type": "ADDED", "object": pool("c", "u3", "11")}))
    assert closed == CloseWatch(token)
    assert isinstance(failed.error, TooManyObjects)


def test_a_silent_connection_is_given_up_after_its_time():
    """The alarm rings: hang up, and list, whose answer tells whether somebody is there."""
    hand = Hand()
    token = hand.watching()
    alarm = hand.last(WakeAfter)
    assert alarm.after <= SETTINGS.watch_timeout + SETTINGS.watch_margin
    hand.now += alarm.after
    assert hand.tell(Woken(alarm.token))[0] == CloseWatch(token)
    hand.rest()
    assert isinstance(hand.actions[0], FetchObjects)
    assert hand.reflector.statistics.stalled == 1


def test_a_watch_that_fails_again_and_again_is_listed_anew():
    """Its version may be what is wrong: a storage that was restored knows nothing of it."""
    hand = Hand()
    token = hand.watching()
    for _ in range(SETTINGS.relist_after):
        hand.tell(WatchItem(token, {"type": "ERROR", "object": refusal(504, "Timeout", "Too large").body}))
        hand.rest()
        if isinstance(hand.actions[0], FetchObjects):
            break
        token = hand.last(OpenWatch).token
    assert isinstance(hand.actions[0], FetchObjects)


def test_it_lists_again_on_schedule():
    """When a watch ends after that time, and only then."""
    hand = Hand(resync=60 * SECOND)
    token = hand.watching()
    hand.now += 40 * SECOND
    assert isinstance(hand.tell(WatchEnded(token, False))[0], OpenWatch)
    hand.now += 40 * SECOND
    assert isinstance(hand.tell(WatchEnded(hand.last(OpenWatch).token, False))[0], FetchObjects)


def test_answers_to_what_is_over_are_counted_and_ignored():
    """Of an earlier list, of a watch that was hung up, and after the end."""
    hand = Hand()
    hand.start()
    first = hand.last(FetchObjects).token
    hand.listed()
    assert hand.tell(Fetched(first, EMPTY)) == []
    token = ("pools", 999)
    for event in (WatchItem(token, {}), WatchEnded(token, True), FetchFailed(token), Woken(token)):
        assert hand.tell(event) == []
    assert hand.reflector.statistics.stale == 4
    assert [type(action) for action in hand.reflector.stop()] == [CloseWatch]
    assert hand.reflector.stop() == []


@examples(20)  # to draw one takes 30 ms
@given(
    st.lists(OBJECTS | st.fixed_dictionaries({"type": st.sampled_from(TYPES), "object": OBJECTS}), max_size=5), OBJECTS
)
def test_any_json_is_taken(items, body):
    """As an event and as a list: nothing is raised, and what has no identity is left out and counted."""
    hand = Hand()
    token = hand.watching()
    for item in items:
        for action in hand.tell(WatchItem(token, item)):
            if isinstance(action, ItemChanged | Vanished):
                assert identity(action.object)
    hand = Hand()
    hand.start()
    hand.tell(Fetched(hand.last(FetchObjects).token, ApiResponse(200, body)))
    assert hand.actions


def test_statistics_tell_what_happened():
    """Lists, pages, watches, events, what was left out."""
    hand = Hand()
    token = hand.watching(pool(), {"metadata": {}})
    for item in ({"type": "GOSSIP"}, {"type": "ADDED", "object": {}}, {"type": "ADDED", "object": pool()}, None):
        assert hand.tell(WatchItem(token, item)) == []
    found = hand.reflector.statistics
    assert (found.objects, found.lists, found.pages, found.watches, found.events) == (1, 1, 1, 1, 4)
    assert (found.malformed, found.unknown_events, found.repetitions) == (2, 2, 1)


# Lives in trouble: whatever fails on the way, and it never spins


TROUBLED, QUIET = 400 * SECOND, 150 * SECOND
RATES = st.dictionaries(st.sampled_from(FAULTS), st.sampled_from([0.02, 0.1, 0.3]), max_size=6)


def check_shown(shown):
    """Nothing is shown twice, and what vanishes was there. Gives the view that the shown things add up to."""
    view, seen = {}, {}
    assert isinstance(shown[0], Listed)
    assert not any(isinstance(each, Listed) for each in shown[1:])
    for thing in shown[0].objects:
        view[thing["metadata"]["name"]] = identity(thing)
        seen[identity(thing)] = None
    for action in shown[1:]:
        name, (uid, version) = action.object["metadata"]["name"], identity(action.object)
        if isinstance(action, Vanished):
            assert view.pop(name)[0] == uid, "what vanished was not there"
        else:
            assert (uid, version) not in seen, "shown twice"
            assert view.get(name, (uid,))[0] == uid, "a successor is shown before the end of its predecessor"
            view[name] = (uid, version)
            seen[uid, version] = None
    return view


def check_requests(opened, settings):
    """Lists and watches begin apart from each other; a version that is forgotten is not asked for again."""
    last = {}
    for at, kind, request in opened:
        if kind == "list" and "limit" not in dict(request.query):
            continue  # the rest of a list whose pages were forgotten, in one piece
        assert at - last.get(kind, -(10**18)) >= settings.watch_interval, f"two {kind}s at once"
        last[kind] = at


def live(seed, rates, *, reflector=Reflector, settings=SETTINGS):
    """Run a troubled life, then a quiet one; check all laws."""
    watcher = Watcher(reflector("pools", SOURCE, settings), seed=seed, rates=rates)
    life = Life(watcher)
    life.begin(TROUBLED)
    watcher.start()
    watcher.run(TROUBLED)
    watcher.rates = {}
    watcher.run(QUIET)
    assert watcher.failed is None
    assert check_shown(watcher.shown) == life.truth(), "not the truth"
    check_requests(watcher.opened, settings)
    assert not forgotten_again(watcher), "a version was asked for again after a 410"
    return watcher


def forgotten_again(watcher):
    """Tell whether a watch was opened at a version after it had been told 410 there."""
    versions = [dict(request.query)["resourceVersion"] for _, kind, request in watcher.opened if kind == "watch"]
    return any(version in versions[count:] for version, count in watcher.machine.forgotten)


class Recording(Reflector):
    """Remembers at which versions it was told 410, and after how many watches."""

    def __init__(self, *args):
        super().__init__(*args)
        self.forgotten = []

    def _watch_refused(self, status, now, rng):
        if status.expired and status.text.startswith("too old"):
            self.forgotten.append((self._version, self.statistics.watches))
        return super()._watch_refused(status, now, rng)


@given(st.integers(0, 2**32), RATES)
@examples(12)
def test_after_faults_end_the_view_is_the_truth(seed, rates):
    """Each change is shown once at most, in an order that makes sense, and requests stay apart."""
    live(seed, rates, reflector=Recording)


@pytest.mark.soak
@given(st.integers(0, 2**32), RATES)
def test_after_faults_end_the_view_is_the_truth_at_length(seed, rates):
    """The same, for long."""
    live(seed, rates, reflector=Recording)


# Bugs that the laws must find


class Replays410(Recording):
    """Goes on watching where the server has forgotten."""

    def _relist(self, now, rng):
        return self._rest(module.Next.WATCH, 0, now, rng)


class Spins(Recording):
    """Goes on at once, whatever happened."""

    def _rest(self, following, pause, now, rng):
        self._next = following
        return (
            self._resume(now, rng) if following is not module.Next.PAGE else super()._rest(following, pause, now, rng)
        )


class StandsStill(Recording):
    """Takes watches up where the list was."""

    def _move(self, version):
        self._moved = True


class IsPatient(Recording):
    """Waits for ever for a connection that went silent."""

    def _watch(self, now, rng):
        return super()._watch(now, rng)[:1]


class ReadsOnePage(Recording):
    """Takes the first page for the list."""

    def _page(self, response, now, rng):
        if response.code == 200:
            metadata = {**response.body["metadata"], "continue": ""}
            response = ApiResponse(200, {**response.body, "metadata": metadata})
        return super()._page(response, now, rng)


class BelievesAnybody(Recording):
    """Takes what comes late for what it waits for."""

    def on(self, event, now, rng):
        return super().on(attrs.evolve(event, token=self._current), now, rng)


class ListsWithoutLooking(Recording):
    """A list says what is there, and nobody what is not any more."""

    def _taken(self, now, rng):
        return [action for action in super()._taken(now, rng) if not isinstance(action, Vanished)]


class ForgetfulView(View):
    """Shows repetitions."""

    def changed(self, key, thing):
        self._recent.clear()
        self._tombstones.clear()
        self.objects[key] = thing
        self._recent[thing["metadata"]["uid"]] = (thing["metadata"]["resourceVersion"],)
        return [ItemChanged(thing)]

    def vanished(self, key, thing):
        self.objects.pop(key, None)
        return [Vanished(thing)]


class CountsNames(View):
    """Takes the successor of a name for the same thing."""

    def replace(self, found):
        shown = super().replace(found)
        there = [action.object["metadata"]["name"] for action in shown if isinstance(action, ItemChanged)]
        return [a for a in shown if not (isinstance(a, Vanished) and a.object["metadata"]["name"] in there)]


def viewing(view):
    """Return a reflector with another view."""

    class Viewing(Recording):
        def __init__(self, *args):
            super().__init__(*args)
            self._view = view()

    return Viewing


HARSH = dict.fromkeys(FAULTS, 0.1)
BREAKING = {"breaks": 0.2}
PLANTED = [
    (Replays410, "after a 410"),
    (Spins, "at once"),
    (StandsStill, "shown twice"),
    (IsPatient, "not the truth"),
    (ReadsOnePage, "shown twice"),
    (BelievesAnybody, "not the truth"),
    (ListsWithoutLooking, "a successor is shown before"),
    (viewing(ForgetfulView), "shown twice"),
    (viewing(CountsNames), "a successor is shown before"),
]


def broken_law(seed, rates, reflector):
    """Live one life; give what a law says about it, or nothing."""
    try:
        live(seed, rates, reflector=reflector)
    except AssertionError as broken:
        return str(broken)
    return ""


@pytest.mark.parametrize(("reflector", "law"), PLANTED, ids=lambda each: getattr(each, "__name__", ""))
def test_planted_bugs_are_found(reflector, law):
    """Each breaks its law within a few lives."""
    for seed in range(20):
        found = broken_law(seed, (HARSH, BREAKING)[seed % 2], reflector)
        if found:
            break
    assert law in found


def test_without_a_bug_no_law_is_broken():
    """In the very lives that show the bugs."""
    for seed in range(20):
        live(seed, (HARSH, BREAKING)[seed % 2], reflector=Recording)
