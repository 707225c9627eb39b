"""A store whose time passes: controllers act after every change and every timer, and bells ring for what changed."""

import asyncio
from random import Random

import pytest
from serve_caller import MAPS, a_map

from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store
from iriscw_sims.serve.live import TURN_LIMIT, Bells, Live
from iriscw_sims.serve.timeline import Clock, Timeline
from waiting import until

SECOND = 1_000_000_000


class Controller:
    """Counts how often it was called, and at which revisions."""

    def __init__(self):
        self.calls = 0

    def react(self):
        """Count."""
        self.calls += 1


@pytest.fixture
async def live():
    """A store in which time passes a thousand times as fast."""
    loop = asyncio.get_running_loop()
    timeline = Timeline(Clock(10**18, lambda: int(loop.time() * SECOND), 1000))
    living = Live(Store(rng=Random(1), now=timeline.now), timeline, [Controller()])
    task = loop.create_task(living.run())
    yield living
    task.cancel()
    await asyncio.wait([task])


def post(live, name, path=MAPS):
    """Create a ConfigMap."""
    response = live.handle(Request("POST", path, body=a_map(name)))
    assert response.code == 201
    return response.body


async def test_bells_ring_for_what_changed(live):
    """Once, however much it was, and not for other kinds."""
    maps, pods = live.bells.of("", "configmaps"), live.bells.of("", "pods")
    post(live, "a")
    post(live, "b")
    await asyncio.wait_for(maps.wait(), 5)
    assert not pods.is_set()
    assert live.bells.of("", "configmaps") is not maps


async def test_controllers_see_every_change_and_every_timer(live):
    """And nobody calls them while nothing happens."""
    await asyncio.sleep(0)
    (controller, *_), before = live.controllers, live.controllers[0].calls
    post(live, "a")
    await until(lambda: controller.calls > before)
    before = controller.calls
    live.timeline.after(0, lambda: None)
    post(live, "b")
    await until(lambda: controller.calls >= before + 2)


async def test_one_error_of_a_controller_is_logged_and_counted(live, caplog):
    """What it was about to do is not done; everything else goes on."""

    def broken():
        raise ZeroDivisionError("of a controller")

    done = asyncio.Event()
    live.timeline.after(0, broken)
    live.timeline.after(0, done.set)
    post(live, "a")
    await asyncio.wait_for(done.wait(), 5)
    assert live.failures == 1
    assert "ZeroDivisionError: of a controller" in caplog.text


async def test_requests_come_between_timers(live):
    """However many are due: a turn has an end."""
    ran = []
    for number in range(5 * TURN_LIMIT):
        live.timeline.after(0, ran.append, number)
    post(live, "a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < len(ran) < 5 * TURN_LIMIT
    await until(lambda: len(ran) == 5 * TURN_LIMIT)


async def test_what_nobody_owns_any_more_is_collected(live):
    """As the garbage collector does it, soon after its owner is gone; namespaces are emptied."""
    owner = post(live, "owner")
    owned = a_map("owned")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned["metadata"]["ownerReferences"] = [reference]
    assert live.handle(Request("POST", MAPS, body=owned)).code == 201
    live.handle(Request("DELETE", f"{MAPS}/owner"))
    await until(lambda: live.read(f"{MAPS}/owned").code == 404)
    live.handle(Request("POST", "/api/v1/namespaces", body={"metadata": {"name": "team"}}))
    post(live, "a", "/api/v1/namespaces/team/configmaps")
    live.handle(Request("DELETE", "/api/v1/namespaces/team"))
    await until(lambda: live.read("/api/v1/namespaces/team").code == 404)


async def test_waiting_ends_with_time(live):
    """A minute of simulated time, if no bell rings."""
    before = live.now
    await live.wait(live.bells.of("", "pods"), 60 * SECOND)
    assert live.now - before >= 59 * SECOND


async def test_closing_rings_everywhere(live):
    """So that nobody waits for what will not come."""
    bells = [live.bells.of("", name) for name in ("pods", "configmaps", "nothing")]
    live.close()
    assert live.closed
    assert all(each.is_set() for each in bells)


def test_a_kind_that_is_served_no_more_rings():
    """Its watches have to see that they are over."""
    store, bells = Store(rng=Random(1)), Bells()
    bells.ring(store)
    kind = next(each for each in store.kinds if each.plural == "leases")
    bell = bells.of(kind.group, kind.plural)
    bells.ring(store)
    assert not bell.is_set()
    store.withdraw(kind)
    bells.ring(store)
    assert bell.is_set()
