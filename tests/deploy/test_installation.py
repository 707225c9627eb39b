"""What a configuration means for an installation, and which cannot be installed."""

import attrs
import pytest
from deploy_world import installed, values

from iriscw.config.load import build_config
from iriscw.deploy.errors import NotInstallable
from iriscw.deploy.installation import NAMESPACE_LIMIT, installation_of, names_registry
from raised import that


def test_only_a_cluster_on_coreweave_is_installed():
    """The key that would make it one is named."""
    local = build_config({"platform": {"local": {}}})
    with pytest.raises(NotInstallable, check=that(names="platform.coreweave")):
        installation_of(local)
    outside = {
        **values(),
        "controller": {"local": {}},
        "defaults": {"bootstrap": {"controller_address": "192.0.2.1:10000"}},
    }
    with pytest.raises(NotInstallable, check=that(names="controller.coreweave")):
        installation_of(build_config(outside))


def test_the_controller_inside_reads_another_configuration():
    """It uses its own account, not the user's kubeconfig, and knows the class that is made for its workers."""
    given = build_config(values(platform={"kubeconfig_path": "~/.kube/config"}))
    inside = installation_of(given).config.platform.coreweave
    assert (inside.kubeconfig_path, inside.priority_class) == ("", "iris-worker")
    same = attrs.evolve(inside, kubeconfig_path="~/.kube/config", priority_class="")
    assert same == given.platform.coreweave


@pytest.mark.parametrize(("named", "ours"), [("", True), ("iris-worker", True), ("batch", False)])
def test_a_class_of_others_is_theirs(named, ours):
    """One that the configuration names is used, and made only if it is the one that would be made anyway."""
    installation = installed(platform={"priority_class": named})
    assert installation.owns_priority_class is ours
    assert installation.platform.priority_class == (named or "iris-worker")


def test_a_namespace_has_to_fit():
    """Into the name of the pool, and so into a label."""
    fits, too_long = "n" * NAMESPACE_LIMIT, "n" * (NAMESPACE_LIMIT + 1)
    assert len(f"{fits}-controller-pool") == 63
    assert installed(platform={"namespace": fits}).namespace == fits
    with pytest.raises(NotInstallable, check=that(names="platform.coreweave.namespace")):
        installed(platform={"namespace": too_long})


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
def test_a_namespace_of_everybodys_is_refused(namespace):
    """It could not be removed with what is in it."""
    with pytest.raises(NotInstallable, check=that(comes_from="installation._check")):
        installed(platform={"namespace": namespace})


@pytest.mark.parametrize("folder", ["journal", "/journal", "/etc/iris/journal", "/etc/iris/state/journal"])
def test_the_journal_has_to_lie_on_the_volume(folder):
    """Which is mounted at the folder above it, and hides nothing."""
    with pytest.raises(NotInstallable, check=that(names="controller.journal_dir")):
        installed(journal_dir=folder)


def test_the_volume_is_where_the_journal_is():
    """At the folder above it."""
    assert installed().state_dir == "/var/lib/iris"
    assert installed(journal_dir="/data/iris/journal").state_dir == "/data/iris"


@pytest.mark.parametrize(
    ("image", "has"),
    [
        ("iris-worker:1", False),
        ("team/iris-worker:1", False),
        ("registry.example/iris:1", True),
        ("localhost/iris", True),
        ("host:5000/iris", True),
        ("registry.example", False),
    ],
)
def test_an_image_names_its_registry_or_not(image, has):
    """As Docker decides it; one that does not gets the configured one."""
    assert names_registry(image) is has
    full = installed(platform={"container_registry": "cr.example/iris/"}).image(image)
    assert full == (image if has else f"cr.example/iris/{image}")
    assert installed().image(image) == image


def test_the_certificate_holds_every_name_that_is_dialled():
    """The Service's, as short and as long as it can be written, what the configuration says, and the tunnel's end."""
    names = installed(platform={"namespace": "lab"}).host_names
    assert names == (
        "iris-controller-svc",
        "iris-controller-svc.lab",
        "iris-controller-svc.lab.svc",
        "iris-controller-svc.lab.svc.cluster.local",
        "localhost",
        "127.0.0.1",
    )
    said = {**values(), "defaults": {"bootstrap": {"controller_address": "https://iris.example:443"}}}
    assert "iris.example" in installation_of(build_config(said)).host_names
