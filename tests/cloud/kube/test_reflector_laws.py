"""The reflector shows the truth in the end, each change once, and never spins: whatever fails on the way."""

import attrs
import pytest
from hypothesis import given, strategies as st
from kube_shell import POOLS, SECOND
from kube_watcher import FAULTS, SETTINGS, Life, Watcher

from iriscw.cloud.kube import reflector as module
from iriscw.cloud.kube.exchange import (
    ItemChanged,
    Listed,
    Vanished,
)
from iriscw.cloud.kube.messages import ApiResponse
from iriscw.cloud.kube.paths import Source, selector
from iriscw.cloud.kube.reflector import Reflector
from iriscw.cloud.kube.view import View
from profiles import examples

SOURCE = Source(POOLS, selector({}))
TROUBLED, QUIET = 400 * SECOND, 150 * SECOND
RATES = st.dictionaries(st.sampled_from(FAULTS), st.sampled_from([0.02, 0.1, 0.3]), max_size=6)


def identity(thing):
    return thing["metadata"]["uid"], thing["metadata"]["resourceVersion"]


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
@examples(25)
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


@pytest.mark.parametrize("rates", [HARSH, BREAKING])
def test_without_a_bug_no_law_is_broken(rates):
    """In the very lives that show the bugs."""
    for seed in range(20):
        live(seed, rates, reflector=Recording)
