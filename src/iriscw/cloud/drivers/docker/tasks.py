"""The containers of one worker's tasks on a Docker engine: what a kubelet does for pods, done for them.

Theory of operation. Kubernetes takes an order and carries it out by itself; an engine does one thing at a time for
whoever asks and waits. So what is ordered here is carried out by tasks of this driver: one that *makes* a container
(fetches the image if it is missing, creates, starts, and tries again with growing pauses), and one that *ends* it
(SIGTERM, after the grace SIGKILL, then removes it). What they are at is told as a pod is told of by its kubelet: an
image that cannot be had is ``ErrImagePull``, and the attempt's own patience decides when it is given up.

A call of the engine is never cancelled in the middle, as it may take effect all the same: an end waits for the making
to be over. Only a fetch is, which leaves nothing. What a worker that is killed leaves half made is found by its labels
by the next one: without an order a container starts nothing.

The engine tells of changes (``/events``); where that ends everything is listed anew.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from iriscw.cloud.docker.containers import (
    IMAGE,
    MAX_SAID_CHARS,
    SETUP,
    ContainerOwner,
    TaskContainers,
    container_body,
    container_labels,
    container_name,
    pod_of_container,
    watched_filters,
)
from iriscw.cloud.drivers.docker.engine import DockerEngine, open_engine
from iriscw.cloud.kube.tasks import UV_CACHE, TaskPod
from iriscw.cloud.model import (
    LABEL_INCARNATION,
    LABEL_WORKER,
    CloudError,
    Conflict,
    Gone,
    Pod,
    PodPhase,
    Relisted,
    Removed,
    Unavailable,
    Upserted,
    WatchEvent,
)
from iriscw.files import make_private_folder

log = logging.getLogger(__name__)

PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0)
"""Between tries; the last one from then on."""

CLOSING_S: Final = 10.0
"""How long leaving waits for what is being ended; the next worker does the rest, by label."""

FORGOTTEN_S: Final = 3600.0
"""How long a container that has ended is left for its own worker, before any other one removes it."""


@attrs.define(eq=False)
class _Making:
    """A container that is being made. ``unwanted``: it is to be ended; ``over``: no call for it is under way."""

    image: str
    body: dict[str, Any]
    reason: str = ""
    message: str = ""
    unwanted: bool = False
    fetch: anyio.CancelScope | None = None
    wake: anyio.Event = attrs.field(factory=anyio.Event)
    over: anyio.Event = attrs.field(factory=anyio.Event)


class DockerTasks:
    """See the module; a :class:`~iriscw.worker.runtimes.pod_view.TaskPodDriver`. Use :func:`open_docker_tasks`.

    Args:
        engine: Where they run.
        containers: What they have in common.
        owner: Whose they are.
        group: Runs what is under way.
    """

    def __init__(
        self, engine: DockerEngine, containers: TaskContainers, owner: ContainerOwner, group: anyio.abc.TaskGroup
    ) -> None:
        self._engine, self._containers, self._owner, self._group = engine, containers, owner, group
        self._making: dict[str, _Making] = {}
        self._ending: dict[str, anyio.Event] = {}
        """Those that are being ended; the event is set when one is gone."""
        self._changed: set[str] = set()
        self._bell = anyio.Event()
        self._broken: CloudError | None = None

    def name(self, attempt_uid: str) -> str:
        """Return the name of an attempt's container."""
        return container_name(self._owner, attempt_uid)

    def is_ours(self, pod: Pod) -> bool:
        """Whether a container is of this incarnation of the worker."""
        return pod.labels.get(LABEL_INCARNATION) == self._owner.incarnation

    # Making

    async def create(self, task: TaskPod) -> Pod:
        """Have a container made; repeating it is fine. What becomes of it is told by the watch.

        Raises:
            InvalidSpec: it cannot be.
            Conflict: it is being ended.
        """
        name = self.name(task.attempt_uid)
        if name in self._ending:
            raise Conflict(f"the container {name} is being ended")
        if name not in self._making:
            body = container_body(self._containers, self._owner, task)
            self._making[name] = _Making(body["Image"], body)
            self._group.start_soon(self._make, name)
        return self._half_made(name)

    async def _make(self, name: str) -> None:
        making = self._making[name]
        try:
            for pause_s in _pauses():
                if making.unwanted or await self._made(name, making):
                    return
                self._note(name)
                with anyio.move_on_after(pause_s):
                    await making.wake.wait()
        finally:
            del self._making[name]
            making.over.set()
            self._note(name)

    async def _made(self, name: str, making: _Making) -> bool:
        """Take the steps that are left, as far as they go; say whether there is nothing more to do."""
        making.reason, failed = "", SETUP
        try:
            try:
                await self._begin(name, making)
            except Gone:  # the image is; or, from the start, the container: somebody removed it
                failed = IMAGE
                await self._fetch(name, making)
                failed = SETUP
                await self._begin(name, making)
        except CloudError as error:
            if not making.unwanted and not await self._has_failed(name):
                making.reason, making.message = failed, str(error)[:MAX_SAID_CHARS]
                return False
        return True

    async def _begin(self, name: str, making: _Making) -> None:
        """Create and start a container that somebody wants."""
        with anyio.CancelScope(shield=True):
            if making.unwanted:
                return
            try:
                await self._engine.call("POST", "/containers/create", query={"name": name}, body=making.body)
            except Conflict:
                log.info("the container %s is there already", name)
            if not making.unwanted:
                await self._engine.call("POST", f"/containers/{name}/start")

    async def _fetch(self, name: str, making: _Making) -> None:
        """Fetch the image, for as long as somebody wants it."""
        self._note(name)
        making.fetch = anyio.CancelScope()
        try:
            with making.fetch:
                await self._engine.pull(making.image)
        finally:
            making.fetch = None

    async def _has_failed(self, name: str) -> bool:
        """Whether the engine knows that a container cannot be started: that, it tells itself."""
        try:
            found = await self._inspect(name)
        except CloudError:
            return False
        return found is not None and found.phase.over

    def _half_made(self, name: str) -> Pod:
        making = self._making[name]
        labels = container_labels(self._owner)
        deleting = name in self._ending
        return Pod(name, name, "", labels, PodPhase.PENDING, deleting, reason=making.reason, message=making.message)

    # Ending

    async def delete(self, name: str, uid: str, grace_s: float) -> None:
        """Have a container ended and removed; it counts as done if there is none. ``uid`` is its name."""
        if name in self._ending or uid != name:
            return
        self._ending[name] = anyio.Event()
        if (making := self._making.get(name)) is not None:
            making.unwanted = True
            making.wake.set()
            if making.fetch is not None:
                making.fetch.cancel()
        self._note(name)
        self._group.start_soon(self._end, name, max(0.0, grace_s))

    async def _end(self, name: str, grace_s: float) -> None:
        try:
            if (making := self._making.get(name)) is not None:
                await making.over.wait()
            for pause_s in _pauses():
                try:
                    with anyio.CancelScope(shield=True):
                        await self._ended(name, grace_s)
                except CloudError as error:
                    log.warning("the container %s cannot be ended now: %s", name, error)
                else:
                    return
                await anyio.sleep(pause_s)
        finally:
            self._ending.pop(name).set()
            self._note(name)

    async def _ended(self, name: str, grace_s: float) -> None:
        try:
            seconds = -(-int(grace_s * 1000) // 1000)
            await self._engine.call("POST", f"/containers/{name}/stop", query={"t": str(seconds)}, more_s=grace_s)
            await self._engine.call("DELETE", f"/containers/{name}", query={"force": "1", "v": "1"})
        except Gone:
            return
        except Conflict as error:  # it is being removed already
            raise Unavailable(str(error)) from error

    async def ended(self) -> None:
        """Wait until nothing is being ended any more."""
        for event in [*self._ending.values()]:
            await event.wait()

    # Telling

    async def look(self, name: str) -> Pod | None:
        """Read a container; None if there is none.

        Raises:
            Forbidden, Unavailable: nobody knows.
        """
        found = await self._inspect(name)
        if found is not None:
            return attrs.evolve(found, deleting=name in self._ending)
        return self._half_made(name) if name in self._making else None

    async def _inspect(self, name: str) -> Pod | None:
        try:
            found = await self._engine.call("GET", f"/containers/{name}/json")
        except Gone:
            return None
        try:
            return pod_of_container(found)
        except (ValueError, AttributeError) as error:
            raise Unavailable(f"the Docker engine shows the container {name} in a form that is not known") from error

    async def watch(self) -> AsyncIterator[WatchEvent]:
        """Yield what there is of this worker's, its earlier incarnations' among them, then every change.

        Raises:
            Forbidden, Unavailable: from the iteration, which is over then.
        """
        filters = watched_filters(self._owner)
        async with self._engine.events(filters) as events:
            self._broken = None
            reading = anyio.CancelScope()
            self._group.start_soon(self._read, events, reading)
            try:
                yield await self._all(filters)
                while True:
                    bell, names, self._changed = self._bell, self._changed, set()
                    for name in sorted(names):
                        pod = await self.look(name)
                        gone = Pod(name, name, "", container_labels(self._owner))
                        yield Removed(gone) if pod is None else Upserted(pod)
                    if self._broken is not None:
                        raise self._broken
                    if not self._changed:
                        await bell.wait()
            finally:
                reading.cancel()

    async def _all(self, filters: str) -> Relisted:
        found = await self._listed({"all": "1", "filters": filters})
        names = {name for name, _ in found} | {*self._making}
        pods = [await self.look(name) for name in sorted(names)]
        return Relisted(tuple(pod for pod in pods if pod is not None))

    async def _listed(self, query: Mapping[str, str]) -> list[tuple[str, Mapping[str, Any]]]:
        """Return containers by name.

        Raises:
            Forbidden, Unavailable: nobody knows.
        """
        found = await self._engine.call("GET", "/containers/json", query=query)
        unknown = "the Docker engine lists containers in a form that is not known"
        if not isinstance(found, list):
            raise Unavailable(unknown)
        try:
            return [(str(each["Names"][0]).removeprefix("/"), each) for each in found]
        except (LookupError, TypeError) as error:
            raise Unavailable(unknown) from error

    async def _read(self, events: AsyncIterator[Mapping[str, Any]], reading: anyio.CancelScope) -> None:
        with reading:
            try:
                async for event in events:
                    about = (event.get("Actor") or {}).get("Attributes") or {}
                    if event.get("Type") == "container" and about.get("name"):
                        self._note(str(about["name"]))
            except CloudError as error:
                self._broken = error
                self._note("")

    def _note(self, name: str) -> None:
        if name:
            self._changed.add(name)
        self._bell.set()
        self._bell = anyio.Event()

    # What others left

    async def tidy(self, now: datetime | None = None) -> int:
        """Remove containers of tasks that ended long ago, whosever they were: a worker that was killed for good.

        Give how many. Failures are logged: the next worker tries again.
        """
        now = now or datetime.now(UTC)
        removed = 0
        try:
            query = {"all": "1", "filters": '{"label":["iris-managed=task"],"status":["exited","dead","created"]}'}
            for name, each in await self._listed(query):
                if (each.get("Labels") or {}).get(LABEL_WORKER) == self._owner.worker_id:
                    continue
                found = await self._engine.call("GET", f"/containers/{name}/json")
                if _over_for(found, now) > FORGOTTEN_S:
                    await self._engine.call("DELETE", f"/containers/{name}", query={"v": "1"})
                    removed += 1
        except (CloudError, LookupError, ValueError, TypeError) as error:
            log.warning("what others left on the Docker engine stays for now: %s", error)
        return removed


def _pauses() -> Iterator[float]:
    yield from PAUSES_S
    while True:
        yield PAUSES_S[-1]


def _over_for(found: Mapping[str, Any], now: datetime) -> float:
    """Return for how long a container has been over, s: since it ended, or was made where it never began."""
    ended = str(found["State"]["FinishedAt"])
    since = str(found["Created"]) if ended.startswith("0001") else ended
    return (now - datetime.fromisoformat(f"{since[:19]}+00:00")).total_seconds()


@asynccontextmanager
async def open_docker_tasks(containers: TaskContainers, owner: ContainerOwner) -> AsyncIterator[DockerTasks]:
    """Yield the containers of a worker's tasks. Those that run go on when the block is left.

    Raises:
        Forbidden, Unavailable: the engine cannot be used; said before anything else is done.
        OSError: the packages' cache cannot be made.
    """
    await anyio.to_thread.run_sync(make_private_folder, Path(owner.cache_dir) / UV_CACHE)
    async with open_engine(containers.socket) as engine, anyio.create_task_group() as group:
        driver = DockerTasks(engine, containers, owner, group)
        await driver.tidy()
        try:
            yield driver
        finally:
            with anyio.move_on_after(CLOSING_S, shield=True):
                await driver.ended()
            group.cancel_scope.cancel()
