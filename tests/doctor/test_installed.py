"""The installed configuration, and what the journal survives."""

import pytest
from deploy_world import installed, put
from doctor_world import install, of

from iriscw.deploy import controller
from iriscw.doctor import installed as installed_checks
from iriscw.doctor.findings import Health

REPLICATED = {"durability": "replicated", "replica_prefix": "s3://bucket/journal"}
LOCAL = installed()
COPIED = installed(**REPLICATED)


def deployment_on(installation, **volume):
    """Return the Deployment with another volume for its state."""
    body = controller.deployment(installation)
    spec = body["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "state", **volume} if each["name"] == "state" else each for each in spec["volumes"]]
    return body


async def test_a_configuration_that_is_not_there(objects):
    """Nothing is installed yet."""
    (found,) = await installed_checks.look_at_configuration(objects, LOCAL)
    assert (found.verdict, "nothing is installed" in found.found) == (Health.WRONG, True)


async def test_a_configuration_is_the_files_or_another(objects, server):
    """The controller reads what is installed, not the file."""
    install(server, LOCAL)
    (found,) = await installed_checks.look_at_configuration(objects, LOCAL)
    assert found.verdict is Health.OK
    (found,) = await installed_checks.look_at_configuration(objects, installed({"cpu": 8}))
    assert (found.verdict, "--diff" in found.advice) == (Health.WRONG, True)


@pytest.mark.parametrize(
    ("installation", "volume", "verdict", "says"),
    [
        (LOCAL, {"persistentVolumeClaim": {}}, Health.OK, "local: the journal is on a persistent volume"),
        (LOCAL, {"emptyDir": {}}, Health.WARNING, "local, but the journal is on an emptyDir, which ends with its pod"),
        (LOCAL, {}, Health.WARNING, "an emptyDir"),
        (LOCAL, {"hostPath": {}}, Health.WARNING, "which ends with its node, and there is no second copy"),
        (LOCAL, {"csi": {}}, Health.OK, "a volume of kind csi"),
        (COPIED, {"persistentVolumeClaim": {}}, Health.OK, "its second copy at s3://bucket/journal"),
        (COPIED, {"emptyDir": {}}, Health.WARNING, "replicated, but the journal is on an emptyDir"),
        (COPIED, {"hostPath": {}}, Health.WARNING, "replicated, but the journal is on a folder of the node"),
    ],
)
def test_what_the_journal_survives(installation, volume, verdict, says):
    """What is promised holds as far as something outlives the node; the reason is told where nothing does."""
    found = installed_checks.judge_durability(installation, deployment_on(installation, **volume))
    assert (found.verdict, says in found.found) == (verdict, True)
    assert bool(found.advice) == (verdict is Health.WARNING)


def test_a_copy_in_the_same_pod_is_none():
    """A folder goes with the node, whatever the volume."""
    installation = installed(durability="replicated", replica_prefix="file:///var/lib/iris/copy")
    found = installed_checks.judge_durability(installation, controller.deployment(installation))
    assert (found.verdict, "a folder of the controller's pod" in found.found) == (Health.WARNING, True)


async def test_the_deployment_that_is_there_is_judged(objects, server):
    """Somebody may have changed its volume; before there is one, the one that would be made is judged."""
    (found,) = await installed_checks.look_at_durability(objects, LOCAL)
    assert found.verdict is Health.OK
    install(server, LOCAL)
    path = "/apis/apps/v1/namespaces/iris/deployments/iris-controller"
    changed = await objects.get(path)
    body = {**deployment_on(LOCAL, emptyDir={}), "metadata": changed["metadata"]}
    put(server, "PUT", path, body)
    found = of(await installed_checks.look_at_durability(objects, LOCAL), "durability")
    assert found.verdict is Health.WARNING


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/var/lib/iris/journal", "persistentVolumeClaim"), ("/tmp/x", "emptyDir"), ("/srv/journal", "")],
)
def test_the_volume_of_a_folder(folder, kind):
    """The innermost mount counts; without one it is the container's own file system."""
    assert installed_checks.volume_of(controller.deployment(LOCAL), folder) == kind


def test_a_journal_that_is_on_no_volume_is_told():
    """Somebody took the mount away."""
    body = controller.deployment(LOCAL)
    body["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = []
    found = installed_checks.judge_durability(LOCAL, body)
    assert (found.verdict, "container's own file system" in found.found) == (Health.WARNING, True)
