"""Which objects are ours to touch (INV-F2), and which names they may have. Pure; for all drivers."""

from __future__ import annotations

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


def our_labels(cluster: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Give ``labels`` with those that say whose the object is; what the specification says itself stays."""
    return {LABEL_MANAGED: "true", LABEL_CLUSTER: cluster, **labels}


def check_ours(cluster: str, labels: Mapping[str, str]) -> None:
    """Refuse to touch what belongs to somebody else.

    Raises:
        Conflict: the object is not managed by us, of another cluster, or carries the controller.
    """
    if labels.get(LABEL_MANAGED) != "true" or labels.get(LABEL_CLUSTER) != cluster:
        raise Conflict(f"it does not belong to the cluster {cluster!r}")
    if labels.get(LABEL_ROLE) == ROLE_CONTROLLER:
        raise Conflict("it carries the controller, and is never deleted from here")


def check_name(name: str) -> None:
    """Refuse a name that is no RFC 1123 label.

    Raises:
        InvalidSpec: it is none.
    """
    try:
        plain: str | None = rfc1123(name)
    except InvalidName:
        plain = None
    if plain != name:
        raise InvalidSpec(f"{name!r} is no RFC 1123 label: a-z, 0-9 and '-', at most 63 characters")
