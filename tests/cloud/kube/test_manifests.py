"""What is sent is what was meant, and what cannot be is refused before it is sent."""

from random import Random

import attrs
import pytest
from kube_shell import GIB, NODES, PODS, SECOND, SETTINGS, node_body, pod_spec, pool_spec

from iriscw.cloud.kube.manifests import SpecTooBig, nodepool_manifest, pod_manifest
from iriscw.cloud.kube.pods import create_pod
from iriscw.cloud.kube.pools import create_pool
from iriscw.cloud.kube.settings import GroupSettings, SecretKey, Taint
from iriscw.cloud.kube.tasks import decode_task_pods
from iriscw.cloud.labels import InvalidLabels
from iriscw.cloud.model import Capacity, InvalidSpec
from raised import that


def test_a_pool_has_a_fixed_size_and_labels_its_nodes():
    """CoreWeave's autoscaler is off, its bounds are the size; the nodes carry what the pool carries."""
    made = nodepool_manifest(SETTINGS, attrs.evolve(pool_spec(nodes=3), compute_class="spot"))
    assert made["apiVersion"] == "compute.coreweave.com/v1alpha1"
    assert made["metadata"] == {"name": "slice-1", "labels": made["spec"]["nodeLabels"]}
    assert made["metadata"]["labels"]["iris-slice-id"] == "slice-1"
    assert {name: value for name, value in made["spec"].items() if name != "nodeLabels"} == {
        "computeClass": "spot",
        "instanceType": "gd-8xh100ib-i128",
        "targetNodes": 3,
        "minNodes": 3,
        "maxNodes": 3,
        "autoscaling": False,
    }


@pytest.mark.parametrize("kind", ["gb200-4x", "gb300-4x-e", "verarubin-4x-e"])
def test_a_pool_of_rack_types_is_sized_in_racks(server, kind):
    """Whole ones; what comes back is counted in nodes again."""
    spec = attrs.evolve(pool_spec(nodes=36), instance_type=kind)
    made = nodepool_manifest(SETTINGS, spec)["spec"]
    assert made["targetRacks"] == 2
    assert not {"targetNodes", "minNodes", "maxNodes"} & {*made}
    assert server.run(create_pool(SETTINGS, spec, Random(1))).target_nodes == 36
    with pytest.raises(InvalidSpec, check=that(comes_from="manifests._size")):
        nodepool_manifest(SETTINGS, attrs.evolve(spec, target_nodes=20))


def test_a_pod_says_where_it_runs_and_what_it_takes():
    """A node of its slice, the taints it stands, requests that equal limits, no way back to the API."""
    settings = attrs.evolve(
        SETTINGS,
        groups={"h100": GroupSettings(infiniband=True)},
        controller_address="c:10000",
        environment={"A": "1", "B": "1"},
        image_pull_secrets=("pull",),
        command=("run",),
        grace=1500 * SECOND // 1000,
    )
    spec = pod_spec(environment={"B": "2", "IRIS_WORKER_ID": "w"}, image="registry.test/own:1")
    spec = attrs.evolve(spec, labels={**spec.labels, "iris-scale-group": "h100"})
    made = pod_manifest(settings, spec, "pool-uid")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("NodePool", "slice-1", "pool-uid")
    body = made["spec"]
    (container,) = body["containers"]
    assert body["nodeSelector"] == {"iris-slice-id": "slice-1"}
    assert [each["key"] for each in body["tolerations"]] == ["nvidia.com/gpu", "node.coreweave.cloud/reserved"]
    assert (body["restartPolicy"], body["terminationGracePeriodSeconds"]) == ("Never", 2)
    assert body["automountServiceAccountToken"] is False
    assert body["imagePullSecrets"] == [{"name": "pull"}]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["limits"] == {
        "cpu": "8000m",
        "memory": str(64 * GIB),
        "ephemeral-storage": str(100 * GIB),
        "nvidia.com/gpu": "8",
        "rdma/ib": "1",
    }
    told = {each["name"]: each.get("value") for each in container["env"]}
    assert told == {
        "A": "1",
        "B": "2",
        "IRIS_WORKER_ID": "w",
        "IRIS_CONTROLLER_ADDRESS": "c:10000",
        "IRISCW_CACHE_DIR": "/var/cache/iris",
        "IRISCW_INCARNATION": "1",
        "IRISCW_TASK_BIND_HOST": "0.0.0.0",
        "IRISCW_WORKER_HOST": "127.0.0.1",
        "IRISCW_WORKER_PORT": "10001",
        "IRISCW_NODE": None,
        "IRIS_VM_ADDRESS": None,
    }
    assert (container["image"], container["command"]) == ("registry.test/own:1", ["run"])
    assert "/dev/shm" in [mount["mountPath"] for mount in container["volumeMounts"]]


FULL = attrs.evolve(
    SETTINGS,
    cluster_name="research",
    node_cache_dir="/mnt/local/iris",
    config_map="iris-cluster-config",
    storage_secret="iris-bundle-credentials",
    authority_secret="iris-ca",
    tokens=True,
    task_secrets={"WANDB_API_KEY": SecretKey("wandb", "api-key")},
    priority_class="iris-worker",
    health_patience=120 * SECOND,
    groups={
        "h100": GroupSettings(
            infiniband=True,
            gpu_class="H100",
            interruptable=True,
            taints=(Taint("dedicated", "iris", "NoSchedule"),),
            most=Capacity(cpu_milli=115_200, memory_bytes=60 * GIB),
        )
    },
)
"""Everything that a cluster may say."""


def of_group(spec, group="h100"):
    """Return the specification with a scale group."""
    return attrs.evolve(spec, labels={**spec.labels, "iris-scale-group": group})


def test_what_a_worker_finds_in_its_pod():
    """Its cache is the node's disk; the configuration and secrets are files of its own, each read-only."""
    body = pod_manifest(FULL, of_group(pod_spec()))["spec"]
    (container,) = body["containers"]
    sources = {each["name"]: {k: v for k, v in each.items() if k != "name"} for each in body["volumes"]}
    assert sources == {
        "cache": {"hostPath": {"path": "/mnt/local/iris", "type": "DirectoryOrCreate"}},
        "shm": {"emptyDir": {"medium": "Memory"}},
        "config": {"configMap": {"name": "iris-cluster-config", "optional": True}},
        "ca": {"secret": {"secretName": "iris-ca"}},
        "credentials": {"secret": {"secretName": "iris-bundle-credentials", "defaultMode": 0o400, "optional": True}},
        "token": {"secret": {"secretName": "slice-1-0", "defaultMode": 0o400}},
    }
    assert {each["name"]: (each["mountPath"], each.get("readOnly", False)) for each in container["volumeMounts"]} == {
        "cache": ("/var/cache/iris", False),
        "shm": ("/dev/shm", False),
        "config": ("/etc/iris", True),
        "ca": ("/etc/iris/ca", True),
        "credentials": ("/etc/iris/credentials", True),
        "token": ("/var/run/iris/token", True),
    }
    told = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    assert told["IRISCW_TOKEN_FILE"] == "/var/run/iris/token/token"
    assert told["IRISCW_CA_FILE"] == "/etc/iris/ca/ca.crt"

    assert told["IRIS_VM_ADDRESS"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert told["IRISCW_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}, "the name that the node's agent proves"
    assert told["IRISCW_TASK_SECRET_WANDB_API_KEY"] == {"secretKeyRef": {"name": "wandb", "key": "api-key"}}
    assert "IRISCW_INSECURE_PLAINTEXT" not in told
    (plain,) = pod_manifest(attrs.evolve(FULL, plaintext=True), pod_spec())["spec"]["containers"]
    assert {"name": "IRISCW_INSECURE_PLAINTEXT", "value": "1"} in plain["env"]


def test_where_a_worker_runs_and_what_it_may():
    """Nodes of its slice and GPU class, the taints of its group, its priority, no more powers than RDMA needs."""
    body = pod_manifest(FULL, of_group(pod_spec()))["spec"]
    (container,) = body["containers"]
    assert body["nodeSelector"] == {"iris-slice-id": "slice-1", "gpu.nvidia.com/class": "H100"}
    tolerated = ["nvidia.com/gpu", "node.coreweave.cloud/reserved", "qos.coreweave.cloud/interruptable", "dedicated"]
    assert body["tolerations"] == [{"key": key, "operator": "Exists"} for key in tolerated]
    assert body["priorityClassName"] == "iris-worker"
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert (security["allowPrivilegeEscalation"], security["seccompProfile"]) == (False, {"type": "RuntimeDefault"})
    other = pod_manifest(FULL, of_group(pod_spec(), "cpu"))["spec"]
    assert other["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert other["nodeSelector"] == {"iris-slice-id": "slice-1"}
    assert "rdma/ib" not in other["containers"][0]["resources"]["limits"]


def test_a_worker_is_asked_for_its_health():
    """On the node's loopback: for as long as it may take to start, then for good, patiently."""
    (container,) = pod_manifest(FULL, pod_spec())["spec"]["containers"]
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    asked = {"host": "127.0.0.1", "path": "/health", "port": 10001}
    assert startup["httpGet"] == liveness["httpGet"] == asked
    assert startup["periodSeconds"] * startup["failureThreshold"] == 120
    assert liveness["timeoutSeconds"] * liveness["failureThreshold"] >= 60


def test_a_pod_leaves_room_for_others():
    """It may use what its group promises, and requests no more than a machine has left; scratch space is the node's."""
    (container,) = pod_manifest(FULL, of_group(pod_spec()))["spec"]["containers"]
    assert container["resources"]["limits"] == {
        "cpu": "8000m",
        "memory": str(64 * GIB),
        "nvidia.com/gpu": "8",
        "rdma/ib": "1",
    }
    assert container["resources"]["requests"] == {
        **container["resources"]["limits"],
        "memory": str(60 * GIB),
    }
    whole = attrs.evolve(pod_spec(), request=Capacity(128_000, GIB))
    (container,) = pod_manifest(FULL, of_group(whole))["spec"]["containers"]
    assert (container["resources"]["requests"]["cpu"], container["resources"]["limits"]["cpu"]) == (
        "115200m",
        "128000m",
    )


def test_a_pool_is_named_and_tainted():
    """Pool and nodes carry the cluster's name for people; the taints are those of the group."""
    spec = nodepool_manifest(FULL, of_group(pool_spec()))
    assert (
        spec["metadata"]["labels"]["iris-cluster-name"] == spec["spec"]["nodeLabels"]["iris-cluster-name"] == "research"
    )
    assert spec["spec"]["nodeTaints"] == [{"key": "dedicated", "value": "iris", "effect": "NoSchedule"}]
    assert "nodeTaints" not in nodepool_manifest(FULL, pool_spec())["spec"]


def test_the_server_accepts_all_of_it(server):
    """A pool with taints, and a pod with everything."""
    server.run(create_pool(FULL, of_group(pool_spec()), Random(1)))
    server.run(create_pod(FULL, of_group(pod_spec()), Random(1)))
    assert server.objects(PODS)[0]["status"]["qosClass"] == "Burstable"


def test_what_a_pod_does_not_need_is_left_out():
    """No GPU, no disk, no memory file system, no owner: a small pod."""
    settings = attrs.evolve(SETTINGS, cache_dir="")
    made = pod_manifest(settings, attrs.evolve(pod_spec(), request=Capacity(500, GIB)))
    (container,) = made["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": str(GIB)}
    assert (made["spec"]["volumes"], container["volumeMounts"]) == ([], [])
    assert "ownerReferences" not in made["metadata"]
    assert "command" not in container


def test_the_server_accepts_both(server):
    """They pass validation, and a pod fits the labels of a node of its slice."""
    server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    server.do("POST", NODES, node_body("n1", "slice-1"))
    server.run(create_pod(SETTINGS, pod_spec(environment={"A": "1"}), Random(1)))
    (pod,) = server.objects(PODS)
    (node,) = server.objects(NODES)
    assert pod["spec"]["nodeSelector"].items() <= node["metadata"]["labels"].items()
    assert pod["status"]["qosClass"] == "Guaranteed"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"a b": "x"}, that(comes_from="labels._check_label")),
        ({"a" * 64: "x"}, that(comes_from="labels._check_label")),
        ({"Bad_/x": "x"}, that(comes_from="labels._check_label")),
        ({"a/b/c": "x"}, that(comes_from="labels._check_label")),
        ({"x": "a" * 64}, that(comes_from="labels._check_label")),
        ({"x": "a b"}, that(comes_from="labels._check_label")),
        ({"x": "-a"}, that(comes_from="labels._check_label")),
        ({"coreweave.com/x": "x"}, that(comes_from="labels._check_label")),
        ({"node.coreweave.cloud/state": "production"}, that(comes_from="labels._check_label")),
        ({"kubernetes.io/hostname": "x"}, that(comes_from="labels._check_label")),
        ({f"l{number}": "x" for number in range(64)}, that(comes_from="labels.our_labels", names="64")),
    ],
)
def test_labels_that_cannot_be_are_refused(labels, said):
    """By name, with what is wrong: for pools and pods."""
    with pytest.raises(InvalidLabels, check=said):
        nodepool_manifest(SETTINGS, pool_spec(**labels))
    with pytest.raises(InvalidLabels, check=said):
        pod_manifest(SETTINGS, attrs.evolve(pod_spec(), labels=labels))


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (SpecTooBig, {"environment": {f"V{number}": "" for number in range(300)}}),
        (SpecTooBig, {"environment": {"V": "x" * 200_000}}),
        (InvalidSpec, {"request": Capacity(cpu_milli=-1)}),
        (InvalidSpec, {"name": "A"}),
        (InvalidSpec, {"pool": "../x"}),
    ],
)
def test_pods_that_cannot_be_are_refused(error, changes):
    """By name: a subclass of what the port promises."""
    with pytest.raises(error):
        pod_manifest(SETTINGS, attrs.evolve(pod_spec(), **changes))


def test_a_pod_needs_an_image():
    """Its own, or the default."""
    with pytest.raises(InvalidSpec, check=that(comes_from="manifests.pod_manifest")):
        pod_manifest(attrs.evolve(SETTINGS, image=""), pod_spec())


@pytest.mark.parametrize(
    "changes", [{"target_nodes": 0}, {"target_nodes": 10_001}, {"instance_type": ""}, {"name": ""}]
)
def test_pools_that_cannot_be_are_refused(changes):
    """By name."""
    with pytest.raises(InvalidSpec):
        nodepool_manifest(SETTINGS, attrs.evolve(pool_spec(), **changes))


def test_a_worker_whose_tasks_have_pods_holds_nothing_of_the_node():
    """No GPU, no RDMA, no secret of tasks; it asks for what it needs itself, and may make pods."""
    group = attrs.evolve(FULL.groups["h100"], task_image="registry/iris-task:1")
    settings = attrs.evolve(FULL, groups={"h100": group})
    spec = of_group(pod_spec())
    body = pod_manifest(settings, spec)["spec"]
    (container,) = body["containers"]
    worker = {"cpu": "500m", "memory": str(2 * GIB)}
    assert container["resources"] == {"requests": worker, "limits": {"memory": worker["memory"]}}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "/dev/shm" not in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert body["nodeSelector"]["gpu.nvidia.com/class"] == "H100"  # its node still has to be one
    assert (body["serviceAccountName"], body["automountServiceAccountToken"]) == ("iris-worker", False)
    (account,) = [each for each in body["volumes"] if "projected" in each]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == account["name"]]
    assert (mount["mountPath"], mount["readOnly"]) == ("/var/run/secrets/kubernetes.io/serviceaccount", True)
    told = {each["name"]: each for each in container["env"]}
    assert not [name for name in told if "TASK_SECRET" in name]
    assert told["IRISCW_OWN_POD_UID"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    pods = decode_task_pods(told["IRISCW_TASK_PODS"]["value"])
    assert (pods.image, pods.promise, pods.most) == ("registry/iris-task:1", spec.request, group.most)
    assert pods.secrets == FULL.task_secrets
    assert pods.labels == {"iris-scale-group": "h100", "iris-slice-id": "slice-1"}
    plain = pod_manifest(FULL, spec)["spec"]
    assert "serviceAccountName" not in plain
    assert not [each for each in plain["volumes"] if "projected" in each]
