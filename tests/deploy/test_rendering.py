"""What an installation consists of, and in which order."""

import base64
import json
import os
import re
import subprocess
import sys

import pytest
from deploy_world import EVERYTHING, SEEDS, bodies, installed, installed_from

from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.model import LABEL_MANAGED
from iriscw.config.load import parse_config
from iriscw.deploy.names import INSTANCE, MANAGED_BY
from iriscw.deploy.rendering import render

CLUSTER_WIDE = ("Namespace", "NodePool", "PriorityClass", "ClusterRole", "ClusterRoleBinding")

PHASE_0 = (
    "Namespace/iris-test",
    "ConfigMap/iris-cluster-config",
    "Deployment/iris-controller",
    "Service/iris-controller-svc",
    "ClusterRole/iris-test-controller",
)
"""What the first seed applies before anything runs, beside its Secrets and a pool whose type it leaves open."""


def names(value):
    """Return all texts in a value, keys included."""
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in (name, *names(item))]
    if isinstance(value, list):
        return [text for item in value for text in names(item)]
    return [value] if isinstance(value, str) else []


def test_the_first_seeds_bootstrap():
    """All of its phase 0 is there for its smoke test's configuration, and the configuration is its own."""
    (path,) = [each for each in SEEDS if "smoke" in each.name]
    found = bodies(installed_from(path))
    assert [name for name in PHASE_0 if name not in found] == []
    inside = parse_config(found["ConfigMap/iris-cluster-config"]["data"]["config.yaml"])
    assert inside == installed_from(path).config


def test_everything_that_the_issue_lists():
    """Once each, in the order in which it can be applied."""
    assert [each.name for each in render(installed(EVERYTHING))] == [
        "Namespace/iris",
        "NodePool/iris-controller-pool",
        "PriorityClass/iris-controller",
        "PriorityClass/iris-worker",
        "ServiceAccount/iris-controller",
        "ServiceAccount/iris-worker",
        "ClusterRole/iris-controller",
        "ClusterRoleBinding/iris-controller",
        "Role/iris-controller",
        "RoleBinding/iris-controller",
        "Role/iris-controller-events",
        "RoleBinding/iris-controller-events",
        "ConfigMap/iris-cluster-config",
        "PersistentVolumeClaim/iris-controller-state",
        "NetworkPolicy/iris-controller",
        "NetworkPolicy/iris-worker",
        "Service/iris-controller-svc",
        "PodDisruptionBudget/iris-controller",
        "Deployment/iris-controller",
        "ServiceMonitor/iris-controller",
    ]


def test_what_is_not_asked_for_is_not_made():
    """No pool without a type, no monitor, no policies, no class where another one is named."""
    installation = installed({"instance_type": "", "network_policy": False}, {"priority_class": "batch"})
    kinds = [each.body["kind"] for each in render(installation)]
    assert not {"NodePool", "NetworkPolicy", "ServiceMonitor"} & {*kinds}
    assert kinds.count("PriorityClass") == 1


def test_what_an_object_names_comes_before_it():
    """Accounts, roles, classes, claims and maps are there when something refers to them."""
    seen = []
    for each in render(installed(EVERYTHING)):
        for kind, name in references(each.body):
            assert f"{kind}/{name}" in seen, (each.name, kind, name)
        seen.append(each.name)


def references(body):
    """Yield what an object refers to of what is made with it."""
    if "roleRef" in body:
        yield body["roleRef"]["kind"], body["roleRef"]["name"]
        yield from (("ServiceAccount", each["name"]) for each in body["subjects"])
    if body["metadata"].get("namespace", "default") != "default":
        yield "Namespace", body["metadata"]["namespace"]
    if body["kind"] == "Deployment":
        pod = body["spec"]["template"]["spec"]
        yield "ServiceAccount", pod["serviceAccountName"]
        yield "PriorityClass", pod["priorityClassName"]
        for volume in pod["volumes"]:
            if "configMap" in volume:
                yield "ConfigMap", volume["configMap"]["name"]
            if "persistentVolumeClaim" in volume:
                yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_every_object_says_whose_it_is(path):
    """By Kubernetes' recommended labels; and it has a place in the API."""
    installation = installed_from(path)
    for each in render(installation):
        labels = each.body["metadata"]["labels"]
        assert (labels[MANAGED_BY], labels[INSTANCE]) == ("iriscw", installation.cluster)
        assert ("namespace" not in each.body["metadata"]) == (each.body["kind"] in CLUSTER_WIDE)
        elsewhere = each.name.endswith("-controller-events")
        namespace = "default" if elsewhere else installation.namespace
        assert each.body["metadata"].get("namespace", namespace) == namespace
        assert path_of(each.body).endswith(f"/{each.body['metadata']['name']}")
        assert each.why.endswith(".")


def test_nothing_of_it_is_a_slices():
    """No object carries the label by which the controller finds, and deletes, machines and pods (INV-F2)."""
    for each in render(installed(EVERYTHING)):
        metadata = [each.body["metadata"], each.body.get("spec", {}).get("template", {}).get("metadata", {})]
        assert all(LABEL_MANAGED not in one.get("labels", {}) for one in metadata)
    pool = bodies(installed())["NodePool/iris-controller-pool"]
    assert LABEL_MANAGED not in pool["spec"]["nodeLabels"]
    assert pool["metadata"]["labels"]["iris-role"] == "controller"


def test_two_installations_share_one_cluster():
    """What belongs to the whole cluster has other names; what does not is in another namespace."""
    one, other = (
        {path_of(each.body) for each in render(installed(EVERYTHING, {"namespace": name}))} for name in ("one", "other")
    )
    assert one & other == set()


def test_no_secret_is_written():
    """Environments of tasks stand in the configuration, which is not a secret; no object is a Secret."""
    rendered = render(installed(EVERYTHING))
    assert "Secret" not in [each.body["kind"] for each in rendered]
    text = json.dumps([each.body for each in rendered])
    for long in re.findall(r"[A-Za-z0-9+/_-]{32,}={0,2}", text):
        assert re.fullmatch(r"[0-9a-f]{64}|[a-z/.-]+|[A-Za-z]+", long), f"{long} looks like a token"
    assert base64.b64encode(b"-----BEGIN")[:8].decode() not in text


def test_the_controllers_pool_stays():
    """One node, always, of the type that was said; CoreWeave's own agents are welcome there."""
    spec = bodies(installed())["NodePool/iris-controller-pool"]["spec"]
    assert (spec["targetNodes"], spec["minNodes"], spec["maxNodes"], spec["autoscaling"]) == (1, 1, 1, False)
    assert spec["instanceType"] == "cd-gp-i64-erapids"
    assert spec["nodeLabels"]["cks.coreweave.cloud/system-critical"] == "true"
    lonely = bodies(installed({"system_critical": False}))["NodePool/iris-controller-pool"]["spec"]
    assert lonely["nodeLabels"] == {"iris-role": "controller", "iris-namespace": "iris"}


def test_workers_may_use_their_nodes_network():
    """The namespace's level lets them: any other refuses pods on the host's network."""
    labels = bodies(installed())["Namespace/iris"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


PROGRAM = """
import sys
from pathlib import Path
from iriscw.config.load import load_config
from iriscw.deploy.installation import installation_of
from iriscw.deploy.rendering import render
from iriscw.deploy.writing import stream
made = installation_of(load_config(sys.argv[1]))
sys.stdout.write(stream(made, render(made)))
"""


def test_the_same_configuration_gives_the_same_bytes():
    """In another process, with another hash seed, too."""
    texts = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM, str(SEEDS[0])]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert texts[0].count("\n---\n") == len(render(installed_from(SEEDS[0])))
