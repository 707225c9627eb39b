"""An installation taken away, in the reverse of the order in which it was made.

Theory of operation. The controller goes first, and it is waited for: as long as it runs it makes what is missing anew.
Then, if that is wanted, go the node pools of its slices, then everything else. Only what this installation made is
touched: an object without its labels is left alone, and said so. A namespace with somebody else's pods or volumes in
it stays, whoever made it.

Node pools cost money for as long as they are there, and take half an hour to come back. Which of the two matters more
nobody can guess, so it has to be said. Pools are known by the uid of their namespace, so where they stay it stays, too:
the next controller in it takes them up. Pools of a namespace that is gone are nobody's: they go with the next removal.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

import anyio
import attrs

from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.drivers.kube.objects import Objects, Thing
from iriscw.cloud.kube.calls import collect
from iriscw.cloud.kube.parsing import labels_of
from iriscw.cloud.kube.paths import NODE_POOLS, Source, pods_of, selector as managed
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_CLUSTER_NAME,
    LABEL_MANAGED,
    LABEL_ROLE,
    ROLE_CONTROLLER,
    CloudError,
)
from iriscw.deploy.applying import Told
from iriscw.deploy.controller import selector
from iriscw.deploy.errors import NotRemoved
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import INSTANCE, MANAGED_BY, STATE_CLAIM
from iriscw.deploy.rendering import RenderedObject

LIVED_IN: Final = (
    ("/api/v1", "pods"),
    ("/api/v1", "persistentvolumeclaims"),
    ("/api/v1", "configmaps"),
    ("/api/v1", "secrets"),
    ("/api/v1", "services"),
    ("/apis/apps/v1", "deployments"),
)
"""What shows that others live in a namespace, too: it may have been there before this installation."""

EVERYWHERE: Final = ("kube-root-ca.crt",)
"""What Kubernetes puts into each namespace."""

KEPT_WITH_STATE: Final = ("Namespace", "PersistentVolumeClaim")
"""Kinds that stay where the controller's state does: the namespace has its volume, and the Secrets that people made."""

KEPT_WITH_POOLS: Final = ("Namespace", "NodePool")
"""Kinds that stay where pools do: by the namespace's uid they are known."""

LOOK_S: Final = 1.0
"""Between two looks whether the controller's pod is gone."""


@attrs.frozen(kw_only=True)
class Removal:
    """What is to go.

    Attributes:
        pools: Whether node pools go, too: those of the slices, and the controller's.
        state: Whether the controller's volume goes, and with it every job that it knows of, and the namespace.
    """

    pools: bool
    state: bool

    def includes(self, manifest: RenderedObject) -> bool:
        """Tell whether an object goes."""
        kind = manifest.body["kind"]
        return (self.pools or kind not in KEPT_WITH_POOLS) and (self.state or kind not in KEPT_WITH_STATE)


def going(manifests: Iterable[RenderedObject], removal: Removal) -> tuple[RenderedObject, ...]:
    """Return the objects that go, in the order in which they do."""
    return tuple(each for each in reversed(tuple(manifests)) if removal.includes(each))


async def slice_pools(objects: Objects, installation: Installation) -> tuple[Thing, ...]:
    """Return the node pools of this installation's slices, and those that an earlier one of the same name left.

    Raises:
        NotRemoved: the cluster did not say.
    """
    try:
        namespaces = await _listed(objects, Source("/api/v1/namespaces", ""))
        found = await _listed(objects, Source(NODE_POOLS, managed({})))
    except CloudError as error:
        raise NotRemoved(f"the node pools cannot be listed: {error}") from error
    uids = {str(each["metadata"]["uid"]): str(each["metadata"]["name"]) for each in namespaces}
    return tuple(each for each in found if is_slice(each, installation, uids))


def is_slice(pool: Thing, installation: Installation, namespaces: Mapping[str, str]) -> bool:
    """Tell whether a pool is a slice of this installation, or of one of its name whose namespace is gone.

    Args:
        pool: As the API has it.
        installation: Whose it should be.
        namespaces: Those that there are: names by uid.
    """
    labels = labels_of(pool)
    if labels.get(LABEL_MANAGED) != "true" or labels.get(LABEL_ROLE) == ROLE_CONTROLLER:
        return False
    owner = labels.get(LABEL_CLUSTER, "")
    if owner in namespaces:
        return namespaces[owner] == installation.namespace
    return labels.get(LABEL_CLUSTER_NAME) == installation.cluster


async def remove(
    objects: Objects,
    installation: Installation,
    manifests: Iterable[RenderedObject],
    removal: Removal,
    told: Told,
    *,
    timeout_s: float,
) -> None:
    """Take an installation away. What was asked to go goes by itself from there: a pool takes minutes.

    Args:
        objects: The cluster.
        installation: What is installed.
        manifests: What it is made of.
        removal: What goes.
        told: Is told what became of each object.
        timeout_s: How long the controller's pod may take to end.

    Raises:
        NotRemoved: the cluster refused or did not answer, or the controller did not end in time.
    """
    ordered = going(manifests, removal)
    last_of_controller = [each.body["kind"] for each in ordered].index("Deployment")
    for manifest in ordered[: last_of_controller + 1]:
        await _delete(objects, installation, manifest, told)
    await _controller_gone(objects, installation, timeout_s, told)
    for pool in await slice_pools(objects, installation) if removal.pools else ():
        await _delete_thing(objects, f"{NODE_POOLS}/{pool['metadata']['name']}", pool, told)
    for manifest in ordered[last_of_controller + 1 :]:
        await _delete(objects, installation, manifest, told)


async def _controller_gone(objects: Objects, installation: Installation, timeout_s: float, told: Told) -> None:
    """Wait until no controller runs."""
    source = Source(pods_of(installation.namespace), ",".join(f"{name}={value}" for name, value in selector().items()))
    waited_for = ""
    try:
        with anyio.fail_after(timeout_s):
            while pods := await _listed(objects, source):
                name = str(pods[0]["metadata"]["name"])
                if name != waited_for:
                    told(f"Pod/{name} ends")
                    waited_for = name
                await anyio.sleep(LOOK_S)
    except TimeoutError:
        text = f"the controller's pod has not ended after {timeout_s:g} s; as long as it runs, it makes slices anew"
        raise NotRemoved(f"{text}: kubectl -n {installation.namespace} get pods") from None
    except CloudError as error:
        raise NotRemoved(f"whether the controller has ended is not known: {error}") from error


async def _delete(objects: Objects, installation: Installation, manifest: RenderedObject, told: Told) -> None:
    path = path_of(manifest.body)
    try:
        found = await objects.get(path)
        reasons = [*await _reasons_to_stay(objects, installation, manifest, found)] if found is not None else []
    except CloudError as error:
        raise NotRemoved(f"{manifest.name}: {error}") from error
    if found is None:
        told(f"{manifest.name} was not there")
    elif found["metadata"].get("deletionTimestamp"):
        told(f"{manifest.name} is going already")
    elif reasons:
        told(f"{manifest.name} stays: {reasons[0]}")
    else:
        await _delete_thing(objects, path, found, told)


async def _reasons_to_stay(
    objects: Objects, installation: Installation, manifest: RenderedObject, found: Thing
) -> Sequence[str]:
    labels = labels_of(found)
    if (labels.get(MANAGED_BY), labels.get(INSTANCE)) != ("iriscw", installation.cluster):
        return ("this installation did not make it",)
    if manifest.body["kind"] != "Namespace":
        return ()
    everything: list[Thing] = []
    for root, plural in LIVED_IN:
        source = Source(f"{root}/namespaces/{installation.namespace}/{plural}", "")
        everything += await _listed(objects, source)
    known = {*EVERYWHERE, STATE_CLAIM, installation.platform.image_pull_secret, installation.platform.storage_secret}
    known |= {installation.config.agent.storage_secret, installation.config.agent.repository_keys.secret}
    known |= {text.partition("/")[0] for text in installation.config.defaults.task_secrets.values()}
    return [f"{each['metadata']['name']} in it belongs to somebody else" for each in _foreign(everything, known)]


def _foreign(things: Iterable[Thing], known: Container[str]) -> Iterator[Thing]:
    """Yield what is neither a worker's nor the installation's, nor one of the Secrets that it was told to use."""
    for each in things:
        ours = labels_of(each).get(LABEL_MANAGED) == "true" or labels_of(each).get(MANAGED_BY) == "iriscw"
        if not ours and each["metadata"]["name"] not in known:
            yield each


async def _delete_thing(objects: Objects, path: str, found: Thing, told: Told) -> None:
    name = f"{found.get('kind') or 'NodePool'}/{found['metadata']['name']}"
    try:
        was_there = await objects.delete(path, uid=str(found["metadata"].get("uid") or ""))
    except CloudError as error:
        raise NotRemoved(f"{name}: {error}") from error
    told(f"{name} {'deleted' if was_there else 'was not there'}")


async def _listed(objects: Objects, source: Source) -> tuple[Thing, ...]:
    caller = objects.caller
    return await caller.carry_out(collect(caller.settings, source, caller.rng))
