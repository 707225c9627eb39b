"""Containers of tasks: what the engine is told of one, and what its answers mean. Laws, and every case by name."""

import json

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.docker.containers import (
    DEFAULT_SOCKET,
    ContainerOwner,
    InvalidDockerHost,
    TaskContainers,
    container_body,
    container_name,
    decode_task_containers,
    encode_task_containers,
    pod_of_container,
    pulled_as,
    said_wrong,
    socket_of,
    watched_filters,
)
from iriscw.cloud.kube.tasks import OWN_HOST, TaskPod
from iriscw.cloud.lifecycle import PodHealth, judge_pod
from iriscw.cloud.model import Capacity, InvalidSpec, Pod, PodPhase
from raised import that

OWNER = ContainerOwner("w-0", "i-0", "/var/cache/iris", 1000, 1001, "10.0.0.7")
CONTAINERS = TaskContainers(image="iris-task:1", shown=("/data",))
TASK = TaskPod("uid-1", "/ada/j/0", "w-0/i-0/attempts/uid-1", "w-0/i-0/tasks", ("python3", "supervisor.py"))
PATHS = st.text(st.characters(codec="utf-8", exclude_characters="/\0:"), min_size=1).filter(lambda name: name != "..")


def test_a_container_of_a_task():
    """All of it, as the engine is told."""
    body = container_body(CONTAINERS, OWNER, attrs.evolve(TASK, demand=Capacity(1500, 1 << 30)))
    mounts = body["HostConfig"].pop("Mounts")
    assert {(each["Target"], each["ReadOnly"]) for each in mounts} == {
        ("/var/cache/iris/w-0/i-0/attempts/uid-1", False),
        ("/var/cache/iris/w-0/i-0/tasks", True),
        ("/var/cache/iris/uv", False),
        ("/data", True),
    }
    assert all(each["Source"] == each["Target"] and each["Type"] == "bind" for each in mounts)
    assert body == {
        "Image": "iris-task:1",
        "Entrypoint": ["python3", "supervisor.py"],
        "Cmd": [],
        "User": "1000:1001",
        "Env": [
            "IRIS_ADVERTISE_HOST=10.0.0.7",
            "NVIDIA_VISIBLE_DEVICES=void",
            "UV_CACHE_DIR=/var/cache/iris/uv",
        ],
        "Labels": {
            "iris-managed": "task",
            "iris-worker-id": "w-0",
            "iris-incarnation": "i-0",
            "iris-attempt-uid": "uid-1",
            "iris-task-id": "/ada/j/0",
        },
        "HostConfig": {
            "NetworkMode": "host",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},
            "Memory": 1 << 30,
            "MemorySwap": 1 << 30,
            "CpuShares": 1536,
        },
    }


def test_a_container_is_shown_its_own_gpus():
    """Those that its worker gave it, by UUID, with shared memory for its data loaders; who has none is shown none."""
    demand = Capacity(memory_bytes=8 << 30, gpu_count=2)
    asking = container_body(CONTAINERS, OWNER, attrs.evolve(TASK, demand=demand, gpus=("GPU-7", "GPU-1")))
    assert asking["HostConfig"]["DeviceRequests"] == [
        {"Driver": "nvidia", "DeviceIDs": ["GPU-7", "GPU-1"], "Capabilities": [["gpu"]]}
    ]
    with pytest.raises(InvalidSpec, check=that(comes_from="containers.container_body", names=("2", "0"))):
        container_body(CONTAINERS, OWNER, attrs.evolve(TASK, demand=demand))
    assert asking["HostConfig"]["ShmSize"] == 4 << 30
    assert not any(each.startswith("NVIDIA_VISIBLE_DEVICES") for each in asking["Env"])
    assert "DeviceRequests" not in container_body(CONTAINERS, OWNER, TASK)["HostConfig"]


@given(cpu=st.integers(0, 10**6), memory=st.integers(0, 2**45), gpus=st.integers(0, 16))
def test_limits_are_such_as_the_engine_takes(cpu, memory, gpus):
    """None where nothing was asked for; else no less than the engine's own least."""
    given = tuple(f"GPU-{number}" for number in range(gpus))
    task = attrs.evolve(TASK, demand=Capacity(cpu, memory, gpu_count=gpus), gpus=given)
    limits = container_body(CONTAINERS, OWNER, task)
    host = limits["HostConfig"]
    assert ("Memory" in host) is (memory > 0)
    assert host.get("Memory", 6 << 20) >= max(6 << 20, memory)
    assert host.get("MemorySwap") == host.get("Memory")
    assert ("CpuShares" in host) is (cpu > 0)
    assert host.get("CpuShares", 2) >= 2
    assert ("DeviceRequests" in host) is (gpus > 0)


@pytest.mark.parametrize("demand", [Capacity(-1), Capacity(memory_bytes=-1), Capacity(gpu_count=-1)])
def test_less_than_nothing_is_refused(demand):
    """Whatever would come of it."""
    with pytest.raises(InvalidSpec):
        container_body(CONTAINERS, OWNER, attrs.evolve(TASK, demand=demand))


@pytest.mark.parametrize("path", ["", "/etc", "..", "a/../../etc", "a/.."])
@pytest.mark.parametrize("which", ["folder", "shared"])
def test_a_task_sees_nothing_outside_of_the_cache(path, which):
    """Its folder and what it shares are below it."""
    with pytest.raises(InvalidSpec):
        container_body(CONTAINERS, OWNER, attrs.evolve(TASK, **{which: path}))


@pytest.mark.parametrize(
    "wrong",
    [{"image": ""}, {"image": "two words"}, {"image": "i", "socket": "tcp"}, {"image": "i", "shown": ("relative",)}],
)
def test_what_cannot_be_is_refused_at_once(wrong):
    """Where it is said, and where it is read."""
    with pytest.raises(InvalidSpec):
        TaskContainers(**wrong)
    with pytest.raises(InvalidSpec):
        decode_task_containers(json.dumps({"socket": DEFAULT_SOCKET, "shown": [], **wrong}))


@given(st.lists(PATHS.map(lambda name: f"/{name}"), max_size=4), PATHS)
def test_what_is_written_is_read(shown, name):
    """The same, whatever paths are called."""
    told = TaskContainers(image="i:1", socket=f"/run/{name}", shown=tuple(shown))
    assert decode_task_containers(encode_task_containers(told)) == told


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", '{"image": "i", "shown": 3}', '{"shown": [], "x": 1}', "x" * 70_000]
)
def test_what_is_none_is_refused(text):
    """By one error."""
    with pytest.raises(InvalidSpec):
        decode_task_containers(text)


def test_where_the_engine_is():
    """On this machine."""
    assert socket_of({}) == "/var/run/docker.sock"
    assert socket_of({"DOCKER_HOST": "unix:///run/user/7/docker.sock"}) == "/run/user/7/docker.sock"
    for elsewhere in ("tcp://10.0.0.1:2375", "ssh://ada@there", "unix://relative", "/var/run/docker.sock"):
        with pytest.raises(InvalidDockerHost):
            socket_of({"DOCKER_HOST": elsewhere})


def test_names_are_nobody_elses():
    """Not another worker's, another life's or another attempt's."""
    others = [attrs.evolve(OWNER, worker_id="w-1"), attrs.evolve(OWNER, incarnation="i-1")]
    names = {container_name(owner, uid) for owner in (OWNER, *others) for uid in ("uid-1", "uid-2", "UID-1")}
    assert len(names) == 9
    assert container_name(OWNER, "uid-1") == container_name(attrs.evolve(OWNER, cache_dir="/x"), "uid-1")
    assert json.loads(watched_filters(OWNER)) == {"label": ["iris-managed=task", "iris-worker-id=w-0"]}


def shown(status, code=0, *, error="", killed=False):
    """Return what an engine shows of a container."""
    state = {"Status": status, "ExitCode": code, "Error": error, "OOMKilled": killed}
    return {"Name": "/iris-task-x", "Config": {"Labels": {"a": "b"}}, "State": state}


@pytest.mark.parametrize(
    ("found", "phase", "reason", "code"),
    [
        (shown("created"), PodPhase.PENDING, "", None),
        (shown("created", 127, error="exec: no such file"), PodPhase.FAILED, "StartError", 127),
        (shown("running"), PodPhase.RUNNING, "", None),
        (shown("paused"), PodPhase.RUNNING, "", None),
        (shown("removing", 1), PodPhase.RUNNING, "", None),
        (shown("exited"), PodPhase.SUCCEEDED, "", 0),
        (shown("exited", 3), PodPhase.FAILED, "", 3),
        (shown("exited", 137, killed=True), PodPhase.FAILED, "OOMKilled", 137),
        (shown("dead", 1), PodPhase.FAILED, "", 1),
    ],
)
def test_states_of_containers(found, phase, reason, code):
    """As a kubelet would tell them."""
    pod = pod_of_container(found)
    assert (pod.phase, pod.reason, pod.exit_code) == (phase, reason, code)
    assert (pod.name, pod.uid, pod.labels) == ("iris-task-x", "iris-task-x", {"a": "b"})
    assert pod.message == found["State"]["Error"]


@pytest.mark.parametrize("found", [{}, {"Config": {}}, {"State": {}, "Config": None}])
def test_what_no_engine_shows(found):
    """Is told as that."""
    with pytest.raises(ValueError, check=that(comes_from="containers.pod_of_container")):
        pod_of_container(found)


def test_the_words_of_an_image_that_cannot_be_had_are_known():
    """By what judges pods: the patience is the same."""
    for reason, health in (("ErrImagePull", PodHealth.IMAGE), ("CreateContainerError", PodHealth.SETUP)):
        assert judge_pod(Pod("p", "p", "", {}, reason=reason)) is health


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("iris-task", "latest"),
        ("localhost:5000/a/b", "latest"),
        ("iris-task:7", None),
        ("localhost:5000/a/b:7", None),
        ("a/b@sha256:00", None),
    ],
)
def test_one_image_is_fetched_and_not_all_of_its_name(image, tag):
    """An engine that is told no tag fetches every one."""
    assert pulled_as(image) == {"fromImage": image, **({"tag": tag} if tag else {})}


def test_what_went_wrong_with_a_fetch():
    """Stands in one of the lines; what is not a line says nothing."""
    fine = [b'{"status":"Pulling"}\n', b"no json\n", b"[1]\n"]
    assert said_wrong(fine) == ""
    assert said_wrong([*fine, b'{"error":"manifest unknown"}\n']) == "manifest unknown"
    assert len(said_wrong([json.dumps({"error": "x" * 9999}).encode()])) == 1000


def test_a_leader_of_a_gang_is_told_its_own_address():
    """What stands for the address of a pod is the machine's here."""
    task = attrs.evolve(TASK, environment=(("MASTER_ADDR", OWN_HOST), ("JAX_COORDINATOR_ADDRESS", f"{OWN_HOST}:9")))
    told = container_body(CONTAINERS, OWNER, task)["Env"]
    assert {"MASTER_ADDR=10.0.0.7", "JAX_COORDINATOR_ADDRESS=10.0.0.7:9"} <= {*told}
