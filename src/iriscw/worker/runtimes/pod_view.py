"""The pods of this worker's tasks as the API tells of them: one watch for all, and an end for those of nobody.

Theory of operation. Every pod that carries this worker's label is either *held*, for an attempt, or a stray: of an
earlier incarnation of the worker, of an attempt that is over, or the late effect of a request that nobody waited for
any more. Strays are deleted, by uid, for as long as it takes. A name is held before its pod is asked for, and strays
are looked for only when all that is here already was taken up (:meth:`PodView.settle`). Of another incarnation are
those only that were there when this one began to watch: one that comes later is of a later incarnation, which a worker
that was cut off and is still there must leave alone.

That a pod is gone is believed of a deletion that was told, and of a look that was made for it; a list may be older than
the pod. While the API is away everything stays as it was last seen.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Protocol

import anyio
import attrs

from iriscw.cloud.kube.tasks import TaskPod
from iriscw.cloud.model import CloudError, Pod, Relisted, Removed, Upserted, WatchEvent

log = logging.getLogger(__name__)

PAUSE_S = 5.0
"""After a failure, before the API is asked again; the calls themselves have repeated what may be repeated by then."""

STRAY_GRACE_S = 1.0


class TaskPodDriver(Protocol):
    """Where the pods of a worker's tasks are made; see :class:`iriscw.cloud.drivers.kube.task_pods.KubeTaskPods`."""

    def name(self, attempt_uid: str) -> str:
        """Return the name of an attempt's pod."""

    def is_ours(self, pod: Pod) -> bool:
        """Whether a pod is of this incarnation of the worker."""

    async def create(self, task: TaskPod) -> Pod:
        """Have a pod exist."""

    async def look(self, name: str) -> Pod | None:
        """Read a pod; None if there is none."""

    async def delete(self, name: str, uid: str, grace_s: float) -> None:
        """Ask for the deletion of one incarnation of a pod."""

    def watch(self) -> AsyncIterator[WatchEvent]:
        """Return all there are, then every change."""


@attrs.frozen
class ViewStatistics:
    """What a view knows and has done."""

    held: int
    strays: int
    """Now."""
    deleted: int
    failures: int
    """Of the API, that were waited out."""


@attrs.define
class _Held:
    """What is known of one name. ``expected``: its pod is there, or was."""

    pod: Pod | None = None
    expected: bool = False
    gone: bool = False
    bell: anyio.Event = attrs.field(factory=anyio.Event)

    def ring(self) -> None:
        self.bell.set()
        self.bell = anyio.Event()


class PodView:
    """See the module. Run :meth:`follow` and :meth:`sweep` in tasks for as long as it is used.

    Args:
        driver: The API's side.
    """

    def __init__(self, driver: TaskPodDriver) -> None:
        self._driver = driver
        self._held: dict[str, _Held] = {}
        self._others: dict[str, Pod] = {}
        """Pods of nobody."""
        self._watched = False
        """Whether there was a list before."""
        self._settled = anyio.Event()
        self._work = anyio.Event()
        self._deleted = 0
        self._failures = 0

    def statistics(self) -> ViewStatistics:
        """Return figures of now."""
        return ViewStatistics(len(self._held), len(self._others), self._deleted, self._failures)

    # For attempts

    def hold(self, name: str, *, expected: bool = False) -> None:
        """Take a name: its pod is no stray. With ``expected`` there is one, or was."""
        held = self._held.setdefault(name, _Held())
        held.expected = held.expected or expected
        held.pod = self._others.pop(name, held.pod)

    def release(self, name: str) -> None:
        """Have no more to do with a name: its pod, if there is one, is deleted."""
        held = self._held.pop(name, None)
        if held is not None and held.pod is not None and not held.gone:
            self._others[name] = held.pod
            self._work.set()

    def settle(self) -> None:
        """Say that all that was here is held: what is not, is a stray."""
        self._settled.set()

    def told(self, pod: Pod) -> None:
        """Take in what a request answered, unless more is known already."""
        held = self._held.get(pod.name)
        if held is not None:
            held.expected = True
            if held.pod is None or held.pod.uid != pod.uid:
                held.pod = pod
                held.ring()

    def state(self, name: str) -> tuple[Pod | None, bool]:
        """Return the pod of a held name as it was last seen, and whether it is gone."""
        held = self._held.get(name)
        return (None, True) if held is None else (held.pod, held.gone)

    def bell(self, name: str) -> anyio.Event:
        """Return an event that is set when something of a held name is different."""
        held = self._held.get(name)
        return anyio.Event() if held is None else held.bell

    # Tasks

    async def follow(self) -> None:
        """Watch, for ever."""
        while True:
            try:
                async with aclosing(self._driver.watch()) as events:  # type: ignore[type-var]
                    async for event in events:
                        await self._take(event)
            except CloudError as error:
                self._failed("the pods of tasks cannot be watched", error)
            await anyio.sleep(PAUSE_S)

    async def sweep(self) -> None:
        """Delete strays, for ever."""
        await self._settled.wait()
        while True:
            self._work = anyio.Event()
            doing = [pod for pod in self._others.values() if not pod.deleting]
            for pod in doing:
                if self._others.get(pod.name) is pod:
                    await self._delete(pod)
            if not any(not pod.deleting for pod in self._others.values()):
                await self._work.wait()

    async def _delete(self, pod: Pod) -> None:
        try:
            await self._driver.delete(pod.name, pod.uid, STRAY_GRACE_S)
        except CloudError as error:
            self._failed(f"the pod {pod.name} cannot be deleted", error)
            await anyio.sleep(PAUSE_S)
            return
        self._deleted += 1
        if self._others.get(pod.name) is pod:
            del self._others[pod.name]

    def _failed(self, what: str, error: CloudError) -> None:
        self._failures += 1
        log.warning("%s: %s: %s", what, type(error).__name__, error)

    async def _take(self, event: WatchEvent) -> None:
        match event:
            case Relisted(objects=objects):
                pods = {pod.name: pod for pod in objects if isinstance(pod, Pod)}
                for pod in pods.values():
                    self._seen(pod, earlier=not self._watched)
                self._watched = True
                self._others = {name: pod for name, pod in self._others.items() if name in pods}
                for name, held in [*self._held.items()]:
                    if held.expected and not held.gone and name not in pods:
                        await self._confirm(name)
            case Upserted(object=Pod() as pod):
                self._seen(pod)
            case Removed(object=Pod() as pod):
                self._removed(pod)

    def _seen(self, pod: Pod, *, earlier: bool = False) -> None:
        held = self._held.get(pod.name)
        if held is None:
            if earlier or pod.name in self._others or self._driver.is_ours(pod):
                self._others[pod.name] = pod
                self._work.set()
            return
        held.pod, held.expected, held.gone = pod, True, False
        held.ring()

    def _removed(self, pod: Pod) -> None:
        self._others.pop(pod.name, None)
        held = self._held.get(pod.name)
        if held is not None and (held.pod is None or held.pod.uid == pod.uid):
            held.pod, held.expected, held.gone = pod, True, True
            held.ring()

    async def _confirm(self, name: str) -> None:
        """Look for a pod that a list did not have.

        Raises:
            CloudError: it cannot be told.
        """
        found = await self._driver.look(name)
        held = self._held.get(name)
        if held is None:
            return
        if found is None:
            held.gone = True
        else:
            held.pod = found
        held.ring()
