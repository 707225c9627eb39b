"""The node agents' DaemonSet: what it may do, where it goes, and that there is none unless it is asked for."""

import itertools
import re
from pathlib import Path

import click
import pytest
from deploy_world import STORED, bodies, installed, with_agent

from iriscw.agent.containers import RUNTIME_ROOTS
from iriscw.agent.daemon import SHIM_SOCKET
from iriscw.agent.local import tiers_below
from iriscw.checkpoint.retention import RetentionPolicy
from iriscw.cli.agent import EXISTING_FOLDER, agent as commands
from iriscw.cloud.kube.mounts import STORAGE_DIR
from iriscw.cloud.kube.reviews import AGENT_AUDIENCE
from iriscw.config.errors import ConfigError
from iriscw.config.load import build_config
from iriscw.controller.platforms.coreweave import AGENT_ACCOUNT
from iriscw.deploy.agent import DRIVER, KEYS_DIR, MEMORY_TIER, RIGHTS, RUNTIME_STATE, callers, command
from iriscw.deploy.rendering import render
from raised import that

PAGE = Path(__file__).parents[2] / "docs" / "agent.md"
ALL = (
    "RuntimeClass/kybernate",
    "NetworkPolicy/iris-agent",
    "DaemonSet/iris-agent",
    "ServiceAccount/iris-agent",
    "ClusterRole/iris-controller-token-reviews",
    "ClusterRoleBinding/iris-controller-token-reviews",
)


def pod(installation):
    """Return the specification of the agents' pods."""
    return bodies(installation)["DaemonSet/iris-agent"]["spec"]["template"]["spec"]


def folders(installation):
    """Return the node's folders that a pod has, by the name of their volume."""
    return {each["name"]: each["hostPath"]["path"] for each in pod(installation)["volumes"] if "hostPath" in each}


def test_there_is_none_unless_it_is_asked_for():
    """Nothing of it, nor any other difference but the configuration itself."""
    without, found = bodies(installed()), bodies(with_agent())
    assert sorted(found.keys() - without.keys()) == sorted(ALL)
    changed = [name for name in without if without[name] != found[name]]
    assert changed == ["ConfigMap/iris-cluster-config", "Deployment/iris-controller"]
    assert "RuntimeClass/kybernate" not in bodies(with_agent(runtime_class=""))
    assert "NetworkPolicy/iris-agent" not in bodies(with_agent({"network_policy": False}))


def test_it_comes_before_the_controller():
    """So it goes after it: a removal waits for the controller's end before it takes the agents."""
    names = [each.name for each in render(with_agent())]
    assert names.index("ServiceAccount/iris-agent") < names.index("DaemonSet/iris-agent")
    assert names.index("DaemonSet/iris-agent") < names.index("Deployment/iris-controller")


def test_it_is_nobody_to_the_api_server():
    """No role is bound to its account, and no token of it is mounted that the API server would take."""
    found = bodies(with_agent())
    assert found["ServiceAccount/iris-agent"]["automountServiceAccountToken"] is False
    assert (pod(with_agent())["serviceAccountName"], pod(with_agent())["automountServiceAccountToken"]) == (
        "iris-agent",
        False,
    )
    for body in found.values():
        assert all(each["name"] != "iris-agent" for each in body.get("subjects", ()))
    (source,) = next(each for each in pod(with_agent())["volumes"] if each["name"] == "token")["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == AGENT_AUDIENCE


def test_the_controller_may_have_tokens_looked_at_and_nothing_else():
    """By a role of one verb, bound to it alone: its other rights are the same as without agents."""
    found = bodies(with_agent())
    role = found["ClusterRole/iris-controller-token-reviews"]
    assert role["rules"] == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    ]
    binding = found["ClusterRoleBinding/iris-controller-token-reviews"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "iris-controller", "namespace": "iris"}]
    assert {**role["metadata"]["labels"]} == found["ClusterRole/iris-controller"]["metadata"]["labels"]


def test_it_proves_its_node_to_the_controller():
    """By a token that ends soon, for the controller alone, of the account that the controller believes."""
    (container,) = pod(with_agent())["containers"]
    volumes = {each["name"]: each for each in pod(with_agent())["volumes"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    token = volumes["token"]["projected"]["sources"][0]["serviceAccountToken"]
    words = dict(itertools.pairwise(container["command"]))
    assert words["--token-file"] == f"{mounts['token']}/{token['path']}"
    assert 600 <= token["expirationSeconds"] <= 3600, "the API server gives none for less than ten minutes"
    assert volumes["token"]["projected"]["defaultMode"] == 0o400
    assert container["env"][0] == {"name": "IRISCW_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert pod(with_agent())["serviceAccountName"] == AGENT_ACCOUNT


@pytest.fixture
def no_node(monkeypatch):
    """Have the command take folders that only its node has: this machine is none."""
    monkeypatch.setattr(EXISTING_FOLDER, "exists", False)


@pytest.mark.usefixtures("no_node")
def test_it_dials_as_workers_do():
    """By the Service's name, over TLS with the authority that workers trust; without where the controller has none."""
    (container,) = pod(with_agent())["containers"]
    words = dict(itertools.pairwise(container["command"]))
    assert words["--controller"] == "https://iris-controller-svc.iris.svc.cluster.local:10000"
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert words["--ca-file"] == f"{mounts['ca']}/ca.crt"
    assert {"name": "ca", "secret": {"secretName": "iris-ca"}} in pod(with_agent())["volumes"]
    plain = with_agent({"insecure_plaintext": True})
    (container,) = pod(plain)["containers"]
    assert "--insecure-plaintext" in container["command"]
    assert "--ca-file" not in container["command"]
    assert "ca" not in [each["name"] for each in pod(plain)["volumes"]]
    serve = commands.commands["serve"].make_context("x", command(plain)[3:])
    assert serve.params["controller"] == "iris-controller-svc.iris.svc.cluster.local:10000"


def test_it_has_what_it_needs_of_its_node_and_no_more():
    """The node's processes and network; its own folders; of others', containers' state to read, and control groups."""
    spec = pod(with_agent())
    (container,) = spec["containers"]
    assert (spec["hostPID"], spec["hostNetwork"], "hostIPC" in spec) == (True, True, False)
    security = container["securityContext"]
    assert (security["privileged"], security["readOnlyRootFilesystem"], security["runAsUser"]) == (True, True, 0)
    mounted = {each["mountPath"]: each.get("readOnly", False) for each in container["volumeMounts"]}
    assert mounted == {
        "/run/kybernate": False,
        MEMORY_TIER: False,
        "/mnt/local/kybernate": False,
        "/run/containerd/runc": True,
        "/sys/fs/cgroup": False,
        "/tmp": False,
        "/etc/iris/ca": True,
        "/var/run/iris/token": True,
    }
    names = folders(with_agent())
    for each in (*container["volumeMounts"], *spec["initContainers"][0]["volumeMounts"]):
        if each["name"] in names:
            assert names[each["name"]] == each["mountPath"], "a path means the same inside and outside"
    assert all(re.fullmatch(r"[a-z0-9-]{1,63}", name) for name in names)


def test_it_asks_for_nvidias_libraries():
    """By the variables that NVIDIA's runtime listens to; by that runtime's class where it is not the nodes' own."""
    (container,) = pod(with_agent())["containers"]
    asked = {each["name"]: each["value"] for each in container["env"][1:]}
    assert asked == {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"} == DRIVER
    (init,) = pod(with_agent())["initContainers"]
    assert "env" not in init
    assert "runtimeClassName" not in pod(with_agent())
    found = bodies(with_agent(gpu_runtime_class="nvidia"))
    assert found["DaemonSet/iris-agent"]["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"
    assert "RuntimeClass/nvidia" not in found, "it is the cluster's, and none of ours"


def test_nvidias_libraries_may_lie_in_a_folder_of_the_node():
    """Which is mounted to be read, is never made, and is where its loader looks."""
    folder = "/home/kubernetes/bin/nvidia/lib64"
    installation = with_agent(gpu_libraries=folder)
    (container,) = pod(installation)["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == folder]
    (volume,) = [each for each in pod(installation)["volumes"] if each["name"] == mount["name"]]
    assert (mount["readOnly"], volume["hostPath"]) == (True, {"path": folder, "type": "Directory"})
    assert {"name": "LD_LIBRARY_PATH", "value": folder} in container["env"]
    with pytest.raises(ConfigError):
        with_agent(gpu_libraries="nvidia/lib64")


def test_its_folders_are_those_that_the_agent_uses(tmp_path, monkeypatch):
    """As root: the tier in memory, the runtimes' state, the socket."""
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.delenv("IRISCW_RAM_DIR", raising=False)
    monkeypatch.setattr("iriscw.checkpoint.drivers.built_in.share_of", lambda *_given: 1)
    volatile = [each for each in tiers_below(tmp_path).folders.values() if each.volatile]
    assert [str(each.root) for each in volatile] == [MEMORY_TIER]
    assert Path(RUNTIME_STATE) in RUNTIME_ROOTS
    assert with_agent().config.agent.socket == str(SHIM_SOCKET)


def test_folders_of_its_own_are_made_private():
    """By something that may do nothing else; the kubelet makes them open to all, and such ones the agent refuses."""
    (init,) = pod(with_agent())["initContainers"]
    private = [each["mountPath"] for each in init["volumeMounts"]]
    assert init["command"] == ["chmod", "0700", *private]
    assert private == ["/run/kybernate", MEMORY_TIER, callers(with_agent())]
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.usefixtures("no_node")
@pytest.mark.parametrize("said", [{}, {"ram_budget": "64GiB", "disk_budget": "1TiB", "state_dir": "/mnt/other/kyb"}])
def test_its_words_are_those_of_the_command(said):
    """All options exist, and take these values; the probe's, too."""
    installation = with_agent(**said)
    (container,) = pod(installation)["containers"]
    assert container["command"] == command(installation)
    for words in (container["command"], container["readinessProbe"]["exec"]["command"]):
        assert words[:2] == ["iriscw", "agent"]
        parsed = commands.commands[words[2]].make_context("x", list(words[3:]), resilient_parsing=False)
        assert str(parsed.params["socket"]) == "/run/kybernate/shim.sock"
    serve = commands.commands["serve"].make_context("x", command(installation)[3:])
    assert isinstance(serve, click.Context)
    assert (serve.params["ram_budget"], serve.params["disk_budget"]) == (
        (None, None) if not said else (64 << 30, 1 << 40)
    )


def test_no_probe_ends_what_was_thawed():
    """A node that is too full to answer in time makes it not ready; its pod, and what is thawed in that, go on."""
    (container,) = pod(with_agent())["containers"]
    assert [name for name in container if name.endswith("Probe")] == ["startupProbe", "readinessProbe"]


def test_it_goes_where_slices_are():
    """Whatever taints they have; by labels that their nodes have; not to the controller's node."""
    spec = pod(with_agent())
    assert spec["nodeSelector"] == {"iris-managed": "true", "iris-cluster-name": "research"}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    found = bodies(with_agent())
    assert not spec["nodeSelector"].items() <= found["NodePool/iris-controller-pool"]["spec"]["nodeLabels"].items()
    scheduling = found["RuntimeClass/kybernate"]["scheduling"]
    assert scheduling["nodeSelector"] == spec["nodeSelector"]


def test_nobody_reaches_it_over_a_network():
    """No port, and a policy that lets nobody in, and out to the controller's door only."""
    (container,) = pod(with_agent())["containers"]
    assert "ports" not in container
    found = bodies(with_agent())
    policy = found["NetworkPolicy/iris-agent"]["spec"]
    assert ("ingress" in policy, policy["policyTypes"]) == (False, ["Ingress", "Egress"])
    door, names = policy["egress"]
    (to,) = door["to"]
    controller = found["Deployment/iris-controller"]["spec"]["template"]["metadata"]["labels"]
    assert to["podSelector"]["matchLabels"].items() <= controller.items()
    assert door["ports"] == [{"port": 10000, "protocol": "TCP"}]
    assert [each["port"] for each in names["ports"]] == [53, 53]
    labels = found["DaemonSet/iris-agent"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [("http://minio.internal:9000", 9000), ("http://cwlota.com", 80), ("https://objects.internal", 443)],
)
def test_it_reaches_the_store_that_it_is_told_of(endpoint, port):
    """By that port alone; where the configuration names no store, none (the test above)."""
    policy = bodies(with_agent(platform={"object_storage_endpoint": endpoint}))["NetworkPolicy/iris-agent"]["spec"]
    _, _, store = policy["egress"]
    assert store == {"ports": [{"port": port, "protocol": "TCP"}]}


@pytest.mark.usefixtures("no_node")
def test_a_repository_is_told_with_its_keys_and_what_is_kept():
    """In the words of the command: files of keys below a folder that is mounted, and no key in any of them."""
    bounds = {"max_checkpoints": 3, "max_total_size": "1TiB", "max_checkpoint_size": "64GiB", "max_age": "7d12h"}
    words = command(with_agent(**STORED, accept_unprotected=True, retain={**bounds, "per": "job"}))
    found = commands.commands["serve"].make_context("x", words[3:]).params
    folder = Path(KEYS_DIR)
    assert found["repository"] == "s3://checkpoints/team"
    assert (found["sign_with"], found["trust"]) == (folder / "sign.pem", (folder / "trusted.pem",))
    assert (found["encrypt_with"], found["decrypt_with"]) == (folder / "a", (folder / "a",))
    assert found["accept_unprotected"] is True
    assert found["retention"] == RetentionPolicy(3, 1 << 40, 64 << 30, (7 * 24 + 12) * 3600 * 1000, "job")
    assert commands.commands["serve"].make_context("x", command(with_agent())[3:]).params["retention"] is None


def test_keys_are_the_agents_alone():
    """Theirs to read, and each has to be there; no other object names them, but the configuration."""
    installation = with_agent(**STORED)
    (container,) = pod(installation)["containers"]
    volumes = {each["name"]: each for each in pod(installation)["volumes"]}
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    items = [{"key": each, "path": each} for each in ("sign.pem", "trusted.pem", "a")]
    source = {"secret": {"name": "keys", "items": items}}
    assert volumes["keys"]["projected"] == {"defaultMode": 0o400, "sources": [source]}
    assert mounts["keys"] == {"name": "keys", "mountPath": KEYS_DIR, "readOnly": True}
    assert volumes["credentials"]["secret"] == {"secretName": "bucket", "optional": True, "defaultMode": 0o400}
    assert mounts["credentials"] == {"name": "credentials", "mountPath": STORAGE_DIR, "readOnly": True}
    assert {"name": "AWS_SHARED_CREDENTIALS_FILE", "value": f"{STORAGE_DIR}/credentials"} in container["env"]
    (init,) = pod(installation)["initContainers"]
    assert not {"keys", "credentials"} & {each["name"] for each in init["volumeMounts"]}
    for name, body in bodies(installation).items():
        if name not in ("DaemonSet/iris-agent", "ConfigMap/iris-cluster-config"):
            assert not {"keys", "bucket"} & {*re.findall(r"[\w-]+", str(body))}, name


@pytest.mark.parametrize(
    ("said", "platform", "secret"),
    [
        ({"repository": "gs://b/p"}, {"storage_secret": "stores"}, "stores"),
        ({"repository": "gs://b/p"}, {"storage_secret": ""}, None),
        ({}, {"storage_secret": "stores"}, None),
    ],
)
def test_credentials_are_those_of_stores_unless_it_has_its_own(said, platform, secret):
    """None without a repository: the agent needs none then."""
    installation = with_agent(platform=platform, **said)
    found = [each["secret"]["secretName"] for each in pod(installation)["volumes"] if each["name"] == "credentials"]
    (container,) = pod(installation)["containers"]
    assert found == ([secret] if secret else [])
    assert ("GOOGLE_APPLICATION_CREDENTIALS" in [each["name"] for each in container["env"]]) == bool(secret)


@pytest.mark.parametrize(
    ("repository", "endpoint", "ports"),
    [
        ("s3://b/p", "", [443]),
        ("s3://b/p", "http://cwlota.com", [80]),
        ("gs://b/p", "http://cwlota.com", [80, 443]),
        ("gs://b/p", "https://objects.internal", [443]),
    ],
)
def test_it_reaches_its_repository(repository, endpoint, ports):
    """By the store's port alone."""
    installation = with_agent(platform={"object_storage_endpoint": endpoint}, repository=repository)
    egress = bodies(installation)["NetworkPolicy/iris-agent"]["spec"]["egress"]
    assert [each["ports"][0]["port"] for each in egress[2:]] == ports


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ({"repository": "file:///mnt/checkpoints"}, "agent.repository"),
        ({"repository_keys": STORED["repository_keys"]}, "agent.repository_keys.secret"),
        ({**STORED, "repository_keys": {"secret": "keys"}}, "agent.repository_keys.secret"),
        ({**STORED, "repository_keys": {"trust": "trusted.pem"}}, "agent.repository_keys.trust"),
        ({**STORED, "repository_keys": {"secret": "keys", "trust": "../token"}}, "agent.repository_keys.trust"),
        ({"repository": "s3://b/p", "accept_unprotected": True}, "agent.accept_unprotected"),
        ({"storage_secret": "bucket"}, "agent.storage_secret"),
        ({"retain": {"per": "job"}}, "agent.retain.per"),
        ({"retain": {"max_checkpoints": 1, "per": "job,max-age=1s"}}, "agent.retain.per"),
    ],
)
def test_what_protects_nothing_is_refused(said, key):
    """Whoever named a key believes that checkpoints are protected."""
    with pytest.raises(ConfigError, check=that(names=key)):
        with_agent(**said)


def test_the_namespace_lets_it_in():
    """Its level of pod security is the only one that takes privileged pods."""
    labels = bodies(with_agent())["Namespace/iris"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_the_page_has_every_right_with_its_reason():
    """docs/agent.md shows the table as it is."""
    rows = re.findall(r"^\| `([^|]+)` \| ([^|]+) \|$", PAGE.read_text().partition("## Its rights")[2], re.MULTILINE)
    assert rows[: len(RIGHTS)] == [(each.name, each.why) for each in RIGHTS]


@pytest.mark.parametrize(
    "said",
    [
        {"socket": "/run/shim.sock"},
        {"socket": "/run/containerd/shim.sock"},
        {"socket": "/var/lib/x/shim.sock"},
        {"socket": "/run/a/../b.sock"},
        {"state_dir": "/mnt"},
        {"state_dir": "/mnt/../etc"},
        {"state_dir": "relative/path"},
        {"image": ""},
    ],
)
def test_folders_that_are_others_are_refused(said):
    """What is made private, or filled, is the agent's own."""
    with pytest.raises(ConfigError, check=that(names=next(iter(said)))):
        with_agent(**said)


def test_a_machine_of_ones_own_needs_no_daemon_set():
    """It is told what to run instead."""
    said = {"name": "x", "platform": {"local": {}}, "agent": {"enabled": True}}
    with pytest.raises(ConfigError, check=that(names="agent.enabled")):
        build_config({**said, "scale_groups": {"cpu": {"resources": {"cpu": 1, "ram": "1GiB"}}}})
