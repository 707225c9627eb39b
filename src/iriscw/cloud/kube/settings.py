"""How the driver behaves towards one cluster: names, what its pods look like, and every limit and pause it keeps.

All spans are ns. The defaults are what a real cluster wants; a simulated world may choose smaller ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from iriscw.errors import InvalidArgument
from iriscw.runtime.vocabulary import MILLISECOND, SECOND


@attrs.frozen(kw_only=True)
class KubeSettings:
    """One cluster as the driver deals with it.

    Raises:
        InvalidArgument: a limit is not positive, or a least pause is longer than the most.
    """

    cluster: str
    """The value of ``iris-cluster``: whose the objects are."""
    namespace: str = "iris"

    # What worker pods are made of.
    image: str = ""
    """The image of pods whose specification names none."""
    command: tuple[str, ...] = ()
    """What the container runs; empty: what its image says."""
    image_pull_secrets: tuple[str, ...] = ()
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Added to each pod's own environment, which wins. No value is a secret."""
    controller_address: str = ""
    """Where workers find the controller, as ``host:port``."""
    worker_port: int = 10001
    cache_dir: str = "/var/cache/iris"
    """Where a pod's scratch volume is mounted; empty: nowhere."""
    infiniband_groups: tuple[str, ...] = ()
    """Scale groups whose pods ask for ``rdma/ib``."""
    grace: int = 30 * SECOND
    """What a pod's processes get to end by themselves if nobody says otherwise (Kubernetes' default)."""

    # Requests. Rates and page size are those of client-go's users (kube-controller-manager, reflectors).
    qps: float = 20.0
    burst: int = 30
    page_limit: int = 500
    object_limit: int = 50_000
    """Objects that one list or watch holds at most: ten times a cluster of 5,000 nodes, the tested maximum."""
    attempts: int = 5
    """Times one request of a call is made before its caller hears of the failure."""
    pause_least: int = 200 * MILLISECOND
    pause_most: int = 5 * SECOND
    """Between two attempts: from the least, doubling, to the most (both of CoreWeave's own Terraform provider)."""
    retry_after_most: int = 10 * SECOND
    """A server that asks for more patience than this is told of to the caller, who has better things to do."""

    # Watches.
    watch_timeout: int = 240 * SECOND
    """The server ends a watch after about this long: bounds what a connection that went silent can hide."""
    watch_margin: int = 15 * SECOND
    """A watch that is still open so long after its timeout is taken for dead."""
    watch_interval: int = 1 * SECOND
    """Between the beginnings of two lists, or of two watches, at least."""
    watch_pause_least: int = 500 * MILLISECOND
    watch_pause_most: int = 30 * SECOND
    """Pauses after failures, doubling: those of client-go's reflector (0.8 s to 30 s)."""
    watch_lasting: int = 10 * SECOND
    """A watch that was open so long was no failure, though it brought nothing."""
    relist_after: int = 4
    """Failures in a row after which a watch lists again: its resource version may be what is wrong."""
    patience: int = 120 * SECOND
    """A watch that hears nothing but failures for so long ends with ``Unavailable``."""
    resync: int = 0
    """A watch that ends so long after its last list lists again, for good measure; 0: never."""

    def __attrs_post_init__(self) -> None:
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise InvalidArgument(f"{name} must be positive, not {getattr(self, name)}")
        for least, most in (("pause_least", "pause_most"), ("watch_pause_least", "watch_pause_most")):
            if getattr(self, least) > getattr(self, most):
                raise InvalidArgument(f"{least} is longer than {most}")


_POSITIVE = (
    *("qps", "burst", "page_limit", "object_limit", "attempts", "pause_least", "pause_most", "watch_timeout"),
    *("watch_margin", "watch_interval", "watch_pause_least", "watch_pause_most", "watch_lasting", "relist_after"),
    "patience",
)
