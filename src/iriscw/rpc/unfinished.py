"""A budget for messages that have begun to arrive and are not whole yet, so that many of them are bounded as one is.

Theory of operation. A message's size is bounded by its method's rule, and what nobody reads by HTTP/2's window. Between
the two lies what is being read: a reader takes frames out of the window to put a message together, and has to keep them
until the last one comes. A caller may begin thousands of messages and end none. So each byte that is taken out of the
window is *held* until its message is whole or its call is over, and who holds too much is refused::

    an assured amount       every connection may hold, whatever others do: what workers and questions need
    beyond that             no more than one connection may, and
                            no more than is free of what all may hold together

The last rule gives each connection as much as it leaves to others (dynamic thresholds, as in the shared buffers of
switches; Choudhury and Hahne, 1998): one alone gets half, two get a third each, and the next one always finds some.
Only those who hold much are ever refused, and nobody has to be thrown out.

So all that a server holds is bounded by what all may hold and the assured amounts of its connections; a connection
goes over its bound by one frame at most, with which it is refused. A refusal ends one call, with an error that may be
repeated: the bytes of others are given back within their deadlines.
"""

from __future__ import annotations

import attrs

from iriscw.rpc.errors import TooManyUnfinishedBytes
from iriscw.rpc.limits import RpcLimits


@attrs.frozen
class UnfinishedStatistics:
    """What is held now, and what was held at most, in bytes; and how many calls were refused for it."""

    held: int
    most_held: int
    refused: int


class UnfinishedPool:
    """What all connections of a server hold."""

    def __init__(self, limits: RpcLimits) -> None:
        self.limits = limits
        self.held = 0
        self.most_held = 0
        self.refused = 0

    def statistics(self) -> UnfinishedStatistics:
        """Return the counts of this moment."""
        return UnfinishedStatistics(self.held, self.most_held, self.refused)

    def share(self) -> Share:
        """Return a new connection its share."""
        return Share(self)


class Share:
    """What one connection holds."""

    def __init__(self, pool: UnfinishedPool) -> None:
        self._pool = pool
        self.held = 0

    def take(self, size: int) -> None:
        """Hold ``size`` bytes more.

        Raises:
            TooManyUnfinishedBytes: that is more than this connection may hold now. They count all the same, until they
                are given back.
        """
        pool, limits = self._pool, self._pool.limits
        self.held += size
        pool.held += size
        pool.most_held = max(pool.most_held, pool.held)
        if self.held <= limits.assured_unfinished_bytes:
            return
        own = max(limits.max_unfinished_bytes, limits.max_message_bytes)  # one message is always allowed
        if self.held > own:
            pool.refused += 1
            text = (
                f"{self.held} bytes of unfinished messages on one connection, the limit is {own}: send fewer at a time"
            )
            raise TooManyUnfinishedBytes(text)
        free = max(0, limits.max_server_unfinished_bytes - pool.held)
        if self.held > free:
            pool.refused += 1
            text = (
                f"{self.held} bytes of unfinished messages on one connection, the server has room for {free}: try later"
            )
            raise TooManyUnfinishedBytes(text)

    def give(self, size: int) -> None:
        """Hold ``size`` bytes less."""
        self.held -= size
        self._pool.held -= size
        assert self.held >= 0, "more was given back than was taken"
