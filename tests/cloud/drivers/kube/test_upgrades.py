"""Opening websockets at servers that have other ideas."""

import anyio
import attrs
import pytest
from drivers_world import LIMITS
from raw_server import TOKEN, serving

from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.streams import V4, V5
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable
from raised import that

WHERE = ApiRequest("GET", "/api/v1/namespaces/iris/pods/p/exec", (("command", "a b"), ("command", "c")))


async def opened(api):
    async with api.channels(WHERE, (V5, V4)) as answer:
        return answer


async def test_a_refusal_comes_with_its_body():
    """And is counted; the token and the versions were told."""

    async def script(peer):
        await peer.answer(500, {"kind": "Status", "message": "no agent available"}, Retry_After=7)

    async with serving(script) as server, open_api(server.access, LIMITS) as api:
        answer = await opened(api)
        assert answer == ApiResponse(500, {"kind": "Status", "message": "no agent available"}, 7 * 10**9)
        (asked,) = server.asked
        assert asked.query == {"command": ["a b", "c"]}
        assert asked.headers["authorization"] == f"bearer {TOKEN}".lower()
        assert asked.headers["sec-websocket-protocol"] == f"{V5},{V4}"
        found = api.statistics()
        assert (found.requests, found.refusals, found.open_streams) == (1, 1, 0)


@pytest.mark.parametrize("code", [401, 403, 404, 429])
async def test_other_refusals(code):
    """Whatever their body."""

    async def script(peer):
        await peer.answer(code, b"<html>no</html>")

    async with serving(script) as server, open_api(server.access, LIMITS) as api:
        assert await opened(api) == ApiResponse(code, "<html>no</html>")


async def test_a_redirect_is_not_followed():
    """It would carry the token elsewhere."""

    async def elsewhere(peer):
        await peer.answer(200, {})

    async with serving(elsewhere) as other:

        async def script(peer):
            await peer.answer(302, {}, Location=f"http://127.0.0.1:{other.port}/")

        async with serving(script) as server, open_api(server.access, LIMITS) as api:
            with pytest.raises(ApiUnreachable, check=that(comes_from="upgrades.refusal_kept.redirected")):
                await opened(api)
            assert not other.asked


@pytest.mark.parametrize(
    "lines",
    [
        ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: wrong"],
        ["Upgrade: SPDY/3.1", "Connection: Upgrade"],
    ],
)
async def test_what_is_no_websocket_is_told(lines):
    """A proxy that agrees to anything."""

    async def script(peer):
        await peer.raw("\r\n".join(["HTTP/1.1 101 Switching Protocols", *lines]).encode() + b"\r\n\r\n")
        await peer.reader.read()

    async with serving(script) as server, open_api(server.access, LIMITS) as api:
        with pytest.raises(ApiUnreachable, check=that(comes_from="upgrades.Upgrades.open")):
            await opened(api)
        await server.gone()


@pytest.mark.parametrize("how", ["silent", "cut", "endless"])
async def test_an_answer_that_does_not_come(how):
    """Or never ends."""

    async def script(peer):
        if how == "endless":
            await peer.raw(b"HTTP/1.1 500 No\r\nContent-Length: 9999999999\r\n\r\n")
        if how == "cut":
            peer.cut()
        else:
            await peer.reader.read()

    async with serving(script) as server, open_api(server.access, attrs.evolve(LIMITS, open_s=0.3)) as api:
        with anyio.fail_after(10), pytest.raises(ApiUnreachable) as silence:
            await opened(api)
        assert TOKEN not in str(silence.value)
        await server.gone()
