"""Whose an object is (INV-F2), and which names and labels an object may have.

The limits are Kubernetes' own, so that a specification that cannot be accepted is refused here, with a sentence, and
costs no request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_MANAGED,
    LABEL_ROLE,
    ROLE_CONTROLLER,
    Conflict,
    InvalidName,
    InvalidSpec,
    rfc1123,
)

MAX_LABELS = 64
"""Labels of one object. Kubernetes has no limit; the nodes of CoreWeave carry about sixty of their own."""

MAX_LABEL_NAME = 63
MAX_LABEL_PREFIX = 253
MAX_LABEL_VALUE = 63
"""Characters, as in apimachinery's ``validation.go``."""

RESERVED_PREFIXES = ("coreweave.com", "coreweave.cloud", "kubernetes.io", "k8s.io")
"""Label prefixes that are the platform's: CoreWeave refuses its own on node pools, Kubernetes its own on nodes."""

_PART = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


class InvalidLabels(InvalidSpec):
    """Labels that Kubernetes or CoreWeave does not accept: too many, too long, of wrong form, or not ours to set."""


def our_labels(cluster: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return ``labels``, in the order of their names, with those that say whose the object is.

    Raises:
        InvalidLabels: they cannot be an object's labels.
    """
    found = {LABEL_MANAGED: "true", LABEL_CLUSTER: cluster, **labels}
    if len(found) > MAX_LABELS:
        raise InvalidLabels(f"an object has at most {MAX_LABELS} labels, not {len(found)}")
    for name, value in found.items():
        _check_label(name, value)
    return dict(sorted(found.items()))


def _check_label(name: str, value: str) -> None:
    prefix, slash, plain = name.rpartition("/")
    if slash and (not _PREFIX.fullmatch(prefix) or len(prefix) > MAX_LABEL_PREFIX):
        raise InvalidLabels(f"{name!r} cannot be the name of a label: its prefix is not a DNS name")
    if not _PART.fullmatch(plain) or len(plain) > MAX_LABEL_NAME:
        raise InvalidLabels(f"{name!r} cannot be the name of a label")
    if any(prefix == reserved or prefix.endswith(f".{reserved}") for reserved in RESERVED_PREFIXES):
        raise InvalidLabels(f"the label {name!r} is the platform's own")
    if len(value) > MAX_LABEL_VALUE or (value and not _PART.fullmatch(value)):
        raise InvalidLabels(f"{value!r} cannot be the value of the label {name!r}")


def check_ours(cluster: str, labels: Mapping[str, str]) -> None:
    """Refuse to touch what belongs to somebody else.

    Raises:
        Conflict: the object is not managed by us, of another cluster, or carries the controller.
    """
    if labels.get(LABEL_MANAGED) != "true" or labels.get(LABEL_CLUSTER) != cluster:
        raise Conflict(f"it does not belong to the cluster {cluster!r}")
    if labels.get(LABEL_ROLE) == ROLE_CONTROLLER:
        raise Conflict("it carries the controller, and is never deleted from here")


def is_name(name: str) -> bool:
    """Whether ``name`` is an RFC 1123 label: only such names are ever put into a path."""
    try:
        return rfc1123(name) == name
    except InvalidName:
        return False


def check_name(name: str) -> None:
    """Refuse a name that is not an RFC 1123 label.

    Raises:
        InvalidSpec: it is none.
    """
    if not is_name(name):
        raise InvalidSpec(f"{name!r} is not an RFC 1123 label: a-z, 0-9 and '-', at most 63 characters")
