"""The way to a controller: through a served simulation's port-forward, and by the Service's name."""

import errno
import os
import socket
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest
import trustme
from deploy_world import HURRY, installed
from reach_world import INSTALLATION, TOKEN, reach_world

import iriscw
from iriscw.cloud.drivers.kube.access import find_access
from iriscw.deploy import reaching
from iriscw.deploy.errors import ControllerNotReady, NoInstallation
from iriscw.deploy.reaching import WantedController, open_gate, wish_of
from iriscw.kubernetes import client_of
from iriscw.rpc.errors import PeerNotTrusted, Unauthenticated
from iriscw.rpc.tokens import Secret
from raised import that
from waiting import until

HOST = "iris-controller-svc.iris.svc.cluster.local"


@pytest.fixture
async def world(tmp_path):
    """A cluster without a controller."""
    async with reach_world(tmp_path) as made:
        yield made


@asynccontextmanager
async def gate(world, wish=None, **more):
    """Open the way to a controller."""
    access = attrs.evolve(await find_access(world.kubeconfig), **more)
    async with open_gate(access, wish or WantedController(), settings=HURRY) as opened:
        yield opened


async def name_of(client):
    """Ask a controller who it is."""
    with anyio.fail_after(60):
        return (await client.status()).name


async def test_a_client_is_led_there(world):
    """Through the API, with TLS from end to end: the certificate holds the Service's name, and no other."""
    world.install()
    async with world.controller("one"), iriscw.connect_kubernetes(kubeconfig=world.kubeconfig) as client:
        assert client.address.startswith("https://127.0.0.1:")
        assert await name_of(client) == "one"
        assert world.inside.dialled == [("one", 10000)]


async def test_a_client_follows_the_controller(world):
    """Its pod goes and another comes; meanwhile the tunnel says why it leads nowhere. Nobody has to connect again."""
    world.install()
    names, over = [], anyio.Event()

    async def first(*, task_status):
        async with world.controller("one"):
            task_status.started()
            await over.wait()

    async def ask():
        names.append(await name_of(client))

    async with anyio.create_task_group() as tasks:
        await tasks.start(first)
        async with gate(world) as opened, client_of(opened) as client:
            await ask()
            over.set()
            await until(lambda: not opened.tunnel.connections)
            async with anyio.create_task_group() as asking:
                asking.start_soon(ask)
                await until(lambda: isinstance(opened.tunnel.last_error, ControllerNotReady))
                async with world.controller("two"):
                    await until(lambda: len(names) == 2)
    assert names == ["one", "two"]


async def test_what_is_given_is_not_asked_for(world):
    """Authority and token may be brought, and the configuration says where it is: no Secret is read."""
    world.install(secrets=False)
    wish = attrs.evolve(wish_of(INSTALLATION), authority=world.authority.cert_pem.bytes().decode(), token=Secret(TOKEN))
    async with world.controller("one"), gate(world, wish) as opened, client_of(opened) as client:
        assert await name_of(client) == "one"
        assert TOKEN not in repr(opened)


async def test_another_certificate_is_not_trusted(world):
    """Neither one of another authority nor one for another name, were it even the tunnel's own."""
    world.install(names=["127.0.0.1", "localhost"])
    async with world.controller("one"), gate(world) as opened, client_of(opened) as client:
        with pytest.raises(PeerNotTrusted, check=that(names=HOST)):
            await client.status()


async def test_another_authority_is_not_trusted(world, tmp_path):
    """Whoever answers in the controller's place is found out."""
    world.install()
    other = trustme.CA().cert_pem.bytes().decode()
    async with (
        world.controller("one"),
        gate(world, WantedController(authority=other)) as opened,
        client_of(opened) as client,
    ):
        with pytest.raises(PeerNotTrusted, check=that(names="certificate")):
            await client.status()


async def test_another_token_is_refused(world):
    """By the controller, by name."""
    world.install()
    async with (
        world.controller("one"),
        gate(world, WantedController(token=Secret("other"))) as opened,
        client_of(opened) as client,
    ):
        with pytest.raises(Unauthenticated):
            await client.status()


@pytest.mark.parametrize("known", [True, False])
async def test_without_tls(world, known):
    """Where an installation trusts its network, by the configuration or by the pod's own words."""
    installation = installed({"insecure_plaintext": True})
    world.install(installation, secrets=known)
    if not known:
        world.secret("iris-controller-secrets", "admin-token", TOKEN.encode())
    wish = wish_of(installation) if known else WantedController()
    words = () if known else ("--insecure-plaintext",)
    async with world.controller("one", words=words), gate(world, wish) as opened, client_of(opened) as client:
        assert (opened.authority, opened.server_name) == ("", "")
        assert await name_of(client) == "one"


async def test_a_pod_cannot_talk_a_client_out_of_tls(world):
    """Whoever may make pods would be sent the token: an authority in the cluster, or named, stands for TLS."""
    world.install()
    async with world.controller("one", words=("--insecure-plaintext",)):
        with pytest.raises(ControllerNotReady, check=that(names="TLS")):
            async with gate(world, WantedController()):
                pass
        authority = world.authority.cert_pem.bytes().decode()
        for plaintext in (None, True):
            async with gate(world, WantedController(plaintext=plaintext, authority=authority)) as opened:
                assert (opened.authority, opened.server_name) == (authority, HOST)
                assert opened.address.startswith("https://")


async def test_in_a_pod_of_the_cluster_the_name_is_dialled(world, monkeypatch):
    """Nothing is forwarded, and nobody asks which pod it is."""
    port = 0

    def resolved(host, asked, *arguments, **more):
        named = host == HOST and asked == 10000
        return looked_up("127.0.0.1" if named else host, port if named else asked, *arguments, **more)

    looked_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(reaching, "find_serving", None)
    world.install()
    async with world.controller("one") as running, gate(world, in_pod=True) as opened, client_of(opened) as client:
        port = running.address.port
        assert opened.address == f"https://{HOST}:10000"
        assert opened.tunnel is None
        assert await name_of(client) == "one"
        assert world.inside.dialled == []


async def test_why_there_is_no_way(world):
    """Each reason by its name, before anything is opened."""
    with pytest.raises(NoInstallation):
        async with gate(world):
            pass
    world.install(secrets=False)
    with pytest.raises(ControllerNotReady, check=that(comes_from="finding.find_serving")):
        async with gate(world):
            pass
    async with world.controller("one"):
        with pytest.raises(ControllerNotReady, check=that(names="iris-controller-secrets")):
            async with gate(world):
                pass
        with pytest.raises(ControllerNotReady, check=that(names="iris-ca")):
            async with gate(world, WantedController(token=Secret(TOKEN))):
                pass


async def test_the_port_can_be_chosen(world):
    """One that is taken is an error of the system's."""
    world.install()
    async with world.controller("one"), gate(world) as first:
        with pytest.raises(OSError, check=that(names=os.strerror(errno.EADDRINUSE))):
            async with gate(world, WantedController(port=first.tunnel.port)):
                pass


def test_a_script_without_a_loop(tmp_path):
    """The blocking client is led there as well."""
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(reach_world(tmp_path)) as world,
    ):
        portal.call(world.install)
        with (
            portal.wrap_async_context_manager(world.controller("one")),
            iriscw.blocking.connect_kubernetes(namespace="iris", kubeconfig=world.kubeconfig) as client,
        ):
            assert client.status().name == "one"


async def test_a_namespace_beside_a_configuration_is_a_slip():
    """The configuration says it."""
    with pytest.raises(iriscw.errors.InvalidArgument, check=that(comes_from="kubernetes.connect_kubernetes")):
        iriscw.connect_kubernetes("cluster.yaml", namespace="iris")
