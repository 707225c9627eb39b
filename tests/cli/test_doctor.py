"""doctor: what is here, and what is wrong with a cluster."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import anyio.from_thread
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))

from deploy_world import put, simulated

from iriscw.cloud.drivers.kube import objects as objects_module
from iriscw.doctor import pools
from iriscw.freeze.drivers.criu.finding import how_to_install
from iriscw_sims.kube.messages import Request

CONFIG = """\
name: research
platform: { coreweave: { region: LGA1 } }
controller: { coreweave: { insecure_plaintext: true } }
scale_groups:
  cpu:
    resources: { cpu: 16, ram: 64GiB }
    slice_template: { coreweave: { instance_type: cd-gp-a192-genoa } }
"""
POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"


@pytest.fixture
def config(tmp_path):
    """A configuration's file."""
    path = tmp_path / "cluster.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A served simulation in a thread of its own, named by the environment; gives what asks its store."""
    kubeconfig = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(simulated(kubeconfig)) as server,
    ):

        def ask(method, path, body=None):
            if body is not None:
                return portal.call(put, server, method, path, body)
            request = Request(method, path)
            return portal.call(lambda: server.store.handle(request, server.timeline.now)).body

        yield ask


def test_doctor_reports(iriscw):
    """It names Python, the machine's size and whether a cluster is up, and breaks nothing."""
    code, out, _ = iriscw("doctor", "-o", "json")
    found = {each["what"]: each for each in json.loads(out)}
    assert code == 0
    assert {"iriscw", "python", "cpu", "memory", "gpus", "cluster"} <= {*found}
    assert found["cluster"]["found"].startswith("none is up")
    assert {"criu", "cuda checkpoint"} <= {*found}


def test_doctor_says_how_to_get_what_freezing_needs(iriscw, monkeypatch, tmp_path):
    """A CRIU that is not there is nothing wrong, and the line names what installs one."""
    monkeypatch.setenv("IRISCW_CRIU", str(tmp_path / "none"))
    _, out, _ = iriscw("doctor", "-o", "json")
    found = {each["what"]: each for each in json.loads(out)}
    assert found["criu"]["good"]
    assert how_to_install() in found["criu"]["found"]


@pytest.mark.parametrize("option", [["--probe"], ["--context", "c"]])
def test_options_of_a_cluster_need_one(iriscw, option):
    """Without --kube they mean nothing."""
    code, _, err = iriscw("doctor", *option)
    assert (code, "go with --kube CONFIG" in err) == (2, True)


def test_what_cannot_be_installed_is_said_at_once(iriscw, tmp_path):
    """A cluster of this machine has nothing in Kubernetes."""
    path = tmp_path / "local.yaml"
    path.write_text("platform: { local: {} }\n")
    code, _, err = iriscw("doctor", "--kube", str(path))
    assert (code, "platform.coreweave" in err) == (2, True)


def test_something_wrong_is_exit_code_1(iriscw, config, cluster):
    """One line says what, and the next one what to do."""
    code, out, err = iriscw("doctor", "--kube", str(config))
    assert (code, err) == (1, "")
    rows = out.splitlines()
    (at,) = [number for number, row in enumerate(rows) if row.startswith("namespace")]
    assert rows[at].split() == ["namespace", "wrong", "there", "is", "no", "iris"]
    assert rows[at + 1].split(maxsplit=1) == ["->", "`iriscw manifests CONFIG --apply` makes it"]


def test_warnings_leave_the_exit_code_alone(iriscw, config, cluster, tmp_path):
    """All is installed, and only the pull secret is not there."""
    config.write_text(CONFIG.replace("name: research", "name: research\ndefaults: {}"))
    secrets = tmp_path / "secrets"
    assert iriscw("manifests", str(config), "--secrets-to", str(secrets))[0] == 0
    assert iriscw("manifests", str(config), "--apply", "--secrets-from", str(secrets), "--wait", "0s")[0] == 0
    code, out, _ = iriscw("doctor", "--kube", str(config), "-o", "json")
    found = json.loads(out)
    assert [each for each in found if each["verdict"] == "wrong"] == []
    assert code == 0
    assert {*found[0]} == {"check", "verdict", "found", "advice"}
    assert [each["check"] for each in found if each["verdict"] == "warning"] == ["secret iris-image-pull"]
    assert iriscw("doctor", "--kube", str(config), "-o", "yaml")[0] == 0


def test_a_kubeconfig_may_be_named(iriscw, config, cluster, tmp_path, monkeypatch):
    """Before the one of the configuration, which comes before the environment's."""
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    (tmp_path / "second").write_text((tmp_path / "kubeconfig").read_text())
    named = CONFIG.replace("region: LGA1", f"region: LGA1, kubeconfig_path: {tmp_path / 'second'}")
    config.write_text(named)
    _, out, _ = iriscw("doctor", "--kube", str(config), "-o", "json")
    assert json.loads(out)[0]["found"].startswith(f"by platform.coreweave.kubeconfig_path {tmp_path / 'second'} to ")
    arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "-o", "json")
    _, out, _ = iriscw("doctor", "--kube", str(config), *arguments)
    assert json.loads(out)[0]["found"].startswith(f"by --kubeconfig {tmp_path / 'kubeconfig'} to ")


def test_probing_leaves_nothing(iriscw, config, cluster, monkeypatch):
    """A pool of each type is made, and gone."""
    monkeypatch.setattr(pools, "CONDITIONS_S", 0.05)
    code, out, _ = iriscw("doctor", "--kube", str(config), "--probe", "-o", "json")
    assert "type cd-gp-a192-genoa" in [each["check"] for each in json.loads(out)]
    assert code == 1  # nothing is installed
    assert list(cluster("GET", POOLS)["items"]) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_deletes_its_pool(iriscw, config, cluster, monkeypatch, number):
    """The signal comes while it waits for conditions."""
    created = _interrupted_when_created(monkeypatch, number)
    code, out, err = iriscw("doctor", "--kube", str(config), "--probe")
    assert (code, out) == (130, "")
    assert len(created) == 1
    assert list(cluster("GET", POOLS)["items"]) == []
    assert "may be left" not in err


def test_interrupted_it_names_what_it_could_not_delete(iriscw, config, cluster, monkeypatch):
    """With the command that does."""
    created = _interrupted_when_created(monkeypatch, signal.SIGINT)
    delete = objects_module.Objects.delete

    async def refused(self, path, **more):
        raise objects_module.Unavailable("no answer")

    monkeypatch.setattr(objects_module.Objects, "delete", refused)
    code, _, err = iriscw("doctor", "--kube", str(config), "--probe")
    monkeypatch.setattr(objects_module.Objects, "delete", delete)
    assert code == 130
    assert f"kubectl delete nodepool {created[0]}\n" in err
    assert [each["metadata"]["name"] for each in cluster("GET", POOLS)["items"]] == created


def _interrupted_when_created(monkeypatch, number):
    """Have a signal sent to this process by another thread once a pool was made; give the names of pools made."""
    created = []
    create = objects_module.Objects.create

    async def creating(self, collection, manifest, **more):
        made = await create(self, collection, manifest, **more)
        if collection == POOLS:
            created.append(made["metadata"]["name"])
            threading.Thread(target=os.kill, args=(os.getpid(), number)).start()
        return made

    monkeypatch.setattr(objects_module.Objects, "create", creating)
    return created
