"""One incarnation of a pod: whether it is there, and what refusals mean."""

from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from drivers_world import LIMITS, SETTINGS, pod
from raw_server import serving

from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.places import NotYet, PodPlace
from iriscw.cloud.kube.messages import ApiResponse, ApiUnreachable
from iriscw.cloud.model import Forbidden, Gone, InvalidSpec, Throttled, Unavailable
from raised import that

RUNNING = pod(1, 1, status={"phase": "Running"})
ENDED = pod(1, 1, status={"phase": "Failed", "reason": "Evicted"})


@asynccontextmanager
async def place(code=200, body=RUNNING, name="p1"):
    """A place whose server answers so."""

    async def script(peer):
        await peer.answer(code, body)

    async with serving(script) as server, open_api(server.access, LIMITS) as api:
        yield PodPlace(Caller(api, SETTINGS), name, "u1")


async def test_a_pod_that_is_there():
    """Is fine; one that has ended is, where that will do."""
    async with place() as here:
        await here.check()
    async with place(body=ENDED) as here:
        await here.check(ended=True)
        with pytest.raises(Gone, check=that(names="Evicted")):
            await here.check()


@pytest.mark.parametrize(
    ("code", "body", "error"),
    [
        (200, pod(2, 1), Gone),
        (404, {"kind": "Status"}, Gone),
        (404, {}, Unavailable),
        (401, {}, Forbidden),
        (429, {}, Throttled),
        (503, {}, Unavailable),
        (200, "text", Unavailable),
    ],
)
async def test_a_pod_that_is_not_there(code, body, error):
    """Or of which nobody can say."""
    async with place(code, body) as here:
        with pytest.raises(error):
            await here.check()


async def test_a_name_that_no_pod_can_have():
    """Is asked for nowhere: it could lead elsewhere."""
    for name in ("../secrets/x", "", "A", "a/b"):
        async with place(name=name) as here:
            with pytest.raises(Gone):
                await here.check()


@pytest.mark.parametrize(
    ("thing", "decided"),
    [
        (None, True),
        (pod(2, 1), True),
        (pod(1, 1), False),
        (RUNNING, True),
        (ENDED, True),
        (pod(1, 1, status=None), False),
    ],
)
async def test_waiting_ends_when_nothing_more_comes(thing, decided):
    """It runs, has ended, or is gone."""
    async with place() as here:
        assert here.is_decided(thing) is decided


@pytest.mark.parametrize(
    ("code", "text", "error"),
    [
        (401, "", Forbidden),
        (403, "", Forbidden),
        (400, "container x is not valid for pod p1", InvalidSpec),
        (400, 'container "worker" in pod "p1" is waiting to start: ContainerCreating', NotYet),
        (404, "pod does not exist", NotYet),
        (429, "", NotYet),
        (500, "error dialing backend", NotYet),
        (503, "", NotYet),
        (405, "", Unavailable),
        (200, "", Unavailable),
    ],
)
async def test_refusals_of_a_pod_that_is_there(code, text, error):
    """Some pass."""
    async with place() as here:
        with pytest.raises(error) as refused:
            await here.refused(ApiResponse(code, {"message": text}), "get on x")
        assert ("it takes get on x" in str(refused.value)) is (error is Forbidden)


@pytest.mark.parametrize("code", [400, 404, 500])
async def test_refusals_of_a_pod_that_is_not_there(code):
    """Are about that."""
    async with place(404, {"kind": "Status"}) as here:
        with pytest.raises(Gone):
            await here.refused(ApiResponse(code, {}), "get on x")


@pytest.mark.parametrize("failure", [NotYet("no"), ApiUnreachable("no"), Throttled("no"), Unavailable("no")])
async def test_trouble_is_waited_out(failure):
    """What a failed attempt opened is closed at once; what the last one opened stays open as long as the stack."""
    open_now, tries = set(), []

    @asynccontextmanager
    async def thing(number):
        open_now.add(number)
        try:
            yield
        finally:
            open_now.discard(number)

    async def attempt(stack):
        tries.append(1)
        await stack.enter_async_context(thing(len(tries)))
        if len(tries) < 3:
            raise failure
        return "it"

    async with place() as here, AsyncExitStack() as stack:
        assert await here.reached(stack, attempt, 20) == "it"
        assert open_now == {3}
    assert not open_now


async def test_trouble_that_does_not_pass_is_told():
    """In time, with its own words; what cannot pass is told at once."""

    async def attempt(_stack):
        raise NotYet("no tunnel")

    async def hopeless(_stack):
        raise Gone("gone")

    async with place() as here, AsyncExitStack() as stack:
        with anyio.fail_after(5), pytest.raises(Unavailable, check=that(comes_from="places.PodPlace.reached")):
            await here.reached(stack, attempt, 0.1)
        with pytest.raises(Gone):
            await here.reached(stack, hopeless, 20)


async def test_a_server_that_asks_for_patience_gets_it():
    """Or its caller is told, if that is too much."""

    async def attempt(_stack):
        raise NotYet("slower", 10**12)

    async with place() as here, AsyncExitStack() as stack:
        with anyio.fail_after(5), pytest.raises(Unavailable, check=that(names="slower")):
            await here.reached(stack, attempt, 20)
