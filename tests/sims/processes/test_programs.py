"""What a pod would run, in terms of this machine."""

import base64
from pathlib import Path

import pytest

from iriscw_sims.processes.programs import CannotRun, Stage, claimed, loopback_of, program_of
from raised import that

FOLDER, NODE, CLAIMS = Path("/f"), Path("/n"), Path("/c")
FOLDERS = {"folder": FOLDER, "node_folder": NODE, "claims_folder": CLAIMS}


def encoded(text):
    return base64.b64encode(text.encode()).decode()


OBJECTS = {
    "/api/v1/namespaces/iris/configmaps/settings": {
        "data": {"config.yaml": "a: 1"},
        "binaryData": {"b": encoded("bin")},
    },
    "/api/v1/namespaces/iris/secrets/token": {"data": {"token": encoded("secret")}},
}


def pod(**container):
    """Return a pod with one container, and volumes of each kind."""
    volumes = [
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "token", "secret": {"secretName": "token"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "cache", "hostPath": {"path": "/mnt/local/cache"}},
        {"name": "state", "persistentVolumeClaim": {"claimName": "journal"}},
        {"name": "attempt", "hostPath": {"path": "/attempt", "type": "Directory"}},
    ]
    labels = {"app": "x"}
    return {
        "metadata": {"name": "p", "namespace": "iris", "uid": "u", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", **container}], "volumes": volumes},
        "status": {"podIP": "10.3.0.7", "hostIP": "10.3.0.7"},
    }


def made(stage=None, **container):
    return program_of(pod(**container), OBJECTS.get, stage or Stage(), **FOLDERS)


def variable(**entry):
    """Return the value that a variable comes to."""
    return made(command=["x"], env=[{"name": "V", **entry}]).environment.get("V")


def test_a_command_and_its_arguments_are_run():
    """As they stand, with variables put in; what nobody named stays, and two dollars are one."""
    found = made(command=["run", "$(A)"], args=["$(B)", "$$(A)"], env=[{"name": "A", "value": "1"}])
    assert found.argv == ("run", "1", "$(B)", "$(A)")


def test_an_image_stands_for_a_command_line():
    """By its name, whatever its registry, tag or digest; with the pod's arguments behind."""
    stage = Stage(images={"worker": ("python", "-m", "w")})
    for image in ("worker", "registry.test:5000/a/worker:v1", "worker@sha256:0"):
        assert made(stage, image=image, args=["serve"]).argv == ("python", "-m", "w", "serve")
    with pytest.raises(CannotRun, check=that(names="other:1")):
        made(stage, image="other:1")


def test_a_claimed_volume_is_everybodys_who_claims_it():
    """Whatever pod of its namespace mounts it, and wherever: the same folder, apart from those of pods and nodes."""
    found = made(command=["x", "/var/lib/iris/a"], volumeMounts=[{"name": "state", "mountPath": "/var/lib/iris"}])
    assert found.argv == ("x", "/c/iris/journal/a")
    assert found.folders == (claimed(CLAIMS, "iris", "journal"),)


def test_mounted_folders_are_folders_of_ours():
    """Texts that begin with a mounted path begin with what stands for it; texts that only look so do not."""
    mounts = [
        {"name": "config", "mountPath": "/etc/iris"},
        {"name": "token", "mountPath": "/etc/iris/token/"},
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "cache", "mountPath": "/var/cache/iris"},
    ]
    found = made(
        command=["x", "--config=/etc/iris/config.yaml", "/etc/iris", "/etc/irises", "/var/cache/iris/b", "A=/scratch"],
        env=[{"name": "T", "value": "/etc/iris/token/token"}],
        volumeMounts=mounts,
    )
    assert found.argv[1:] == (
        "--config=/f/etc/iris/config.yaml", "/f/etc/iris", "/etc/irises", "/n/mnt/local/cache/b", "A=/scratch",
    )  # fmt: skip
    assert found.environment["T"] == "/f/etc/iris/token/token"
    assert found.files == {
        Path("/f/etc/iris/config.yaml"): b"a: 1",
        Path("/f/etc/iris/b"): b"bin",
        Path("/f/etc/iris/token/token"): b"secret",
    }
    assert set(found.folders) == {
        Path("/f/etc/iris"),
        Path("/f/etc/iris/token"),
        Path("/f/scratch"),
        NODE / "mnt/local/cache",
    }


def test_a_folder_that_must_be_there_is_not_made(tmp_path):
    """The kubelet refuses the pod. Made anew, it would be what a worker had just removed."""
    asked = pod(command=["x", "/a/b"], volumeMounts=[{"name": "attempt", "mountPath": "/a"}])
    where = {**FOLDERS, "node_folder": tmp_path}
    with pytest.raises(CannotRun, check=that(names="/attempt")):
        program_of(asked, OBJECTS.get, Stage(), **where)
    (tmp_path / "attempt").mkdir()
    found = program_of(asked, OBJECTS.get, Stage(), **where)
    assert (found.argv[1], found.folders) == (str(tmp_path / "attempt/b"), ())


def test_paths_in_configuration_are_those_of_ours():
    """In files of ConfigMaps, as whole paths; what a Secret holds is left as it is."""
    objects = {
        "/api/v1/namespaces/iris/configmaps/settings": {
            "data": {"c": 'a: /state/journal\nb: "/state"\nc: /statement, x/state, /state\n'},
            "binaryData": {"b": base64.b64encode(b"\xff/state").decode()},
        },
        "/api/v1/namespaces/iris/secrets/token": {"data": {"token": encoded("/state")}},
    }
    mounts = [
        {"name": "config", "mountPath": "/c"},
        {"name": "token", "mountPath": "/t"},
        {"name": "scratch", "mountPath": "/state"},
        {"name": "scratch", "mountPath": "/f"},
    ]
    item = pod(command=["x"], volumeMounts=mounts)
    found = program_of(item, objects.get, Stage(), **FOLDERS).files
    assert found[Path("/f/c/c")] == b'a: /f/state/journal\nb: "/f/state"\nc: /statement, x/state, /f/state\n'
    assert found[Path("/f/c/b")] == b"\xff/state"
    assert found[Path("/f/t/token")] == b"/state"


def test_what_is_listed_of_a_volume_is_all_there_is():
    """Under the paths that are named; a key that is not there keeps the pod from starting."""
    found = pod(command=["x"], volumeMounts=[{"name": "config", "mountPath": "/c"}])
    found["spec"]["volumes"][0]["configMap"]["items"] = [{"key": "b", "path": "sub/b"}]
    assert program_of(found, OBJECTS.get, Stage(), **FOLDERS).files == {Path("/f/c/sub/b"): b"bin"}
    found["spec"]["volumes"][0]["configMap"]["items"] = [{"key": "none", "path": "b"}]
    with pytest.raises(CannotRun, check=that(comes_from="programs._entries", names="none")):
        program_of(found, OBJECTS.get, Stage(), **FOLDERS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.labels['app']", "x"),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "n1"),
        ("status.podIP", "127.3.0.7"),
        ("status.hostIP", "127.3.0.7"),
    ],
)
def test_fields_of_the_pod_are_told(field, value):
    """Addresses are those that stand for them."""
    assert variable(valueFrom={"fieldRef": {"fieldPath": field}}) == value


def test_secrets_and_configuration_are_told():
    """By key; what is not there is left out if it may be, or else keeps the pod from starting."""
    assert variable(valueFrom={"secretKeyRef": {"name": "token", "key": "token"}}) == "secret"
    assert variable(valueFrom={"configMapKeyRef": {"name": "settings", "key": "config.yaml"}}) == "a: 1"
    for missing in ({"name": "none", "key": "k"}, {"name": "token", "key": "none"}):
        assert variable(valueFrom={"secretKeyRef": {**missing, "optional": True}}) is None
        with pytest.raises(CannotRun, check=that(names="none")):
            variable(valueFrom={"secretKeyRef": missing})


def test_addresses_are_those_of_loopback():
    """Each node has one of its own, which stands for all interfaces, and for the loopback of its own too."""
    found = made(command=["x", "--host", "0.0.0.0"], env=[{"name": "H", "value": "127.0.0.1"}])
    assert found.argv == ("x", "--host", "127.3.0.7")
    assert found.environment["H"] == "127.3.0.7"
    assert loopback_of("10.255.1.2") == "127.255.1.2"
    for wrong in ("", "fd00::1", "10.0.0.256", "10.0.0"):
        with pytest.raises(CannotRun):
            loopback_of(wrong)


def test_names_of_the_cluster_are_put_in():
    """What a service is called stands for where it is."""
    stage = Stage(names={"svc.iris.svc.cluster.local:10000": "127.0.0.1:4711"}, environment={"E": "1", "C": "x"})
    found = made(stage, command=["x"], env=[{"name": "C", "value": "http://svc.iris.svc.cluster.local:10000/"}])
    assert found.environment == {"E": "1", "C": "http://127.0.0.1:4711/"}


@pytest.mark.parametrize(
    "change",
    [
        {"volumeMounts": [{"name": "config", "mountPath": "/a/../../b"}]},
        {"volumeMounts": [{"name": "config", "mountPath": "/a", "subPath": "x"}]},
        {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}]},
    ],
)
def test_what_cannot_be_stood_in_for_is_refused(change):
    """By name, rather than run in a way that nobody asked for."""
    with pytest.raises(CannotRun):
        made(command=["x"], **change)


def test_pods_of_several_containers_are_refused():
    """One program, one pod."""
    several = pod(command=["x"])
    several["spec"]["containers"].append({"name": "other"})
    with pytest.raises(CannotRun, check=that(comes_from="programs.program_of")):
        program_of(several, OBJECTS.get, Stage(), **FOLDERS)


def test_secret_values_are_not_shown():
    """Neither files nor variables stand in the program's text."""
    found = made(
        command=["x"],
        volumeMounts=[{"name": "token", "mountPath": "/t"}],
        env=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}}],
    )
    assert found.environment["T"] == "secret"
    assert "secret" not in repr(found)


def test_projected_volumes_hold_what_their_sources_do():
    """Files of configuration, secrets and fields; no token is made, and the cluster's authority is nobody's here."""
    found = pod(command=["x"], volumeMounts=[{"name": "all", "mountPath": "/a"}])
    sources = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"secret": {"name": "token"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    found["spec"]["volumes"].append({"name": "all", "projected": {"sources": sources}})
    files = program_of(found, OBJECTS.get, Stage(), **FOLDERS).files
    assert files == {Path("/f/a/token"): b"secret", Path("/f/a/name"): b"p"}
