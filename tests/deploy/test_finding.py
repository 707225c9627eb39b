"""Finding a controller: what is chosen of what there is, and by which rights; in a served simulation."""

import base64
from pathlib import Path

import pytest
from deploy_world import HURRY, installed, put, simulated
from hypothesis import given, strategies as st

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.objects import open_objects
from iriscw.cloud.model import Forbidden
from iriscw.deploy import finding
from iriscw.deploy.controller import service
from iriscw.deploy.errors import ClusterRightsMissing, ControllerNotReady, NoInstallation, SeveralInstallations
from iriscw.deploy.finding import (
    NAMED_MOST,
    RIGHTS,
    ControllerService,
    choose,
    find_authority,
    find_place,
    find_serving,
    find_token,
    leader,
    place_of,
    serves,
    serving_of,
    why_not,
)
from raised import that

INSTALLATION = installed()
PLACE = ControllerService("iris", "iris-controller-svc", 10000, "controller", {"app": "iris-controller"})
PODS, SECRETS = "/api/v1/namespaces/iris/pods", "/api/v1/namespaces/iris/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/iris/leases"
SPEC = {
    "containers": [
        {
            "name": "controller",
            "image": "i",
            "command": ["iriscw", "controller", "serve"],
            "ports": [{"name": "controller", "containerPort": 10000}],
        }
    ]
}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def service_in(namespace, name="iris-controller-svc"):
    """Return a controller's Service, as it is rendered."""
    made = service(installed({"service_name": name}, {"namespace": namespace}))
    return {**made, "spec": {**made["spec"], "clusterIP": "None"}}


def pod(name, status=None, **more):
    """Return a controller's pod."""
    identity = {"name": name, "namespace": "iris", "uid": name, "resourceVersion": "1"}
    metadata = {**identity, "labels": {"app": "iris-controller"}, **more}
    return {"metadata": metadata, "spec": SPEC, "status": status or READY}


# What is chosen


def test_the_rendered_service_is_found_by_its_labels():
    """The selector holds for what `iriscw manifests` writes, and the Service says all that is needed."""
    made = service(INSTALLATION)
    assert all(made["metadata"]["labels"].get(key) == value for key, value in map(split, finding.OURS.split(",")))
    assert place_of(made) == PLACE
    assert PLACE.host == INSTALLATION.host


def split(text):
    """Take a requirement of a selector apart."""
    key, _, value = text.partition("=")
    return key, value


@pytest.mark.parametrize("spec", [{}, {"ports": []}, {"ports": [{"port": 1}]}, {"selector": {"a": "b"}}])
def test_a_service_that_leads_nowhere(spec):
    """It is none of a controller."""
    with pytest.raises(NoInstallation, check=that(comes_from="finding.place_of")):
        place_of({"metadata": {"name": "s", "namespace": "n"}, "spec": spec})


def test_a_port_without_a_name_will_do():
    """Of a Service that was written by hand; without a target it is the pod's port, too."""
    made = {"metadata": {"name": "s", "namespace": "n"}, "spec": {"ports": [{"port": 7}], "selector": {"a": "b"}}}
    assert place_of(made) == ControllerService("n", "s", 7, 7, {"a": "b"})


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=4), st.sampled_from(["", "a", "d"]))
def test_one_is_chosen_or_none(namespaces, context):
    """The only one; else the only one where the kubeconfig points; else an error that lists them all."""
    services = [service_in(namespace) for namespace in namespaces]
    if len(namespaces) == 1 or namespaces.count(context) == 1:
        assert choose(services, "x", context).namespace == (namespaces[0] if len(namespaces) == 1 else context)
    elif not namespaces:
        with pytest.raises(NoInstallation, check=that(comes_from="finding.choose", names="x")):
            choose(services, "x", context)
    else:
        with pytest.raises(
            SeveralInstallations, check=that(comes_from="finding.choose", names=len(namespaces))
        ) as caught:
            choose(services, "x", context)
        assert all(f"in {namespace}" in str(caught.value) for namespace in namespaces)


def test_a_long_list_is_cut():
    """An error stays readable."""
    with pytest.raises(SeveralInstallations, check=that(names=("23", "3"))):
        choose([service_in(f"n{number}") for number in range(NAMED_MOST + 3)], "x")


@pytest.mark.parametrize(
    ("status", "more", "ready"),
    [
        (READY, {}, True),
        (READY, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
        ({**READY, "phase": "Failed"}, {}, False),
        ({"phase": "Running"}, {}, False),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, {}, False),
    ],
)
def test_who_serves(status, more, ready):
    """Who is ready, and is to stay."""
    assert serves(pod("p", status, **more)) is ready


def test_the_leader_of_two():
    """By the Lease; where that says nothing, the one that came later."""
    old, new = (
        pod("c-1", creationTimestamp="2026-01-01T00:00:00Z"),
        pod("c-10", creationTimestamp="2026-01-02T00:00:00Z"),
    )
    assert leader([new, old], "c-1_1234") is old
    assert leader([old, new], "c-10_1234") is new
    assert leader([new, old], "") is new
    assert leader([new, old], "another_1") is new


def test_what_a_pod_says_of_its_door():
    """Its port, by number or name, and whether it speaks TLS."""
    assert serving_of(pod("p"), PLACE) == finding.Serving("p", "p", 10000, plaintext=False)
    plain = {"containers": [{**SPEC["containers"][0], "command": [], "args": ["--insecure-plaintext"]}]}
    assert serving_of({**pod("p"), "spec": plain}, ControllerService("iris", "s", 1, 4711)).plaintext
    assert serving_of(pod("p"), ControllerService("iris", "s", 1, 4711)).port == 4711
    with pytest.raises(ControllerNotReady, check=that(comes_from="finding.serving_of", names="other")):
        serving_of(pod("p"), ControllerService("iris", "s", 1, "other"))


def test_why_nobody_serves():
    """The pod's own troubles, as `manifests --apply` tells them; at least its phase."""
    assert "has no pod" in why_not(PLACE, [])
    assert "pod p: it is Running, and not ready" in why_not(PLACE, [pod("p", {"phase": "Running"})])
    gone = pod("p", READY, deletionTimestamp="2026-01-01T00:00:00Z")
    assert "pod p: it is being deleted" in why_not(PLACE, [gone])
    waiting = {"name": "controller", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    bad = pod("p", {"phase": "Pending", "containerStatuses": [waiting]})
    assert "pod p: ErrImagePull: no such image" in why_not(PLACE, [bad])


def test_the_page_lists_the_rights():
    """What a user has to be allowed stands on the page, word for word."""
    page = (Path(__file__).parents[2] / "docs" / "coreweave.md").read_text()
    for resource, verbs, why in RIGHTS:
        assert f"| `{resource}` | {', '.join(f'`{verb}`' for verb in verbs)} | {why} |" in page


# In a cluster


@pytest.fixture
def installation(server):
    """A namespace with a controller's Service."""
    put(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "iris"}})
    put(server, "POST", "/api/v1/namespaces/iris/services", service_in("iris"))


async def test_the_only_one_is_found(objects, installation, server):
    """Whatever is known of it; what is wrong is said."""
    for known in ((), ("iris",), ("iris", "iris-controller-svc"), ("", "", "elsewhere")):
        assert await find_place(objects, *known) == PLACE
    for namespace, service_name in (
        ("iris", "another"),
        ("nowhere", "iris-controller-svc"),
        ("nowhere", ""),
        ("a/b", ""),
    ):
        with pytest.raises(NoInstallation, check=that(names=namespace)):
            await find_place(objects, namespace, service_name)
    put(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    put(server, "POST", "/api/v1/namespaces/other/services", service_in("other"))
    with pytest.raises(SeveralInstallations, check=that(names=("iris-controller-svc", "other"))):
        await find_place(objects)
    assert (await find_place(objects, context="other")).namespace == "other"


async def test_who_may_not_look_everywhere_looks_nearby(objects, installation, monkeypatch):
    """In the context's namespace, or in `iris`; what is not allowed there either is named."""
    listed, forbidden = finding._listed, ["/api/v1/services"]

    async def refused(among, source):
        if source.path in forbidden:
            raise Forbidden("eve may not")
        return await listed(among, source)

    monkeypatch.setattr(finding, "_listed", refused)
    assert await find_place(objects) == PLACE
    with pytest.raises(NoInstallation, check=that(names="elsewhere")):
        await find_place(objects, context="elsewhere")
    forbidden.append("/api/v1/namespaces/iris/services")
    with pytest.raises(ClusterRightsMissing, check=that(names=("services", "iris", "eve"))):
        await find_place(objects)


async def test_the_pod_that_serves(objects, installation, server):
    """None yet, one, one that follows another: then the Lease decides."""
    with pytest.raises(ControllerNotReady, check=that(comes_from="finding.find_serving")):
        await find_serving(objects, PLACE)
    for name in ("c-1", "c-2"):
        put(server, "POST", PODS, {"metadata": {"name": name, "labels": {"app": "iris-controller"}}, "spec": SPEC})
    with pytest.raises(
        ControllerNotReady, check=that(comes_from="finding.find_serving", names=("c-1", "Pending", "c-2"))
    ):
        await find_serving(objects, PLACE)
    for name in ("c-1", "c-2"):
        found = put(server, "GET", f"{PODS}/{name}", None)
        put(server, "PUT", f"{PODS}/{name}/status", {**found, "status": READY})
        assert (await find_serving(objects, PLACE)).name == name
    lease = {"metadata": {"name": "iris-controller"}, "spec": {"holderIdentity": "c-1_77"}}
    put(server, "POST", LEASES, lease)
    assert (await find_serving(objects, PLACE)).name == "c-1"


async def test_secrets(objects, installation, server):
    """Authority and token come from where the installation keeps them; what is missing or broken is named."""
    with pytest.raises(ControllerNotReady, check=that(comes_from="finding._key", names=("Secret", "iris-ca", "iris"))):
        await find_authority(objects, PLACE)
    with pytest.raises(
        ControllerNotReady,
        check=that(comes_from="finding._key", names=("Secret", "iris-controller-secrets", "iris")),
    ):
        await find_token(objects, PLACE)
    token = base64.b64encode(b"the-token\n").decode()
    put(server, "POST", SECRETS, {"metadata": {"name": "iris-controller-secrets"}, "data": {"admin-token": token}})
    found = await find_token(objects, PLACE)
    assert found.reveal() == "the-token"
    assert "the-token" not in repr(found)
    put(server, "POST", SECRETS, {"metadata": {"name": "iris-ca"}, "data": {"other": token}})
    with pytest.raises(
        ControllerNotReady, check=that(comes_from="finding._key", names=("ca.crt", "Secret", "iris-ca"))
    ):
        await find_authority(objects, PLACE)
    bad = base64.b64encode(b"two words").decode()
    put(
        server,
        "PUT",
        f"{SECRETS}/iris-controller-secrets",
        {
            "metadata": {"name": "iris-controller-secrets"},
            "data": {"admin-token": bad},
        },
    )
    with pytest.raises(ControllerNotReady, check=that(names=("admin-token", "iris-controller-secrets"))) as caught:
        await find_token(objects, PLACE)
    assert "two" not in str(caught.value)


async def test_a_wrong_token_of_the_cluster_is_a_missing_right(tmp_path):
    """Each question says which right it lacks; who may not read Secrets is told of the files that would do."""
    async with simulated(tmp_path / "kubeconfig") as server:
        wrong = tmp_path / "wrong"
        wrong.write_text((tmp_path / "kubeconfig").read_text().replace(server.token.reveal(), "CW-SECRET-wrong"))
        async with open_objects(await find_access(wrong), settings=HURRY) as objects:
            for asked, right in (
                (find_place(objects), that(names=("list", "services", "iris"))),
                (find_place(objects, "iris", "s"), that(names=("get", "services", "iris"))),
                (find_serving(objects, PLACE), that(names=("list", "pods", "iris"))),
                (find_authority(objects, PLACE), that(names=("get", "secrets/iris-ca", "--ca-file"))),
                (find_token(objects, PLACE), that(names=("get", "secrets/iris-controller-secrets", "--token-file"))),
            ):
                with pytest.raises(ClusterRightsMissing, check=right):
                    await asked
