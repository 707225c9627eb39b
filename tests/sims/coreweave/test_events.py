"""Events: told once, counted, forgotten."""

import attrs
from cloud_world import World

from iriscw_sims.coreweave.events import Events
from iriscw_sims.coreweave.settings import QUICK


def told(world, name="a"):
    """Return reason, type and count of the events about a pod."""
    found = world.items("/api/v1/namespaces/iris/events", fieldSelector=f"involvedObject.name={name}")
    return [(each["reason"], each["type"], each["count"]) for each in found]


def test_the_same_event_is_counted(world):
    """And others stand beside it."""
    pod = world.make_pod(cpu="1000")
    events = Events(world.cloud.site)
    for _ in range(3):
        events.warning(pod, "Bad", "it is bad")
    events.warning(pod, "Bad", "it is worse")
    assert told(world) == [("Bad", "Warning", 3), ("Bad", "Warning", 1)]


def test_an_event_names_its_object(world):
    """So that describe finds it."""
    pod = world.make_pod()
    Events(world.cloud.site).warning(pod, "Bad", "it is bad", "me")
    (event,) = world.items("/api/v1/namespaces/iris/events")
    involved = event["involvedObject"]
    assert (involved["kind"], involved["apiVersion"], involved["uid"]) == ("Pod", "v1", pod["metadata"]["uid"])
    assert event["source"]["component"] == "me"


def test_normal_events_are_for_those_who_want_them():
    """Small worlds do without."""
    for wanted in (False, True):
        world = World(settings=attrs.evolve(QUICK, normal_events=wanted))
        Events(world.cloud.site).normal(world.make_pod(), "Good", "it is good")
        assert bool(told(world)) == wanted


def test_an_ordinary_life_is_told_in_events():
    """Of a pool and of a pod, with the reasons that people look for."""
    world = World(settings=attrs.evolve(QUICK, normal_events=True))
    world.make_pool()
    world.until(world.whole)
    world.running_pod()
    assert world.reasons("p", "default") == ["CWNodeAssigned", "CWNodeRegistered"]
    assert world.reasons("a") == ["Scheduled", "Pulling", "Started"]
    world.patch("/apis/compute.coreweave.com/v1alpha1/nodepools/p", {"spec": {"targetNodes": 2}})
    assert "CWNodePoolScaledUp" in world.reasons("p", "default")


def test_an_event_that_was_removed_is_told_anew(world):
    """By somebody who cleans up."""
    pod = world.make_pod(cpu="1000")
    events = Events(world.cloud.site)
    events.warning(pod, "Bad", "it is bad")
    world.do("DELETE", "/api/v1/namespaces/iris/events")
    events.warning(pod, "Bad", "it is bad")
    assert told(world) == [("Bad", "Warning", 1)]
    world.do("DELETE", "/api/v1/namespaces/iris/events")
    world.run(7300)
    assert told(world) == []


def test_in_a_namespace_that_goes_away_nothing_is_told(world):
    """It would be refused."""
    pod = world.make_pod(cpu="1000")
    world.do("DELETE", "/api/v1/namespaces/iris")
    Events(world.cloud.site).warning(pod, "Bad", "it is bad")
    assert told(world) == []


def test_an_event_of_a_long_name_has_a_name(world):
    """The object's is cut, and never so that what is left cannot begin a name."""
    name = "a" * 199 + "." + "b" * 50
    world.make_pool(name)
    world.until(lambda: world.condition("Validated", name))
    assert world.reasons(name, "default") == ["Invalid"]
