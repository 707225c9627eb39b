"""Who is calling: the facts of the call that a service method is serving, in a context variable.

The generated service classes pass a method its message and nothing else; this is where the rest is found. The
variable is set in the task that runs the method and in what that task starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar

import attrs

from iriscw.rpc.errors import NotInsideCall, PermissionDenied
from iriscw.rpc.tokens import Principal, Role

IDEMPOTENCY_KEY = "iriscw-idempotency-key"
"""Metadata: the key under which the service recognises a repeated call."""

AtOnce = Callable[[bytes], bytes | None]
"""Gives the bytes of the answer to the bytes of a message; None leaves the message to the call's method. Called between
two reads of the socket: it neither blocks nor raises. What it leaves it may be asked about once more."""

PROTOCOL_KEY = "iriscw-protocol"
"""Metadata: the version of the protocol that the caller speaks."""

PROTOCOL_VERSION = "1"
"""Changes when an old peer could misread a new one. Additions to messages do not change it."""


@attrs.frozen(kw_only=True)
class CallContext:
    """The call being served."""

    method: str
    """``/package.Service/Method``."""

    peer: str
    """The caller's address, or ``unix``. For logs, never for identity."""

    principal: Principal

    deadline_s: float
    """On the event loop's clock; the method is cancelled then."""

    metadata: Mapping[str, str | bytes] = attrs.field(repr=False)
    """What the caller sent along, without its token."""

    _answering: Callable[[AtOnce], None] | None = attrs.field(default=None, repr=False, eq=False)

    def answer_at_once(self, answer: AtOnce) -> None:
        """Have small messages of this stream answered as they arrive, before the method reads them.

        What is answered so may overtake what the method is still at, and its answer what the method has not sent yet.
        Call it when the first answer of the method has been sent.

        Args:
            answer: gives the bytes of the answer to the bytes of a message, or None to leave it to the method.
        """
        if self._answering is not None:
            self._answering(answer)

    @property
    def idempotency_key(self) -> str:
        """The caller's key; empty if it gave none."""
        return str(self.metadata.get(IDEMPOTENCY_KEY, ""))

    def require(self, *roles: Role) -> Principal:
        """Return the caller if it has one of ``roles``.

        Raises:
            PermissionDenied: it has not.
        """
        if self.principal.role not in roles:
            allowed = " or ".join(role.value for role in roles)
            raise PermissionDenied(f"{self.method} is for {allowed}, not for {self.principal}")
        return self.principal


_current: ContextVar[CallContext] = ContextVar("iriscw_call")


def call_context() -> CallContext:
    """Return the call that this task serves.

    Raises:
        NotInsideCall: it serves none.
    """
    try:
        return _current.get()
    except LookupError:
        raise NotInsideCall("no call is being served here") from None


def enter_call(context: CallContext) -> None:
    """Set the call that this task, and what it starts from here on, serves. For the server only."""
    _current.set(context)
