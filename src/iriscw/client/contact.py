"""Whether the controller is there, as all calls of one client see it together.

A controller that restarts is away for less than a second, which is worth no word. One that stays away is told of
once, as a warning of ``iriscw.client``, however many calls wait for it; the next call that is answered ends the matter.
One that takes a connection and says nothing (its process is stopped, its disk hangs) is told of in the same words.
A cluster that a process of this machine keeps ends with that process: then waiting is of no use, and calls end at once.
Where its folder outlives it, the next one there takes its jobs up at the same address, and is waited for.
Where somebody sits and waits for a first answer, a port of this machine at which nobody listens is mostly a wrong
address, or a cluster that is down: then calls end after seconds, as those of other command lines do (kubectl ends at
once). Of another machine's it may be a controller that moves: Kubernetes refuses connections until its pod is ready.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import attrs

from iriscw._errors import OperationError
from iriscw.processes.identity import ProcessIdentity, is_alive
from iriscw.rpc.errors import NO_KEEPALIVE, RpcCancelled, RpcDeadline, RpcUnavailable

log = logging.getLogger("iriscw.client")

QUIET_S: Final = 1.0
"""How long a controller may be away before anybody is told: a restart takes less."""

HANG_S: Final = 2.0
"""How long a call may be without an answer before anybody is told: on a busy machine one takes a second at times."""

REFUSED_S: Final = 3.0
"""How long a command is refused before its first answer until it ends: a controller that restarts is back by then."""

NO_ANSWER: Final = "no answer"
_REFUSALS: Final = tuple(os.strerror(number).lower() for number in (errno.ECONNREFUSED, errno.ENOENT))
"""Nobody listens at the port, or there is no such socket."""

_ERRNO = re.compile(r"\[Errno (\d{1,4})\]")


@attrs.frozen
class Keeper:
    """A process of this machine that keeps a cluster, or the way to one, up."""

    process: ProcessIdentity
    gone: str
    """What its user is told when it has ended."""
    comes_back: bool = False
    """Whether another one takes the jobs up, at the same address."""


class Contact:
    """Notes when calls find nobody, and when they are answered.

    Args:
        address: of the controller, for people.
        keeper: of the cluster; None if nobody knows one, or it is another machine's.
        refused_s: how long connections may be refused before the first answer; None: as long as the call has patience.
    """

    def __init__(self, address: str, keeper: Keeper | None = None, *, refused_s: float | None = None) -> None:
        self._address = address
        self._keeper = keeper
        self._refused_s = refused_s
        self._since_s: float | None = None
        self._refused_since_s: float | None = None
        self._told = False
        self._why = NO_ANSWER
        self._timers: set[asyncio.TimerHandle] = set()

    def settled(self, *, answered: bool = True) -> None:
        """Note that the controller has answered, or that a call no longer waits: the next one tells anew."""
        if answered:
            self._refused_s = None
            if self._told:
                log.warning("iriscw: %s answers again", self._address)
        self._since_s = self._refused_since_s = None
        self._told = False
        self._why = NO_ANSWER
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    @contextmanager
    def awaited(self, patience_s: float) -> Iterator[None]:
        """While the block waits for an answer, tell its user if none comes: one that hangs meets no error for long.

        Args:
            patience_s: how long the block waits at most, in seconds, for the text.
        """
        self._timers.add(asyncio.get_running_loop().call_later(HANG_S, self._tell, patience_s))
        try:
            yield
        except BaseException:
            self.settled(answered=False)
            raise
        self.settled()

    def lost(self, error: OperationError, patience_s: float, since_s: float | None = None) -> None:
        """Note that a call found nobody; tell its user if that has lasted.

        Args:
            error: what the call met; what the controller itself said is an answer.
            patience_s: how long the call goes on trying, in seconds, for the text.
            since_s: when the call began, if it never had an answer.

        Raises:
            RpcUnavailable: what kept the cluster up has ended, and nothing takes its place; or ``error`` itself, if for
                ``refused_s`` nobody has listened there whenever a call tried, and no call was answered yet.
        """
        if not isinstance(error, RpcUnavailable):
            self._refused_since_s = None
            if not isinstance(error, RpcDeadline | RpcCancelled):
                self.settled()
            return
        gone = "" if self._keeper is None or is_alive(self._keeper.process) else self._keeper.gone
        if self._keeper is not None and gone and not self._keeper.comes_back:
            raise RpcUnavailable(gone) from error
        now_s = anyio.current_time()
        if self._since_s is None:
            self._since_s = now_s if since_s is None else since_s
        self._why = why(error)
        if self._why not in _REFUSALS:
            self._refused_since_s = None
        elif self._refused_s is not None:
            if self._refused_since_s is None:
                self._refused_since_s = now_s
            patience_s = min(patience_s, self._refused_s)
            if now_s - self._refused_since_s >= patience_s:
                self.settled(answered=False)
                raise error
        # That there is no answer has taken its time to be found out.
        if self._why == NO_ANSWER or now_s - self._since_s >= QUIET_S:
            self._tell(patience_s, gone)

    def _tell(self, patience_s: float, gone: str = "") -> None:
        if not self._told:
            self._told = True
            trouble = gone or f"cannot reach {self._address} ({self._why})"
            log.warning("iriscw: %s; trying for %g s", trouble, patience_s)


def why(error: BaseException) -> str:
    """Say in two or three words why there is no connection: ``connection refused``."""
    cause = error.__cause__
    if isinstance(cause, TimeoutError) or str(cause) == NO_KEEPALIVE:
        return NO_ANSWER
    if isinstance(cause, OSError):
        numbers = _ERRNO.findall(str(cause))  # of a name with several addresses: those of all of them
        text = os.strerror(int(numbers[-1])) if numbers and not (cause.errno or 0) < 0 else cause.strerror
        text = text or "no connection"
    else:
        text = str(cause if cause is not None else error) or "connection lost"
    text = text[:1].lower() + text[1:]
    return text if text.isprintable() else ascii(text)  # a peer's words must not command a terminal
