"""Commands over a websocket: channels, exit codes, and refusals before the upgrade."""

import asyncio
import json

import aiohttp
import pytest
from serve_caller import MERGE, PODS, a_pod

from iriscw_sims.serve.podexec import CLOSE, PROTOCOLS, STDERR, STDIN, STDOUT, outcome
from waiting import until

EXEC = f"{PODS}/p/exec"


@pytest.fixture
async def running(server, caller, monkeypatch):
    """A pod that runs on a node that can be reached."""
    monkeypatch.setattr("iriscw_sims.serve.scripted.TUNNEL_TIME", 0)
    return await caller.run()


def asked(*argv, stdin=False, **more):
    """Return the query of a command."""
    streams = {"stdin": str(stdin).lower(), "stdout": "1", "stderr": "1", **more}
    return [*(("command", word) for word in argv), *streams.items()]


async def run(caller, *argv, typed=None, protocol=PROTOCOLS[0], **more):
    """Return output, error output and status of a command."""
    query = asked(*argv, stdin=typed is not None, **more)
    output = {STDOUT: b"", STDERR: b"", 3: b""}
    async with caller.session.ws_connect(EXEC, params=query, protocols=[protocol]) as socket:
        assert socket.protocol == protocol
        if typed is not None:
            await socket.send_bytes(bytes((STDIN,)) + typed)
            await socket.send_bytes(bytes((CLOSE, STDIN)))
        async for message in socket:
            assert message.type is aiohttp.WSMsgType.BINARY
            output[message.data[0]] += message.data[1:]
        assert socket.close_code == 1000
    return output[STDOUT], output[STDERR], json.loads(output[3])


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_command_runs(running, caller, protocol):
    """What it says comes on its channel, and at last how it ended."""
    assert await run(caller, "echo", "hi", protocol=protocol) == (b"hi\n", b"", outcome(0))
    out, err, status = await run(caller, "sh", "-c", "exit 3", protocol=protocol)
    assert (out, err) == (b"", b"")
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


async def test_input_reaches_the_command(running, caller):
    """Until its channel is closed."""
    assert (await run(caller, "cat", typed=b"x" * 100_000))[0] == b"x" * 100_000


async def test_a_terminal_has_one_stream(running, caller):
    """What would be said on the second comes on the first."""
    out, err, status = await run(caller, "nonsense", tty="true")
    assert (b"not found" in out, err) == (True, b"")
    assert status["details"]["causes"][0]["message"] == "127"


async def test_a_caller_that_leaves_leaves_nothing(server, running, caller):
    """The command ends with its caller."""
    async with caller.session.ws_connect(EXEC, params=asked("cat", stdin=True), protocols=PROTOCOLS) as socket:
        await socket.send_bytes(b"\0x")
        assert await socket.receive_bytes() == b"\1x"
        assert server.statistics().door.open_streams == 1
    await until(lambda: not server.statistics().door.open_streams)


async def test_what_cannot_be_understood_is_the_end_of_input(running, caller):
    """A text, or a message that is too long."""
    for strange in ("text", b"\0" + b"x" * (2**20 + 1)):
        async with caller.session.ws_connect(EXEC, params=asked("cat", stdin=True), protocols=PROTOCOLS) as socket:
            sent = socket.send_str(strange) if isinstance(strange, str) else socket.send_bytes(strange)
            await sent
            async with asyncio.timeout(5):
                async for message in socket:
                    assert message.data[:1] != b"\1"


async def refused(caller, *argv, protocols=PROTOCOLS, pod="p", **more):
    """Return the code with which an upgrade is refused."""
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        await caller.session.ws_connect(f"{PODS}/{pod}/exec", params=asked(*argv, **more), protocols=protocols)
    return error.value.status


async def test_refusals_come_before_the_upgrade(running, caller, monkeypatch):
    """No command, no such container or pod, over, not begun, a strange protocol, a node that cannot be reached."""
    assert await refused(caller) == 400
    assert await refused(caller, "true", container="other") == 400
    assert await refused(caller, "true", pod="nobody") == 404
    assert await refused(caller, "true", protocols=["v4.base64.channel.k8s.io"]) == 400
    await caller.run("w", waiting={"reason": "ContainerCreating"})
    assert await refused(caller, "true", pod="w") == 500
    await caller.done("POST", PODS, a_pod("unbound"))
    assert await refused(caller, "true", pod="unbound") == 400
    await caller.done("PATCH", f"{PODS}/w/status", {"status": {"phase": "Succeeded"}}, content_type=MERGE)
    assert await refused(caller, "true", pod="w") == 400
    monkeypatch.setattr("iriscw_sims.serve.scripted.TUNNEL_TIME", 10**15)
    assert await refused(caller, "true") == 500


async def test_what_is_not_simulated_says_so(running, caller):
    """To those who may ask for it."""
    status, _, answer = await caller.ask("POST", f"{PODS}/p/attach")
    assert status == 501
    assert "attach is not simulated" in answer["message"]
    assert (await caller.refused("POST", f"{PODS}/p/attach", headers={"Impersonate-User": "bob"}))[0] == 403
    assert (await caller.refused("POST", f"{PODS}/nobody/attach"))[0] == 404


async def test_spdy_is_not_spoken(running, caller):
    """kubectl's way of old gets a Status that says so."""
    headers = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
    status, _, answer = await caller.ask("POST", f"{EXEC}?command=true&stdout=1", headers=headers)
    assert status == 400
    assert "websockets" in answer["message"]
