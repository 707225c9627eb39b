"""All checks together."""

import os

import pytest
from deploy_world import HURRY, installed, put, values
from doctor_world import install, is_useful, lines, of

from iriscw.config.load import build_config
from iriscw.deploy.installation import installation_of
from iriscw.deploy.secrets import secret_manifests
from iriscw.doctor import pools
from iriscw.doctor.examination import Examination, way
from iriscw.doctor.findings import Health
from iriscw.objects.drivers.fake import FakeObjectStore
from iriscw_sims.kube.messages import Request

INSTALLATION = installed()
FILES = {"cluster-secret": b"c", "admin-token": b"a", "tls.crt": b"t", "tls.key": b"k", "ca.crt": b"c"}


def examination(tmp_path, installation=INSTALLATION, **more):
    """Return an examination by the simulation's kubeconfig, in an environment that names nothing."""
    given = {"configured": tmp_path / "kubeconfig", "environ": {}, "settings": HURRY, **more}
    return Examination(installation, **given)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a", "b", {"KUBECONFIG": "c"}), "--kubeconfig a"),
        ((None, "b", {"KUBECONFIG": "c"}), "platform.coreweave.kubeconfig_path b"),
        ((None, None, {"KUBECONFIG": "c"}), "KUBECONFIG c"),
        ((None, None, {"KUBECONFIG": ""}), "the pod's own service account"),
    ],
)
def test_the_first_way_that_is_named_is_taken(arguments, says):
    """And it is told which."""
    assert way(*arguments) == says


async def test_a_whole_installation_is_well(server, tmp_path):
    """Every check has a line, and none is wrong."""
    install(server, INSTALLATION)
    for manifest in secret_manifests(INSTALLATION, FILES):
        put(server, "POST", "/api/v1/namespaces/iris/secrets", manifest.body)
    examined = examination(tmp_path)
    found = await examined.run()
    assert found is examined.findings
    assert lines(found, Health.WRONG) == []
    assert lines(found, Health.WARNING) == [
        "secret iris-image-pull: it is not there: images that are not public cannot be pulled"
    ]
    checks = ("way", "api", "clock", "node pools", "conditions", "namespace", "pod security", "rights")
    assert [each.check for each in found][: len(checks)] == [*checks]
    assert {"configuration", "durability", "storage", "types"} <= {each.check for each in found}
    assert all(is_useful(each) for each in found)


async def test_of_an_empty_cluster_only_what_can_be_asked_is_asked(server, tmp_path):
    """That the namespace is not there says it all; nothing inside it is called missing."""
    found = await examination(tmp_path).run()
    assert lines(found, Health.WRONG) == ["namespace: there is no iris"]
    assert not [each for each in found if each.check.startswith(("secret", "rights", "configuration"))]
    assert of(found, "storage").verdict is Health.OK


async def test_without_a_way_the_rest_is_examined(tmp_path):
    """Stores and types need no cluster."""
    found = await examination(tmp_path, configured=None).run()
    (text,) = lines(found, Health.WRONG)
    assert text.startswith("way: by the pod's own service account: this is not a pod: KUBERNETES_SERVICE_HOST and ")
    assert [each.check for each in found] == ["way", "storage", "types"]
    missing = await examination(tmp_path, kubeconfig=tmp_path / "none").run()
    assert of(missing, "way").verdict is Health.WRONG


async def test_of_a_cluster_that_does_not_answer_nothing_else_is_asked(server, tmp_path):
    """One line says so."""
    text = (tmp_path / "kubeconfig").read_text()
    (tmp_path / "kubeconfig").write_text(text.replace(server.url, "http://127.0.0.1:1"))
    found = await examination(tmp_path, probe=True).run()
    assert [each.check for each in found] == ["way", "api", "storage", "types"]
    assert of(found, "api").verdict is Health.WRONG


async def test_a_wrong_token_is_told(server, tmp_path):
    """CoreWeave answers 403 to it, not 401."""
    text = (tmp_path / "kubeconfig").read_text()
    (tmp_path / "kubeconfig").write_text(text.replace(server.token.reveal(), "x" * 40))
    found = await examination(tmp_path).run()
    assert (of(found, "api").verdict, "renew" in of(found, "api").advice) == (Health.WRONG, True)


async def test_stores_are_tried(server, tmp_path):
    """With whatever opens them."""
    store = FakeObjectStore()
    installation = installed(bundle_prefix="s3://bucket/b")
    found = await examination(tmp_path, installation, opener=lambda _url: store).run()
    assert of(found, "storage s3://bucket/b").verdict is Health.OK
    assert store.contents() == {}


async def test_types_are_probed_only_if_asked(server, tmp_path, monkeypatch):
    """Also before anything is installed: that is when people want to know."""
    monkeypatch.setattr(pools, "CONDITIONS_S", 0.02)
    created = []
    answer = server.store.handle

    def handle(request, now):
        if request.method == "POST" and request.path.endswith("/nodepools"):
            created.append(request.body["metadata"]["labels"])
        return answer(request, now)

    monkeypatch.setattr(server.store, "handle", handle)
    found = await examination(tmp_path).run()
    assert created == []
    examined = examination(tmp_path, probe=True)
    found = await examined.run()
    assert len(created) == 2
    assert {each["iris-cluster"] for each in created} == {"research"}
    assert {each.check for each in found} >= {"type cd-gp-i64-erapids", "type cd-gp-a192-genoa"}
    assert examined.left == ()
    pools_left = answer(Request("GET", "/apis/compute.coreweave.com/v1alpha1/nodepools"), server.timeline.now)
    assert list(pools_left.body["items"]) == []


async def test_one_check_that_fails_does_not_stop_the_others(server, tmp_path, monkeypatch):
    """It is told as not made."""
    install(server, INSTALLATION)
    answer = server.store.handle

    def handle(request, now):
        if request.path.endswith("subjectaccessreviews"):
            request = Request("GET", "/api/v1/namespaces/none")
        return answer(request, now)

    monkeypatch.setattr(server.store, "handle", handle)
    found = await examination(tmp_path).run()
    assert of(found, "rights").found.startswith("not looked at: ")
    assert of(found, "configuration").verdict is Health.OK


async def test_no_secret_of_the_way_is_shown(server, tmp_path):
    """Neither the token nor what is in a kubeconfig."""
    found = await examination(tmp_path).run()
    assert server.token.reveal() not in f"{found}"
    assert server.url in of(found, "way").found


async def test_the_environment_is_looked_at_when_nothing_else_is_said(server, tmp_path, monkeypatch):
    """As the controller does."""
    environ = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}
    found = await examination(tmp_path, configured=None, environ=environ).run()
    assert of(found, "way").found.startswith(f"by KUBECONFIG {tmp_path / 'kubeconfig'} to ")


async def test_a_platform_may_name_types_nobody_knows(server, tmp_path):
    """A warning, and the exit code does not depend on it."""
    whole = values()
    whole["scale_groups"]["cpu"]["slice_template"]["coreweave"]["instance_type"] = "turing-gp"
    found = await examination(tmp_path, installation_of(build_config(whole))).run()
    assert of(found, "type turing-gp").verdict is Health.WARNING
