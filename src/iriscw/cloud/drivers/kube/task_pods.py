"""The pods of one worker's tasks, on a Kubernetes cluster: made, watched and ended by the worker itself.

What is decided is decided in :mod:`iriscw.cloud.kube.tasks`; here it is given an API server to talk to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs

from iriscw.cloud.drivers.kube.access import ClusterAccess, find_access
from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.limits import TransportLimits
from iriscw.cloud.drivers.kube.watching import watched
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.kube.tasks import (
    TaskOwner,
    TaskPod,
    TaskPods,
    create_task_pod,
    delete_task_pod,
    look_at_task_pod,
    task_pod_name,
    watched_labels,
)
from iriscw.cloud.kube.watching import PodWatch
from iriscw.cloud.model import LABEL_INCARNATION, Pod, WatchEvent
from iriscw.cloud.ports import CALL_TIMEOUT_S
from iriscw.runtime.vocabulary import SECOND


@attrs.frozen
class KubeTaskPods:
    """The pods of one worker's tasks.

    Args:
        caller: Carries the calls out.
        pods: What they have in common.
        owner: Whose they are.
    """

    caller: Caller
    pods: TaskPods
    owner: TaskOwner

    def name(self, attempt_uid: str) -> str:
        """Return the name of an attempt's pod."""
        return task_pod_name(self.owner, attempt_uid)

    def is_ours(self, pod: Pod) -> bool:
        """Whether a pod is of this incarnation of the worker."""
        return pod.labels.get(LABEL_INCARNATION) == self.owner.incarnation

    async def create(self, task: TaskPod) -> Pod:
        """Have a pod exist; repeating it is fine.

        Raises:
            QuotaExceeded, InvalidSpec, Conflict, Forbidden, Throttled, Unavailable: see ``create_task_pod``.
        """
        caller = self.caller
        return await caller.carry_out(create_task_pod(caller.settings, self.pods, self.owner, task, caller.rng))

    async def look(self, name: str) -> Pod | None:
        """Read a pod; None if there is none.

        Raises:
            Forbidden, Throttled, Unavailable: see ``look_at_task_pod``.
        """
        caller = self.caller
        return await caller.carry_out(look_at_task_pod(caller.settings, name, caller.rng))

    async def delete(self, name: str, uid: str, grace_s: float) -> None:
        """Ask for the deletion of one incarnation of a pod; it counts as done if it is gone.

        Raises:
            Forbidden, Throttled, Unavailable: see ``delete_task_pod``.
        """
        caller = self.caller
        call = delete_task_pod(caller.settings, name, uid, round(grace_s * SECOND), caller.rng)
        await caller.carry_out(call)

    def watch(self) -> AsyncIterator[WatchEvent]:
        """Return what there is of this worker's, its earlier incarnations' among them, then every change.

        Raises:
            Forbidden, Throttled, Unavailable: from the iteration, which is over then.
        """
        return watched(self.caller, PodWatch(self.caller.settings, watched_labels(self.pods, self.owner)))


@asynccontextmanager
async def open_task_pods(
    pods: TaskPods,
    owner: TaskOwner,
    access: ClusterAccess | None = None,
    *,
    limits: TransportLimits | None = None,
    timeout_s: float = CALL_TIMEOUT_S,
) -> AsyncIterator[KubeTaskPods]:
    """Yield the pods of a worker's tasks; nothing is asked of the API before they are used.

    Args:
        pods: What they have in common.
        owner: Whose they are.
        access: The way to the API; by default what ``KUBECONFIG`` names, else the pod's service account.
        limits: Deadlines and sizes of the transport.
        timeout_s: The deadline of a call.

    Raises:
        InvalidAccess, InsecureAccess: there is no way, or none that can be used.
    """
    settings = KubeSettings(cluster=pods.cluster, cluster_name=pods.cluster_name, namespace=pods.namespace)
    async with open_api(access or await find_access(), limits) as api:
        yield KubeTaskPods(Caller(api, settings, timeout_s=timeout_s), pods, owner)
