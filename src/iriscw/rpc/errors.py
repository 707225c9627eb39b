"""What can go wrong between two processes, by name.

A caller sees three kinds of failure: the connection failed (:class:`RpcUnavailable`, :class:`RpcDeadline`),
the door refused (:class:`Unauthenticated`, :class:`PermissionDenied`, :class:`VersionMismatch`,
:class:`MessageTooLarge`), or the service itself raised an error, which arrives as the class it was raised as
(:mod:`iriscw.rpc.status`).
"""

from __future__ import annotations

from typing import Final

from iriscw._errors import InternalError, OperationError, UsageError

NO_KEEPALIVE: Final = "no answer to keepalive"
"""Why a connection ends whose peer takes bytes and says nothing: its process is stopped, or its network is gone."""


class RpcUnavailable(OperationError):
    """The peer cannot be reached, went away during the call, or is stopping.

    A call that was under way may have had its effect. A call marked safe, or one with an idempotency key, is
    retried by the channel until its deadline; this error is what the last attempt met.
    """

    retryable = True


class RpcDeadline(OperationError, TimeoutError):
    """The call's deadline passed before its answer came. What was asked may have happened, or may still
    happen.
    """

    retryable = True


class RpcCancelled(OperationError):
    """The peer cancelled the call."""

    retryable = True


class Unauthenticated(UsageError):
    """The door does not know the caller: no token, or not one of its own."""


class PermissionDenied(UsageError):
    """The door knows the caller, and this call is not among what such a caller may do."""


class VersionMismatch(UsageError):
    """The two sides speak different versions of the protocol, or the peer does not offer the method
    called.
    """


class MessageTooLarge(UsageError):
    """A message is larger than the limit of the side that sends or receives it: in bytes, or in fields and messages
    within it. The error names the limit.
    """


class TooManyUnfinishedBytes(OperationError):
    """The messages that have begun to arrive on a connection, and are not whole yet, take more than the server has for
    them. Later there is room again: as soon as some of them are whole, or given up.
    """

    retryable = True


class MalformedMessage(UsageError):
    """The bytes of a message are not those of the message that this method takes."""


class InvalidAddress(UsageError, ValueError):
    """Text that is not an address. Addresses are ``host:port``, with or without ``http://``, or
    ``unix:/path``.
    """


class InsecureDoor(UsageError):
    """A token would cross a network in plain text. Give certificates, or say ``insecure_plaintext=True``."""


class InvalidTls(UsageError):
    """A certificate, key or authority file cannot be used. The error names the file."""


class PeerNotTrusted(OperationError):
    """TLS failed: the peer's certificate is not one that this side trusts, or names another host."""


class InvalidTokenFile(UsageError):
    """A token file cannot be read, is empty, too large or not text. The error names the file, never its content."""


class AddressInUse(OperationError):
    """Another process (or another server in this one) listens on this address."""

    retryable = True


class AddressUnavailable(OperationError):
    """The address cannot be listened on: not one of this machine's own, not permitted, or its folder is
    missing.
    """


class RemoteRefusal(OperationError):
    """The peer refused the call with an error that has no class on this side. The text names it."""


class RemoteFailure(InternalError):
    """The peer failed in a way it does not explain to callers; its log has the rest."""


class MalformedReply(InternalError):
    """The peer's answer breaks the protocol: an answer is missing, or there are two."""


class ClientClosed(UsageError):
    """A client, or a job it gave, was used after the block it belongs to, or in a forked child. Connect again."""


class NeedsAsyncio(UsageError):
    """A client or a cluster was opened where no asyncio loop runs: on trio, or on no event loop at all."""


class WrongLoop(UsageError):
    """A client, a job or a cluster was used from another event loop than the one on which it was entered."""


class NotInsideCall(InternalError):
    """Code that serves calls ran outside of one."""
