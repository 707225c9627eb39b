"""Secrets by reference."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from deploy_world import installed, put, with_agent
from doctor_world import lines, objects_of

from iriscw.cloud.model import Forbidden
from iriscw.config.load import build_config
from iriscw.deploy.installation import installation_of
from iriscw.doctor import secrets
from iriscw.doctor.findings import Health

SECRETS = "/api/v1/namespaces/iris/secrets"
HIDDEN = "hunter2-do-not-show"


def secret(*keys, kind="Opaque", value=HIDDEN):
    """Return a Secret with these keys."""
    data = {key: base64.b64encode(value.encode()).decode() for key in keys}
    return {"metadata": {"name": "s"}, "type": kind, "data": data}


def pull_secret(*registries, **more):
    """Return a pull secret for these registries."""
    text = json.dumps({"auths": {each: {"auth": HIDDEN} for each in registries}})
    return secret(".dockerconfigjson", kind=secrets.PULL_TYPE, value=text, **more)


def with_tasks(**named):
    """Return an installation whose tasks get values of Secrets."""
    values = {
        "platform": {"coreweave": {"region": "LGA1"}},
        "controller": {"coreweave": {}},
        "defaults": {"task_secrets": named},
    }
    return installation_of(build_config(values))


def with_keys():
    """Return an installation whose agents have a repository with keys."""
    keys = {"secret": "keys", "sign_with": "sign", "trust": "trust", "encrypt_with": "encrypt"}
    return with_agent(repository="s3://b/p", repository_keys=keys, storage_secret="bucket")


def test_what_pods_refer_to():
    """What the controller and workers cannot start without; credentials only of stores that are used."""
    names = {each.name: each.keys for each in secrets.wanted(installed())}
    assert names == {
        "iris-controller-secrets": ("cluster-secret", "admin-token", "tls.crt", "tls.key"),
        "iris-ca": ("ca.crt",),
    }
    names = {each.name: each.keys for each in secrets.wanted(installed({"insecure_plaintext": True}))}
    assert names == {"iris-controller-secrets": ("cluster-secret", "admin-token")}
    watched = {each.name: each.keys for each in secrets.wanted(installed({"service_monitor": True}))}
    assert watched["iris-metrics"] == ("token",)
    stored = {each.name: each.keys for each in secrets.wanted(installed(bundle_prefix="s3://bucket/b"))}
    assert stored["iris-bundle-credentials"] == ("credentials",)


def test_secrets_of_tasks_are_wanted_once_each():
    """With all keys that are referred to."""
    found = secrets.wanted(with_tasks(WANDB_API_KEY="wandb/api-key", WANDB_USER="wandb/user", HF="hub/token"))
    assert [(each.name, each.keys) for each in found[-2:]] == [("hub", ("token",)), ("wandb", ("api-key", "user"))]
    assert "kubectl -n iris create secret generic wandb --from-file=api-key=FILE" in found[-1].advice


@pytest.mark.parametrize(
    ("thing", "verdict", "says"),
    [
        (None, Health.WRONG, "it is not there: why"),
        (secret("a"), Health.WRONG, "it has no b: why"),
        (secret(), Health.WRONG, "it has no a, no b: why"),
        ({"metadata": {}, "data": None}, Health.WRONG, "it has no a, no b: why"),
        (secret("a", "b", value=""), Health.WRONG, "it has no a, no b: why"),
        (secret("a", "b", "c"), Health.OK, "it has a, b"),
    ],
)
def test_a_secret_is_judged_by_its_keys(thing, verdict, says):
    """An empty value is none."""
    found = secrets.judge_secret(secrets.Wanted("s", ("a", "b"), "why", "how"), thing)
    assert (found.verdict, found.found) == (verdict, says)


REGISTRY = installed(platform={"container_registry": "registry.test:5000/team"})


@pytest.mark.parametrize(
    ("thing", "verdict", "says"),
    [
        (None, Health.WARNING, "it is not there"),
        (secret(".dockerconfigjson"), Health.WRONG, "its type is not"),
        (secret(kind=secrets.PULL_TYPE), Health.WRONG, "not a configuration of Docker's"),
        (secret(".dockerconfigjson", kind=secrets.PULL_TYPE), Health.WRONG, "not a configuration of Docker's"),
        (secret(".dockerconfigjson", kind=secrets.PULL_TYPE, value="[]"), Health.WRONG, "not a configuration"),
        (pull_secret("other.test"), Health.WARNING, "it has nothing for registry.test:5000"),
        (pull_secret(), Health.WARNING, "it has nothing for registry.test:5000"),
        (pull_secret("registry.test:5000"), Health.OK, "it is for registry.test:5000"),
        (pull_secret("https://registry.test:5000/v2/"), Health.OK, "it is for registry.test:5000"),
        (pull_secret("*.test:5000"), Health.OK, "it is for registry.test:5000"),
        (pull_secret("registry.test"), Health.WARNING, "it has nothing for registry.test:5000"),
    ],
)
def test_a_pull_secret_is_judged_by_what_it_is_for(thing, verdict, says):
    """By its type, its form, and the registries of the images; not by what it lets in."""
    found = secrets.judge_pull_secret(REGISTRY, thing)
    assert (found.verdict, says in found.found) == (verdict, True)
    assert ("--docker-server=registry.test:5000" in found.advice) == (verdict is not Health.OK)
    assert HIDDEN not in f"{found}"


@pytest.mark.parametrize("entry", ["https://index.docker.io/v1/", "docker.io", "registry-1.docker.io"])
def test_images_without_a_registry_are_dockers(entry):
    """It has several names."""
    assert secrets.registries_of(installed()) == ("docker.io",)
    assert secrets.judge_pull_secret(installed(), pull_secret(entry)).verdict is Health.OK


def test_images_may_come_from_several_registries():
    """Each is looked for."""
    installation = installed(image="ghcr.io/team/controller:1", platform={"container_registry": "registry.test"})
    assert secrets.registries_of(installation) == ("ghcr.io", "registry.test")
    found = secrets.judge_pull_secret(installation, pull_secret("ghcr.io"))
    assert "nothing for registry.test," in found.found


KEY = base64.b64encode(b"k" * 32).decode()
SIGNER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)


def private(key):
    """Return a private key's text."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public(key):
    """Return a public key's text."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def keys_secret(**changed):
    """Return the Secret of a repository's keys, with what is changed of it."""
    texts = {"sign": private(SIGNER), "trust": public(SIGNER), "encrypt": KEY, **changed}
    return {"data": {name: base64.b64encode(text.encode()).decode() for name, text in texts.items() if text}}


@pytest.mark.parametrize(
    ("thing", "verdict"),
    [
        (keys_secret(), Health.OK),
        (keys_secret(trust=public(OTHER) + public(SIGNER)), Health.OK),
        (None, Health.WRONG),
        (keys_secret(encrypt=""), Health.WRONG),
        (keys_secret(sign=public(SIGNER)), Health.WRONG),
        (keys_secret(trust=private(SIGNER)), Health.WRONG),
        (keys_secret(trust=public(OTHER)), Health.WRONG),
        (keys_secret(encrypt=KEY[4:]), Health.WRONG),
        (keys_secret(encrypt=f"{KEY}\n{KEY}"), Health.WRONG),
        (keys_secret(encrypt=f"{KEY}\n" * 2000), Health.WRONG),
        ({"data": {**keys_secret()["data"], "encrypt": "%"}}, Health.WRONG),
    ],
)
def test_keys_of_a_repository_are_judged_as_an_agent_reads_them(thing, verdict):
    """A private key where a public one belongs, one that its own agents do not trust, two where one is meant."""
    found = secrets.judge_keys(with_keys(), thing)
    assert found.verdict is verdict
    assert not [part for part in (KEY[:12], *private(SIGNER).splitlines()[1:2]) if part in f"{found}"]


@pytest.mark.parametrize(
    ("uses", "verdict"),
    [
        ({"trust": "trust"}, Health.WARNING),
        ({"decrypt_with": "encrypt"}, Health.WARNING),
        ({"sign_with": "sign"}, Health.OK),
        ({"encrypt_with": "encrypt", "decrypt_with": "encrypt"}, Health.OK),
    ],
)
def test_agents_that_could_store_nothing_are_named(uses, verdict):
    """They fetch only what is signed, say, and have no key to sign with: that may be meant."""
    installation = with_agent(repository="s3://b/p", repository_keys={"secret": "keys", **uses})
    assert secrets.judge_keys(installation, keys_secret()).verdict is verdict


async def test_the_agents_secrets_are_looked_up_too(objects, server):
    """Their keys, and credentials that are theirs alone."""
    put(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "iris"}})
    put(server, "POST", SECRETS, {**keys_secret(), "metadata": {"name": "keys"}})
    found = await secrets.look_at_secrets(objects, with_keys())
    verdicts = {each.check: each.verdict for each in found}
    assert (verdicts["secret keys"], verdicts["secret bucket"]) == (Health.OK, Health.WRONG)


async def test_all_are_looked_up_in_the_cluster(objects, server):
    """One finding each, and no value in any of them."""
    put(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "iris"}})
    body = secret("cluster-secret", "admin-token", "tls.crt", "tls.key")
    put(server, "POST", SECRETS, {**body, "metadata": {"name": "iris-controller-secrets"}})
    put(server, "POST", SECRETS, {**pull_secret("docker.io"), "metadata": {"name": "iris-image-pull"}})
    found = await secrets.look_at_secrets(objects, installed())
    assert lines(found, Health.OK) == [
        "secret iris-controller-secrets: it has cluster-secret, admin-token, tls.crt, tls.key",
        "secret iris-image-pull: it is for docker.io",
    ]
    assert lines(found, Health.WRONG) == ["secret iris-ca: it is not there: worker pods wait for it for ever"]
    assert HIDDEN not in f"{found}"
    assert base64.b64encode(HIDDEN.encode()).decode() not in f"{found}"


async def test_what_may_not_be_read_is_not_judged(server):
    """The controller itself, for one, may read none."""
    found = await secrets.look_at_secrets(objects_of(server, "eve"), installed())
    assert {each.verdict for each in found} == {Health.WARNING}
    assert all(each.found.startswith("not looked at: ") for each in found)
    assert len(found) == 3
    assert Forbidden.__name__ not in f"{found}"
