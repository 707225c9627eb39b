"""Waiting for the controller, and what is told meanwhile: by texts, and in a served simulation."""

import contextlib

import anyio
import pytest
from deploy_world import HURRY, STORED, installed, put, simulated, with_agent

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.drivers.kube.objects import open_objects
from iriscw.cloud.model import Forbidden
from iriscw.deploy import awaiting
from iriscw.deploy.applying import apply
from iriscw.deploy.awaiting import (
    EVENTS_TOLD,
    await_available,
    deployment_lines,
    event_lines,
    is_available,
    look,
    missing_secrets,
    pod_lines,
)
from iriscw.deploy.errors import NotAvailable
from iriscw.deploy.rendering import render
from iriscw_sims.serve.settings import Timing
from raised import that

INSTALLATION = installed()
DEPLOYMENT = "/apis/apps/v1/namespaces/iris/deployments/iris-controller"
POOL = "/apis/compute.coreweave.com/v1alpha1/nodepools/iris-controller-pool"
PODS = "/api/v1/namespaces/iris/pods"
EVENTS = "/api/v1/namespaces/iris/events"


PATIENCE_S = 120
"""For what takes a second on a machine with nothing else to do."""


@pytest.fixture
def hurry(monkeypatch):
    """Look every few milliseconds: for what takes more than one look."""
    monkeypatch.setattr(awaiting, "LOOK_S", 0.02)


@pytest.fixture
async def applied(objects):
    """Everything is applied, and nothing has happened yet."""
    await apply(objects, render(INSTALLATION), lambda _line: None)


def set_status(server, path, status):
    """Write a status, as the cluster's own controllers do."""
    found = put(server, "GET", path, None)
    put(server, "PUT", f"{path}/status", {**found, "status": status})


def serving(generation=1):
    """Return the status of a Deployment whose pod serves."""
    return {
        "observedGeneration": generation,
        "replicas": 1,
        "updatedReplicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "conditions": [{"type": "Available", "status": "True"}],
    }


def pool_condition(kind, status, reason, message=""):
    """Return a pool's status with one condition, and no node."""
    return {"currentNodes": 0, "conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


async def test_it_waits_until_the_controller_serves(objects, server, applied):
    """And not longer."""
    told = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(await_available, objects, INSTALLATION, PATIENCE_S, told.append)
        while not told:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        set_status(server, DEPLOYMENT, serving())
    assert told[0] == "waiting: node pool iris-controller-pool: 0 of 1 nodes are ready"


async def test_what_is_new_is_told_once(objects, server, applied, hurry, monkeypatch):
    """A line that is still there is not told again; one that had gone is."""
    seen = [("pool",), ("pool", "pod"), ("pod",), ("pool", "pod")]
    looks = iter(seen)
    told = []

    async def scripted(*_arguments):
        lines = next(looks, None)
        if lines is None:
            set_status(server, DEPLOYMENT, serving())
        return awaiting.AwaitedSight(lines or seen[-1])

    monkeypatch.setattr(awaiting, "look", scripted)
    await await_available(objects, INSTALLATION, PATIENCE_S, told.append)
    assert told == ["waiting: pool", "waiting: pod", "waiting: pool"]


async def test_the_deadline_tells_what_was_seen(objects, server, applied):
    """Pool, pod and events, in one line."""
    body = {"metadata": {"name": "iris-controller-1", "labels": {"app": "iris-controller"}}, "spec": POD_SPEC}
    put(server, "POST", PODS, body)
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    status = {"name": "controller", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    set_status(
        server,
        f"{PODS}/iris-controller-1",
        {"phase": "Pending", "containerStatuses": [{**status, "state": {"waiting": waiting}}]},
    )
    with pytest.raises(NotAvailable) as caught:
        await await_available(objects, INSTALLATION, 0.2, lambda _line: None)
    text = str(caught.value)
    assert "does not serve after 0.2 s" in text
    assert "node pool iris-controller-pool: 0 of 1 nodes are ready" in text
    assert "pod iris-controller-1: ErrImagePull: no such image" in text


POD_SPEC = {"containers": [{"name": "controller", "image": "i"}]}


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        (("Quota", "False", "NotSet", "quota limit is 0 for instance type x"), "x"),
        (("Validated", "False", "Invalid", "no such type in this zone"), "zone"),
    ],
)
async def test_a_pool_without_hope_ends_the_waiting(objects, server, applied, hurry, condition, says):
    """No node will come, however long one waits; the reason is CoreWeave's own."""
    set_status(server, POOL, pool_condition(*condition))
    with pytest.raises(NotAvailable, check=that(comes_from="awaiting.await_available", names=says)):
        await await_available(objects, INSTALLATION, PATIENCE_S, lambda _line: None)


async def test_a_busy_zone_is_waited_for(objects, server, applied):
    """Its machines come by themselves, some time: it is told, and the deadline decides."""
    set_status(server, POOL, pool_condition("Capacity", "False", "QueuedAwaitingCapacity", "waiting for capacity"))
    told = []
    with pytest.raises(NotAvailable, check=that(comes_from="awaiting.await_available", names="0.2")):
        await await_available(objects, INSTALLATION, 0.2, told.append)
    assert told == ["waiting: node pool iris-controller-pool: the zone has no free machines now: waiting for capacity"]


async def test_a_cluster_that_does_not_answer_is_told(objects, server, applied, monkeypatch):
    """And looked at again: an API server that restarts is waited for, too."""

    async def refused(*_arguments):
        raise Forbidden("no rights")

    monkeypatch.setattr(awaiting, "look", refused)
    told = []
    with pytest.raises(NotAvailable, check=that(names="Forbidden")):
        await await_available(objects, INSTALLATION, 0.1, told.append)
    assert told == ["waiting: Forbidden: no rights"]


async def test_an_empty_cluster_says_so(objects, server):
    """Nothing is taken for granted."""
    assert (await look(objects, INSTALLATION)).lines == (
        "node pool iris-controller-pool: it is not there",
        "deployment iris-controller: it is not there",
    )
    assert (await look(objects, installed({"instance_type": ""}))).lines == (
        "deployment iris-controller: it is not there",
    )


async def test_secrets_that_are_missing_are_told(objects, applied, server):
    """With the way to make them; those that nobody needs are not."""
    lines = await missing_secrets(objects, INSTALLATION)
    assert [line.split(":")[0] for line in lines] == [
        "there is no Secret iris-controller-secrets",
        "there is no Secret iris-ca",
        "there is no Secret iris-image-pull",
    ]
    assert "--secrets-from" in lines[0]
    for name in ("iris-controller-secrets", "iris-ca", "iris-image-pull"):
        put(server, "POST", "/api/v1/namespaces/iris/secrets", {"metadata": {"name": name}})
    assert await missing_secrets(objects, INSTALLATION) == ()
    stored = installed(bundle_prefix="s3://bucket/x")
    assert "iris-bundle-credentials" in (await missing_secrets(objects, stored))[0]
    found = await missing_secrets(objects, with_agent(**STORED))
    assert [line.split(":")[0] for line in found] == ["there is no Secret bucket", "there is no Secret keys"]
    plain = installed({"insecure_plaintext": True}, {"namespace": "other", "image_pull_secret": ""})
    assert await missing_secrets(objects, plain) == ()


def test_available_means_this_very_generation():
    """A pod of an earlier one that still serves is not what was applied."""
    found = {"metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": serving(2)}
    assert is_available(found)
    assert not is_available(None)
    assert not is_available({**found, "status": serving(1)})
    assert not is_available({**found, "status": {**serving(2), "updatedReplicas": 0}})
    assert not is_available({**found, "status": {**serving(2), "conditions": []}})
    assert not is_available({"metadata": {}, "status": {}})


def test_a_deployments_complaints():
    """Pods that it may not make, and a rollout that takes too long."""
    conditions = [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded\nquota"},
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"},
        {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"},
    ]
    assert deployment_lines({"metadata": {}, "status": {"conditions": conditions}}) == [
        "deployment iris-controller: FailedCreate: exceeded quota",
        "deployment iris-controller: ProgressDeadlineExceeded",
    ]


def pod(**status):
    """Return a pod with a status."""
    return {"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"}, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"containerStatuses": [{"ready": True, "state": {"running": {}}}]}, []),
        ({}, []),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}]},
            ["pod p: Unschedulable: 0/3"],
        ),
        (
            {"containerStatuses": [{"ready": False, "state": {"running": {}}}]},
            ["pod p: it runs, and does not serve yet"],
        ),
        (
            {"containerStatuses": [{"state": {"terminated": {"exitCode": 2, "message": "no good"}}}]},
            ["pod p: exit code 2: no good"],
        ),
        (
            {
                "containerStatuses": [
                    {
                        "restartCount": 3,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": 3, "message": "InsecureDoor"}},
                    }
                ]
            },
            ["pod p: CrashLoopBackOff; restarted 3 times; the last one ended with exit code 3: InsecureDoor"],
        ),
    ],
)
def test_a_pods_troubles(status, says):
    """Where it has not been put, what its container waits for, how the last one ended."""
    assert pod_lines(pod(**status)) == says


def test_a_pod_without_identity_is_told():
    """It is no reason to stop looking."""
    assert len(pod_lines({"metadata": {}})) == 1


def test_the_last_warnings_about_ours_are_told():
    """A few of them, each once; events of others are nobody's business here."""

    def event(name, reason, when, kind="Pod"):
        return {"involvedObject": {"kind": kind, "name": name}, "reason": reason, "message": "m", "lastTimestamp": when}

    events = [
        event("iris-controller-1", f"R{number}", f"2026-01-01T00:00:0{number}Z") for number in range(EVENTS_TOLD + 2)
    ]
    lines = event_lines([*reversed(events), event("slice-1-0", "Other", "2027-01-01T00:00:00Z")])
    assert lines == [f"pod iris-controller-1: R{number}: m" for number in (2, 3, 4)]
    assert event_lines(events, ["iris-controller-1"]) == []
    claim = event("iris-controller-state", "ProvisioningFailed", "2026-01-01T00:00:00Z", "PersistentVolumeClaim")
    assert event_lines([claim, claim]) == ["persistentvolumeclaim iris-controller-state: ProvisioningFailed: m"]


async def test_events_are_read(objects, server, applied):
    """Warnings only."""
    for kind in ("Warning", "Normal"):
        put(
            server,
            "POST",
            EVENTS,
            {
                "metadata": {"name": kind.lower()},
                "type": kind,
                "reason": "FailedMount",
                "message": f"a {kind}",
                "involvedObject": {"kind": "Pod", "namespace": "iris", "name": "iris-controller-1"},
            },
        )
    assert (await look(objects, INSTALLATION)).lines[-1] == "pod iris-controller-1: FailedMount: a Warning"


async def test_every_object_can_be_waited_for(objects, applied):
    """The Deployment is where it is looked for."""
    (manifest,) = [each for each in render(INSTALLATION) if each.body["kind"] == "Deployment"]
    assert path_of(manifest.body) == DEPLOYMENT


LONELY = installed({"system_critical": False})
"""CoreWeave as it is simulated refuses every label of its own domains."""


@contextlib.asynccontextmanager
async def coreweave(kubeconfig, **more):
    """Yield the objects of a simulated cluster in which CoreWeave's controllers act, a hundred times as fast."""
    async with (
        simulated(kubeconfig, controllers=True, timing=Timing.QUICK, speed=100, **more),
        open_objects(await find_access(kubeconfig), settings=HURRY) as objects,
    ):
        yield objects


async def test_the_controllers_machine_boots(tmp_path):
    """Its node has the labels by which the Deployment's pod finds it; then there is nothing more to say of it.

    The event that it found none at first is there for an hour of that world, 36 s of this one.
    """
    async with coreweave(tmp_path / "kubeconfig") as objects:
        await apply(objects, render(LONELY), lambda _line: None)
        with anyio.fail_after(20):
            while (await look(objects, LONELY)).lines:  # noqa: ASYNC110
                await anyio.sleep(0.02)


@pytest.mark.parametrize(
    ("installation", "quotas", "says"),
    [
        (LONELY, {"cd-gp-i64-erapids": 0}, "quota"),
        (
            installed({"system_critical": False, "instance_type": "gb200-4x"}),
            {},
            ("gb200-4x", "18"),
        ),
    ],
)
async def test_what_coreweave_refuses_ends_the_waiting(tmp_path, hurry, installation, quotas, says):
    """It is told in CoreWeave's own words."""
    async with coreweave(tmp_path / "kubeconfig", quotas=quotas) as objects:
        await apply(objects, render(installation), lambda _line: None)
        with pytest.raises(NotAvailable, check=that(comes_from="awaiting.await_available", names=says)):
            await await_available(objects, installation, PATIENCE_S, lambda _line: None)
