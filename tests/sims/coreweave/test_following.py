"""What a controller sees of a kind, whatever becomes of its watch."""

import pytest

from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, POOLS
from iriscw_sims.coreweave.following import Following
from iriscw_sims.coreweave.machines import NODES

DEFINED = f"{DEFINITIONS}/{DEFINITION['metadata']['name']}"


def told(following):
    """Return what happened, as type and name."""
    return [(event["type"], event["object"]["metadata"]["name"]) for event in following.take()]


@pytest.fixture
def nodes(world):
    """Follow nodes, of which there is one."""
    world.do("POST", NODES, {"metadata": {"name": "a"}})
    return Following(world.cloud.site, NODES)


def test_all_that_is_there_is_told_first(world, nodes):
    """And then what changes, each once."""
    assert told(nodes) == [("ADDED", "a")]
    assert told(nodes) == []
    world.patch(f"{NODES}/a", {"metadata": {"labels": {"k": "v"}}})
    world.do("DELETE", f"{NODES}/a")
    assert told(nodes) == [("MODIFIED", "a"), ("DELETED", "a")]


def test_what_the_server_forgot_is_found_by_looking(world, nodes):
    """What is gone is told as gone, and what is there as there."""
    world.do("POST", NODES, {"metadata": {"name": "b"}})
    told(nodes)
    world.do("DELETE", f"{NODES}/a")
    world.do("POST", NODES, {"metadata": {"name": "c"}})
    world.store.compact(world.store.revision)
    assert told(nodes) == [("DELETED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    world.do("DELETE", f"{NODES}/b")
    assert told(nodes) == [("DELETED", "b")]


def test_an_object_with_the_name_of_one_that_is_gone_is_another(world, nodes):
    """Uids tell them apart."""
    told(nodes)
    world.do("DELETE", f"{NODES}/a")
    world.do("POST", NODES, {"metadata": {"name": "a"}})
    world.store.compact(world.store.revision)
    assert told(nodes) == [("DELETED", "a"), ("ADDED", "a")]


def test_a_kind_may_go_and_come_again(world):
    """While it is not served, it has no objects."""
    world.make_pool()
    pools = Following(world.cloud.site, POOLS)
    assert told(pools) == [("ADDED", "p")]
    world.do("DELETE", DEFINED)
    assert [each for each in told(pools) if each[0] != "MODIFIED"] == [("DELETED", "p")]
    assert told(pools) == []
    world.do("POST", DEFINITIONS, DEFINITION)
    world.make_pool("q")
    assert told(pools) == [("ADDED", "q")]
