"""The examination on a real kube-apiserver: by an administrator, and with the rendered rights alone.

No controllers run there, so a pool's conditions are written by the test. Skipped where no server was built
(``tests/kube/real/build-apiserver``).
"""

import contextlib
import json

import anyio
import pytest
from deploy_world import EVERYTHING, installed
from doctor_world import lines, of
from kube_server import NoBinariesError, find_binaries, running_server

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.objects import open_objects
from iriscw.cloud.kube.messages import MERGE_PATCH, ApiRequest
from iriscw.cloud.kube.paths import NODE_POOLS
from iriscw.deploy.applying import apply
from iriscw.deploy.rendering import render
from iriscw.deploy.secrets import secret_manifests
from iriscw.doctor.examination import Examination
from iriscw.doctor.findings import Health
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS

pytestmark = pytest.mark.slow

NAMESPACE = "iris-doctor"
INSTALLATION = installed({**EVERYTHING, "service_monitor": False}, {"namespace": NAMESPACE})
FILES = {"cluster-secret": b"c", "admin-token": b"a", "tls.crt": b"t", "tls.key": b"k", "ca.crt": b"c"}
ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/iris-controller"
CONDITIONS = [
    {"type": "Validated", "status": "True", "reason": "Valid"},
    {"type": "Quota", "status": "True", "reason": "Under"},
    {"type": "Capacity", "status": "True", "reason": "Sufficient"},
]


@pytest.fixture(scope="session")
def real_server(tmp_path_factory):
    """One API server for all tests of this process; the test is skipped where there is none."""
    try:
        binaries = find_binaries()
    except NoBinariesError as error:
        pytest.skip(f"no real API server: {error}")
    with running_server(binaries, tmp_path_factory.mktemp("kube") / "server") as server:
        yield server


def kubeconfig(server, folder, token):
    """Write a kubeconfig of somebody with a token, and give its path."""
    cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.files.authority)}
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    path = folder / f"kubeconfig-{len([*folder.iterdir()])}"
    path.write_text(json.dumps(text))
    return path


@pytest.fixture
def administrator(real_server, tmp_path):
    """The kubeconfig of somebody who may do everything."""
    return kubeconfig(real_server, tmp_path, real_server.tokens["admin"])


@pytest.fixture
async def objects(administrator):
    """The installation, made on the server; gives its objects, as an administrator has them."""
    async with open_objects(await find_access(administrator)) as opened:
        assert (await opened.caller.request(ApiRequest("POST", DEFINITIONS, body=DEFINITION))).code in (201, 409)
        with anyio.fail_after(30):
            while (await opened.caller.request(ApiRequest("GET", NODE_POOLS))).code != 200:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        namespace, *rest = render(INSTALLATION)
        await apply(opened, (namespace, *secret_manifests(INSTALLATION, FILES), *rest), lambda _line: None)
        yield opened


@contextlib.asynccontextmanager
async def judging(objects):
    """Write conditions into each pool that appears, as CoreWeave's controller does; give the names of those pools."""
    judged = []

    async def follow():
        while True:
            pools = (await objects.caller.request(ApiRequest("GET", NODE_POOLS))).body["items"]
            for pool in pools:
                name = pool["metadata"]["name"]
                if not (pool.get("status") or {}).get("conditions"):
                    patch = {"status": {"conditions": CONDITIONS}}
                    request = ApiRequest("PATCH", f"{NODE_POOLS}/{name}/status", (), patch, MERGE_PATCH)
                    if (await objects.caller.request(request)).code == 200:
                        judged.append(name)
            await anyio.sleep(0.2)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        yield judged
        tasks.cancel_scope.cancel()


async def examined(kubeconfig, **more):
    """Examine the installation once the authorizer has heard of its roles, which takes it a moment."""
    with anyio.fail_after(30):
        while True:
            found = await Examination(INSTALLATION, kubeconfig=kubeconfig, environ={}, **more).run()
            if not [each for each in found if each.check == "rights" and each.verdict is Health.WRONG]:
                return found


async def test_an_administrator_finds_all_well(objects, administrator):
    """On a real server, too; a pool of each type is made and gone, the controller's own stays."""
    async with judging(objects) as judged:
        found = await examined(administrator, probe=True)
    assert lines(found, Health.WRONG) == []
    assert lines(found, Health.WARNING) == [
        "secret iris-image-pull: it is not there: images that are not public cannot be pulled"
    ]
    assert "ServiceAccount iris-controller may do all" in of(found, "rights").found
    assert of(found, "clock").verdict is Health.OK
    assert of(found, "type cd-gp-a192-genoa").found == "Validated Valid, Quota Under, Capacity Sufficient"
    assert len([name for name in judged if name.startswith("iris-doctor-")]) >= 2
    assert [each["metadata"]["name"] for each in await objects.list(NODE_POOLS)] == [f"{NAMESPACE}-controller-pool"]


async def test_the_rendered_rights_are_enough_to_probe(objects, real_server, tmp_path):
    """As the controller: it asks about itself; Secrets and the Deployment are none of its rights, and told so."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/iris-controller/token"
    made = await objects.caller.request(ApiRequest("POST", path, body=body))
    path = kubeconfig(real_server, tmp_path, made.body["status"]["token"])
    async with judging(objects):
        found = await examined(path, probe=True)
    assert lines(found, Health.WRONG) == []
    user = f"system:serviceaccount:{NAMESPACE}:iris-controller"
    assert of(found, "rights").found.startswith(f"{user} may do all ")
    unseen = {each.check for each in found if each.verdict is Health.WARNING}
    assert unseen == {
        *("secret iris-controller-secrets", "secret iris-ca", "secret iris-image-pull"),
        *("configuration", "durability"),
    }
    assert of(found, "type cd-gp-a192-genoa").verdict is Health.OK
    assert [each["metadata"]["name"] for each in await objects.list(NODE_POOLS)] == [f"{NAMESPACE}-controller-pool"]


async def test_a_role_that_was_narrowed_is_told(objects, administrator):
    """Verb by verb, with what fails."""
    role = await objects.get(ROLE)
    rules = [rule for rule in role["rules"] if rule["resources"] != ["pods/log"]]
    try:
        await objects.patch(ROLE, {"rules": rules}, MERGE_PATCH)
        with anyio.fail_after(30):
            wrong = []
            while not wrong:
                found = await Examination(INSTALLATION, kubeconfig=administrator, environ={}).run()
                wrong = lines(found, Health.WRONG)
    finally:
        await objects.patch(ROLE, {"rules": role["rules"]}, MERGE_PATCH)
    (text,) = wrong
    assert text.startswith(
        f"rights: the ServiceAccount iris-controller may not get pods/log in namespace {NAMESPACE}: "
    )
