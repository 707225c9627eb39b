"""Who we are to the API server: what stands in the ``Authorization`` header, renewed as it ages.

Theory of operation. A token in a file is read again when it is a minute old, as client-go does it: the kubelet writes
the next one long before this one ends. What a login program or an identity provider gives is
renewed when it says that it ends. Both are renewed, too, after the server refused one; CoreWeave says 403 to a wrong
token, so 403 counts. One caller at a time renews, and not at once again: most 403s are about rights, not tokens.

Tokens live in :class:`~iriscw.rpc.tokens.Secret`: no repr, no log line and no error shows them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import anyio
import attrs

from iriscw._errors import InvalidArgument, UsageError
from iriscw.cloud.kube.messages import ApiUnreachable
from iriscw.rpc.tokens import Secret

_log = logging.getLogger(__name__)

RENEW_S = 60.0
"""Seconds for which a token is used before its source is looked at again, as in client-go's ``cachingTokenSource``."""

REFUSED_S = 10.0
"""Seconds for which a token is used though the server refuses it."""

TOKEN_BYTES = 2**16
"""Of a file with a token. Those of service accounts have 1 to 2 KiB."""


INSTALL = "pip install '.[kubernetes]' in a checkout of iriscw"
"""What brings the library that logs in as a kubeconfig says."""


class InvalidAccess(UsageError):
    """The way to a cluster cannot be used as it is written: the text says which part of it, and quotes no secret."""


class NoAccess(InvalidAccess):
    """Nothing names a way to a cluster: no kubeconfig, and this is not a pod."""


class LibraryMissing(InvalidAccess):
    """A kubeconfig names a login by a program or OpenID Connect, and what carries those out is not installed."""


@attrs.frozen
class Header:
    """What stands in ``Authorization``. Shown as its scheme only."""

    scheme: str
    secret: Secret

    @classmethod
    def of(cls, scheme: str, text: str) -> Header:
        """Make one of a token.

        Raises:
            InvalidAccess: it is not a token: empty, or with characters that no header has.
        """
        try:
            return cls(scheme, Secret(text.strip()))
        except InvalidArgument:
            raise InvalidAccess("the token is empty, or has characters that no token has") from None

    def reveal(self) -> str:
        """Return the header's value."""
        return f"{self.scheme} {self.secret.reveal()}"


class Credentials(Protocol):
    """Where the header of the next request comes from."""

    async def header(self) -> Header | None:
        """Return the header; None if a certificate says who we are, or nothing does.

        Raises:
            ApiUnreachable: there is none now, and there may be one later.
        """
        ...

    def refused(self) -> None:
        """The server did not accept it."""
        ...


@attrs.frozen
class Fixed:
    """A token that never changes, or none."""

    value: Header | None = None

    async def header(self) -> Header | None:
        """Return it."""
        return self.value

    def refused(self) -> None:
        """Nothing can be done about it."""


class Renewed:
    """A header that is renewed when it is old, or was refused.

    Args:
        renew: Gives the present one; told whether the last one was refused.
        first: The one to begin with.
        monotonic: The clock, in seconds.
    """

    def __init__(
        self,
        renew: Callable[[bool], Awaitable[Header]],
        first: Header,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._renew = renew
        self._value = first
        self._monotonic = monotonic
        self._renewed = monotonic()
        self._refused = False
        self._lock = anyio.Lock()

    async def header(self) -> Header:
        """Return the present one.

        Raises:
            ApiUnreachable: the last one was refused, and there is no other yet.
        """
        async with self._lock:
            if self._monotonic() - self._renewed >= (REFUSED_S if self._refused else RENEW_S):
                await self._try()
        return self._value

    async def _try(self) -> None:
        try:
            self._value = await self._renew(self._refused)
        except InvalidAccess as problem:
            self._renewed = self._monotonic()
            if self._refused:
                raise ApiUnreachable(f"the credentials could not be renewed: {problem}") from None
            _log.warning("the credentials could not be renewed, the last ones are used on: %s", problem)
        else:
            self._renewed, self._refused = self._monotonic(), False

    def refused(self) -> None:
        """Renew it when it is :data:`REFUSED_S` old, whatever it says of its end."""
        self._refused = True


def read_small(path: Path, limit_bytes: int) -> bytes:
    """Read a file, through links: the kubelet swaps what it mounts by turning one.

    Raises:
        InvalidAccess: it cannot be read, or is longer.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as problem:
        raise InvalidAccess(f"{path} cannot be read: {problem.strerror}") from None
    if len(data) > limit_bytes:
        raise InvalidAccess(f"{path} is longer than {limit_bytes} bytes")
    return data


async def read_token(path: Path) -> Header:
    """Read a bearer token from a file.

    Raises:
        InvalidAccess: it cannot be read, or is not a token.
    """
    data = await anyio.to_thread.run_sync(read_small, path, TOKEN_BYTES)
    return Header.of("Bearer", str(data, "utf-8", "replace"))


async def token_file(path: Path) -> Renewed:
    """Return credentials that follow a file, as the kubelet rotates it.

    Raises:
        InvalidAccess: it cannot be read, or is not a token.
    """

    async def again(_refused: bool) -> Header:
        return await read_token(path)

    return Renewed(again, await read_token(path))
