"""A served simulation as a whole: where it listens, who finds it, and that nothing is left of it."""

import asyncio
import socket
import ssl

import pytest
import trustme
from serve_caller import MAPS, PODS, Caller, a_map

from iriscw._errors import InvalidArgument
from iriscw.rpc.errors import AddressInUse, AddressUnavailable, InsecureDoor, InvalidAddress, InvalidTls
from iriscw_sims.serve.live import FAILURES_LIMIT
from iriscw_sims.serve.server import SimServer, serve
from iriscw_sims.serve.settings import ServeSettings
from raised import that
from waiting import until


def others():
    """Return all tasks but this one."""
    return asyncio.all_tasks() - {asyncio.current_task()}


async def test_nothing_is_left():
    """No task, no socket, no address, whatever was open."""
    before = others()
    async with SimServer(ServeSettings(controllers=False)) as server:
        caller = await Caller(server).__aenter__()
        await caller.done("POST", MAPS, a_map())
        watching = asyncio.create_task(caller.ask("GET", MAPS, watch="1"))
        await until(lambda: server.statistics().door.open_watches)
        figures = server.statistics()
        assert (figures.objects, figures.door.requests) == (5, 2)
        assert figures.connections >= 1
        port = int(server.url.rpartition(":")[2])
    assert (await watching)[0] == 200
    await caller.__aexit__()
    assert others() == before
    with pytest.raises(InvalidArgument, check=that(comes_from="server.SimServer.url")):
        server.url  # noqa: B018 - it raises
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


async def test_a_command_that_runs_does_not_hold_it(monkeypatch):
    """It is cut off after some seconds, and leaves nothing either."""
    monkeypatch.setattr("iriscw_sims.serve.server.CLOSE_S", 0.2)
    monkeypatch.setattr("iriscw_sims.serve.scripted.TUNNEL_TIME", 0)
    before = others()
    async with SimServer(ServeSettings(controllers=False)) as server, Caller(server) as caller:
        await caller.run()
        query = {"command": "cat", "stdin": "1", "stdout": "1"}
        protocols = ["v5.channel.k8s.io"]
        async with caller.session.ws_connect(f"{PODS}/p/exec", params=query, protocols=protocols):
            await until(lambda: server.statistics().door.open_streams)
            await server.__aexit__(None, None, None)
            assert server.statistics().door.open_streams == 0
        await server.__aenter__()
    assert others() == before


async def test_a_taken_port_is_told(tmp_path):
    """And no kubeconfig is written for it."""
    path = tmp_path / "kubeconfig"
    async with SimServer(ServeSettings(controllers=False)) as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(AddressInUse, check=that(names=str(port))):
            await SimServer(ServeSettings(port=port, kubeconfig=path, controllers=False)).__aenter__()
    assert not path.exists()


@pytest.mark.parametrize(
    ("host", "error"),
    [
        ("0.0.0.0", InsecureDoor),
        ("192.0.2.1", InsecureDoor),
        ("", InsecureDoor),
        ("no.such.host.invalid", InvalidAddress),
    ],
)
async def test_a_token_does_not_cross_a_network_in_plain_text(host, error):
    """Unless somebody says so in words."""
    with pytest.raises(error):
        await SimServer(ServeSettings(host=host, controllers=False)).__aenter__()
    with pytest.raises(AddressUnavailable):
        await SimServer(ServeSettings(host="192.0.2.1", insecure_plaintext=True, controllers=False)).__aenter__()
    async with SimServer(ServeSettings(host="0.0.0.0", insecure_plaintext=True, controllers=False)) as server:
        assert server.url.startswith("http://0.0.0.0:")


async def test_a_kubeconfig_that_cannot_be_written_leaves_no_port(tmp_path):
    """The error is the file system's."""
    (tmp_path / "file").write_text("")
    settings = ServeSettings(kubeconfig=tmp_path / "file" / "config", controllers=False)
    before = others()
    with pytest.raises(OSError, check=that(comes_from="files.make_private_folder", names="file")):
        await SimServer(settings).__aenter__()
    assert others() == before


async def test_tls(tmp_path):
    """With a certificate, callers speak TLS and the token stays in the header."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(tmp_path / "cert", append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    settings = ServeSettings(tls_cert=tmp_path / "cert", tls_key=tmp_path / "key", controllers=False)
    async with SimServer(settings) as server, Caller(server) as caller:
        assert server.url.startswith("https://127.0.0.1:")
        async with caller.session.get("/version", ssl=context) as answer:
            assert answer.status == 200
    (tmp_path / "key").write_text("no key")
    with pytest.raises(InvalidTls, check=that(comes_from="server._tls")):
        await SimServer(settings).__aenter__()


async def test_controllers_that_fail_again_and_again_end_the_block():
    """The last error comes out of the block as it is."""

    def broken():
        raise ZeroDivisionError("of time")

    async def wait_for_ever():
        async with SimServer(ServeSettings(controllers=False)) as server, Caller(server) as caller:
            for _ in range(FAILURES_LIMIT):
                server.timeline.after(0, broken)
            await caller.done("POST", MAPS, a_map())
            await asyncio.Event().wait()

    before = others()
    with pytest.raises(ZeroDivisionError):
        await wait_for_ever()
    assert others() == before
    assert asyncio.current_task().cancelling() == 0


async def test_the_blocks_own_error_comes_out():
    """As it is."""
    with pytest.raises(KeyError, check=that(args=("mine",))):
        async with SimServer(ServeSettings(controllers=False)):
            raise KeyError("mine")


async def test_serving_until_cancelled(tmp_path):
    """The server is ready when that is said, and gone afterwards."""
    ready = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(ServeSettings(kubeconfig=tmp_path / "k"), ready.set_result))
    server = await asyncio.wait_for(ready, 10)
    assert (tmp_path / "k").exists()
    async with Caller(server) as caller:
        assert (await caller.done("GET", "/version"))["gitVersion"] == "v1.36.3"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_two_in_one_process_do_not_meet():
    """Each has its own objects, and its own token."""
    async with SimServer(ServeSettings(controllers=False)) as one, SimServer(ServeSettings(controllers=False)) as two:
        async with Caller(one) as caller:
            await caller.done("POST", MAPS, a_map())
        async with Caller(two, one.token.reveal()) as stranger:
            assert (await stranger.refused("GET", MAPS))[0] == 401
        async with Caller(two) as caller:
            assert (await caller.done("GET", MAPS))["items"] == []
