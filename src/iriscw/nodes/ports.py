"""What nodes need from outside: one session to each agent.

The session ``AgentStream(node)`` stands for *one* stream of that node's agent. Its function waits until an agent has
dialled in and was let in, however long that takes, and ends with the stream; the mirror opens it again at once.

Up, from the agent:

1. ``AgentUp(identity, abilities)``: first, exactly once per session.
2. ``Report(...)``: what is there, in parts; the next one comes when the last was acknowledged.

Down, to the agent: ``Orders`` and ``ReportAcked``.

What an agent promises, and what the safety of orders rests on:

* It writes an order down before it begins it, and never begins an operation twice, however often it is told.
* It keeps what became of an order until an order releases it, or a complete set does not name it.
* It serves one stream at a time.
"""

from __future__ import annotations

from typing import Protocol

from iriscw.nodes.model import AgentStream


class AgentStreams(Protocol):
    """The doors' side of agents' streams."""

    async def serve(self, session: AgentStream, port: object) -> None:
        """Wait for the node's agent, carry items both ways, return when the stream has ended.

        ``port`` is the runtime's end of the session.
        """
