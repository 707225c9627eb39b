"""Outages of the API server as a whole: what gets through, what is answered, and that all of it ends."""

import pytest

from iriscw.cloud.kube.messages import ApiRequest
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.apiserver import KEEPALIVE, REQUEST_TIMEOUT
from iriscw_sims.cloud import PODS
from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.world import World

LIST = ApiRequest("GET", POOLS)
POOL = ApiRequest(
    "POST",
    POOLS,
    body={
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": "a"},
        "spec": {"instanceType": "cd-gp-i64", "targetNodes": 1},
    },
)
SPAN = 60 * SECOND


@pytest.fixture
def world(calm_plan):
    """Return a world in which nothing goes wrong by itself, and whose controller asks for nothing."""
    world = World(5, calm_plan(5))
    world.system.crash(0)
    world.cloud.controller_down()
    return world


def answer(world, request, within=5.0):
    """Send a request, and give the answer that comes within so many seconds, and when."""
    answers = []
    began = world.simulation.now
    world.cloud.server.send(request, lambda response: answers.append((response, world.simulation.now - began)))
    world.simulation.advance(within)
    return answers[0] if answers else None


def watch(world):
    """Open a watch; give what it tells and how it ends."""
    told, ends = [], []
    request = ApiRequest("GET", POOLS, (("watch", "1"), ("timeoutSeconds", "600")))
    world.cloud.server.watch(request, lambda event: told.append(event) or True, ends.append)
    return told, ends


@pytest.mark.parametrize("hangs", [True, False])
def test_nothing_gets_through_to_what_is_out_of_reach(world, hangs):
    """Requests are not answered, by their timeout or at once; nothing lands; watches end; and then it is over."""
    told, ends = watch(world)
    world.simulation.advance(2)
    before = len(told)
    server = world.cloud.server
    server.outages.go_away(server, SPAN, hangs=hangs)
    response, took = answer(world, POOL, REQUEST_TIMEOUT / SECOND)
    assert response is None
    assert (took == REQUEST_TIMEOUT) is hangs
    assert "a" not in world.cloud.pools
    _, later = watch(world)
    world.simulation.advance(KEEPALIVE / SECOND)
    assert (len(told), ends, later) == (before, [True], [True])
    world.simulation.advance(SPAN / SECOND)
    assert answer(world, LIST)[0].code == 200


def test_what_flies_lands_though_nobody_gets_through_any_more(world):
    """An outage of the network is none of the server."""
    server = world.cloud.server
    server.send(POOL, lambda response: None)
    server.outages.go_away(server, SPAN, hangs=True)
    world.simulation.advance(5)
    assert "a" in world.cloud.pools


def test_reads_go_on_when_nothing_can_be_written(world):
    """A write is refused before it has an effect, and may be tried again."""
    world.cloud.server.outages.take_no_writes(SPAN)
    told, _ = watch(world)
    assert answer(world, LIST)[0].code == 200
    assert answer(world, POOL)[0].code == 503
    assert "a" not in world.cloud.pools
    assert told
    world.simulation.advance(SPAN / SECOND)
    assert answer(world, POOL)[0].code == 201


def test_credentials_that_have_expired_are_good_for_nothing(world):
    """Everything is answered with 401, a new watch too, until they are renewed."""
    world.cloud.server.outages.expire(SPAN)
    told, ends = watch(world)
    codes = [answer(world, request)[0].code for request in (LIST, POOL)]
    assert codes == [401, 401]
    assert ([event["object"]["code"] for event in told], ends) == ([401], [False])
    world.cloud.server.outages.heal()
    assert answer(world, LIST)[0].code == 200


def test_rights_that_are_revoked_come_back_one_by_one(world):
    """Two revocations overlap: each right comes back when the last that took it is over, and no other was gone."""
    outages = world.cloud.server.outages
    outages.revoke("nodepools", ("create",), 3 * SPAN)
    outages.revoke("nodepools", ("list", "create"), SPAN)
    assert [answer(world, request)[0].code for request in (LIST, POOL)] == [403, 403]
    assert 'cannot list resource "nodepools"' in answer(world, LIST)[0].body["message"]
    assert answer(world, ApiRequest("GET", PODS))[0].code == 200
    world.simulation.advance(SPAN / SECOND)
    assert [answer(world, request)[0].code for request in (LIST, POOL)] == [200, 403]
    assert outages.hampers
    world.simulation.advance(2 * SPAN / SECOND)
    assert answer(world, POOL)[0].code == 201
    assert not outages.hampers


def test_healing_ends_everything_at_once(world):
    """Whatever goes on, and however it was begun."""
    outages = world.cloud.server.outages
    outages.go_away(world.cloud.server, SPAN, hangs=True)
    outages.take_no_writes(SPAN)
    outages.expire(SPAN)
    outages.revoke("pods", ("create", "delete", "get", "list", "watch"), SPAN)
    outages.heal()
    assert not outages.hampers
    assert answer(world, POOL)[0].code == 201
    world.simulation.advance(2 * SPAN / SECOND)
    assert answer(world, ApiRequest("GET", PODS))[0].code == 200
