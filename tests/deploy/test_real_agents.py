"""Node agents and a real kube-apiserver: tokens as the kubelet asks for them, and the rendered rights.

No kubelet and no controllers run there: the tests put pods on nodes themselves. Skipped where no server was built
(``tests/kube/real/build-apiserver``).
"""

import base64
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import attrs
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from deploy_world import with_agent

from iriscw.cloud.drivers.kube.access import ClusterAccess, trusting
from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.credentials import Fixed, Header
from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.drivers.kube.objects import open_objects
from iriscw.cloud.kube.leadership import RELEASED
from iriscw.cloud.kube.messages import MERGE_PATCH, ApiRequest, ApiUnreachable
from iriscw.cloud.kube.reviews import AGENT_AUDIENCE
from iriscw.controller.assembly import Controller
from iriscw.controller.errors import AgentUnproven
from iriscw.controller.platforms.coreweave import agent_proofs
from iriscw.controller.platforms.leading import LEASE, lease_path
from iriscw.deploy.applying import apply
from iriscw.deploy.rendering import render
from iriscw.files import write_atomic
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import PermissionDenied, Unauthenticated
from iriscw.rpc.tokens import Role, Secret
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, POOLS
from raised import that

pytestmark = pytest.mark.slow

NAMESPACE = "iris-agents"
INSTALLATION = with_agent(platform={"namespace": NAMESPACE}, runtime_class="")
HERE = f"/api/v1/namespaces/{NAMESPACE}"
ACCESS = ("Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
CONNECT = "/iriscw.v1.AgentService/Connect"
PATIENCE_S = 120
MAIN = "import sys, iriscw.cli; sys.exit(iriscw.cli.main())"


def access_of(server, token=""):
    """Return the way to the server; with a token, somebody else's than the administrator's."""
    tls = trusting(server.files.authority.read_bytes())
    return ClusterAccess(
        f"https://127.0.0.1:{server.port}", Fixed(Header.of("Bearer", token or server.tokens["admin"])), tls
    )


@attrs.define
class Nodes:
    """Nodes with pods on them, as an administrator makes them, and the tokens that a kubelet would mount."""

    api: object
    server: object

    async def post(self, path, body):
        """Make something; give it."""
        answer = await self.api.request(ApiRequest("POST", path, body=body))
        assert answer.code == 201, answer
        return answer.body

    async def pod(self, name, node, account="iris-agent"):
        """Put a pod on a node; give its uid."""
        spec = {"serviceAccountName": account, "nodeName": node, "containers": [{"name": "agent", "image": "none"}]}
        return (await self.post(f"{HERE}/pods", {"metadata": {"name": name}, "spec": spec}))["metadata"]["uid"]

    async def token(self, pod="", uid="", account="iris-agent", audience=AGENT_AUDIENCE):
        """Return a token of an account, bound to a pod unless there is none."""
        bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}} if pod else {}
        spec = {"audiences": [audience], "expirationSeconds": 3600, **bound}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return (await self.post(f"{HERE}/serviceaccounts/{account}/token", body))["status"]["token"]

    async def delete(self, pod):
        """Remove a pod at once, as when its node is gone."""
        answer = await self.api.request(ApiRequest("DELETE", f"{HERE}/pods/{pod}", body={"gracePeriodSeconds": 0}))
        assert answer.code == 200, answer

    async def controllers_token(self):
        """Return the token of the controller's own account, for the API server."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return (await self.post(f"{HERE}/serviceaccounts/iris-controller/token", body))["status"]["token"]


@pytest.fixture
async def nodes(real_server):
    """The rights of an installation, two nodes, and an agent's pod ``a1`` on the first; all gone afterwards."""
    wanted = [each for each in render(INSTALLATION) if each.body["kind"] in ACCESS]
    async with open_api(access_of(real_server)) as api, open_objects(access_of(real_server)) as objects:
        await apply(objects, wanted, lambda _line: None)
        made = Nodes(api, real_server)
        for node in ("n1", "n2"):
            await made.post("/api/v1/nodes", {"metadata": {"name": node}})
        try:
            yield made
        finally:
            for pod in await objects.list(f"{HERE}/pods"):
                await made.delete(pod["metadata"]["name"])
            for node in ("n1", "n2"):
                await api.request(ApiRequest("DELETE", f"/api/v1/nodes/{node}"))
            for each in wanted:
                if each.body["kind"].startswith("ClusterRole"):
                    await api.request(ApiRequest("DELETE", path_of(each.body)))


@pytest.fixture
async def proofs(nodes, real_server):
    """What the controller asks with, by its own account; its right to ask is known to the server."""
    async with open_api(access_of(real_server, await nodes.controllers_token())) as api:
        question = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
        asked = ApiRequest("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=question)
        with anyio.fail_after(PATIENCE_S):
            while (await api.request(asked)).code == 403:  # noqa: ASYNC110 - the authorizer hears of roles a bit later
                await anyio.sleep(0.05)
        yield lambda: agent_proofs(api, NAMESPACE)


def expired(token, key):
    """Return a token that says the same and ended an hour ago, signed as the server signs."""
    head, claims, _ = token.split(".")
    said = json.loads(base64.urlsafe_b64decode(claims + "=="))
    shifted = {name: said[name] - 7200 for name in ("exp", "iat", "nbf")}
    claims = base64.urlsafe_b64encode(json.dumps({**said, **shifted}).encode()).rstrip(b"=").decode()
    return f"{head}.{claims}.{signature(f'{head}.{claims}', key)}"


def signature(text, key):
    """Sign as ES256 does."""
    private = load_pem_private_key(Path(key).read_bytes(), None)
    pair = decode_dss_signature(private.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return base64.urlsafe_b64encode(b"".join(each.to_bytes(32) for each in pair)).rstrip(b"=").decode()


async def test_an_agent_is_known_by_its_pods_token(nodes, proofs, real_server):
    """Of the node that its pod is on; every other token is refused by name, or is nobody's at all."""
    uid = await nodes.pod("a1", "n1")
    token = await nodes.token("a1", uid)
    found = await proofs().prove(token)
    assert (found.role, found.node) == (Role.AGENT, "n1")
    assert 0 < found.expires_s - time.time() <= 3600
    other = await nodes.token("a2", await nodes.pod("a2", "n2"))
    assert (await proofs().prove(other)).node == "n2"

    again = expired(token, real_server.files.key)
    resigned = f"{token.rpartition('.')[0]}.{signature(token.rpartition('.')[0], real_server.files.key)}"
    assert (await proofs().prove(resigned)).node == "n1", "what this test signs is taken, but for its end"
    forged = token.rpartition(".")[0] + "." + token.rpartition(".")[2][::-1]
    for wrong in (again, forged):
        with pytest.raises(AgentUnproven, check=that(comes_from="agent_proofs.AgentProofs.prove")):
            await proofs().prove(wrong)
    with pytest.raises(AgentUnproven, check=that(comes_from="agent_proofs.AgentProofs.prove")):
        await proofs().prove(await nodes.token())
    worker = await nodes.token("w", await nodes.pod("w", "n1", "iris-worker"), account="iris-worker")
    elsewhere = await nodes.token("a1", uid, audience="https://kubernetes.default.svc")
    for nobodys in (worker, elsewhere, "garbage"):
        assert await proofs().prove(nobodys) is None


async def test_the_server_judges_audience_and_account_by_itself(nodes, proofs):
    """Also where the token would not say so: what it claims only saves a question."""
    uid = await nodes.pod("a1", "n1")
    review = proofs()._review
    good = await review(await nodes.token("a1", uid))
    assert (good.authenticated, good.audiences) == (True, (AGENT_AUDIENCE,))
    assert not (await review(await nodes.token("a1", uid, audience="https://kubernetes.default.svc"))).authenticated
    worker = await review(await nodes.token("w", await nodes.pod("w", "n1", "iris-worker"), account="iris-worker"))
    assert (worker.authenticated, worker.user) == (True, f"system:serviceaccount:{NAMESPACE}:iris-worker")
    assert not (await review("garbage")).authenticated


async def test_a_token_ends_with_its_pod(nodes, proofs):
    """It is refused as soon as the server's caches know that the pod is gone, long before the token's own end."""
    token = await nodes.token("a1", await nodes.pod("a1", "n1"))
    await nodes.delete("a1")
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                await proofs().prove(token)
            except AgentUnproven:
                return
            await anyio.sleep(0.1)


def kubeconfig_of(server, token):
    """Return a kubeconfig."""
    cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.files.authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
    }


@pytest.fixture
async def controller(nodes, proofs, real_server, tmp_path):
    """A controller on that cluster, with nothing but its rendered rights, that serves on loopback."""
    assert (await nodes.api.request(ApiRequest("POST", DEFINITIONS, body=DEFINITION))).code in (201, 409)
    with anyio.fail_after(PATIENCE_S):
        while True:
            with contextlib.suppress(ApiUnreachable):
                if (await nodes.api.request(ApiRequest("GET", POOLS))).code == 200:
                    break
            await anyio.sleep(0.05)
    lease = await nodes.post(lease_path(NAMESPACE).rpartition("/")[0], {"metadata": {"name": LEASE}, "spec": {}})
    freed = {"metadata": {"annotations": {RELEASED: lease["metadata"]["uid"]}}}  # nobody has to wait for it
    patch = ApiRequest("PATCH", lease_path(NAMESPACE), body=freed, content_type=MERGE_PATCH)
    assert (await nodes.api.request(patch)).code == 200
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(kubeconfig_of(real_server, await nodes.controllers_token())))
    platform = attrs.evolve(INSTALLATION.platform, kubeconfig_path=str(kubeconfig))
    config = attrs.evolve(INSTALLATION.config, platform=attrs.evolve(INSTALLATION.config.platform, coreweave=platform))
    config = attrs.evolve(config, controller=attrs.evolve(config.controller, secrets_dir=""))
    with anyio.fail_after(PATIENCE_S):
        async with Controller(config, state_dir=tmp_path / "state", host="127.0.0.1", port=0) as made:
            yield made
    await nodes.api.request(ApiRequest("DELETE", lease_path(NAMESPACE)))


async def listed(controller):
    """Return the nodes that the controller knows, by name."""
    asked = "/iriscw.v1.ControllerService/ListNodes"
    async with RpcChannel(controller.address, controller.admin_token) as channel:
        found = await channel.unary(asked, v1.ListNodesRequest(), v1.ListNodesResponse)
    return {each.node: each.state for each in found.nodes}


async def dial(controller, token, node):
    """Say a hello; give the first answer."""
    hello = v1.AgentHello(protocol_version=1, node=node, agent_id="agent-x", starts=1, boot_id="boot")
    async with (
        RpcChannel(controller.address, Secret(token)) as channel,
        channel.bidi(CONNECT, v1.AgentMessage, v1.NodeMessage, timeout_s=PATIENCE_S) as call,
    ):
        await call.send(v1.AgentMessage(hello=hello))
        return await call.receive()


@contextlib.contextmanager
def agent(folder, controller, node, token_file):
    """Run ``iriscw agent serve`` as the DaemonSet's pod does."""
    own = {"IRISCW_STATE_DIR": str(folder / "state"), "IRISCW_NODE": node, "IRISCW_CRIU": str(folder / "no-criu")}
    words = ("--socket", str(folder / "s" / "a.sock"), "--controller", str(controller.address))
    with (folder / "log").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "agent", "serve", *words, "--token-file", str(token_file)],
            env={**os.environ, **own},
            stderr=said,
        )
    try:
        yield
    finally:
        process.kill()
        process.wait(PATIENCE_S)


async def test_an_agent_of_the_daemon_set_dials(nodes, controller, tmp_path):
    """Its stream is that of its pod's node, and of no other; the next token is read when it dials anew."""
    token = await nodes.token("a1", await nodes.pod("a1", "n1"))
    folder = tmp_path / "agent"
    folder.mkdir(mode=0o700)
    write_atomic(folder / "token", b"garbage\n")
    with agent(folder, controller, "n1", folder / "token"), anyio.fail_after(PATIENCE_S):
        while controller.statistics().rpc.calls_refused == 0:  # noqa: ASYNC110 - it was turned away
            await anyio.sleep(0.05)
        assert await listed(controller) == {}
        write_atomic(folder / "token", token.encode())
        while (await listed(controller)).get("n1") is not v1.NodeState.CONNECTED:  # noqa: ASYNC110 - as above
            await anyio.sleep(0.05)
        with pytest.raises(PermissionDenied, check=that(names=("n1", "n2"))):
            await dial(controller, token, "n2")
        with pytest.raises(Unauthenticated):
            await dial(controller, await nodes.token(), "n1")
        assert list(await listed(controller)) == ["n1"]
        counted = controller.statistics().token_reviews
        assert (counted["accepted"], counted["refused"], counted["unavailable"]) == (1, 1, 0)
