"""Whether the controller is there, as all calls of one client see it together.

A controller that restarts is away for less than a second, which is worth no word. One that stays away is told of
once, as a warning of ``iriscw.client``, however many calls wait for it; the next call that is answered ends the matter.
A cluster that a process of this machine keeps ends with that process: then waiting is of no use, and calls end at once.
"""

from __future__ import annotations

import logging
import os
import re
from typing import Final

import anyio

from iriscw.errors import OperationError
from iriscw.processes.identity import ProcessIdentity, is_alive
from iriscw.rpc.errors import RpcCancelled, RpcDeadline, RpcUnavailable

log = logging.getLogger("iriscw.client")

QUIET_S: Final = 1.0
"""How long a controller may be away before anybody is told: a restart takes less."""

_ERRNO = re.compile(r"\[Errno (\d{1,4})\]")


class Contact:
    """Notes when calls find nobody, and when they are answered.

    Args:
        address: of the controller, for people.
        owner: the process that keeps the cluster up; None if nobody knows one, or it is another machine's.
    """

    def __init__(self, address: str, owner: ProcessIdentity | None = None) -> None:
        self._address = address
        self._owner = owner
        self._since_s: float | None = None
        self._told = False

    def settled(self) -> None:
        """Note that the controller has answered, or that a call no longer waits: the next one tells anew."""
        self._since_s = None
        self._told = False

    def lost(self, error: OperationError, patience_s: float, since_s: float | None = None) -> None:
        """Note that a call found nobody; tell its user if that has lasted.

        Args:
            error: what the call met; what the controller itself said is an answer.
            patience_s: how long the call goes on trying, in seconds, for the text.
            since_s: when the call began, if it never had an answer.

        Raises:
            RpcUnavailable: the process that kept the cluster up has ended.
        """
        if not isinstance(error, RpcUnavailable):
            if not isinstance(error, RpcDeadline | RpcCancelled):
                self.settled()
            return
        if self._owner is not None and not is_alive(self._owner):
            raise RpcUnavailable(
                f"the cluster at {self._address} has ended (process {self._owner.pid} is gone)"
            ) from error
        now_s = anyio.current_time()
        if self._since_s is None:
            self._since_s = now_s if since_s is None else since_s
        if self._told or now_s - self._since_s < QUIET_S:
            return
        self._told = True
        log.warning("iriscw: cannot reach %s (%s); trying for %g s", self._address, why(error), patience_s)


def why(error: BaseException) -> str:
    """Say in two or three words why there is no connection: ``connection refused``."""
    cause = error.__cause__
    if isinstance(cause, TimeoutError):
        return "no answer"
    if isinstance(cause, OSError):
        numbers = _ERRNO.findall(str(cause))  # of a name with several addresses: those of all of them
        text = os.strerror(int(numbers[-1])) if numbers and not (cause.errno or 0) < 0 else cause.strerror
        text = text or "no connection"
    else:
        text = str(cause if cause is not None else error) or "connection lost"
    text = text[:1].lower() + text[1:]
    return text if text.isprintable() else ascii(text)  # a peer's words must not command a terminal
