"""What an installation keeps secret: which files there are, and the Secrets that are made of them.

The files lie in a folder of the operator's own, under the names of the Secrets' keys, and stay there: they are the only
copy that can be read, and what is missing in the folder is what is made anew. The authority's own key
(:data:`AUTHORITY_PRIVATE_KEY`) never leaves it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from iriscw.deploy.errors import NoSecretMaterial
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import (
    ADMIN_TOKEN_KEY,
    AUTHORITY_KEY,
    AUTHORITY_SECRET,
    CERTIFICATE_KEY,
    CLUSTER_SECRET_KEY,
    CONTROLLER_SECRET_KEYS,
    CONTROLLER_SECRETS,
    METRICS_KEY,
    METRICS_SECRET,
    METRICS_TOKEN_KEY,
    PRIVATE_KEY_KEY,
    object_labels,
)
from iriscw.deploy.rendering import RenderedObject

AUTHORITY_PRIVATE_KEY: Final = "ca.key"
"""Whoever has it can pass for the controller."""

TOKENS: Final = (CLUSTER_SECRET_KEY, ADMIN_TOKEN_KEY)
"""Those without which the controller does not start."""

PAIR: Final = (CERTIFICATE_KEY, PRIVATE_KEY_KEY)
SENT: Final = (*CONTROLLER_SECRET_KEYS, AUTHORITY_KEY)
"""The files that become keys of Secrets."""

FILE_BYTES: Final = 2**18
"""Of one file: a certificate with its whole chain has some KiB, and a Secret at most 1 MiB."""


def secret_manifests(installation: Installation, files: Mapping[str, bytes]) -> tuple[RenderedObject, ...]:
    """Return the Secrets that files make, by the name of the file.

    Where the network is trusted no certificate is sent: a door that has one speaks TLS, and nobody would ask it so.

    Raises:
        NoSecretMaterial: one is missing that the controller cannot do without.
    """
    wanted = {*TOKENS} if installation.controller.insecure_plaintext else {*SENT} - {METRICS_TOKEN_KEY}
    if installation.controller.service_monitor or files.get(METRICS_TOKEN_KEY):
        wanted.add(METRICS_TOKEN_KEY)  # a folder of an earlier release has none, and does without
    missing = [name for name in SENT if name in wanted and not files.get(name)]
    if missing:
        raise NoSecretMaterial(f"there is no {', '.join(missing)}: --secrets-to makes what is missing")
    inside: dict[str, bytes] = {name: files[name] for name in CONTROLLER_SECRET_KEYS if name in wanted}
    text = "What only the controller knows: tokens, and its certificate's key."
    made = [RenderedObject(_secret(installation, CONTROLLER_SECRETS, inside), text)]
    if AUTHORITY_KEY in wanted:
        text = "Whom workers and clients trust."
        body = _secret(installation, AUTHORITY_SECRET, {AUTHORITY_KEY: files[AUTHORITY_KEY]})
        made.append(RenderedObject(body, text))
    if METRICS_TOKEN_KEY in wanted:
        text = "What reads figures, and nothing else."
        body = _secret(installation, METRICS_SECRET, {METRICS_KEY: files[METRICS_TOKEN_KEY].strip()})
        made.append(RenderedObject(body, text))
    return tuple(made)


def _secret(installation: Installation, name: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": installation.namespace,
            "labels": object_labels(installation.cluster, "controller"),
        },
        "type": "Opaque",
        "data": {key: base64.b64encode(data).decode("ascii") for key, data in files.items()},
    }
