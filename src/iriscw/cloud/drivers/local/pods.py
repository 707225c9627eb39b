"""The PodDriver of the local platform."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping

import attrs

from iriscw.cloud.drivers.local.platform import LocalPlatform
from iriscw.cloud.drivers.local.records import PodRecord, pod_seen
from iriscw.cloud.drivers.watching import carries
from iriscw.cloud.labels import check_name, check_ours, our_labels
from iriscw.cloud.model import LABEL_INCARNATION, Conflict, Gone, Pod, PodSpec, WatchEvent


@attrs.frozen
class LocalPodDriver:
    """Pods as real processes; see :class:`~iriscw.cloud.ports.PodDriver`."""

    platform: LocalPlatform

    async def create(self, spec: PodSpec) -> Pod:
        """Ask for a pod; it starts once a node of its pool is ready and has room."""
        check_name(spec.name)
        platform = self.platform
        async with platform.lock:
            pool = platform.pools.get(spec.pool)
            if pool is None or pool.deleting:
                raise Gone(f"there is no pool {spec.pool!r}")
            present = platform.pods.get(spec.name)
            if present is not None:
                same = present.spec.labels.get(LABEL_INCARNATION) == spec.labels.get(LABEL_INCARNATION)
                if not same or present.spec.pool != spec.pool or present.deleting:
                    raise Conflict(f"another pod has the name {spec.name!r}, or it is being deleted")
                return pod_seen(present)
            if platform.options.tokens is not None:
                await platform.options.tokens.write(spec)
            labels = our_labels(platform.options.cluster, spec.labels)
            record = await platform.change_pod(PodRecord(attrs.evolve(spec, labels=labels), uuid.uuid4().hex, 0))
            platform.begin_pod(record)
            await platform.schedule()
        return pod_seen(record)

    async def delete(self, name: str, uid: str, grace_s: float = 30.0) -> None:
        """Ask for the deletion of a pod."""
        async with self.platform.lock:
            record = self.platform.pods.get(name)
            if record is None or record.uid != uid:
                raise Gone(f"there is no pod {name!r} with the uid {uid}")
            check_ours(self.platform.options.cluster, record.spec.labels)
            await self.platform.end_pod(record, grace_s)

    async def list(self, labels: Mapping[str, str]) -> tuple[Pod, ...]:
        """Return all pods with these labels."""
        return tuple(pod for pod in self.platform.pods_seen() if carries(pod, labels))

    def watch(self, labels: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """Return what there is, then every change."""
        return self.platform.pod_watchers.watch(labels)
