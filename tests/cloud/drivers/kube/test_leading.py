"""One leads while its block lasts; the next one waits, and follows."""

import time
from random import Random

import anyio
import attrs
import pytest

from iriscw.cloud.drivers.kube.leading import CannotLead, LeadershipLost, check_leads, leading
from iriscw.cloud.kube.leadership import RELEASED, Candidate, Terms
from iriscw.cloud.kube.messages import MERGE_PATCH, ApiRequest, ApiResponse, ApiUnreachable
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store
from raised import that

PATH = "/apis/coordination.k8s.io/v1/namespaces/iris/leases/iris-controller"
TERMS = Terms(duration=2 * SECOND, renewal=SECOND // 10, margin=SECOND // 2)


@pytest.fixture
def anyio_backend():
    """As in production."""
    return "asyncio"


class Api:
    """A store; what is ``away`` does not answer."""

    def __init__(self):
        self.store = Store(rng=Random(1))
        self.away = self.hangs = False
        self.requests = []
        self.do(ApiRequest("POST", "/api/v1/namespaces", body={"metadata": {"name": "iris"}}))
        unheld = {"metadata": {"name": "iris-controller"}, "spec": {}}
        made = self.do(ApiRequest("POST", PATH.rpartition("/")[0], body=unheld)).body
        freed = {"metadata": {"annotations": {RELEASED: made["metadata"]["uid"]}}}
        self.do(ApiRequest("PATCH", PATH, body=freed, content_type=MERGE_PATCH))

    def do(self, request):
        """Carry a request out."""
        asked = Request(request.method, request.path, request.query, request.body, request.content_type)
        answer = self.store.handle(asked, time.time_ns())
        return ApiResponse(answer.code, thaw(answer.body))

    async def request(self, request):
        """Carry a request out, if anybody is there."""
        self.requests.append(request)
        if self.hangs:
            await anyio.sleep_forever()
        if self.away:
            raise ApiUnreachable("nobody is there")
        return self.do(request)

    def watch(self, request):
        """Not asked."""
        raise NotImplementedError


@pytest.fixture
def api():
    """An API server."""
    return Api()


PATIENT = attrs.evolve(TERMS, duration=20 * SECOND)
"""Terms of somebody whom a busy machine does not cost the lead."""


def candidate(name):
    """Return somebody who wants to lead."""
    return Candidate(PATH, name, TERMS)


async def test_who_leads_goes_on(api):
    """Longer than a lease lasts."""
    with anyio.fail_after(20):
        async with leading(api, candidate("a")):
            await anyio.sleep(2.5)
    assert api.do(ApiRequest("GET", PATH)).body["spec"]["holderIdentity"] == "", "it was freed"


async def test_the_next_one_leads_when_the_first_has_ended(api):
    """Not before, and then soon: the Lease was freed."""
    order = []

    async def lead(name):
        async with leading(api, candidate(name)):
            order.append(f"{name} begins")
            await anyio.sleep(0.5)
            order.append(f"{name} ends")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lead, "a")
            tasks.start_soon(lead, "b")
    assert order in (["a begins", "a ends", "b begins", "b ends"], ["b begins", "b ends", "a begins", "a ends"])


async def ended(api, first, strike):
    """Lead, have something happen, and give what ends the block."""
    said = []
    with anyio.fail_after(20):
        try:
            async with leading(api, first):
                strike()
                await anyio.sleep_forever()
        except* LeadershipLost as lost:
            said += map(str, lost.exceptions)
    return said[0]


@pytest.mark.parametrize("silence", ["away", "hangs"])
async def test_a_leader_without_an_answer_ends_itself(api, silence):
    """In time, whether requests fail or hang; nobody is left to free the Lease."""
    first = candidate("a")
    assert "ran out" in await ended(api, first, lambda: setattr(api, silence, True))
    assert first.acts_until == 0
    api.away = api.hangs = False
    assert api.do(ApiRequest("GET", PATH)).body["spec"]["holderIdentity"] == "a"


async def test_a_leader_whose_lease_was_taken_ends(api):
    """As soon as it is told; the Lease stays whose it is."""

    def take():
        lease = api.do(ApiRequest("GET", PATH)).body
        lease["spec"]["holderIdentity"] = "somebody"
        assert api.do(ApiRequest("PUT", PATH, body=lease)).code == 200

    assert "somebody holds the Lease" in await ended(api, candidate("a"), take)
    assert api.do(ApiRequest("GET", PATH)).body["spec"]["holderIdentity"] == "somebody"


async def test_who_waits_does_not_hurry(api):
    """An API that refuses, or is away, is asked as often as a renewal, not more."""
    for away in (True, False):
        api.away = away
        api.requests.clear()
        held = {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 60}}
        api.do(ApiRequest("PATCH", PATH, body=held, content_type=MERGE_PATCH))
        with anyio.move_on_after(1):
            async with leading(api, candidate("a")):
                pytest.fail("it leads")
        assert 2 <= len(api.requests) <= 12


async def test_where_there_is_no_lease_it_is_made_and_watched(api):
    """At once, for as long as a lease lasts; then it is taken."""
    api.do(ApiRequest("DELETE", PATH))
    begun = time.monotonic_ns()
    with anyio.fail_after(60):
        async with leading(api, candidate("a")):
            assert time.monotonic_ns() - begun >= TERMS.duration
    assert [each.method for each in api.requests[:3]] == ["GET", "POST", "GET"]


async def test_a_leader_goes_on_when_its_lease_was_deleted(api):
    """It makes it anew, or takes the nameless one that another made meanwhile."""
    for meanwhile in (None, {"metadata": {"name": "iris-controller"}, "spec": {}}):
        first = Candidate(PATH, "a", PATIENT)
        async with leading(api, first):
            api.do(ApiRequest("DELETE", PATH))
            if meanwhile is not None:
                api.do(ApiRequest("POST", PATH.rpartition("/")[0], body=meanwhile))
            with anyio.fail_after(60):
                while api.do(ApiRequest("GET", PATH)).body.get("spec", {}).get("holderIdentity") != "a":  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            check_leads(first)


async def test_an_error_of_the_block_comes_through(api):
    """And the Lease is freed."""

    def fail():
        raise ValueError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        await ended(api, candidate("a"), fail)
    assert caught.group_contains(ValueError)
    assert api.do(ApiRequest("GET", PATH)).body["spec"]["holderIdentity"] == ""


async def test_who_is_told_nothing_gives_up(api, monkeypatch):
    """After a while, by name; whoever is told that another one leads waits on."""
    monkeypatch.setattr("iriscw.cloud.drivers.kube.leading.PATIENCE_S", 0.5)
    api.away = True
    with anyio.fail_after(20), pytest.raises(CannotLead, check=that(names="API")):
        await leading(api, candidate("a")).__aenter__()
    api.away = False
    async with leading(api, candidate("b")):
        with anyio.move_on_after(2):
            await leading(api, candidate("c")).__aenter__()
            pytest.fail("two lead")


async def test_without_a_namespace_nobody_leads(api):
    """Said at once."""
    with anyio.fail_after(20), pytest.raises(CannotLead, check=that(names="nowhere")):
        await leading(api, Candidate(PATH.replace("iris/", "nowhere/"), "a", TERMS)).__aenter__()


async def test_who_stood_still_does_not_act(api):
    """Before anything is noticed, the clock says so."""
    first = candidate("a")
    async with leading(api, first):
        check_leads(first)
        first.acts_until = time.monotonic_ns()
        with pytest.raises(LeadershipLost):
            check_leads(first)
        first.acts_until = time.monotonic_ns() + SECOND
