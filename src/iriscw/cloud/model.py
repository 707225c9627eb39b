"""The cloud as values: what a worker has, what it is like, and what was seen of pools, nodes and pods.

Theory of operation. Three kinds of values stand here, and nothing else:

* *Quantities and qualities*: :class:`Capacity` (integers only, so that sums are exact and a commitment
  given back is what was taken) and :class:`Attributes` with the :class:`Constraint` that judges them. They
  lie at the bottom because pods request capacity as tasks do.
* *Wishes*: :class:`NodePoolSpec` and :class:`PodSpec`, what a driver is asked to make true.
* *Observations*: :class:`NodePool`, :class:`Node` and :class:`Pod`, what a driver last saw, each with the
  ``uid`` and ``resource_version`` that later writes carry as preconditions. Identity is the uid, never the
  name.

The world's refusals are the errors at the end: which method raises which stands in :mod:`iriscw.cloud.ports`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, TypeAlias

import attrs

from iriscw._errors import InvalidArgument, OperationError, UsageError

AttributeValue: TypeAlias = str | int

MAX_NAME = 63
"""Characters in a name: RFC 1123 labels, to which pod and pool names keep so that they also fit into label
values."""

LABEL_MANAGED = "iris-managed"
LABEL_CLUSTER = "iris-cluster"
LABEL_CLUSTER_NAME = "iris-cluster-name"
"""What people call the cluster whose ``iris-cluster`` may be a uid. Nothing is decided by it."""
LABEL_GROUP = "iris-scale-group"
LABEL_SLICE = "iris-slice-id"
LABEL_WORKER = "iris-worker-id"
LABEL_INCARNATION = "iris-incarnation"
LABEL_ROLE = "iris-role"
ROLE_CONTROLLER = "controller"
"""``iris-role: controller`` marks what carries the controller itself: never touched (INV-F2)."""


# Quantities


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.4g}{unit}"
        size_bytes /= 1024
    return f"{size_bytes:.4g}TiB"


@attrs.frozen
class Capacity:
    """What a worker has, a task asks for, or attempts have taken. All integers; no unit is ever rounded here.

    ``gpu_class`` names the kind of GPU ("H100"). A demand with an empty class takes any; free capacity
    keeps the class of its worker whatever is taken from it.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpu_count: int = 0
    gpu_class: str = ""

    def fits(self, demand: Capacity) -> bool:
        """Tell whether ``demand`` can be taken from this."""
        return (
            demand.cpu_milli <= self.cpu_milli
            and demand.memory_bytes <= self.memory_bytes
            and demand.disk_bytes <= self.disk_bytes
            and demand.gpu_count <= self.gpu_count
            and (demand.gpu_count == 0 or not demand.gpu_class or demand.gpu_class == self.gpu_class)
        )

    def lacking(self, demand: Capacity) -> tuple[str, ...]:
        """Name what is short for ``demand``, in a fixed order: empty exactly when it :meth:`fits`."""
        short = []
        if demand.cpu_milli > self.cpu_milli:
            short.append("cpu")
        if demand.memory_bytes > self.memory_bytes:
            short.append("memory")
        if demand.disk_bytes > self.disk_bytes:
            short.append("disk")
        if demand.gpu_count > self.gpu_count:
            short.append("gpu")
        if demand.gpu_count and demand.gpu_class and demand.gpu_class != self.gpu_class:
            short.append("gpu_class")
        return tuple(short)

    def shortage(self, demand: Capacity) -> str:
        """Say what is short for ``demand``, with numbers: ``64 CPU asked, 1 there``; empty exactly when it fits."""
        said = {
            "cpu": f"{demand.cpu_milli / 1000:g} CPU asked, {self.cpu_milli / 1000:g} there",
            "memory": f"{_size(demand.memory_bytes)} memory asked, {_size(self.memory_bytes)} there",
            "disk": f"{_size(demand.disk_bytes)} disk asked, {_size(self.disk_bytes)} there",
            "gpu": f"{demand.gpu_count} GPU asked, {self.gpu_count} there",
            "gpu_class": f"GPU class {demand.gpu_class} asked, {self.gpu_class or 'none'} there",
        }
        return "; ".join(said[name] for name in self.lacking(demand))

    def minus(self, demand: Capacity) -> Capacity:
        """Take ``demand`` away, and keep the GPU class. The result may be negative: callers check
        :meth:`fits`.
        """
        return Capacity(
            self.cpu_milli - demand.cpu_milli,
            self.memory_bytes - demand.memory_bytes,
            self.disk_bytes - demand.disk_bytes,
            self.gpu_count - demand.gpu_count,
            self.gpu_class,
        )

    def plus(self, other: Capacity) -> Capacity:
        """Add ``other``. The GPU class is this one's, or that of ``other`` if this one has none."""
        return Capacity(
            self.cpu_milli + other.cpu_milli,
            self.memory_bytes + other.memory_bytes,
            self.disk_bytes + other.disk_bytes,
            self.gpu_count + other.gpu_count,
            self.gpu_class or other.gpu_class,
        )

    def times(self, demand: Capacity) -> int:
        """Tell how often ``demand`` can be taken; a demand for nothing fits :data:`UNLIMITED` times."""
        if not self.fits(demand):
            return 0
        return min(
            (
                have // want
                for have, want in (
                    (self.cpu_milli, demand.cpu_milli),
                    (self.memory_bytes, demand.memory_bytes),
                    (self.disk_bytes, demand.disk_bytes),
                    (self.gpu_count, demand.gpu_count),
                )
                if want > 0
            ),
            default=UNLIMITED,
        )


UNLIMITED = 1 << 30
"""How often a demand for nothing fits: beyond any count a fleet has, and still an exact integer."""


# Qualities


def _sorted_pairs(
    pairs: Mapping[str, AttributeValue] | Iterable[tuple[str, AttributeValue]],
) -> tuple[tuple[str, AttributeValue], ...]:
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return tuple(sorted(dict(items).items()))


@attrs.frozen
class Attributes:
    """What a worker is like: an immutable, hashable mapping from name to text or integer.

    Well-known names: device-type, device-variant, region, zone, pool, preemptible, slice-id, worker-id,
    python ("3.11"), and the labels of the scale group.
    """

    pairs: tuple[tuple[str, AttributeValue], ...] = attrs.field(default=(), converter=_sorted_pairs)
    _index: Mapping[str, AttributeValue] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_index", dict(self.pairs))

    def get(self, name: str) -> AttributeValue | None:
        """Return the value called ``name``, or None."""
        return self._index.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self.pairs)

    def merged(self, other: Attributes) -> Attributes:
        """Return both together; where they differ, ``other`` wins."""
        return Attributes({**self._index, **other._index})


class Op(enum.Enum):
    """How a constraint compares."""

    EQ = "eq"
    NE = "ne"
    EXISTS = "exists"
    NOT_EXISTS = "not_exists"
    GT = "gt"
    GE = "ge"
    LT = "lt"
    LE = "le"
    IN = "in"


_WRITTEN = {
    Op.EQ: "{}={}",
    Op.NE: "{}!={}",
    Op.EXISTS: "{}",
    Op.NOT_EXISTS: "!{}",
    Op.GT: "{}>{}",
    Op.GE: "{}>={}",
    Op.LT: "{}<{}",
    Op.LE: "{}<={}",
    Op.IN: "{} in {}",
}


class Mode(enum.Enum):
    """Whether a constraint must hold, or is only liked."""

    REQUIRED = "required"
    PREFERRED = "preferred"


_OPERANDS: Mapping[Op, tuple[int, int]] = {
    Op.EXISTS: (0, 0),
    Op.NOT_EXISTS: (0, 0),
    Op.IN: (1, 1024),
}
"""Least and most values of an operation; all others take exactly one. 1024: a list of every worker id of a
big job."""


def _number(value: AttributeValue | None) -> int | None:
    if isinstance(value, int):
        return value
    try:
        return int(value) if value is not None else None
    except ValueError:
        return None


@attrs.frozen
class Constraint:
    """A condition on a worker's attributes.

    Orders (GT, GE, LT, LE) compare integers, or texts that spell integers; anything else does not satisfy
    them. NE is satisfied by a missing attribute. ``mode`` is for whoever asks: :meth:`satisfied` tells the
    plain truth.

    Raises:
        InvalidArgument: the number of values is not what the operation takes.
    """

    key: str
    op: Op
    values: tuple[AttributeValue, ...] = attrs.field(default=(), converter=tuple)
    mode: Mode = Mode.REQUIRED

    def __attrs_post_init__(self) -> None:
        least, most = _OPERANDS.get(self.op, (1, 1))
        if not least <= len(self.values) <= most:
            raise InvalidArgument(
                f"constraint on {self.key!r}: {self.op.value} takes {least} to {most} values, not {len(self.values)}"
            )

    @property
    def required(self) -> bool:
        """Whether it must hold."""
        return self.mode is Mode.REQUIRED

    def satisfied(self, attributes: Attributes) -> bool:
        """Tell whether ``attributes`` satisfy this, whatever the mode."""
        value = attributes.get(self.key)
        match self.op:
            case Op.EXISTS:
                return value is not None
            case Op.NOT_EXISTS:
                return value is None
            case Op.EQ:
                return value is not None and str(value) == str(self.values[0])
            case Op.NE:
                return value is None or str(value) != str(self.values[0])
            case Op.IN:
                return value is not None and str(value) in [str(each) for each in self.values]
            case _:
                return self._ordered(_number(value), _number(self.values[0]))

    def _ordered(self, have: int | None, want: int | None) -> bool:
        if have is None or want is None:
            return False
        match self.op:
            case Op.GT:
                return have > want
            case Op.GE:
                return have >= want
            case Op.LT:
                return have < want
            case _:
                return have <= want

    def __str__(self) -> str:
        """Write it as users do: ``region=mars``, ``zone in a,b``, ``!spot``."""
        return _WRITTEN[self.op].format(self.key, ",".join(str(value) for value in self.values))


# Wishes


@attrs.frozen
class NodePoolSpec:
    """A node pool that should exist: ``target_nodes`` nodes of ``instance_type``, labelled ``labels``.

    ``name`` is an RFC 1123 label derived from the slice's id. The labels go onto the pool and onto each of
    its nodes. ``per_node`` is what a node offers: drivers that make nodes out of a budget (``local``)
    reserve it.
    """

    name: str
    instance_type: str
    target_nodes: int
    labels: Mapping[str, str]
    region: str = ""
    compute_class: str = "default"
    per_node: Capacity = attrs.field(factory=Capacity)


@attrs.frozen
class PodSpec:
    """A worker pod that should exist on a node of the pool called ``pool``.

    ``environment`` tells the worker who it is (IRIS_WORKER_ID, IRIS_INCARNATION, ...); drivers add how to
    reach the controller. No value in it is a secret.
    """

    name: str
    pool: str
    labels: Mapping[str, str]
    request: Capacity
    image: str = ""
    environment: Mapping[str, str] = attrs.field(factory=dict)


# Observations


@attrs.frozen
class Condition:
    """One condition of a pool's status, as CoreWeave's API gives it. Unknown types and reasons are tolerated.

    Those that say why nodes are missing are, by type and reason: ``Quota`` with ``Over`` (people have to act),
    ``Capacity`` with ``QueuedAwaitingCapacity`` (nodes come by themselves), and ``Validated`` with the status
    ``"False"`` (none will ever come). :mod:`iriscw.cloud.lifecycle` judges by them; ``message`` is shown to people.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""


@attrs.frozen
class Node:
    """A node as last seen. ``ready``: the kubelet says so. ``usable``: no cordon, and in production state; if not,
    ``closed`` says why, for people.
    """

    name: str
    uid: str
    ready: bool = False
    usable: bool = True
    address: str = ""
    closed: str = ""


@attrs.frozen
class NodePool:
    """A node pool as last seen, with the nodes that carry its labels. ``deleting``: it has a deletion
    timestamp.
    """

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    target_nodes: int = 0
    current_nodes: int = 0
    queued_nodes: int = 0
    in_progress_nodes: int = 0
    deleting: bool = False
    conditions: tuple[Condition, ...] = ()
    nodes: tuple[Node, ...] = ()

    @property
    def ready_nodes(self) -> int:
        """How many of its nodes can take a pod now."""
        return sum(1 for node in self.nodes if node.ready and node.usable)

    def condition(self, *types: str) -> Condition | None:
        """Return the condition of the first of ``types`` that is there: newer names before older ones."""
        for kind in types:
            for condition in self.conditions:
                if condition.type == kind:
                    return condition
        return None


MAX_TOLD = 300
"""Characters of a cloud's message that users are told: the exact verdict, not the list of all nodes."""


class PodPhase(enum.Enum):
    """The phases of Kubernetes, with its names."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def over(self) -> bool:
        """Whether no process of the pod runs any more, and none will."""
        return self in (PodPhase.SUCCEEDED, PodPhase.FAILED)


@attrs.frozen
class Pod:
    """A pod as last seen. ``reason`` is why it waits or how it ended ("ErrImagePull", "OOMKilled"), ``message`` what
    the cloud says of that. ``unset``: its node has not set up its volumes and its network yet, says the node.
    """

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    phase: PodPhase = PodPhase.PENDING
    deleting: bool = False
    node: str = ""
    address: str = ""
    reason: str = ""
    message: str = ""
    unset: bool = False
    exit_code: int | None = None

    @property
    def why(self) -> str:
        """Reason and message in one line, for people; empty if there is neither."""
        text = " ".join(self.message.split())
        text = text if len(text) <= MAX_TOLD else f"{text[:MAX_TOLD]}..."
        return f"{self.reason}: {text}" if self.reason and text else self.reason or text


# What a watch brings


@attrs.frozen
class Relisted:
    """All objects of the watched kind and labels, as they were at one moment: whatever is not in it is gone.

    The first item of every watch, and again whenever the watch lost its place.
    """

    objects: tuple[NodePool | Pod, ...]


@attrs.frozen
class Upserted:
    """An object appeared or changed."""

    object: NodePool | Pod


@attrs.frozen
class Removed:
    """An object is gone: as it was last seen."""

    object: NodePool | Pod


WatchEvent: TypeAlias = Relisted | Upserted | Removed


@attrs.frozen
class ExecResult:
    """What a command left behind. Output beyond the port's bound is cut off, and ``truncated`` says so."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False


@attrs.frozen
class ExecOutput:
    """What a command that is followed says: a piece of its standard output, or of its standard error."""

    data: bytes
    stderr: bool = False


@attrs.frozen
class ExecEnd:
    """How a command that is followed ended. One that a signal killed has 128 and the signal's number."""

    exit_code: int


# The world's refusals: ``str(error)`` is a sentence for users.


class CloudError(OperationError, abstract=True):
    """The cloud said no. ``str(error)`` is a sentence for users."""


class QuotaExceeded(CloudError):
    """The organisation's quota for this kind of machine is used up, or is zero. Only people can change
    that.
    """

    retryable: ClassVar[bool] = True


class NoCapacity(CloudError):
    """The quota would allow it, but the zone has no free machines now. It resolves by itself."""

    retryable: ClassVar[bool] = True


class InvalidSpec(CloudError):
    """The API does not accept the specification: the configuration must change."""


class Conflict(CloudError):
    """The object was changed, or another one has its name: a precondition (uid, resourceVersion) did not
    hold.
    """


class Gone(CloudError):
    """No such object, or none with this uid any more."""


class Forbidden(CloudError):
    """The credentials do not allow it. CoreWeave answers a wrong token so, too (403, never 401)."""


class Throttled(CloudError):
    """The API asks for slower calls. ``retry_after`` is what it asked for, in ns, or 0."""

    retryable: ClassVar[bool] = True

    def __init__(self, text: str = "the API asks for slower calls", retry_after: int = 0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Unavailable(CloudError):
    """The API did not answer, or not in time: whether the call had its effect is unknown. All calls may be
    repeated.
    """

    retryable: ClassVar[bool] = True


class Unseen(Unavailable):
    """Something has the name, and the credentials do not allow to see what: whether it is ours is unknown.

    Unlike :class:`Forbidden` it does not say that the call had no effect: an earlier request of ours may have made
    what has the name. People are told the same: the credentials are what is wrong.
    """


class InvalidName(UsageError, ValueError):
    """A name from which no RFC 1123 label can be made."""


def rfc1123(text: str, limit: int = MAX_NAME) -> str:
    """Make an RFC 1123 label of ``text``: lower case, ``[a-z0-9-]``, at most ``limit`` characters.

    Raises:
        InvalidName: nothing of ``text`` is left.
    """
    plain = "".join(char if char.isascii() and (char.isalnum() or char == "-") else "-" for char in text.lower()).strip(
        "-"
    )[:limit]
    plain = plain.rstrip("-")
    if not plain:
        raise InvalidName(f"no name can be made of {text!r}: it has no letter or digit")
    return plain


MAX_IMAGE_CHARS = 512


def check_image(image: str) -> None:
    """Refuse what no image is called.

    Raises:
        InvalidSpec: it is nothing, longer than a name can be, or has spaces or other signs in it.
    """
    plain = image.isascii() and image.isprintable() and " " not in image
    if not image or not plain or len(image) > MAX_IMAGE_CHARS:
        raise InvalidSpec(
            f"{image[:80]!r} is not an image: a name without spaces, of at most {MAX_IMAGE_CHARS} characters"
        )
