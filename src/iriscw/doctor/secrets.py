"""The Secrets that pods refer to: whether they are there, with the right keys and of the right type.

Theory of operation. Kubernetes starts a pod without a Secret that is optional, and keeps one waiting for ever without
one that is not; either way the reason stands where few people look. So what each pod refers to is looked up here. A
value is looked at only to tell whether there is one; of the pull secret, also for which registries it is. No value,
and nothing that was read of one but a registry's name, is ever told.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from iriscw.cloud.drivers.kube.objects import Objects, Thing
from iriscw.cloud.kube.mounts import STORAGE_VARIABLES
from iriscw.cloud.model import CloudError
from iriscw.deploy.installation import Installation, names_registry
from iriscw.deploy.names import AUTHORITY_KEY, AUTHORITY_SECRET, CONTROLLER_SECRETS, METRICS_KEY, METRICS_SECRET
from iriscw.deploy.secrets import PAIR, TOKENS
from iriscw.doctor.findings import Finding, Health, ok, unseen, warning, wrong
from iriscw.doctor.repository_keys import judge_texts

PULL_TYPE: Final = "kubernetes.io/dockerconfigjson"
PULL_KEY: Final = ".dockerconfigjson"
DOCKER_HUB: Final = "docker.io"
HUB_NAMES: Final = (DOCKER_HUB, "index.docker.io", "registry-1.docker.io")

HOW_MADE: Final = "`iriscw manifests CONFIG --secrets-to DIR`, then `--apply --secrets-from DIR`"


@attrs.frozen
class Wanted:
    """A Secret that pods refer to.

    Attributes:
        name: Its name.
        keys: What it has to hold.
        use: What it is for.
        advice: How it is made.
    """

    name: str
    keys: tuple[str, ...]
    use: str
    advice: str


def wanted(installation: Installation) -> tuple[Wanted, ...]:
    """Return the Secrets that this configuration refers to, the pull secret and keys of a repository aside."""
    plaintext, platform = installation.controller.insecure_plaintext, installation.platform
    found = []
    if installation.config.controller.secrets_dir:
        keys = TOKENS if plaintext else (*TOKENS, *PAIR)
        found.append(Wanted(CONTROLLER_SECRETS, keys, "the controller does not start without it", HOW_MADE))
    if not plaintext:
        found.append(Wanted(AUTHORITY_SECRET, (AUTHORITY_KEY,), "worker pods wait for it for ever", HOW_MADE))
    if installation.controller.service_monitor:
        found.append(Wanted(METRICS_SECRET, (METRICS_KEY,), "Prometheus reads no figures without it", HOW_MADE))
    files = tuple(
        path.rpartition("/")[2] for scheme, (_, path) in STORAGE_VARIABLES.items() if installation.uses(scheme)
    )
    if platform.storage_secret and files:
        name = platform.storage_secret
        made = "".join(f" --from-file={each}=FILE" for each in files)
        advice = f"kubectl -n {installation.namespace} create secret generic {name}{made}"
        found.append(Wanted(name, files, "without it pods have no credentials for the object store", advice))
    if installation.repository_secret and not (installation.repository_secret == platform.storage_secret and files):
        name, file = installation.repository_secret, STORAGE_VARIABLES[installation.repository_scheme][1]
        key = file.rpartition("/")[2]
        advice = f"kubectl -n {installation.namespace} create secret generic {name} --from-file={key}=FILE"
        found.append(Wanted(name, (key,), "without it agents have no credentials for their repository", advice))
    return (*found, *_of_tasks(installation))


def _of_tasks(installation: Installation) -> Iterable[Wanted]:
    keys: dict[str, dict[str, None]] = {}
    for text in installation.config.defaults.task_secrets.values():
        name, _, key = text.partition("/")
        keys.setdefault(name, {})[key] = None
    for name, named in keys.items():
        made = "".join(f" --from-file={key}=FILE" for key in named)
        advice = f"kubectl -n {installation.namespace} create secret generic {name}{made}"
        yield Wanted(name, tuple(named), "defaults.task_secrets refers to it: worker pods wait for it", advice)


async def look_at_secrets(objects: Objects, installation: Installation) -> list[Finding]:
    """Look at all of them, one finding each. What may not be looked at is told as that."""
    found = [await _look_at(objects, installation, each) for each in wanted(installation)]
    if installation.repository_keys:
        found.append(await _look_at_keys(objects, installation))
    if installation.platform.image_pull_secret:
        found.append(await _look_at_pull_secret(objects, installation))
    return found


async def _look_at(objects: Objects, installation: Installation, secret: Wanted) -> Finding:
    try:
        return judge_secret(secret, await objects.get(_path(installation, secret.name)))
    except CloudError as error:
        return unseen(f"secret {secret.name}", error)


async def _look_at_keys(objects: Objects, installation: Installation) -> Finding:
    name = installation.config.agent.repository_keys.secret
    try:
        return judge_keys(installation, await objects.get(_path(installation, name)))
    except CloudError as error:
        return unseen(f"secret {name}", error)


async def _look_at_pull_secret(objects: Objects, installation: Installation) -> Finding:
    name = installation.platform.image_pull_secret
    try:
        return judge_pull_secret(installation, await objects.get(_path(installation, name)))
    except CloudError as error:
        return unseen(f"secret {name}", error)


def judge_secret(secret: Wanted, thing: Thing | None) -> Finding:
    """Judge one by its keys."""
    check = f"secret {secret.name}"
    if thing is None:
        return wrong(check, f"it is not there: {secret.use}", secret.advice)
    data = _data(thing)
    missing = [key for key in secret.keys if not data.get(key)]
    if missing:
        return wrong(check, f"it has no {', no '.join(missing)}: {secret.use}", secret.advice)
    return ok(check, f"it has {', '.join(secret.keys)}")


def judge_keys(installation: Installation, thing: Thing | None) -> Finding:
    """Judge the Secret with the keys of the agents' repository: whether they are there, and are such keys."""
    keys = installation.config.agent.repository_keys
    names = tuple(dict.fromkeys(installation.repository_keys.values()))
    made = "".join(f" --from-file={each}=FILE" for each in names)
    advice = f"kubectl -n {installation.namespace} create secret generic {keys.secret}{made}"
    found = judge_secret(Wanted(keys.secret, names, "no agent starts without it", advice), thing)
    if thing is None or found.verdict is not Health.OK:
        return found
    return judge_texts(found.check, installation.repository_keys, _data(thing))


def judge_pull_secret(installation: Installation, thing: Thing | None) -> Finding:
    """Judge the Secret with which images are pulled: its type, its form, and for which registries it is."""
    name = installation.platform.image_pull_secret
    check, registries = f"secret {name}", registries_of(installation)
    made = f"kubectl -n {installation.namespace} create secret docker-registry {name} --docker-server={registries[0]}"
    if thing is None:
        text = "it is not there: images that are not public cannot be pulled"
        return warning(check, text, f"not needed if all images are public; else {made} ...")
    if thing.get("type") != PULL_TYPE:
        return wrong(check, f"its type is not {PULL_TYPE}: the kubelet does not use it", f"delete it, then {made} ...")
    known = registries_known(_data(thing).get(PULL_KEY))
    if known is None:
        return wrong(check, f"its {PULL_KEY} is not a configuration of Docker's", f"delete it, then {made} ...")
    missing = [each for each in registries if not any(_is_for(each, entry) for entry in known)]
    if missing:
        text = f"it has nothing for {', '.join(missing)}, where images of this configuration come from"
        return warning(check, text, f"not needed if these images are public; else delete it, then {made} ...")
    return ok(check, f"it is for {', '.join(registries)}")


def registries_of(installation: Installation) -> tuple[str, ...]:
    """Return the registries from which this configuration's images are pulled; at least one."""
    config = installation.config
    agents = [config.agent.image] if config.agent.enabled else []
    images = (config.controller.image, config.defaults.bootstrap.docker_image, *agents)
    return tuple(dict.fromkeys(_registry(installation.image(image)) for image in images))


def _registry(image: str) -> str:
    return image.partition("/")[0] if names_registry(image) else DOCKER_HUB


def registries_known(encoded: Any) -> tuple[str, ...] | None:
    """Return the registries that a ``.dockerconfigjson`` knows, without anything else of it; None if it is none."""
    try:
        config = json.loads(base64.b64decode(encoded, validate=True))
        entries = config["auths"]
        return tuple(str(each) for each, login in entries.items() if isinstance(login, Mapping) and login)
    except (binascii.Error, ValueError, TypeError, KeyError, AttributeError):
        return None


def _is_for(registry: str, entry: str) -> bool:
    """Tell whether an entry is for a registry: a host, maybe as a URL, with a path, or with ``*`` for a part of it."""
    host = entry.partition("://")[2] or entry
    host = host.partition("/")[0]
    if registry == DOCKER_HUB:
        return host in HUB_NAMES
    parts, wanted_parts = host.split("."), registry.split(".")
    return len(parts) == len(wanted_parts) and all(
        one in ("*", other) for one, other in zip(parts, wanted_parts, strict=True)
    )


def _path(installation: Installation, name: str) -> str:
    return f"/api/v1/namespaces/{installation.namespace}/secrets/{name}"


def _data(thing: Thing) -> Mapping[str, Any]:
    data = thing.get("data")
    return data if isinstance(data, dict) else {}
