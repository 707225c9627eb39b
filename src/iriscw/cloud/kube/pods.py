"""The calls on worker pods: what :class:`iriscw.cloud.ports.PodDriver` promises, request by request."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from iriscw.cloud.kube import ownership
from iriscw.cloud.kube.calls import MalformedAnswer, collect
from iriscw.cloud.kube.handing import give_token
from iriscw.cloud.kube.manifests import pod_manifest
from iriscw.cloud.kube.messages import Call
from iriscw.cloud.kube.parsing import MalformedObject, is_deleting, pod_of, pool_of
from iriscw.cloud.kube.paths import NODE_POOLS, Source, pods_of, selector
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.labels import check_name
from iriscw.cloud.model import LABEL_INCARNATION, LABEL_SLICE, Gone, Pod, PodSpec
from iriscw.runtime.vocabulary import SECOND


def create_pod(settings: KubeSettings, spec: PodSpec, rng: Random, *, token: str = "") -> Call[Pod]:
    """Ask for a pod, once; the contract is that of :meth:`iriscw.cloud.ports.PodDriver.create`.

    With a ``token`` a Secret is made before, of the pod's name, with nothing else in it (``settings.tokens`` has it
    mounted). The pool owns it as it owns the pod.

    Raises:
        QuotaExceeded: the namespace's quota is used up.
        InvalidSpec: the specification is not accepted.
        Conflict: another pod has this name, or one that is being deleted.
        Gone: the pool called ``spec.pool`` does not exist, or is being deleted.
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer; the pod may exist or appear later.
    """
    pod_manifest(settings, spec)  # what cannot be is refused before anything is asked
    check_name(spec.pool)
    pool = yield from ownership.look(settings, f"{NODE_POOLS}/{spec.pool}", rng)
    if pool is None or is_deleting(pool):
        raise Gone(f"there is no pool {spec.pool!r}, or it is being deleted")
    try:
        owner = pool_of(pool).uid
        if token:
            yield from give_token(settings, spec, owner, token, rng)
        manifest = pod_manifest(settings, spec, owner)
        same = (LABEL_INCARNATION, LABEL_SLICE)
        found, _ = yield from ownership.create(settings, pods_of(settings.namespace), manifest, same, rng, once=True)
        return pod_of(found)
    except MalformedObject as malformed:
        raise MalformedAnswer(str(malformed)) from malformed


def delete_pod(settings: KubeSettings, name: str, uid: str, grace: int, rng: Random) -> Call[None]:
    """Ask for a pod's deletion, with ``grace`` ns for its processes; the contract is the port's.

    No grace at all would let the API server forget the pod before its node has ended it, and a pod counts as gone
    only when none of its processes runs any more. So the least that is asked for is a second.

    Raises:
        Gone: there is no pod of this name, or another one with another uid.
        Conflict: it is not ours to delete.
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer; it may have been deleted.
    """
    options = {"gracePeriodSeconds": max(1, -(-grace // SECOND))}
    yield from ownership.delete(settings, pods_of(settings.namespace), name, uid, options, rng)


def list_pods(settings: KubeSettings, labels: Mapping[str, str], rng: Random) -> Call[tuple[Pod, ...]]:
    """Read all pods with these labels, ordered by name.

    Raises:
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    found = yield from collect(settings, Source(pods_of(settings.namespace), selector(labels)), rng)
    return tuple(sorted((pod_of(each) for each in found), key=lambda pod: pod.name))
