"""The controller's Deployment: its command line, its probes, its volume, its modesty."""

from pathlib import Path

import pytest
from deploy_world import bodies, installed, values, with_agent

from iriscw.cli.app import app
from iriscw.cli.serve import controller_serve
from iriscw.config.kinds import ENV_VALUE_LIMIT
from iriscw.config.load import FILE_LIMIT_BYTES, build_config, parse_config
from iriscw.controller.assembly import default_state_dir
from iriscw.deploy.controller import DATA_LIMIT_BYTES, command, config_map, rollout_s
from iriscw.deploy.errors import NotInstallable
from iriscw.deploy.installation import installation_of
from raised import that


def deployment(installation):
    """Return the Deployment's specification."""
    return bodies(installation)["Deployment/iris-controller"]["spec"]


def pod(installation):
    """Return the pod's specification."""
    return deployment(installation)["template"]["spec"]


def container(installation):
    """Return the one container."""
    (only,) = pod(installation)["containers"]
    return only


def mounted(installation):
    """Return what each folder of the container holds: its volume."""
    volumes = {each["name"]: each for each in pod(installation)["volumes"]}
    mounts = container(installation)["volumeMounts"]
    assert [each["name"] for each in mounts] == [*volumes]
    return {each["mountPath"]: volumes[each["name"]] for each in mounts}


@pytest.mark.parametrize("insecure", [False, True])
def test_the_command_line_exists(insecure):
    """Each word of it is one that the command knows, and the configuration is the one that is mounted."""
    installation = installed({"insecure_plaintext": insecure})
    program, *words = command(installation)
    assert (program, words[:2]) == ("iriscw", ["controller", "serve"])
    assert app.get_command(app.make_context("iriscw", [], resilient_parsing=True), "controller").commands["serve"]
    options = controller_serve.make_parser(controller_serve.make_context("serve", [], resilient_parsing=True))
    said, rest, _ = options.parse_args(args=list(words[2:]))
    assert rest == []
    assert said == {
        "config": "/etc/iris/config.yaml",
        "host": "0.0.0.0",
        **({"insecure_plaintext": True} if insecure else {}),
    }
    config = Path(said["config"])
    (name,) = bodies(installation)["ConfigMap/iris-cluster-config"]["data"]
    assert mounted(installation)[str(config.parent)]["configMap"]["name"] == "iris-cluster-config"
    assert name == config.name
    assert container(installation)["command"] == command(installation)


@pytest.mark.parametrize("journal_dir", ["/var/lib/iris/journal", "/data/iris/journal"])
def test_the_state_is_on_the_volume(journal_dir):
    """Where the controller keeps it if nobody says otherwise."""
    installation = installed(journal_dir=journal_dir)
    found = mounted(installation)[str(default_state_dir(installation.config))]
    assert found["persistentVolumeClaim"] == {"claimName": "iris-controller-state"}
    claim = bodies(installation)["PersistentVolumeClaim/iris-controller-state"]["spec"]
    assert claim["accessModes"] == ["ReadWriteOnce"]
    assert claim["resources"]["requests"]["storage"] == "50Gi"


def test_secrets_are_where_the_controller_looks_for_them():
    """By reference, for its group to read, and a pod starts without them."""
    installation = installed()
    found = mounted(installation)[installation.config.controller.secrets_dir]["secret"]
    assert found == {"secretName": "iris-controller-secrets", "optional": True, "defaultMode": 0o440}
    assert "/etc/iris/secrets" not in mounted(installed(secrets_dir=""))


@pytest.mark.parametrize(
    ("prefix", "environment"),
    [
        ("s3://bucket/bundles", {"AWS_SHARED_CREDENTIALS_FILE": "/etc/iris/credentials/credentials"}),
        ("gs://bucket/bundles", {"GOOGLE_APPLICATION_CREDENTIALS": "/etc/iris/credentials/credentials.json"}),
        ("file:///var/lib/iris/objects", {}),
        ("", {}),
    ],
)
def test_credentials_are_named_for_stores_that_are_used(prefix, environment):
    """A variable that names a missing file is an error of its own for some libraries."""
    installation = installed(bundle_prefix=prefix)
    found = {each["name"]: each["value"] for each in container(installation).get("env", ())}
    assert found == environment
    assert mounted(installation)["/etc/iris/credentials"]["secret"]["secretName"] == "iris-bundle-credentials"


def test_the_configuration_says_where_stores_are():
    """Controller and node agents find it where every S3 client looks; without the keys nothing is said."""
    platform = {"object_storage_endpoint": "http://cwlota.com", "object_storage_region": "eu-1"}
    said = {"AWS_ENDPOINT_URL_S3": "http://cwlota.com", "AWS_REGION": "eu-1", "AWS_DEFAULT_REGION": "eu-1"}
    for told, there in (({}, {}), (platform, said)):
        agent = bodies(with_agent(platform=told))["DaemonSet/iris-agent"]["spec"]["template"]["spec"]
        for each in (container(installed(platform=told)), agent["containers"][0]):
            found = {each["name"]: each.get("value") for each in each.get("env", ())}
            assert {name: value for name, value in found.items() if name.startswith("AWS_")} == there


@pytest.mark.parametrize(("insecure", "scheme"), [(False, "HTTPS"), (True, "HTTP")])
def test_probes_ask_for_health(insecure, scheme):
    """On the port that is listened on, in the way that it is: with as much patience as a start and a load need."""
    found = container(installed({"insecure_plaintext": insecure, "port": 4321}))
    assert found["ports"] == [{"name": "controller", "protocol": "TCP", "containerPort": 4321}]
    for name, patience_s in (("startupProbe", 600), ("livenessProbe", 60), ("readinessProbe", 30)):
        probe = found[name]
        assert probe["httpGet"] == {"path": "/health", "port": "controller", "scheme": scheme}
        assert probe["failureThreshold"] * probe["periodSeconds"] == patience_s
        assert probe["timeoutSeconds"] >= 10


def test_the_service_finds_the_pod():
    """By labels that the pod has, on a port that it has."""
    installation = installed({"port": 4321, "service_name": "control"})
    found = bodies(installation)["Service/control"]["spec"]
    labels = deployment(installation)["template"]["metadata"]["labels"]
    assert found["selector"].items() <= labels.items()
    assert deployment(installation)["selector"]["matchLabels"].items() <= labels.items()
    assert found["ports"][0]["port"] == 4321
    assert found["ports"][0]["targetPort"] == container(installation)["ports"][0]["name"]
    budget = bodies(installation)["PodDisruptionBudget/iris-controller"]["spec"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_there_is_never_more_than_one():
    """One replica, and the old pod ends before the new one begins."""
    assert deployment(installed())["replicas"] == 1
    assert deployment(installed())["strategy"] == {"type": "Recreate"}


def test_a_rollout_has_the_time_that_a_boot_has():
    """And what the process may take to start; it is what applying waits for, too."""
    assert deployment(installed())["progressDeadlineSeconds"] == rollout_s(installed())
    given = {**values(), "defaults": {"timeouts": {"boot_timeout": "20m"}}}
    assert rollout_s(installation_of(build_config(given))) == 30 * 60


def test_it_goes_to_its_own_node():
    """By labels that the pool gives its nodes; without a pool to any node."""
    found = bodies(installed())
    selected = pod(installed())["nodeSelector"]
    assert selected.items() <= found["NodePool/iris-controller-pool"]["spec"]["nodeLabels"].items()
    assert "nodeSelector" not in pod(installed({"instance_type": ""}))


def test_it_is_nobody_special():
    """No root, no capability, nothing to write but its volume; the one token is the one that it needs."""
    spec, inside = pod(installed()), container(installed())
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == 65532
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inside["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert inside["securityContext"]["readOnlyRootFilesystem"] is True
    assert inside["securityContext"]["allowPrivilegeEscalation"] is False
    assert spec["automountServiceAccountToken"] is True
    assert not any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
    writable = [each["mountPath"] for each in inside["volumeMounts"] if not each.get("readOnly")]
    assert writable == ["/var/lib/iris", "/tmp"]


def test_another_configuration_is_another_pod():
    """The process reads it once: a change must start a new one, and nothing else must."""
    one, same, other = (deployment(installed({"storage": size})) for size in ("50GiB", "50GiB", "60GiB"))
    assert one == same
    assert one["template"]["metadata"]["annotations"] != other["template"]["metadata"]["annotations"]


def test_requests_are_what_was_said():
    """Memory has a limit, CPU has none."""
    found = container(installed({"cpu": "500m", "memory": "1500MB"}))["resources"]
    assert found == {"requests": {"cpu": "500m", "memory": "1500000000"}, "limits": {"memory": "1500000000"}}


def test_images_are_pulled_as_configured():
    """From the registry, with the Secret; without either where none is named."""
    found = installed(platform={"container_registry": "cr.example", "image_pull_secret": "pull"}, image="ctl:7")
    assert container(found)["image"] == "cr.example/ctl:7"
    assert pod(found)["imagePullSecrets"] == [{"name": "pull"}]
    assert "imagePullSecrets" not in pod(installed(platform={"image_pull_secret": ""}))


def test_what_is_mounted_can_be_read_back():
    """The configuration in the map is the installation's."""
    text = config_map(installed())["data"]["config.yaml"]
    assert parse_config(text) == installed().config
    assert FILE_LIMIT_BYTES >= DATA_LIMIT_BYTES


def test_a_configuration_has_to_fit():
    """A map holds 1 MiB."""
    environment = {f"V{number}": "x" * ENV_VALUE_LIMIT for number in range(DATA_LIMIT_BYTES // ENV_VALUE_LIMIT)}
    given = {**values(), "defaults": {"task_env": environment}}
    with pytest.raises(NotInstallable, check=that(comes_from="controller.config_map", names="1048576")):
        config_map(installation_of(build_config(given)))
