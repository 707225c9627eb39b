"""The shell of the Kubernetes driver in virtual time: deadlines, crashes and what is on its way."""

import attrs
import pytest

from iriscw.cloud.effects import CreateNodePool, ListNodePools, WatchPods
from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.model import LABEL_CLUSTER, LABEL_MANAGED, LABEL_SLICE, NodePoolSpec, Relisted, Unavailable, Upserted
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.cloud import PODS, Cloud
from iriscw_sims.kube.messages import Request
from iriscw_sims.pace import CLUSTER, QUICK
from iriscw_sims.world import World

ALWAYS = 1000


@attrs.define(eq=False)
class Operation:
    """An operation of an actor that only notes what becomes of it."""

    effect: object
    room: int = 1 << 30
    ended: bool = False
    system_restarted: bool = False
    value: object = None
    error: Exception | None = None
    items: list = attrs.field(factory=list)
    on_cancel: object = None
    on_room: object = None

    def complete(self, value=None):
        assert not self.ended
        self.ended, self.value = True, value

    def fail(self, error):
        assert not self.ended
        self.ended, self.error = True, error

    def send(self, item):
        if len(self.items) >= self.room:
            return False
        self.items.append(item)
        return True


@pytest.fixture
def world(calm_plan):
    """Return a world in which nothing goes wrong by itself, and whose controller asks for nothing."""
    world = World(5, calm_plan(5))
    world.system.crash(0)
    world.cloud.controller_down()
    return world


def spec(name="a"):
    return NodePoolSpec(name, "cd-gp-i64", 1, {LABEL_MANAGED: "true", LABEL_CLUSTER: CLUSTER, LABEL_SLICE: name})


def asked(world, effect, **changes):
    operation = Operation(effect, **changes)
    world.cloud.driver.request(operation)
    return operation


def watched(world, **changes):
    operation = Operation(WatchPods({}), **changes)
    world.cloud.driver.watch(operation)
    return operation


def test_a_call_is_carried_out(world):
    """The answer is what the port promises, and the pool is there."""
    operation = asked(world, CreateNodePool(spec()))
    world.simulation.advance(5)
    assert operation.value.name == "a"
    assert "a" in world.cloud.pools
    listed = asked(world, ListNodePools({LABEL_SLICE: "a"}))
    world.simulation.advance(5)
    assert [pool.name for pool in listed.value] == ["a"]


def test_a_call_ends_at_its_deadline(world):
    """However often the driver would try: then nothing is known, and the shell says so."""
    world.rates["api lost"] = ALWAYS
    operation = asked(world, CreateNodePool(spec()))
    world.simulation.advance(QUICK.call_timeout / SECOND)
    assert isinstance(operation.error, Unavailable)
    world.rates["api lost"] = 0
    sent = world.cloud.server.in_flight
    world.simulation.advance(60)
    assert (sent, "a" in world.cloud.pools) == (0, False), "what was given up asks for nothing more"


def test_what_is_on_its_way_lands_after_a_crash_and_nothing_follows(world):
    """A controller that dies between two requests of a call makes only the first."""
    operation = asked(world, CreateNodePool(spec()))
    operation.system_restarted = True
    world.cloud.controller_down()
    world.simulation.advance(60)
    assert "a" in world.cloud.pools
    assert not operation.ended


def test_a_call_that_is_given_up_stops(world):
    """Cancelled before anything was sent, it sends nothing."""
    world.rates["api throttled"] = ALWAYS
    operation = asked(world, CreateNodePool(spec()))
    world.simulation.advance(1)
    operation.on_cancel()
    operation.complete()
    world.rates["api throttled"] = 0
    world.simulation.advance(60)
    assert "a" not in world.cloud.pools


def test_a_watch_shows_what_the_actor_has_room_for(world):
    """A full mailbox holds the watch back; nothing is lost."""
    operation = watched(world, room=1)
    world.simulation.advance(10)
    assert operation.items == [Relisted(())]
    for name in "ab":
        body = {"metadata": {"name": name, "labels": {LABEL_MANAGED: "true"}}}
        body["spec"] = {"containers": [{"name": "c", "image": "i"}]}
        world.cloud.store.handle(Request("POST", PODS, body=body), world.cloud.now)
        world.cloud.changed()
    world.simulation.advance(20)
    assert len(operation.items) == 1
    operation.room = 1 << 30
    operation.on_room()
    world.simulation.advance(20)
    shown = [item.object.name for item in operation.items if isinstance(item, Upserted)]
    assert list(dict.fromkeys(shown)) == ["a", "b"]


def test_a_watch_of_a_controller_that_is_down_is_gone(world):
    """It shows nothing, and leaves no connection."""
    operation = watched(world)
    world.simulation.advance(10)
    world.cloud.controller_down()
    before = len(operation.items)
    world.cloud.lose_everything()
    world.simulation.advance(60)
    assert (len(operation.items), world.cloud.server.connections, world.cloud.driver.sessions) == (before, [], [])


def test_the_truth_is_read_off_the_store(world):
    """What checks read are the objects themselves."""
    cloud: Cloud = world.cloud
    assert sorted(cloud.pools) == ["controller-pool", "orphan", "orphan-of-a-removed-group", "somebody-elses"]
    cloud.delete_pool_from_outside("orphan")
    world.simulation.advance(30)
    assert "orphan" not in cloud.pools


def test_who_crashed_in_the_step_in_which_it_asked_watches_nothing(world):
    """A watch of a process that is no more would be nobody's to close."""
    operation = Operation(WatchPods({}), system_restarted=True)
    world.cloud.watch(operation)
    world.simulation.advance(60)
    assert (world.cloud.driver.sessions, world.cloud.server.connections, operation.items) == ([], [], [])


def test_who_stood_still_does_not_send_all_that_waited_at_once(world):
    """A turn that has passed is none: INV-F9 holds behind a pause of the whole process, too."""
    sent = []
    for number in range(3 * QUICK.driver.burst):
        world.cloud.driver.send(ApiRequest("GET", f"{PODS}/{number}"), sent.append)
    world.simulation.stall(60)
    for number in range(3 * QUICK.driver.burst):
        world.cloud.driver.send(ApiRequest("GET", f"{PODS}/late-{number}"), sent.append)
    world.simulation.advance(60)
    assert not world.violations
    assert len(sent) == 6 * QUICK.driver.burst
