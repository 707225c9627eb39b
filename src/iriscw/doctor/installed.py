"""What is installed already: whether its configuration is the file's, and what its journal survives.

*What the journal survives.* ``durability: replicated`` promises that an acknowledged job survives the controller's
node. It holds as far as there is something that survives it: a second copy in an object store, or a volume that is not
of one node. Which volume the journal is on stands in the Deployment, and somebody may have changed that; as long as
there is none, the one that would be made is judged.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from iriscw.cloud.drivers.kube.objects import Objects, Thing
from iriscw.config.model import Durability
from iriscw.deploy import controller
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import CONFIG_KEY, CONFIG_MAP, CONTROLLER
from iriscw.doctor.findings import Finding, ok, warning, wrong

OF_THE_POD = ("emptyDir", "ephemeral")
OF_THE_NODE = ("hostPath", "local")
NOWHERE = ""
"""The container's own file system."""


async def look_at_configuration(objects: Objects, installation: Installation) -> list[Finding]:
    """Compare the ConfigMap with the file.

    Raises:
        Forbidden: the credentials do not allow to look.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    there = await objects.get(f"/api/v1/namespaces/{installation.namespace}/configmaps/{CONFIG_MAP}")
    return [judge_configuration(installation, there)]


def judge_configuration(installation: Installation, there: Thing | None) -> Finding:
    """Judge the ConfigMap that is there, if one is."""
    if there is None:
        advice = "`iriscw manifests CONFIG --apply` installs it"
        return wrong("configuration", f"there is no ConfigMap {CONFIG_MAP}: nothing is installed yet", advice)
    wanted = controller.config_map(installation)["data"][CONFIG_KEY]
    if (there.get("data") or {}).get(CONFIG_KEY) != wanted:
        advice = "`iriscw manifests CONFIG --diff` shows where, `--apply` makes it so and starts the controller anew"
        return wrong("configuration", f"the ConfigMap {CONFIG_MAP} differs from the file", advice)
    return ok("configuration", f"the ConfigMap {CONFIG_MAP} is the file's")


async def look_at_durability(objects: Objects, installation: Installation) -> list[Finding]:
    """Judge what the journal survives.

    Raises:
        Forbidden: the credentials do not allow to look.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    path = f"/apis/apps/v1/namespaces/{installation.namespace}/deployments/{CONTROLLER}"
    there = await objects.get(path)
    return [judge_durability(installation, there if there is not None else controller.deployment(installation))]


def judge_durability(installation: Installation, deployment: Thing) -> Finding:
    """Judge a Deployment's volume together with what the configuration promises."""
    settings = installation.config.controller
    promised, copy = settings.durability, settings.replica_prefix
    kind = volume_of(deployment, settings.journal_dir)
    where = f"the journal is on {_named(kind)}"
    lasting = kind not in (*OF_THE_POD, *OF_THE_NODE, NOWHERE)
    if copy.startswith("file:"):
        text = f"{promised.value}, but the second copy {copy} is a folder of the controller's pod"
        return warning(
            "durability",
            text,
            "set controller.replica_prefix to an object store: s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
        )
    if promised is Durability.LOCAL and lasting:
        return ok("durability", f"local: {where}")
    if promised is Durability.REPLICATED and copy and lasting:
        return ok("durability", f"replicated: {where}, its second copy at {copy}")
    if promised is Durability.REPLICATED and not copy and lasting:
        return ok("durability", f"replicated: {where}, without a second copy: what loses the volume loses the jobs")
    advice = "`iriscw manifests CONFIG --apply` makes a Deployment with a persistent volume"
    ends = "pod" if kind in (*OF_THE_POD, NOWHERE) else "node"
    if promised is Durability.REPLICATED and copy:
        text = f"replicated, but {where}, which ends with its {ends}: then all is read back from {copy}, logs and"
        return warning("durability", f"{text} results of callables are gone", advice)
    text = f"{promised.value}, but {where}, which ends with its {ends}, and there is no second copy: every job goes too"
    return warning("durability", text, advice)


def volume_of(deployment: Thing, folder: str) -> str:
    """Return the kind of volume that a folder of the controller lies on.

    As a pod's specification names it; empty if there is none.
    """
    spec = deployment["spec"]["template"]["spec"]
    named = next((each for each in spec["containers"] if each.get("name") == "controller"), spec["containers"][0])
    mounts = [
        each
        for each in named.get("volumeMounts") or ()
        if PurePosixPath(folder).is_relative_to(each.get("mountPath", "/"))
    ]
    if not mounts:
        return NOWHERE
    innermost = max(mounts, key=lambda each: len(PurePosixPath(each["mountPath"]).parts))
    return next((_kind(each) for each in spec.get("volumes") or () if each.get("name") == innermost["name"]), NOWHERE)


def _kind(volume: dict[str, Any]) -> str:
    return next((name for name in volume if name != "name"), "emptyDir")  # Kubernetes' default


def _named(kind: str) -> str:
    return {
        NOWHERE: "the container's own file system",
        "persistentVolumeClaim": "a persistent volume",
        "emptyDir": "an emptyDir",
        "hostPath": "a folder of the node (hostPath)",
    }.get(kind, f"a volume of kind {kind}")
