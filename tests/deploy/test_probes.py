"""The probes as a kubelet makes them, against the controller's door."""

import http.client
import ssl

import anyio.to_thread
import pytest
import trustme
from deploy_world import bodies, installed

from iriscw.controller.doors.http import routes
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tls import server_tls

KUBELETS_PROTOCOLS = ["h2", "http/1.1"]
"""What Go's client offers a TLS server, the kubelet's probes included; which one is spoken, the server chooses."""


@pytest.fixture
def certificate(tmp_path):
    """A server's TLS, of an authority that nobody trusts."""
    issued = trustme.CA().issue_cert("localhost")
    (tmp_path / "tls.crt").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    (tmp_path / "tls.key").write_bytes(issued.private_key_pem.bytes())
    return server_tls(tmp_path / "tls.crt", tmp_path / "tls.key")


def probe(address, path, scheme, protocols=None):
    """Ask as a kubelet does: it verifies no certificate. Give the code; 0 if another protocol would be spoken."""
    if scheme == "HTTP":
        connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
    else:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if protocols:
            context.set_alpn_protocols(protocols)
        connection = http.client.HTTPSConnection(address.host, address.port, timeout=10, context=context)
    try:
        connection.connect()
        if scheme == "HTTPS" and connection.sock.selected_alpn_protocol() not in (None, "http/1.1"):
            return 0
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


async def asked(probed, tls=None, protocols=None):
    """Open the controller's door, and make one of its probes."""
    asks = probed["httpGet"]
    server = RpcServer([], authenticate=lambda _token: None, routes=routes(lambda: "the disk is full", tuple), tls=tls)
    async with server:
        address = await server.listen_tcp("127.0.0.1", 0)
        return await anyio.to_thread.run_sync(probe, address, asks["path"], asks["scheme"], protocols)


def probes(insecure):
    """Return the Deployment's probes."""
    spec = bodies(installed({"insecure_plaintext": insecure}))["Deployment/iris-controller"]["spec"]["template"]["spec"]
    return [spec["containers"][0][name] for name in ("startupProbe", "livenessProbe", "readinessProbe")]


async def test_a_controller_that_takes_no_work_is_alive():
    """Without a token; to start it again would not help it."""
    for each in probes(insecure=True):
        assert await asked(each) == 200


async def test_probes_speak_tls(certificate):
    """Where the controller does."""
    for each in probes(insecure=False):
        assert await asked(each, certificate) == 200


async def test_probes_that_offer_http_2_are_answered(certificate):
    """A kubelet offers it, as Prometheus and curl do; who speaks gRPC offers nothing else."""
    for each in probes(insecure=False):
        assert await asked(each, certificate, KUBELETS_PROTOCOLS) == 200
