"""What controllers share: time, what waits, and answers that nobody expects."""

import pytest
from cloud_world import SECOND

from iriscw_sims.coreweave.site import Site
from raised import that


def test_what_waits_is_done_at_its_time(world):
    """Once."""
    done = []
    world.cloud.site.hold(("k",), done.append, 1, after=5 * SECOND)
    world.run(4)
    assert done == []
    world.run(2)
    assert done == [1]
    world.cloud.heal()
    assert done == [1]


def test_a_repair_does_all_that_waits(world):
    """In the order in which it began to, also what waits for nothing else; not once more later."""
    done = []
    site = world.cloud.site
    site.hold(("a",), done.append, 1)
    site.hold(("b",), done.append, 2, after=5 * SECOND)
    world.cloud.heal()
    world.run(10)
    assert done == [1, 2]


def test_what_is_dropped_does_not_happen(world):
    """Neither at its time nor with a repair."""
    done = []
    site = world.cloud.site
    site.hold(("a",), done.append, 1, after=5 * SECOND)
    assert site.holds(("a",))
    site.drop(("a",))
    assert not site.holds(("a",))
    world.run(10)
    world.cloud.heal()
    assert done == []


def test_who_waits_anew_waits_for_the_new_time(world):
    """The old timer does nothing."""
    done = []
    site = world.cloud.site
    site.hold(("a",), done.append, 1, after=5 * SECOND)
    world.run(4)
    site.hold(("a",), done.append, 2, after=5 * SECOND)
    world.run(4)
    assert done == []
    world.run(2)
    assert done == [2]


def test_an_answer_that_nobody_expects_stops_the_simulation(world):
    """It says what was asked and what was said."""
    with pytest.raises(AssertionError, check=that(comes_from="site.Site.ask", names=("POST", "/api/v1/nodes", "422"))):
        world.cloud.site.create("/api/v1/nodes", {"metadata": {"name": "No Name"}})


def test_a_write_may_come_too_late(pooled):
    """To an object that is gone, or one that only has the same name: neither is changed."""
    site, (first, second) = pooled.cloud.site, pooled.nodes()
    path = f"/api/v1/nodes/{first['metadata']['name']}"
    assert site.patch(path, second, {"spec": {"unschedulable": True}}) is second
    site.delete(path, second["metadata"]["uid"])
    assert pooled.get(path)["metadata"] == first["metadata"]
    assert site.patch("/api/v1/nodes/gone", second, {"spec": {"unschedulable": True}}) is second
    site.delete("/api/v1/nodes/gone", "uid")


def test_a_refusal_can_be_expected(world):
    """By its code."""
    assert world.cloud.site.ask("DELETE", "/api/v1/nodes/x", None, "admin", accept=(404,)) is None


def test_controllers_are_trusted_by_the_stores_own_rules(world):
    """Whatever roles there are."""
    assert world.store.rules is not None
    assert world.store.rules.is_master("system:serviceaccount:kube-system:coreweave")


def test_a_timer_takes_in_the_news_first(world):
    """So that no controller acts on what is no more."""
    order = []
    site = world.cloud.site
    site.later(SECOND, order.append, "timer")
    site.react = lambda: order.append("react")
    world.run(2)
    assert order == ["react", "timer", "react"]


def test_a_site_alone_reacts_to_nothing(world):
    """Until somebody puts controllers on it."""
    site = Site(world.store, world, world, world, world.cloud.site.settings)
    done = []
    site.later(SECOND, done.append, 1)
    world.run(2)
    assert done == [1]
