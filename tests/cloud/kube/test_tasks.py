"""Pods of tasks: what they ask for, see and are called; calls under lost, late and repeated answers."""

import contextlib
from random import Random

import attrs
import pytest
from hypothesis import given, strategies as st
from kube_shell import LOST, OK, PODS as PODS_PATH, SECOND, SILENT, Server, refusal

from iriscw.cloud.kube.settings import KubeSettings, SecretKey
from iriscw.cloud.kube.tasks import (
    OWN_HOST,
    WORKER_REQUEST,
    TaskOwner,
    TaskPod,
    TaskPods,
    create_task_pod,
    decode_task_pods,
    delete_task_pod,
    encode_task_pods,
    look_at_task_pod,
    task_labels,
    task_pod_manifest,
    task_pod_name,
    watched_labels,
)
from iriscw.cloud.labels import is_name
from iriscw.cloud.model import Capacity, Conflict, Forbidden, InvalidSpec, Throttled, Unavailable
from profiles import examples
from raised import that

GIB = 2**30
OWNER = TaskOwner("w-0-pod", "uid-1", "node-1", "w-0", "1")
PODS = TaskPods(
    cluster="ours",
    namespace="iris",
    image="registry/iris-task:1",
    cache_dir="/var/cache/iris",
    node_cache_dir="/mnt/local/iris",
    labels={"iris-scale-group": "gpu", "iris-slice-id": "s-1"},
    promise=Capacity(128_000, 1024 * GIB, 0, 8, "H100"),
    image_pull_secrets=("pull",),
    tolerated=("nvidia.com/gpu",),
    priority_class="workers",
    authority_secret="iris-ca",
    secrets={"WANDB_API_KEY": SecretKey("wandb", "api-key")},
)
TASK = TaskPod("a1", "/ada/j/0", "w-0/1/attempts/a1", "w-0/1/tasks", ("python3", "x"), Capacity(8000, 64 * GIB, 0, 2))
SETTINGS = KubeSettings(cluster="ours")


def container(manifest):
    """Return the one container of a pod."""
    (only,) = manifest["spec"]["containers"]
    return only


def variables(manifest):
    """Return the variables of a pod, by name, without their names."""
    return {each["name"]: {k: v for k, v in each.items() if k != "name"} for each in container(manifest)["env"]}


def test_a_pod_belongs_to_its_worker_and_its_node():
    """No scheduler, no controller: the node is named, the worker's pod owns it, and the label is the workers'."""
    manifest = task_pod_manifest(PODS, OWNER, TASK)
    metadata, spec = manifest["metadata"], manifest["spec"]
    assert spec["nodeName"] == "node-1"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Pod", "w-0-pod", "uid-1", False)
    assert metadata["labels"] == task_labels(PODS, OWNER)
    assert metadata["labels"]["iris-managed"] == "task"
    assert metadata["annotations"] == {"iris-task-id": "/ada/j/0", "iris-attempt-uid": "a1"}
    assert (spec["restartPolicy"], spec["tolerations"]) == ("Never", [{"key": "nvidia.com/gpu", "operator": "Exists"}])
    assert (spec["priorityClassName"], spec["imagePullSecrets"]) == ("workers", [{"name": "pull"}])


def test_a_pod_has_no_powers_and_no_token():
    """Root of its container, and nothing else."""
    manifest = task_pod_manifest(PODS, OWNER, TASK)
    assert manifest["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in manifest["spec"]
    security = container(manifest)["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert "privileged" not in security
    assert not [key for key in ("hostPID", "hostIPC", "hostNetwork") if key in manifest["spec"]]


def test_a_pod_sees_its_own_folder_and_the_shared_cache_only():
    """Under the paths that the worker knows; what others write for all tasks is not writable."""
    manifest = task_pod_manifest(PODS, OWNER, TASK)
    mounts = {each["mountPath"]: each for each in container(manifest)["volumeMounts"]}
    volumes = {each["name"]: each for each in manifest["spec"]["volumes"]}
    on_node = {path: volumes[each["name"]].get("hostPath", {}).get("path") for path, each in mounts.items()}
    assert on_node == {
        "/var/cache/iris/w-0/1/attempts/a1": "/mnt/local/iris/w-0/1/attempts/a1",
        "/var/cache/iris/w-0/1/tasks": "/mnt/local/iris/w-0/1/tasks",
        "/var/cache/iris/uv": "/mnt/local/iris/uv",
        "/dev/shm": None,
        "/etc/iris/ca": None,
    }
    assert {path for path, each in mounts.items() if each.get("readOnly")} == {
        "/var/cache/iris/w-0/1/tasks",
        "/etc/iris/ca",
    }
    assert volumes["attempt"]["hostPath"]["type"] == "Directory"  # removed: the pod never begins


def test_secrets_are_named_and_the_address_is_its_own():
    """No value of a secret and none of the user's variables is in the manifest."""
    told = variables(task_pod_manifest(PODS, OWNER, TASK))
    assert told["WANDB_API_KEY"] == {"valueFrom": {"secretKeyRef": {"name": "wandb", "key": "api-key"}}}
    assert told["IRIS_ADVERTISE_HOST"] == {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    assert told["UV_CACHE_DIR"] == {"value": "/var/cache/iris/uv"}


def test_a_leader_of_a_gang_is_told_its_own_address():
    """The kubelet puts the pod's address in, which stands before the variables that name it."""
    task = attrs.evolve(TASK, environment=(("MASTER_ADDR", OWN_HOST), ("JAX_COORDINATOR_ADDRESS", f"{OWN_HOST}:9")))
    told = variables(task_pod_manifest(PODS, OWNER, task))
    assert told["MASTER_ADDR"] == {"value": "$(IRIS_ADVERTISE_HOST)"}
    assert told["JAX_COORDINATOR_ADDRESS"] == {"value": "$(IRIS_ADVERTISE_HOST):9"}
    assert [*told].index("IRIS_ADVERTISE_HOST") < [*told].index("MASTER_ADDR")


def test_gpus_are_those_it_asked_for():
    """With RDMA it is on the node's network; without GPUs it sees none, whatever its image says."""
    manifest = task_pod_manifest(PODS, OWNER, TASK)
    resources = container(manifest)["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == "2"
    assert "NVIDIA_VISIBLE_DEVICES" not in variables(manifest)
    fast = task_pod_manifest(attrs.evolve(PODS, infiniband=True), OWNER, TASK)
    assert (fast["spec"]["hostNetwork"], fast["spec"]["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert container(fast)["resources"]["limits"]["rdma/ib"] == "1"
    assert container(fast)["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    plain = attrs.evolve(TASK, demand=Capacity(1000, GIB))
    without = task_pod_manifest(attrs.evolve(PODS, infiniband=True), OWNER, plain)
    assert "hostNetwork" not in without["spec"]
    assert variables(without)["NVIDIA_VISIBLE_DEVICES"] == {"value": "void"}
    assert not [name for name in container(without)["resources"]["limits"] if "/" in name]


@given(
    promise=st.builds(Capacity, st.integers(1, 300_000), st.integers(1, 4096 * GIB)),
    most=st.builds(Capacity, st.integers(1_000, 300_000), st.integers(3 * GIB, 4096 * GIB)),
    shares=st.lists(st.integers(1, 100), min_size=1, max_size=9),
)
def test_all_tasks_of_a_node_fit_beside_its_worker(promise, most, shares):
    """Whatever is placed within the promise, the node has room for their requests; none asks for more than it wants."""
    pods, total = attrs.evolve(PODS, promise=promise, most=most), sum(shares)
    demands = [Capacity(promise.cpu_milli * n // total, promise.memory_bytes * n // total) for n in shares]
    asked = [pods.share(demand) for demand in demands]
    assert sum(each.cpu_milli for each in asked) + WORKER_REQUEST.cpu_milli <= most.cpu_milli
    assert sum(each.memory_bytes for each in asked) + WORKER_REQUEST.memory_bytes <= most.memory_bytes
    for wanted, got in zip(demands, asked, strict=True):
        assert got.cpu_milli <= wanted.cpu_milli
        assert got.memory_bytes <= wanted.memory_bytes


def test_what_fits_is_asked_for_in_full():
    """Also where nobody knows what the node has."""
    demand = Capacity(1000, GIB, 0, 1)
    assert PODS.share(demand) == demand
    roomy = attrs.evolve(PODS, most=Capacity(128_000 + 500, (1024 + 2) * GIB))
    assert roomy.share(demand) == demand
    tight = attrs.evolve(PODS, most=Capacity(128_000 + 499, (1024 + 2) * GIB))
    assert tight.share(demand).cpu_milli < 1000


@given(one=st.text(min_size=1, max_size=128), other=st.text(min_size=1, max_size=128))
def test_names_are_names_and_no_two_attempts_have_one(one, other):
    """The same for the same attempt, whoever asks; another for another worker, life or attempt."""
    name = task_pod_name(OWNER, one)
    assert is_name(name)
    assert (name == task_pod_name(OWNER, other)) == (one == other)
    assert name != task_pod_name(attrs.evolve(OWNER, incarnation="2"), one)
    assert name != task_pod_name(attrs.evolve(OWNER, worker_id="w-1"), one)


def test_a_worker_finds_those_of_its_earlier_lives():
    """The labels that it watches leave the incarnation out, and are among those of each pod."""
    watched = watched_labels(PODS, OWNER)
    assert watched == {"iris-managed": "task", "iris-cluster": "ours", "iris-worker-id": "w-0"}
    assert watched.items() <= task_labels(PODS, attrs.evolve(OWNER, incarnation="2")).items()


@pytest.mark.parametrize(
    "task",
    [
        attrs.evolve(TASK, image="two words"),
        attrs.evolve(TASK, image="x" * 600),
        attrs.evolve(TASK, image="a\nb"),
        attrs.evolve(TASK, folder="../other"),
        attrs.evolve(TASK, folder="/etc"),
        attrs.evolve(TASK, folder=""),
        attrs.evolve(TASK, demand=Capacity(-1)),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(task):
    """An image that is none, a folder elsewhere, less than nothing."""
    with pytest.raises(InvalidSpec):
        task_pod_manifest(PODS, OWNER, task)


def test_a_jobs_own_image_wins():
    """As it is written: with its registry."""
    assert container(task_pod_manifest(PODS, OWNER, TASK))["image"] == "registry/iris-task:1"
    own = attrs.evolve(TASK, image="ghcr.io/ada/train:7")
    assert container(task_pod_manifest(PODS, OWNER, own))["image"] == "ghcr.io/ada/train:7"


def test_what_a_worker_is_told_it_reads():
    """Word for word; and what is something else is refused by name."""
    for pods in (PODS, attrs.evolve(PODS, most=Capacity(1, 2)), attrs.evolve(PODS, infiniband=True)):
        assert decode_task_pods(encode_task_pods(pods)) == pods
    for text in ("", "{}", "[]", "nonsense", '{"image": ""}', "x" * 70_000):
        with pytest.raises(InvalidSpec):
            decode_task_pods(text)


# Calls

FATES = st.lists(st.sampled_from([OK, LOST, SILENT, refusal(429, "TooManyRequests", retry_after=SECOND)]), max_size=4)


def make(server, fates=(), task=TASK):
    """Have a pod made."""
    return server.run(create_task_pod(SETTINGS, PODS, OWNER, task, Random(1)), fates)


@examples(25)
@given(fates=st.lists(FATES, min_size=1, max_size=3))
def test_whatever_is_lost_there_is_one_pod(fates):
    """Answers that are lost, requests that never land, calls that are made again: one pod of one uid."""
    server, found = Server(), set()
    for each in fates:
        try:
            found.add(make(server, each).uid)
        except (Unavailable, Throttled):
            continue
    pods = server.objects(PODS_PATH)
    assert len(pods) <= 1
    assert found <= {pod["metadata"]["uid"] for pod in pods}


def test_the_name_is_taken_by_somebody_else():
    """Another worker's, or nobody's: refused by name, and left alone."""
    server = Server()
    other = task_pod_manifest(PODS, attrs.evolve(OWNER, incarnation="2"), TASK)
    other["metadata"]["name"] = task_pod_name(OWNER, TASK.attempt_uid)
    server.do("POST", PODS_PATH, other)
    with pytest.raises(Conflict, check=that(names="iris-incarnation")):
        make(server)
    assert len(server.objects(PODS_PATH)) == 1


@examples(25)
@given(fates=FATES)
def test_a_deletion_is_of_one_uid(fates):
    """Repeated, late, of another: only the one that is meant goes, and one that is gone is no error."""
    server = Server()
    pod = make(server)
    with contextlib.suppress(Unavailable, Throttled):
        server.run(delete_task_pod(SETTINGS, pod.name, pod.uid, 1, Random(1)), fates)
    server.run(delete_task_pod(SETTINGS, pod.name, pod.uid, 1, Random(1)))
    assert server.objects(PODS_PATH) == [] or server.objects(PODS_PATH)[0]["metadata"]["deletionTimestamp"]
    for request in server.requests:
        if request.method == "DELETE":
            assert request.body["preconditions"] == {"uid": pod.uid}
            assert request.body["gracePeriodSeconds"] >= 1


def test_another_pod_of_the_name_is_not_touched():
    """Its uid is another: it counts as done."""
    server = Server()
    pod = make(server)
    server.run(delete_task_pod(SETTINGS, pod.name, "uid-of-another", SECOND, Random(1)))
    assert server.run(look_at_task_pod(SETTINGS, pod.name, Random(1))).uid == pod.uid


def test_a_look_tells_absence_from_trouble():
    """None is certain; silence and a refusal are errors."""
    server = Server()
    assert server.run(look_at_task_pod(SETTINGS, "iris-task-x", Random(1))) is None
    with pytest.raises(Forbidden):
        server.run(look_at_task_pod(SETTINGS, "iris-task-x", Random(1)), [refusal(403, "Forbidden")])
    with pytest.raises(Unavailable):
        server.run(look_at_task_pod(SETTINGS, "iris-task-x", Random(1)), [LOST] * 9)
