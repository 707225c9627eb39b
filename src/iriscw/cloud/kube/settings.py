"""How the driver behaves towards one cluster: names, what its pods look like, and every limit and pause it keeps.

All spans are ns. The defaults are what a real cluster wants; a simulated world may choose smaller ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from iriscw._errors import InvalidArgument
from iriscw.cloud.kube import words
from iriscw.cloud.model import LABEL_GROUP, Capacity
from iriscw.runtime.vocabulary import MILLISECOND, SECOND


@attrs.frozen
class SecretKey:
    """Where a secret value is: a Secret's name, and one of its keys."""

    name: str
    key: str


@attrs.frozen
class Taint:
    """A taint of a pool's nodes."""

    key: str
    value: str
    effect: str


@attrs.frozen(kw_only=True)
class GroupSettings:
    """What the pools and pods of one scale group have beyond the usual."""

    infiniband: bool = False
    """Whether pods ask for ``rdma/ib``."""
    gpu_class: str = ""
    """What pods want of a node's ``gpu.nvidia.com/class``; empty: nothing."""
    interruptable: bool = False
    """Whether pods stand nodes that may be taken away."""
    taints: tuple[Taint, ...] = ()
    """Of the nodes; the pods tolerate them."""
    task_image: str = ""
    """What tasks run in that have a pod of their own each; empty: they are processes in the worker's pod."""
    most: Capacity | None = None
    """What pods request at most, of CPU and memory: what a node has left for them. None: whatever they are for."""

    @property
    def tolerated(self) -> tuple[str, ...]:
        """The keys of the taints that its pods tolerate."""
        more = (words.INTERRUPTABLE_TAINT,) if self.interruptable else ()
        return (*words.OUR_TOLERATIONS, *more, *(taint.key for taint in self.taints))


@attrs.frozen(kw_only=True)
class KubeSettings:
    """One cluster as the driver deals with it.

    Raises:
        InvalidArgument: a limit is not positive, or a least pause is longer than the most.
    """

    cluster: str
    """The value of ``iris-cluster``: whose the objects are."""
    cluster_name: str = ""
    """What people call it: ``iris-cluster-name``; empty: no such label."""
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
    """Where a pod's cache is mounted; empty: nowhere."""
    node_cache_dir: str = ""
    """Where that is on the node, and outlives the pod; empty: a scratch volume of the pod's own."""
    config_map: str = ""
    """Mounted at ``/etc/iris`` if it is there; empty: none."""
    storage_secret: str = ""
    """Mounted at ``/etc/iris/credentials`` if it is there; empty: none."""
    authority_secret: str = ""
    """Whose ``ca.crt`` workers trust instead of the system's authorities; empty: none."""
    plaintext: bool = False
    """Whether workers send their token without TLS: the network is trusted."""
    tokens: bool = False
    """Whether each pod has a Secret of its own name, with its token."""
    task_secrets: Mapping[str, SecretKey] = attrs.field(factory=dict)
    """Variables of tasks, and where their values are."""
    priority_class: str = ""
    """Of worker pods; empty: the cluster's default."""
    health_patience: int = 120 * SECOND
    """How long a worker may take until its ``/health`` answers."""
    groups: Mapping[str, GroupSettings] = attrs.field(factory=dict)
    """What scale groups have beyond the usual, by their names."""
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

    @property
    def tolerated(self) -> Mapping[str, tuple[str, ...]]:
        """The keys of the taints that pods tolerate, by scale group, where they are not the usual ones."""
        return {name: group.tolerated for name, group in self.groups.items()}

    def group(self, labels: Mapping[str, str]) -> GroupSettings:
        """Return what the scale group has that the labels name."""
        return self.groups.get(labels.get(LABEL_GROUP, ""), _USUAL)


_USUAL = GroupSettings()

_POSITIVE = (
    *("qps", "burst", "page_limit", "object_limit", "attempts", "pause_least", "pause_most", "watch_timeout"),
    *("watch_margin", "watch_interval", "watch_pause_least", "watch_pause_most", "watch_lasting", "relist_after"),
    *("patience", "health_patience"),
)
