"""What a container says and does when somebody looks into it: the seam between ``kubectl logs`` and a simulation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs

from iriscw_sims.serve.ports import Conversation


@attrs.frozen
class LogLine:
    """One line of a container's log, without its end: its number since the beginning, when (ns since 1970), what."""

    number: int
    at: int
    text: bytes


@attrs.frozen
class Command:
    """A command to run in a container."""

    pod: Mapping[str, Any]
    container: str
    argv: tuple[str, ...]
    tty: bool = False


class ExecStreams(Protocol):
    """The standard streams of a command."""

    def stdin(self) -> AsyncIterator[bytes]:
        """Return what the caller types, until its end; nothing at all if the caller has no input to give."""
        ...

    async def stdout(self, data: bytes) -> None:
        """Tell the caller something."""

    async def stderr(self, data: bytes) -> None:
        """Tell the caller something, on the other stream; with a terminal it is the same one."""


class PodStreams(Protocol):
    """Who knows what goes on inside the containers of a simulation."""

    def exec_ready(self, node: Mapping[str, Any], now: int) -> bool:
        """Tell whether a node's containers can be reached: on a new node, tunnels take their time to stand."""
        ...

    def log(self, pod: Mapping[str, Any], container: str, now: int, first: int = 0) -> Sequence[LogLine]:
        """Return what is left of a container's log at ``now``, the oldest line first, from the number ``first`` on."""
        ...

    def next_line(self, pod: Mapping[str, Any], container: str, now: int) -> int | None:
        """Return when the next line comes, in ns since 1970, as far as is known; ``None`` if none will."""
        ...

    async def exec(self, command: Command, streams: ExecStreams, now: int) -> int:
        """Run a command in a container and give its exit code."""
        ...


Dialled: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""A connection to something that really listens."""


@runtime_checkable
class PodDials(Protocol):
    """Who can connect to what really listens in containers."""

    async def dial(self, pod: Mapping[str, Any], port: int) -> Dialled | None:
        """Connect to a port of a pod that runs; None: nothing listens there."""
        ...


@runtime_checkable
class PodPorts(Protocol):
    """Who knows what listens in containers: what ``PodStreams`` may be beside that."""

    def connect(self, pod: Mapping[str, Any], port: int, now: int) -> Conversation | None:
        """Connect to a port of a pod that runs; None: nothing listens there."""
        ...
