"""How a worker is handed its token: as a Secret of its pod's name, which only that pod mounts.

Theory of operation. The Secret is made before the pod, which would not start without it, and the slice's pool owns it:
however late a request lands, what it made goes with the pool. Nobody reads it back, so a name that is taken is taken
for ours: the name is that of one incarnation of one worker, and whoever puts another token there keeps a worker from
being known, and gains nothing.
"""

from __future__ import annotations

import base64
from random import Random
from typing import Any

from iriscw.cloud.kube.calls import ask
from iriscw.cloud.kube.manifests import labels_for, owned_by
from iriscw.cloud.kube.messages import ApiRequest, Call
from iriscw.cloud.kube.mounts import TOKEN_KEY
from iriscw.cloud.kube.paths import secrets_of
from iriscw.cloud.kube.refusals import answered, judged, narrowed
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.labels import is_name
from iriscw.cloud.model import Forbidden, InvalidSpec, PodSpec, QuotaExceeded, Throttled


def token_manifest(settings: KubeSettings, spec: PodSpec, pool_uid: str, token: str) -> dict[str, Any]:
    """Write the Secret of a pod.

    Raises:
        InvalidLabels: a label cannot be.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": spec.name,
            "namespace": settings.namespace,
            "labels": labels_for(settings, spec.labels),
            "ownerReferences": [owned_by(spec.pool, pool_uid)],
        },
        "type": "Opaque",
        "immutable": True,
        "data": {TOKEN_KEY: base64.b64encode(token.encode()).decode()},
    }


def give_token(settings: KubeSettings, spec: PodSpec, pool_uid: str, token: str, rng: Random) -> Call[None]:
    """Make the Secret of a pod exist.

    Raises:
        QuotaExceeded: the namespace's quota is used up.
        InvalidSpec: it is not accepted.
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer; it may exist.
    """
    manifest = token_manifest(settings, spec, pool_uid, token)
    response = yield from ask(settings, ApiRequest("POST", secrets_of(settings.namespace), body=manifest), rng)
    status = answered(response)
    if response.code not in (200, 201, 202) and status.reason != "AlreadyExists":
        raise narrowed(judged(status), QuotaExceeded, InvalidSpec, Forbidden, Throttled)


def drop_token(settings: KubeSettings, pod: str, rng: Random) -> Call[None]:
    """Remove the Secret of a pod that is gone; it counts as done if there is none.

    Raises:
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer; it may have been removed.
    """
    if not is_name(pod):
        return
    response = yield from ask(settings, ApiRequest("DELETE", f"{secrets_of(settings.namespace)}/{pod}"), rng)
    if response.code not in (200, 202, 404):
        raise narrowed(judged(answered(response)), Forbidden, Throttled)
