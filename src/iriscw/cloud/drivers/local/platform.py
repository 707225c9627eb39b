"""A cloud on this machine: pools are folders and a share of a budget, nodes boot, pods are real processes.

Theory of operation. :class:`LocalPlatform` plays the API server, the cloud's provisioning and the kubelets.
It holds records (see ``records``), each saved before the change it describes is acted on, and one task per
pod that leads it through its life::

    wait for a node  ->  start, or adopt what an earlier controller started  ->  wait for its end
                     ->  wait for its deletion  ->  nothing of it is left: remove its folder

Deletion may come at any of these points; it first asks the processes to end. The pod's supervisor
(:mod:`iriscw.processes.supervisor`) guarantees that the end is reported only when no process of it runs.

The platform belongs to one controller at a time. Closing it leaves the pods running, as a cloud does when
its client goes away; opening it again relists and adopts. Only deletion ends them.

Changes are made one at a time under a lock, because saving waits for the disk; the disk is waited for in a
thread.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import attrs
from anyio.abc import TaskGroup

from iriscw.cloud.drivers.local.attempts import end_life, life_of
from iriscw.cloud.drivers.local.folder import Folder
from iriscw.cloud.drivers.local.life import RETRY_S, PodLife, insist, judge, on_disk, stop_pod
from iriscw.cloud.drivers.local.records import (
    NodeRecord,
    PodRecord,
    PoolRecord,
    lacking,
    place,
    pod_seen,
    pool_seen,
)
from iriscw.cloud.drivers.local.token_files import TokenFiles
from iriscw.cloud.drivers.watching import Watchers
from iriscw.cloud.model import (
    LABEL_GROUP,
    Capacity,
    NodePool,
    Pod,
    PodPhase,
    Removed,
    Upserted,
)
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.environment import basic_environment, installer_settings
from iriscw.processes.supervised import NotStarted, Program, Supervised, adopt, launch
from iriscw.processes.sweep import SweepFailed, sweep

POD_MARKER = "IRISCW_POD_UID"
"""The variable by which all processes of a pod are found, whatever they did to hide; but not those of attempts, which
may leave it (:mod:`iriscw.cloud.drivers.local.attempts`)."""

ORPHAN_AFTER_S = 600.0
"""For how long a pod's worker dials a controller that is not there, before it ends itself: nobody else would end the
processes of a controller that was killed for good. 30 leases of the local platform's default: its attempts have ended
long before, and the next controller has had time to come for their results.
"""

ORPHAN_VARIABLE = "IRISCW_ORPHAN_AFTER_S"
"""By which workers are told; ``options.environment`` wins."""

GPU_BOUND = "CUDA_VISIBLE_DEVICES"
"""What says which GPUs of the machine are ours at all: it holds for workers, too."""

POD_LOG_BYTES = 10 << 20
"""Of a pod's log, ``pod.log``; what came before is in ``pod.log.1``, which is as large. The kubelet's limit for a
container's log, which keeps five.
"""

POOL_GRACE_S = 5.0
"""What the pods of a deleted pool get to end by themselves: a real node that is taken away gives as little.
"""


@attrs.frozen
class LocalOptions:
    """How the platform behaves.

    ``argv`` is what a pod runs; ``environment`` goes into every pod beside the pod's own and may hold
    secrets (it is never saved). ``budget`` is what all pools may take together.
    """

    root: Path
    budget: Capacity
    cluster: str = "local"
    argv: Sequence[str] = (sys.executable, "-m", "iriscw.worker")
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    boot_delay_s: float = 1.0
    cache: Path | None = None
    """Where workers keep their attempts, if pods are workers."""
    tokens: TokenFiles | None = None
    """Of workers; without it pods have none."""
    group_environment: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """What goes into the pods of one scale group beside all that."""


class LocalPlatform:
    """The platform. Use :func:`open_platform`; the drivers beside this module are its doors."""

    def __init__(self, options: LocalOptions, tasks: TaskGroup) -> None:
        """Take the options and the group in which pods are led."""
        self.options = options
        self.boot_delay_s = options.boot_delay_s
        """May be changed at any time: the nodes that begin to boot from then on take so long."""
        self.folder = Folder(options.root)
        self.pools: dict[str, PoolRecord] = {}
        self.pods: dict[str, PodRecord] = {}
        self.pool_watchers = Watchers(self.pools_seen)
        self.pod_watchers = Watchers(self.pods_seen)
        self.lock = anyio.Lock()
        self._tasks = tasks
        self.lives: dict[str, PodLife] = {}
        self._versions = itertools.count(1)

    # What there is.

    def pools_seen(self) -> tuple[NodePool, ...]:
        """Return all pools, ordered by name."""
        return tuple(pool_seen(self.pools[name]) for name in sorted(self.pools))

    def pods_seen(self) -> tuple[Pod, ...]:
        """Return all pods, ordered by name."""
        return tuple(pod_seen(self.pods[name]) for name in sorted(self.pods))

    def environment_of(self, record: PodRecord) -> dict[str, str]:
        """Return the whole environment of a pod's processes, but for the marker.

        The share of the budget stands in it, because no cgroup says it: see ``iriscw.worker.probe``.
        """
        request = record.spec.request
        return {
            **basic_environment(os.environ),
            **installer_settings(os.environ),
            **{name: os.environ[name] for name in (GPU_BOUND,) if name in os.environ},
            ORPHAN_VARIABLE: f"{ORPHAN_AFTER_S:g}",
            **self.options.environment,
            **record.spec.environment,
            **(self.options.tokens.environment_of(record.spec.name) if self.options.tokens is not None else {}),
            **self.options.group_environment.get(record.spec.labels.get(LABEL_GROUP, ""), {}),
            "IRIS_VM_ADDRESS": record.address,
            "IRISCW_CPU_MILLI": str(request.cpu_milli),
            "IRISCW_MEMORY_BYTES": str(request.memory_bytes),
            "IRISCW_DISK_BYTES": str(request.disk_bytes),
            "IRISCW_GPU_COUNT": str(request.gpu_count),
        }

    # Changes. All need the lock.

    async def change_pool(self, record: PoolRecord) -> PoolRecord:
        """Save a pool under a new version, and tell the watchers."""
        record = attrs.evolve(record, version=next(self._versions))
        await on_disk(self.folder.save_pool, record)
        self.pools[record.spec.name] = record
        self.pool_watchers.tell(Upserted(pool_seen(record)))
        return record

    async def change_pod(self, record: PodRecord) -> PodRecord:
        """Save a pod under a new version, and tell the watchers."""
        record = attrs.evolve(record, version=next(self._versions))
        await on_disk(self.folder.save_pod, record)
        self.pods[record.spec.name] = record
        self.pod_watchers.tell(Upserted(pod_seen(record)))
        return record

    async def grant(self) -> None:
        """Give room in the budget to the pools that wait for it, oldest first, and let their nodes boot."""
        for record in sorted(self.pools.values(), key=lambda pool: pool.version):
            if record.deleting:
                continue
            if record.granted:
                await self._fill(record)
                continue
            short = lacking(self.options.budget, self.pools, record)
            if not short:
                await self._fill(await self.change_pool(attrs.evolve(record, granted=True, lacking=())))
            elif short != record.lacking:
                await self.change_pool(attrs.evolve(record, lacking=short))

    async def _fill(self, record: PoolRecord) -> None:
        """Add nodes until the pool has as many as it should."""
        missing = record.spec.target_nodes - len(record.nodes)
        if missing <= 0:
            return
        taken = {node.number for pool in self.pools.values() for node in pool.nodes}
        numbers = (number for number in itertools.count(1) if number not in taken)
        new = tuple(
            NodeRecord(f"{record.spec.name}-{uid[:6]}", uid, number)
            for uid, number in zip((uuid.uuid4().hex for _ in range(missing)), numbers, strict=False)
        )
        await self.change_pool(attrs.evolve(record, nodes=record.nodes + new))
        for node in new:
            self._tasks.start_soon(self._boot, record.spec.name, node.uid)

    async def schedule(self) -> None:
        """Give nodes to the pods that wait for one."""
        for record in sorted(self.pods.values(), key=lambda pod: pod.version):
            pool = self.pools.get(record.spec.pool)
            if record.node or record.deleting or pool is None:
                continue
            node = place(pool, self.pods, record)
            if node is None:
                if not record.reason:
                    await self.change_pod(attrs.evolve(record, reason="Unschedulable: no ready node has room"))
                continue
            await self.change_pod(attrs.evolve(record, node=node.name, address=node.address, reason=""))
            self.lives[record.uid].woken.set()

    def begin_pod(self, record: PodRecord) -> None:
        """Begin to lead a pod that was saved."""
        life = self.lives[record.uid] = PodLife()
        if record.node or record.deleting:
            life.woken.set()
        if record.deleting:
            life.deleted.set()
        self._tasks.start_soon(self._lead, record.spec.name, record.uid)

    async def end_pod(self, record: PodRecord, grace_s: float) -> None:
        """Begin the deletion of a pod; a second one may shorten the grace."""
        if record.deleting and grace_s >= record.grace_s:
            return
        await self.change_pod(attrs.evolve(record, deleting=True, grace_s=grace_s))
        life = self.lives[record.uid]
        again = life.deleted.is_set()
        life.deleted.set()
        life.woken.set()
        if again and life.running is not None:
            self._tasks.start_soon(stop_pod, life.running, grace_s)

    async def end_pool(self, record: PoolRecord) -> None:
        """Begin the deletion of a pool with its pods."""
        if record.deleting:
            return
        await self.change_pool(attrs.evolve(record, deleting=True))
        self._tasks.start_soon(self._remove_pool, record.spec.name, record.uid)

    # Tasks.

    async def _boot(self, pool_name: str, uid: str) -> None:
        await anyio.sleep(self.boot_delay_s)
        await insist(lambda: self._booted(pool_name, uid))

    async def _booted(self, pool_name: str, uid: str) -> None:
        async with self.lock:
            record = self.pools.get(pool_name)
            if record is None or record.deleting or all(node.uid != uid for node in record.nodes):
                return
            nodes = tuple(attrs.evolve(n, ready=True) if n.uid == uid else n for n in record.nodes)
            await self.change_pool(attrs.evolve(record, nodes=nodes))
            await self.schedule()

    async def _remove_pool(self, name: str, uid: str) -> None:
        await insist(lambda: self._end_pods(name))
        for life in [self.lives[pod.uid] for pod in self.pods.values() if pod.spec.pool == name]:
            await life.over.wait()
        await insist(lambda: self._forget_pool(name, uid))

    async def _end_pods(self, pool: str) -> None:
        async with self.lock:
            for pod in [pod for pod in self.pods.values() if pod.spec.pool == pool]:
                await self.end_pod(pod, POOL_GRACE_S)

    async def _forget_pool(self, name: str, uid: str) -> None:
        async with self.lock:
            record = self.pools.get(name)
            if record is None or record.uid != uid:
                return
            await on_disk(self.folder.remove_pool, name)
            del self.pools[name]
            self.pool_watchers.tell(Removed(pool_seen(record)))
            await self.grant()

    async def _lead(self, name: str, uid: str) -> None:
        """Lead a pod through its life."""
        life = self.lives[uid]
        await life.woken.wait()
        record = self.pods[name]
        if record.node and not record.phase.over:
            await self._run(record, life)
        await life.deleted.wait()
        await insist(lambda: self._forget_pod(name, uid))
        life.over.set()

    async def _forget_pod(self, name: str, uid: str) -> None:
        if uid not in self.lives:
            return
        await self._swept(name, uid)  # commands that were run in it through a connection
        async with self.lock:
            record = self.pods[name]
            await on_disk(self.folder.remove_pod, record)
            if self.options.tokens is not None:
                await on_disk(self.options.tokens.remove, name)
            del self.pods[name], self.lives[uid]
            self.pod_watchers.tell(Removed(pod_seen(record)))
            await self.schedule()

    async def _swept(self, name: str, uid: str) -> None:
        """Kill what carries the pod's marker, and its attempts; say so while something does not die (INV-F7)."""
        while True:
            try:
                await sweep({POD_MARKER: uid})
                await self._end_attempts(self.pods[name])
            except (SweepFailed, OSError) as error:
                await insist(functools.partial(self._explain, name, f"Stuck: {error}"))
                await anyio.sleep(RETRY_S)
            else:
                return

    async def _end_attempts(self, record: PodRecord) -> None:
        """End the attempts that are its worker's, those that began elsewhere too, and none that moved away."""
        cache = self.options.cache
        life = None if cache is None else life_of(cache, record.spec.environment)
        if cache is not None and life is not None:
            await end_life(cache, life)

    async def _explain(self, name: str, reason: str) -> None:
        async with self.lock:
            record = self.pods[name]
            if record.reason != reason:
                await self.change_pod(attrs.evolve(record, reason=reason))

    async def _run(self, record: PodRecord, life: PodLife) -> None:
        """Start or adopt the pod's processes, wait for their end, and save how it was."""
        try:
            running = await self._start(record, life)
        except (NotStarted, OSError) as error:
            await self._finish(record, PodPhase.FAILED, f"{type(error).__name__}: {error}", None)
            return
        if running is None:
            return
        life.running = running
        await insist(lambda: self._show_running(record.spec.name))
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_when_deleted, record.spec.name, life, running)
            ending = await self._ending(record, running)
            group.cancel_scope.cancel()
        await self._swept(record.spec.name, record.uid)  # what it is told to have left may be started elsewhere
        phase, reason = judge(ending, life.loss)
        await self._finish(record, phase, reason, ending.code)

    async def _show_running(self, name: str) -> None:
        async with self.lock:
            current = self.pods[name]
            if current.phase is PodPhase.PENDING:
                await self.change_pod(attrs.evolve(current, phase=PodPhase.RUNNING))

    async def _ending(self, record: PodRecord, running: Supervised) -> ProcessEnd:
        while True:
            try:
                return await running.wait()
            except SweepFailed:
                await self._swept(record.spec.name, record.uid)
            except OSError:  # too many open files, say: it passes
                await anyio.sleep(RETRY_S)

    async def _start(self, record: PodRecord, life: PodLife) -> Supervised | None:
        """Adopt what an earlier controller started, else start; None if it is to be deleted before it began."""
        folder = self.folder.pod(record)
        markers = {POD_MARKER: record.uid}
        running = await self._adopt(record, folder, markers)
        if running is not None or life.deleted.is_set():
            return running
        return await launch(
            Program(
                argv=tuple(self.options.argv),
                folder=folder,
                workdir=folder / "work",
                stdout=self.folder.pod_log(record),
                stderr=self.folder.pod_log(record),
                environment=self.environment_of(record),
                markers=markers,
                log_limit_bytes=POD_LOG_BYTES,
            )
        )

    async def _adopt(self, record: PodRecord, folder: Path, markers: Mapping[str, str]) -> Supervised | None:
        while True:
            try:
                return await adopt(folder, markers)
            except SweepFailed:
                await self._swept(record.spec.name, record.uid)

    async def _stop_when_deleted(self, name: str, life: PodLife, running: Supervised) -> None:
        await life.deleted.wait()
        await stop_pod(running, self.pods[name].grace_s)

    async def _finish(self, record: PodRecord, phase: PodPhase, reason: str, code: int | None) -> None:
        async def show() -> None:
            async with self.lock:
                current = self.pods[record.spec.name]
                await self.change_pod(attrs.evolve(current, phase=phase, reason=reason, exit_code=code))
                await self.schedule()

        await insist(show)

    # Beginning and end.

    async def recover(self) -> None:
        """Read the folder and go on where an earlier controller stopped.

        Raises:
            WorkdirCorrupt: a record cannot be read.
        """
        pools, pods = await anyio.to_thread.run_sync(self.folder.load)
        versions = [pool.version for pool in pools] + [pod.version for pod in pods]
        self._versions = itertools.count(max(versions, default=0) + 1)
        self.pools = {record.spec.name: record for record in pools}
        self.pods = {record.spec.name: record for record in pods}
        if self.options.tokens is not None:
            await on_disk(self.options.tokens.remove_others, self.pods.keys())
        for pod in pods:
            self.begin_pod(pod)
        for pool in pools:
            if pool.deleting:
                self._tasks.start_soon(self._remove_pool, pool.spec.name, pool.uid)
            for node in pool.nodes:
                if not node.ready:
                    self._tasks.start_soon(self._boot, pool.spec.name, node.uid)
        async with self.lock:
            await self.grant()
            await self.schedule()

    async def destroy(self) -> None:
        """Delete every pool and pod, and return when no process and no folder of them is left."""
        async with self.lock:
            for pool in list(self.pools.values()):
                await self.end_pool(pool)
        await self.until(lambda: not self.pools and not self.pods)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition``, which is looked at after every change of a pool or pod; it must not
        raise.
        """
        changed = anyio.Event()

        async def notice(watchers: Watchers) -> None:
            nonlocal changed
            async with aclosing(watchers.watch({})) as watch:
                async for _ in watch:
                    changed.set()

        async with anyio.create_task_group() as group:
            group.start_soon(notice, self.pool_watchers)
            group.start_soon(notice, self.pod_watchers)
            while not condition():
                await changed.wait()
                changed = anyio.Event()
            group.cancel_scope.cancel()


@asynccontextmanager
async def open_platform(options: LocalOptions) -> AsyncIterator[LocalPlatform]:
    """Open the platform in ``options.root``, with whatever an earlier controller left there.

    Leaving the block stops nothing: the pods run on, and the next controller adopts them.

    Raises:
        WorkdirLocked: another controller has it open.
        WorkdirCorrupt: a record in it cannot be read.
    """
    failure: Exception | None = None
    with Folder(options.root).locked():
        async with anyio.create_task_group() as tasks:
            platform = LocalPlatform(options, tasks)
            try:
                await platform.recover()
                yield platform
            except Exception as error:  # noqa: BLE001  # raised below: the group would wrap it
                failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
