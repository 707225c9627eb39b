"""What the actors published, for those who wait: watchers of jobs, followers of logs, counters.

The runtime hands every emitted event to :meth:`EventHub.publish`, in order and outside of any decision, once all that
it rests on is durable. Nobody polls: whoever waits for a change of a job subscribes, looks at the present state, and
sleeps until the subscription is rung.

Waiting for news of an order is the same, by its operation's id, of a node, by :func:`node_key`, and of a new job that
has some name, by :func:`name_key`.

Each job has a *version* that grows with its events. It starts at the microseconds since 1970 at which the controller
started, so it also grows from one controller to the next; a watcher that comes back with the last version it saw
misses nothing.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import attrs

from iriscw.controller.progress import ProgressBoard
from iriscw.jobs.meeting.messages import EndpointsChanged
from iriscw.jobs.messages import JobChanged, TaskChanged
from iriscw.jobs.model import JOB_TERMINAL, TASK_TERMINAL
from iriscw.jobs.suspension.messages import SuspensionChanged
from iriscw.nodes.messages import NodeChanged, OrderChanged

MAX_VERSIONS = 20_000
"""Jobs whose version is kept: twice what one controller takes. A forgotten one continues at the highest forgotten."""


ALL_JOBS = "jobs"
"""By what name news of any job is waited for."""

ALL_NODES = "nodes"
"""By what name news of any node is waited for."""


def node_key(node: str) -> str:
    """Return by what name news of a node is waited for."""
    return f"node {node}"


def name_key(namespace: str, name: str) -> str:
    """Return by what name a new job of this name is waited for."""
    return f"name {namespace}/{name}"


class Subscription:
    """One waiter's bell. Rings that come before it waits are not lost."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        """Wake the waiter, now or when it next waits."""
        self._event.set()

    @property
    def rung(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Sleep until rung. Look at the state *after* this returns: one ring may stand for many changes."""
        await self._event.wait()
        self._event = anyio.Event()


class TaskEnds(Subscription):
    """The ends of a job's tasks, for one who waits for them; those of one task if there is an ``only``."""

    def __init__(self, only: int | None = None) -> None:
        super().__init__()
        self._only = only
        self._news: dict[int, TaskChanged] = {}
        self.over = False
        """Whether the job is over. Look before :meth:`take`: no task ends after its job."""

    def note(self, event: JobChanged | TaskChanged) -> None:
        """Take an event of the job."""
        if isinstance(event, TaskChanged):
            if event.state in TASK_TERMINAL and self._only in (None, event.index):
                self._news[event.index] = event
                self.ring()
        elif event.state in JOB_TERMINAL:
            self.over = True
            self.ring()

    def take(self) -> tuple[TaskChanged, ...]:
        """Return the ends since this was asked last."""
        news, self._news = tuple(self._news.values()), {}
        return news


@attrs.frozen
class CheckpointDropped:
    """A checkpoint of a suspended attempt was removed: what else was kept for it can go."""


class EventHub:
    """Hands events on. ``publish`` does not raise, so it may stand in the runtime's ``on_event``.

    Args:
        epoch: microseconds since 1970, from which versions count.
        report: takes every event as well; for the log. Must not raise.
    """

    def __init__(self, epoch: int, report: Callable[[Any], None]) -> None:
        self._floor = epoch
        self._report = report
        self._versions: collections.OrderedDict[str, int] = collections.OrderedDict()
        self._subscribed: dict[str, dict[Subscription, None]] = {}
        self._ends: dict[str, dict[TaskEnds, None]] = {}
        self.progress = ProgressBoard(self._job_changed)
        """How far tasks are; who watches a job is rung when that changes."""
        self.job_changes: collections.Counter[str] = collections.Counter()
        """Events by the state that they announce."""
        self.task_changes: collections.Counter[str] = collections.Counter()

    def publish(self, event: Any) -> None:
        """Take one event from the runtime."""
        if isinstance(event, JobChanged | TaskChanged):
            self.progress.note(event)
            for ends in self._ends.get(event.job_id, ()):
                ends.note(event)
        if isinstance(event, JobChanged):
            self.job_changes[event.state.value] += 1
            self._job_changed(event.job_id)
            if event.name:
                self._named(event)
        elif isinstance(event, TaskChanged):
            self.task_changes[event.state.value] += 1
            self._job_changed(event.job_id)
        elif isinstance(event, SuspensionChanged):
            self._job_changed(event.job_id)
        elif isinstance(event, EndpointsChanged):
            self.ring(event.job_id)
        elif isinstance(event, OrderChanged):
            self._changed(event.operation)
        elif isinstance(event, NodeChanged):
            self.ring(node_key(event.node))
            self.ring(ALL_NODES)
        self._report(event)

    def _named(self, event: JobChanged) -> None:
        """Tell those who wait for a name: a job without a parent has its at the top, too."""
        self.ring(name_key(event.namespace, event.name))
        if event.namespace == event.job_id:
            self.ring(name_key("", event.name))

    def _job_changed(self, job_id: str) -> None:
        self._changed(job_id)
        self.ring(ALL_JOBS)

    def _changed(self, job_id: str) -> None:
        self._versions[job_id] = self.version(job_id) + 1
        self._versions.move_to_end(job_id)
        if len(self._versions) > MAX_VERSIONS:
            _, forgotten = self._versions.popitem(last=False)
            self._floor = max(self._floor, forgotten)
        self.ring(job_id)

    def ring(self, name: str) -> None:
        """Wake all who wait for news of this."""
        for subscription in self._subscribed.get(name, ()):
            subscription.ring()

    def version(self, job_id: str) -> int:
        """Return the job's version now."""
        return self._versions.get(job_id, self._floor)

    @contextlib.contextmanager
    def subscribed(self, *names: str) -> Iterator[Subscription]:
        """Be rung at each change of a job, or at other news, while the block lasts."""
        subscription = Subscription()
        for name in names:
            self._subscribed.setdefault(name, {})[subscription] = None
        try:
            yield subscription
        finally:
            for name in names:
                waiting = self._subscribed[name]
                del waiting[subscription]
                if not waiting:
                    del self._subscribed[name]

    @contextlib.contextmanager
    def ends(self, job_id: str, only: int | None = None) -> Iterator[TaskEnds]:
        """Be told of the ends of a job's tasks while the block lasts; with ``only`` of that task's."""
        subscription = TaskEnds(only)
        self._ends.setdefault(job_id, {})[subscription] = None
        try:
            yield subscription
        finally:
            waiting = self._ends[job_id]
            del waiting[subscription]
            if not waiting:
                del self._ends[job_id]
