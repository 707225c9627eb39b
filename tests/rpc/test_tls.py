"""TLS from files: what is wrong with them is said by name, and clients may have to show a certificate."""

import asyncio
from pathlib import Path

import pytest
import trustme
from rpc_echo import EchoReply, EchoRequest
from rpc_world import ADMIN, UNARY, EchoService, authenticate

from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import InvalidTls, PeerNotTrusted, RpcUnavailable
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tls import client_tls, server_tls
from raised import that


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a server's and a client's certificate."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("127.0.0.1", "other.example"):
        pem = authority.issue_cert(name).private_key_and_cert_chain_pem
        pem.write_to_path(folder / f"{name}.pem")
    return folder


async def test_client_certificates(files: Path, echo: EchoService) -> None:
    """With a client authority only clients with a certificate get as far as the token."""
    pem, authority = files / "127.0.0.1.pem", files / "ca.pem"
    tls = server_tls(pem, pem, client_authority=authority)
    async with RpcServer([echo], authenticate=authenticate, tls=tls) as server:
        address = await server.listen_tcp("127.0.0.1", 0)
        async with RpcChannel(address, ADMIN, tls=client_tls(authority=authority, certificate=pem)) as channel:
            assert (await channel.unary(UNARY, EchoRequest(text="hi"), EchoReply)).text == "hi"
        async with RpcChannel(address, ADMIN, tls=client_tls(authority=authority)) as channel:
            with pytest.raises((RpcUnavailable, PeerNotTrusted)):
                await channel.unary(UNARY, EchoRequest(), EchoReply)
    assert echo.calls == 1


async def test_wrong_name(files: Path, echo: EchoService) -> None:
    """A certificate of another host is not trusted, though its authority is."""
    pem = files / "other.example.pem"
    async with RpcServer([echo], authenticate=authenticate, tls=server_tls(pem, pem)) as server:
        address = await server.listen_tcp("127.0.0.1", 0)
        async with RpcChannel(address, ADMIN, tls=client_tls(authority=files / "ca.pem")) as channel:
            with pytest.raises(PeerNotTrusted, check=that(names="127.0.0.1")):
                await channel.unary(UNARY, EchoRequest(), EchoReply)


async def test_the_name_of_a_tunnels_far_end(files: Path, echo: EchoService) -> None:
    """The certificate may hold another name than the address's host, if the caller says which; no third one."""
    pem, authority = files / "other.example.pem", (files / "ca.pem").read_text()
    async with RpcServer([echo], authenticate=authenticate, tls=server_tls(pem, pem)) as server:
        address = await server.listen_tcp("127.0.0.1", 0)
        tls = client_tls(authority=authority)
        async with RpcChannel(address, ADMIN, tls=tls, server_name="other.example") as channel:
            assert (await channel.unary(UNARY, EchoRequest(text="hi"), EchoReply)).text == "hi"
        async with RpcChannel(address, ADMIN, tls=tls, server_name="third.example") as channel:
            with pytest.raises(PeerNotTrusted, check=that(names="third.example")):
                await channel.unary(UNARY, EchoRequest(), EchoReply)


async def test_a_certificate_may_be_trusted_by_itself(files: Path, echo: EchoService, tmp_path: Path) -> None:
    """Without its authority, and then no other certificate of that authority is."""
    for name in ("127.0.0.1", "other.example"):
        blocks = (files / f"{name}.pem").read_text().split("-----BEGIN CERTIFICATE-----")
        (tmp_path / name).write_text(f"-----BEGIN CERTIFICATE-----{blocks[1]}")
    pem = files / "127.0.0.1.pem"
    async with RpcServer([echo], authenticate=authenticate, tls=server_tls(pem, pem)) as server:
        address = await server.listen_tcp("127.0.0.1", 0)
        async with RpcChannel(address, ADMIN, tls=client_tls(authority=tmp_path / "127.0.0.1")) as channel:
            assert (await channel.unary(UNARY, EchoRequest(text="hi"), EchoReply)).text == "hi"
        async with RpcChannel(address, ADMIN, tls=client_tls(authority=tmp_path / "other.example")) as channel:
            with pytest.raises(PeerNotTrusted):
                await channel.unary(UNARY, EchoRequest(), EchoReply)


def test_a_loop_that_ends_with_the_channel(files: Path) -> None:
    """Nothing of a connection with TLS is left for the garbage collector to complain of."""

    async def once() -> None:
        pem = files / "127.0.0.1.pem"
        async with RpcServer([EchoService()], authenticate=authenticate, tls=server_tls(pem, pem)) as server:
            address = await server.listen_tcp("127.0.0.1", 0)
            channel = RpcChannel(address, ADMIN, tls=client_tls(authority=files / "ca.pem"))
            await channel.unary(UNARY, EchoRequest(text="hi"), EchoReply)
            transport = channel._connector._protocol.connection._transport
            channel.close()
            await asyncio.sleep(0)
            assert transport._ssl_protocol._transport is None

    asyncio.run(once())


def test_bad_files(files: Path, tmp_path: Path) -> None:
    """A missing file, one without a key, and one that is not a certificate are named."""
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(InvalidTls, check=that(names="missing.pem")):
        server_tls(tmp_path / "missing.pem", tmp_path / "missing.pem")
    with pytest.raises(InvalidTls, check=that(names="ca.pem")):
        server_tls(files / "ca.pem", files / "ca.pem")
    with pytest.raises(InvalidTls, check=that(names="junk.pem")):
        client_tls(authority=tmp_path / "junk.pem")
    for text in ("junk", "", "jünk"):
        with pytest.raises(InvalidTls, check=that(comes_from="tls._load_authority")):
            client_tls(authority=text)
