"""Leases of nodes: one for each in ``kube-node-lease``, by which a kubelet says that it lives.

Theory of operation. A real kubelet renews its lease every 10 s, and a node whose lease was not renewed for some 40 s is
called silent: by the clock of who looks, since the times in it are the kubelet's. A write per node and 10 s is most of
what an API server's store does, and says nothing while all is well. So here a lease is written when a kubelet begins,
for the last time before it falls silent, and when it is back; between these it is renewed without being written. That
a node is silent follows from the silence itself (:mod:`iriscw_sims.coreweave.nodes`), as late as the missing lease
would show it.
"""

from __future__ import annotations

from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.site import KUBELET, Site
from iriscw_sims.kube.clock import written_micro
from iriscw_sims.kube.kinds import Json

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_S = 40
"""``nodeLeaseDurationSeconds`` of the kubelet."""

LOST = (403, 404, 409)
"""Answers to a kubelet whose lease, or its namespace, somebody has removed, or made before it."""


class Leases:
    """Writes the leases of nodes."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def renew(self, machine: Machine) -> None:
        """Have a kubelet write its lease, by its own clock."""
        now = written_micro(self._site.clock_of(machine))
        path = f"{LEASES}/{machine.name}"
        if self._site.ask("PATCH", path, {"spec": {"renewTime": now}}, KUBELET, accept=LOST) is None:
            self._site.ask("POST", LEASES, _lease(machine, now), KUBELET, accept=LOST)

    def end(self, machine: Machine) -> None:
        """Remove the lease of a node that has left, as the garbage collector does."""
        self._site.ask("DELETE", f"{LEASES}/{machine.name}", None, KUBELET, accept=LOST)


def _lease(machine: Machine, now: str) -> Json:
    owner = {"apiVersion": "v1", "kind": "Node", "name": machine.name, "uid": machine.uid}
    return {
        "metadata": {"name": machine.name, "ownerReferences": [owner], "managedFields": []},
        "spec": {"holderIdentity": machine.name, "leaseDurationSeconds": LEASE_S, "renewTime": now},
    }
