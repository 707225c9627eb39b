"""What actors ask of the cloud, as values: put them into ``Run`` and ``Open``.

Each effect names the port's method that carries it out; the error contract is that method's, and arrives as
the ``error`` of ``Failed``. A real assembly binds them to drivers, a simulated world
interprets the same values itself.

============== ===================== ===================================
value          port's method         ``Completed.value``, or the items
============== ===================== ===================================
CreateNodePool NodePoolDriver.create the NodePool as acknowledged
DeleteNodePool NodePoolDriver.delete None
ListNodePools  NodePoolDriver.list   tuple of NodePool
CreatePod      PodDriver.create      the Pod as acknowledged
DeletePod      PodDriver.delete      None
ListPods       PodDriver.list        tuple of Pod
WatchNodePools NodePoolDriver.watch  Relisted, then Upserted and Removed
WatchPods      PodDriver.watch       Relisted, then Upserted and Removed
============== ===================== ===================================
"""

from __future__ import annotations

from collections.abc import Mapping

from iriscw.cloud.model import NodePoolSpec, PodSpec
from iriscw.runtime.vocabulary import SECOND, message


@message
class CreateNodePool:
    """Make the pool exist."""

    spec: NodePoolSpec


@message
class DeleteNodePool:
    """Delete the pool of this name and uid."""

    name: str
    uid: str


@message
class ListNodePools:
    """Read which pools with these labels exist."""

    labels: Mapping[str, str]


@message
class CreatePod:
    """Make the pod exist."""

    spec: PodSpec


@message
class DeletePod:
    """Delete the pod of this name and uid, giving its processes ``grace`` ns to end."""

    name: str
    uid: str
    grace: int = 30 * SECOND


@message
class ListPods:
    """Read which pods with these labels exist."""

    labels: Mapping[str, str]


@message
class WatchNodePools:
    """A session: everything that happens to the pools with these labels."""

    labels: Mapping[str, str]


@message
class WatchPods:
    """A session: everything that happens to the pods with these labels."""

    labels: Mapping[str, str]
