"""What is installed is what controller and workers look for."""

from deploy_world import bodies, installed

from iriscw.cloud.kube import mounts
from iriscw.cloud.model import LABEL_MANAGED
from iriscw.controller import mounted_secrets, settings
from iriscw.controller.platforms import coreweave
from iriscw.deploy import names


def test_the_controller_looks_for_these():
    """The same names stand in its own modules, which see nothing of an installation."""
    assert coreweave.CONFIG_MAP == names.CONFIG_MAP
    assert coreweave.AUTHORITY_SECRET == names.AUTHORITY_SECRET
    found = (
        *(mounted_secrets.CLUSTER_SECRET, mounted_secrets.ADMIN_TOKEN, mounted_secrets.METRICS_TOKEN),
        mounted_secrets.CERTIFICATE,
        mounted_secrets.PRIVATE_KEY,
    )
    assert found == names.CONTROLLER_SECRET_KEYS
    assert f"{mounts.CA_DIR}/{names.AUTHORITY_KEY}" == mounts.CA_FILE


def test_workers_trust_and_dial_what_is_installed():
    """By the configuration as the controller inside reads it."""
    installation = installed(platform={"container_registry": "cr.example"})
    found = coreweave.kube_settings(installation.config, "uid", tls=True, plaintext=False)
    assert found.controller_address == f"https://{installation.host}:10000"
    assert found.namespace == installation.namespace
    assert found.priority_class == names.worker_priority_class(installation.namespace)
    assert found.image_pull_secrets == ("iris-image-pull",)
    image = installation.config.defaults.bootstrap.docker_image
    assert settings.worker_image(installation.config) == installation.image(image) == f"cr.example/{image}"


def test_labels_are_kubernetes_recommended_ones():
    """And none by which slices are found."""
    labels = names.object_labels("research", "worker")
    assert labels["app.kubernetes.io/component"] == "worker"
    assert all(name.startswith("app.kubernetes.io/") for name in labels)
    assert LABEL_MANAGED not in labels
    assert "app.kubernetes.io/component" not in names.object_labels("research")


def test_another_version_starts_no_pod_anew():
    """It is a label of objects, and not of the pods that they make."""
    assert names.object_labels("a", "b").keys() - names.pod_labels("a", "b").keys() == {"app.kubernetes.io/version"}
    spec = bodies(installed())["Deployment/iris-controller"]["spec"]
    assert "app.kubernetes.io/version" not in spec["template"]["metadata"]["labels"]


def test_names_of_the_whole_cluster_begin_with_the_namespace():
    """So that two installations never meet."""
    made = [
        names.controller_pool("lab"),
        names.controller_priority_class("lab"),
        names.worker_priority_class("lab"),
        names.cluster_role("lab"),
    ]
    assert made == ["lab-controller-pool", "lab-controller", "lab-worker", "lab-controller"]
