"""A channel to an agent's socket: what all callers of its services have in common."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from iriscw.agent import claims, errors  # noqa: F401 - an error of the agent is raised by its name
from iriscw.rpc.address import Address
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.limits import RpcLimits

DAY_S = 86_400.0


class Calling:
    """Calls to one agent: an async context manager. An operation may take as long as it takes, up to a day.

    Args:
        socket: where it listens: an absolute path.

    Raises:
        InvalidAddress: the path is too long.
        NeedsAsyncio: it is made outside of an asyncio loop.
    """

    def __init__(self, socket: str) -> None:
        limits = RpcLimits(unary_timeout_s=DAY_S, stream_timeout_s=DAY_S)
        self._channel = RpcChannel(Address.parse(f"unix:{socket}"), limits=limits)

    async def __aenter__(self) -> Self:
        """Return the caller. The first call connects."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._channel.close()
