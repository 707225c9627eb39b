"""The network in front of the simulated API server: it fails in honest ways, and in no others."""

import pytest

from iriscw.cloud.kube.messages import ApiRequest
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.apiserver import KEEPALIVE, LATEST_LANDING, REQUEST_TIMEOUT
from iriscw_sims.cloud import PODS
from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.world import World

ALWAYS = 1000


@pytest.fixture
def world(calm_plan):
    """Return a world in which nothing goes wrong by itself, and whose controller asks for nothing."""
    world = World(5, calm_plan(5))
    world.system.crash(0)
    world.cloud.controller_down()
    return world


def pool(name):
    """Return the request for a pool."""
    body = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool", "metadata": {"name": name}}
    return ApiRequest("POST", POOLS, body={**body, "spec": {"instanceType": "cd-gp-i64", "targetNodes": 1}})


class Asked:
    """Sends a request, and notes when which answer came."""

    def __init__(self, world, request):
        self.world = world
        self.answers = []
        world.cloud.server.send(request, self.answered)

    def answered(self, response):
        self.answers.append((self.world.simulation.now, response))


class Watching:
    """Watches pools; takes what comes for as long as it has room."""

    def __init__(self, world, version="", **query):
        self.events, self.ends, self.room = [], [], 1 << 30
        asked = {"watch": "1", "timeoutSeconds": "600", "resourceVersion": version, **query}
        request = ApiRequest("GET", POOLS, tuple((name, value) for name, value in asked.items() if value))
        self.connection = world.cloud.server.watch(request, self.item, self.ends.append)

    def item(self, event):
        if len(self.events) >= self.room:
            return False
        self.events.append(event)
        return True

    @property
    def names(self):
        return [event["object"]["metadata"]["name"] for event in self.events]


def advance(world, seconds):
    world.simulation.advance(seconds)


def test_a_request_lands_once_and_is_answered_once(world):
    """Without faults a request has its effect, and then its answer."""
    asked = Asked(world, pool("a"))
    assert world.cloud.in_flight == 1
    advance(world, 5)
    ((_, response),) = asked.answers
    assert (response.code, world.cloud.in_flight, "a" in world.cloud.pools) == (201, 0, True)


@pytest.mark.parametrize(
    ("fault", "lands"), [("api lost", False), ("api landed in silence", True), ("api landed late", True)]
)
def test_silence_says_nothing_about_the_effect(world, fault, lands):
    """Whoever hears nothing cannot know: the request is lost, or has landed, or lands after he gave it up."""
    world.rates[fault] = ALWAYS
    asked = Asked(world, pool("a"))
    advance(world, REQUEST_TIMEOUT / SECOND)
    world.rates[fault] = 0
    ((at, response),) = asked.answers
    assert response is None
    assert at <= REQUEST_TIMEOUT
    if fault == "api landed late":
        assert "a" not in world.cloud.pools
        assert world.cloud.in_flight == 1
    advance(world, LATEST_LANDING / SECOND)
    assert ("a" in world.cloud.pools) is lands
    assert (world.cloud.in_flight, len(asked.answers)) == (0, 1)


@pytest.mark.parametrize(("fault", "codes"), [("api throttled", (429,)), ("api in trouble", (500, 503, 504))])
def test_a_refusal_comes_before_any_effect(world, fault, codes):
    """What is throttled, or meets a server in trouble, has done nothing."""
    world.rates[fault] = ALWAYS
    asked = Asked(world, pool("a"))
    advance(world, 60)
    ((_, response),) = asked.answers
    assert response.code in codes
    assert response.body["kind"] == "Status"
    assert "a" not in world.cloud.pools


def test_the_controller_has_the_rights_that_it_needs_and_no_more(world):
    """A request that the controller has no business with is refused, and the answer says so."""
    for request in (
        ApiRequest("DELETE", f"{POOLS}/controller-pool/status"),
        ApiRequest("PATCH", f"{POOLS}/controller-pool", body={}, content_type="application/merge-patch+json"),
        ApiRequest("DELETE", "/api/v1/nodes/a"),
        ApiRequest("GET", "/api/v1/namespaces/iris/secrets"),
        ApiRequest("POST", f"{PODS}/a/exec"),
    ):
        asked = Asked(world, request)
        advance(world, 5)
        assert asked.answers[0][1].code == 403, request
    asked = Asked(world, ApiRequest("GET", "/api/v1/nodes"))
    advance(world, 5)
    assert asked.answers[0][1].code == 200


def test_a_watch_tells_everything_in_order(world):
    """Late, but whole: each object as it is first, then each change once."""
    advance(world, 60)
    watching = Watching(world)
    advance(world, 5)
    before = len(watching.events)
    assert watching.names == sorted(world.cloud.pools)
    for name in "abc":
        Asked(world, pool(name))
        advance(world, 3)
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watching.events[before:]]
    assert versions == sorted(dict.fromkeys(versions))
    assert [name for name in dict.fromkeys(watching.names[before:]) if len(name) == 1] == ["a", "b", "c"]


def test_a_watch_without_room_waits(world):
    """Nothing is lost when the reader has no room, and nothing comes until it says that it has."""
    watching = Watching(world)
    watching.room = 1
    advance(world, 30)
    assert len(watching.events) == 1
    watching.room = 1 << 30
    advance(world, 30)
    assert len(watching.events) == 1
    watching.connection.pump()
    assert sorted(dict.fromkeys(watching.names)) == sorted(world.cloud.pools)


def test_a_watch_that_breaks_loses_a_suffix_and_says_so(world):
    """What came is a prefix of what there was; the end is told as an error, once."""
    watching = Watching(world)
    advance(world, 60)
    before = list(watching.names)
    world.rates["watch breaks"] = ALWAYS
    Asked(world, pool("a"))
    advance(world, 60)
    assert (watching.names, watching.ends) == (before, [True])
    assert watching.connection not in world.cloud.server.connections


def test_a_watch_that_goes_silent_says_nothing_until_the_probes_do(world):
    """Half open: changes are not told, and nobody knows it before the transport finds out."""
    watching = Watching(world)
    advance(world, 60)
    before = list(watching.names)
    world.rates["watch goes silent"] = ALWAYS
    Asked(world, pool("a"))
    advance(world, KEEPALIVE / SECOND - 5)
    assert (watching.names, watching.ends) == (before, [])
    advance(world, 10)
    assert watching.ends == [True]


def test_who_comes_back_too_late_is_told_so(world):
    """After a compaction an old version is answered with one ERROR, and the watch ends in order."""
    version = str(world.cloud.store.revision)
    Asked(world, pool("a"))
    advance(world, 5)
    early = Watching(world, version)
    advance(world, 5)
    assert "a" in early.names
    world.cloud.server.forget()
    late = Watching(world, version)
    advance(world, 5)
    assert [event["type"] for event in late.events] == ["ERROR"]
    assert (late.events[0]["object"]["code"], late.ends) == (410, [False])


def test_the_server_ends_a_watch_in_order(world):
    """At its timeout a watch ends without an error, behind a bookmark, also when nothing happens."""
    advance(world, 600)
    watching = Watching(world, timeoutSeconds="20", allowWatchBookmarks="true")
    advance(world, 17.5)
    before = len(watching.events)
    assert watching.ends == []
    advance(world, 5)
    assert [event["type"] for event in watching.events[before:]] == ["BOOKMARK"]
    assert watching.ends == [False]


def test_a_watch_that_is_looked_at_late_has_no_bookmark_behind_its_end(world):
    """What came after the end was not told: a bookmark behind it would have the client miss that for good."""
    advance(world, 600)
    watching = Watching(world, timeoutSeconds="20", allowWatchBookmarks="true")
    advance(world, 5)
    before = len(watching.events)
    world.simulation.stall(60)
    world.cloud.furnish("late", {})
    advance(world, 5)
    assert (watching.events[before:], watching.ends) == ([], [False])


def test_a_controller_that_is_down_hears_nothing(world):
    """Its connections are gone: no item, no end."""
    watching = Watching(world)
    world.cloud.controller_down()
    advance(world, 60)
    assert (watching.events, watching.ends) == ([], [])
