"""``manifests`` and ``down``: what is written, what is applied to a served simulation, and what is asked before."""

import contextlib
import io
import os
import sys
import threading
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))

from deploy_world import put, simulated

from iriscw.deploy import awaiting, removing
from iriscw.deploy.names import CONTROLLER_SECRET_KEYS

CONFIG = """\
name: research
platform: { coreweave: { region: LGA1 } }
controller: { coreweave: { instance_type: cd-gp-i64-erapids } }
scale_groups:
  cpu:
    resources: { cpu: 16, ram: 64GiB }
    slice_template: { coreweave: { instance_type: cd-gp-a192-genoa } }
"""
DEPLOYMENT = "/apis/apps/v1/namespaces/iris/deployments/iris-controller"


@pytest.fixture
def config(tmp_path):
    """A configuration's file."""
    path = tmp_path / "cluster.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A served simulation in a thread of its own; the environment names it. Looks are made every few milliseconds."""
    kubeconfig = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr(awaiting, "LOOK_S", 0.02)
    monkeypatch.setattr(removing, "LOOK_S", 0.02)
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(simulated(kubeconfig)) as server,
    ):
        yield lambda method, path, body=None: portal.call(put, server, method, path, body)


def objects(text):
    """Return the objects of a stream."""
    return [each for each in yaml.safe_load_all(io.StringIO(text)) if each is not None]


def test_manifests_are_written(iriscw, config):
    """To standard output, and nothing else is said; a second time they are the same."""
    code, out, err = iriscw("manifests", str(config))
    assert (code, err) == (0, "")
    assert objects(out)[0]["kind"] == "Namespace"
    assert objects(out)[-1]["kind"] == "Deployment"
    assert iriscw("manifests", str(config))[1] == out


def test_a_controller_without_a_node_is_noted(iriscw, config):
    """On standard error: it may be meant."""
    config.write_text(CONFIG.replace("controller: { coreweave: { instance_type: cd-gp-i64-erapids } }\n", ""))
    code, out, err = iriscw("manifests", str(config))
    assert (code, "NodePool" in [each["kind"] for each in objects(out)]) == (0, False)
    assert "instance_type is empty" in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("platform: { local: {} }\n", "platform.coreweave"),
        (CONFIG.replace("region: LGA1", "region: LGA1, namespace: default"), "everybody's"),
        ("nope: 1\n", "nope"),
    ],
)
def test_what_cannot_be_installed_is_refused(iriscw, config, text, says):
    """As a mistake of the file, in one line or with its list."""
    config.write_text(text)
    code, out, err = iriscw("manifests", str(config))
    assert (code, out) == (2, "")
    assert says in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--secrets-from", "x"),
        ("--force-conflicts",),
        ("--diff", "--secrets-from", "x"),
        ("--apply", "--secrets-to", "x"),
        ("--wait", "soon"),
    ],
)
def test_options_that_do_not_fit(iriscw, config, arguments):
    """They are a mistake before anything is asked of anybody."""
    code, out, err = iriscw("manifests", str(config), *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)


def serve_soon(cluster):
    """Have the controller serve as soon as its Deployment is there."""

    def watch():
        while True:
            with contextlib.suppress(AssertionError):
                found = cluster("GET", DEPLOYMENT)
                status = {
                    "observedGeneration": found["metadata"]["generation"],
                    **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1),
                    "conditions": [{"type": "Available", "status": "True"}],
                }
                cluster("PUT", f"{DEPLOYMENT}/status", {**found, "status": status})
                return

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_applied_compared_and_taken_away(iriscw, cluster, config, tmp_path):
    """The whole way: differences, Secrets, objects, the wait, no difference, and all of it gone."""
    code, out, err = iriscw("manifests", str(config), "--diff")
    assert (code, out.count("\n+kind: Deployment\n")) == (1, 1)
    folder = tmp_path / "secrets"
    assert iriscw("manifests", str(config), "--secrets-to", str(folder))[0] == 0
    thread = serve_soon(cluster)
    code, out, err = iriscw("manifests", str(config), "--apply", "--secrets-from", str(folder), "--wait", "30s")
    thread.join()
    assert code == 0, err
    lines = out.splitlines()
    assert lines[:3] == [
        "Namespace/iris created",
        "Secret/iris-controller-secrets created",
        "Secret/iris-ca created",
    ]
    assert lines[-2:] == [
        "Deployment/iris-controller created",
        "the controller serves at iris-controller-svc.iris.svc.cluster.local:10000",
    ]
    assert err.startswith("the cluster at http://127.0.0.1:")
    for name in CONTROLLER_SECRET_KEYS:
        assert (folder / name).read_text().strip() not in out + err
    assert iriscw("manifests", str(config), "--diff")[:2] == (0, "")
    code, out, err = iriscw("down", str(config), "--delete-pools", "--yes")
    assert code == 0, err
    assert out.splitlines()[0] == "Deployment/iris-controller deleted"
    assert out.splitlines()[-1] == "Namespace/iris deleted"


def test_applying_without_waiting(iriscw, cluster, config):
    """It ends when all is applied; Secrets that are missing are noted."""
    code, out, err = iriscw("manifests", str(config), "--apply", "--wait", "0s")
    assert (code, out.splitlines()[-1]) == (0, "Deployment/iris-controller created")
    assert "note: there is no Secret iris-controller-secrets" in err


def test_a_controller_that_does_not_come(iriscw, cluster, config):
    """The world said no, and why stands in one line."""
    code, _, err = iriscw("manifests", str(config), "--apply", "--wait", "0.1s")
    assert code == 3
    assert "NotAvailable: the controller does not serve after 0.1 s" in err.splitlines()[-1]
    assert "0 of 1 nodes are ready" in err.splitlines()[-1]


def test_down_does_not_guess(iriscw, cluster, config):
    """Nodes cost money and take long to come back: which counts more has to be said."""
    code, _, err = iriscw("down", str(config), "--yes")
    assert code == 2
    assert "--keep-pools or --delete-pools" in err


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("answer", "deleted"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_down_asks_first(iriscw, cluster, config, monkeypatch, answer, deleted):
    """What would go is listed; anything but yes leaves all of it, also where nobody can answer."""
    iriscw("manifests", str(config), "--apply", "--wait", "0s")
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    code, out, err = iriscw("down", str(config), "--keep-pools", "--keep-state")
    assert (code, bool(out)) == ((0, True) if deleted else (2, False))
    assert "  Deployment/iris-controller\n" in err
    assert "NodePool" not in err
    assert deleted or "nothing was deleted" in err


def test_slices_are_listed_before_they_go(iriscw, cluster, config, monkeypatch):
    """With what that means for what runs on them."""
    labels = {"iris-managed": "true", "iris-cluster": "u", "iris-cluster-name": "research"}
    body = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool"}
    pool = {**body, "metadata": {"name": "slice-1", "labels": labels}, "spec": {"instanceType": "turin-gp"}}
    cluster("POST", "/apis/compute.coreweave.com/v1alpha1/nodepools", pool)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    _, _, err = iriscw("down", str(config), "--delete-pools")
    assert "  NodePool/slice-1, a slice with whatever runs on it\n" in err
    assert "every job" in err


def test_a_library_that_is_missing_is_named(iriscw, cluster, config, monkeypatch):
    """What logs in by programs is needed by those alone whose kubeconfig names one."""
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio.client", None)
    assert iriscw("manifests", str(config), "--diff")[0] == 1
    path = Path(os.environ["KUBECONFIG"])
    kubeconfig = yaml.safe_load(path.read_text())
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "true", "interactiveMode": "Never"}
    kubeconfig["users"][0]["user"] = {"exec": program}
    path.write_text(yaml.safe_dump(kubeconfig))
    code, out, err = iriscw("manifests", str(config), "--diff")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "the package kubernetes_asyncio" in err


def test_no_cluster_is_one_line(iriscw, config, monkeypatch, tmp_path):
    """Without a kubeconfig, and with one that leads nowhere."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    code, out, err = iriscw("manifests", str(config), "--diff")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "this is not a pod" in err
    assert "say --kubeconfig FILE, or set KUBECONFIG" in err


def test_the_configurations_kubeconfig_is_used(iriscw, cluster, config, tmp_path, monkeypatch):
    """Before what the environment names; and what the command line says before that."""
    monkeypatch.delenv("KUBECONFIG")
    given = tmp_path / "kubeconfig"
    config.write_text(CONFIG.replace("region: LGA1", f"region: LGA1, kubeconfig_path: {given}"))
    assert iriscw("manifests", str(config), "--diff")[0] == 1
    config.write_text(CONFIG)
    assert iriscw("manifests", str(config), "--diff", "--kubeconfig", str(given))[0] == 1
    code, _, err = iriscw("manifests", str(config), "--diff", "--kubeconfig", str(given), "--context", "none")
    assert code == 2
    assert "'none'" in err
