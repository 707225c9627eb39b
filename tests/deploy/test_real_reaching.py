"""The way to a controller through a real kube-apiserver and a real streaming server, with a user's rights and no more.

Pods and nodes are written by hand; the controller is one of this process. Skipped where the server or the kubelet's
inside was not built (``tests/kube/real/build-*``).
"""

import base64
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest
import trustme
from deploy_world import HURRY, installed
from kube_kubelet import find_kubelet, running_kubelet
from kube_server import NoBinariesError
from reach_world import TOKEN, Drivers

from iriscw.cloud.drivers.kube.access import ClusterAccess, trusting
from iriscw.cloud.drivers.kube.credentials import Fixed, Header
from iriscw.cloud.drivers.kube.objects import open_objects
from iriscw.cloud.kube.messages import MERGE_PATCH
from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.deploy.controller import service
from iriscw.deploy.errors import ClusterRightsMissing
from iriscw.deploy.finding import RIGHTS
from iriscw.deploy.reaching import WantedController, open_gate
from iriscw.kubernetes import client_of
from raised import that

pytestmark = pytest.mark.slow

NAME = "iris-reach"
INSTALLATION = installed({}, {"namespace": NAME})
ROOT = f"/api/v1/namespaces/{NAME}"
GROUP = "rbac.authorization.k8s.io"


def access_of(server, user):
    """Return a user's way to a real server."""
    tls = trusting(server.files.authority.read_bytes())
    return ClusterAccess(f"https://127.0.0.1:{server.port}", Fixed(Header.of("Bearer", server.tokens[user])), tls)


@pytest.fixture(scope="module")
def kubelet(real_server, tmp_path_factory):
    """What the server proxies to; the test is skipped where it was not built."""
    try:
        program = find_kubelet()
    except NoBinariesError as error:
        pytest.skip(f"no kubelet: {error}")
    with running_kubelet(program, real_server, tmp_path_factory.mktemp("kubelet")) as running:
        yield running


@asynccontextmanager
async def a_controller(folder, authority):
    """Run a controller whose certificate holds the Service's name, and no other."""
    secrets = folder / "secrets"
    secrets.mkdir()
    (secrets / "cluster-secret").write_text("the-cluster-secret")
    (secrets / "admin-token").write_text(TOKEN)
    issued = authority.issue_cert(INSTALLATION.host)
    issued.cert_chain_pems[0].write_to_path(secrets / "tls.crt")
    issued.private_key_pem.write_to_path(secrets / "tls.key")
    config = build_config({"name": "real", "platform": {"local": {}}, "controller": {"local": {"port": 0}}})
    config = attrs.evolve(config, controller=attrs.evolve(config.controller, secrets_dir=str(secrets)))
    async with Controller(config, state_dir=folder / "state", drivers=Drivers(), host="127.0.0.1") as running:
        yield running


async def install(objects, kubelet, authority, port):
    """Make what a controller consists of, with a pod that serves on a port of this machine."""
    await objects.create("/api/v1/namespaces", {"metadata": {"name": NAME}})
    await objects.create(f"{ROOT}/services", service(INSTALLATION))
    for name, key, value in (
        ("iris-controller-secrets", "admin-token", TOKEN.encode()),
        ("iris-ca", "ca.crt", authority.cert_pem.bytes()),
    ):
        data = {key: base64.b64encode(value).decode()}
        await objects.create(f"{ROOT}/secrets", {"metadata": {"name": name}, "data": data})
    await objects.create("/api/v1/nodes", {"metadata": {"name": "reach-1"}})
    await objects.patch("/api/v1/nodes/reach-1/status", {"status": kubelet.node_status()}, MERGE_PATCH)
    kubelet.pod(NAME, "iris-controller-0")
    container = {"name": "controller", "image": "i", "ports": [{"name": "controller", "containerPort": port}]}
    metadata = {"name": "iris-controller-0", "labels": {"app": "iris-controller"}}
    await objects.create(
        f"{ROOT}/pods", {"metadata": metadata, "spec": {"nodeName": "reach-1", "containers": [container]}}
    )
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await objects.patch(f"{ROOT}/pods/iris-controller-0/status", {"status": status}, MERGE_PATCH)


async def grant(objects, rights):
    """Allow a user this and nothing else, in the namespace."""
    rules = [
        {"apiGroups": ["coordination.k8s.io" if kind == "leases" else ""], "resources": [kind], "verbs": [*verbs]}
        for kind, verbs in rights
    ]
    metadata = {"name": "users", "namespace": NAME}
    role = {"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "subjects": [{"kind": "User", "name": "eve", "apiGroup": GROUP}],
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "users"},
    }
    root = f"/apis/{GROUP}/v1/namespaces/{NAME}"
    await objects.apply(f"{root}/roles/users", role)
    await objects.apply(f"{root}/rolebindings/users", binding)


async def until_known(server, rights):
    """Wait until the authorizer has heard of what a user may do."""
    async with open_objects(access_of(server, "eve"), settings=HURRY) as objects:
        for kind, verbs in rights:
            resource, _, subresource = kind.partition("/")
            group = "coordination.k8s.io" if kind == "leases" else ""
            for verb in verbs:
                asked = {"namespace": NAME, "verb": verb, "group": group, "resource": resource}
                asked["subresource"] = subresource
                body = {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
                path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
                with anyio.fail_after(60):
                    while not (await objects.create(path, body))["status"]["allowed"]:  # noqa: ASYNC110
                        await anyio.sleep(0.05)


async def test_a_user_is_led_there(real_server, kubelet, tmp_path):
    """With the rights that the page lists, in the namespace and nowhere else; before them, each that lacks is named."""
    authority, wish = trustme.CA(), WantedController(NAME)
    user = access_of(real_server, "eve")
    rights = [(kind, verbs) for kind, verbs, _ in RIGHTS]
    async with (
        open_objects(access_of(real_server, "admin"), settings=HURRY) as objects,
        a_controller(tmp_path, authority) as controller,
    ):
        await install(objects, kubelet, authority, controller.address.port)
        for count, lacks in enumerate((("list", "services"), ("list", "pods"), None, None, ("get", "secrets/"))):
            await grant(objects, rights[:count])
            await until_known(real_server, rights[:count])
            if lacks is not None:
                with pytest.raises(
                    ClusterRightsMissing, check=that(comes_from="finding._allowed", names=(*lacks, NAME))
                ):
                    async with open_gate(user, wish, settings=HURRY):
                        pass
        await grant(objects, rights)
        await until_known(real_server, rights)
        async with open_gate(user, wish, settings=HURRY) as gate, client_of(gate) as client:
            assert gate.server_name == INSTALLATION.host
            with anyio.fail_after(60):
                assert (await client.status()).name == "real"
            assert gate.tunnel.last_error is None
