"""Commands beside running tasks. A command is begun once at most, so nothing here is repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from iriscw._errors import OperationError
from iriscw.client.calls import SERVICE, MethodCalls
from iriscw.client.errors import CommandKilled
from iriscw.client.model import ExecOutput, ExecResult
from iriscw.proto.iriscw.v1 import ExecTaskReply, ExecTaskRequest
from iriscw.rpc.errors import RpcCancelled, RpcDeadline, RpcUnavailable

MAX_KEPT_BYTES: Final = 1 << 20
"""Of each output, where nobody takes it as it comes: a screenful is a hundredth of it."""

MARGIN_S: Final = 60.0
"""Beyond the command's own time: for the way to it, which a fresh node opens after half a minute."""


async def run(
    calls: MethodCalls, request: ExecTaskRequest, timeout_s: float, output: Callable[[ExecOutput], object] | None
) -> ExecResult:
    """Run a command, and give what it left, or pass on what it says.

    Raises:
        CommandKilled: the controller went away meanwhile.
        IriscwError: what it says.
    """
    stdout, stderr, truncated = bytearray(), bytearray(), False
    try:
        async with calls.channel.server_stream(
            SERVICE + "ExecTask", request, ExecTaskReply, timeout_s=timeout_s + MARGIN_S
        ) as replies:
            async for reply in replies:
                if reply.exit_code is not None:
                    return ExecResult(reply.exit_code, bytes(stdout), bytes(stderr), truncated)
                said = ExecOutput(reply.stdout or reply.stderr or b"", reply.stderr is not None)
                if output is not None:
                    output(said)
                    continue
                kept = stderr if said.stderr else stdout
                room = MAX_KEPT_BYTES - len(kept)
                kept += said.data[:room]
                truncated = truncated or len(said.data) > room
    except (RpcUnavailable, RpcDeadline, RpcCancelled) as error:
        raise _lost(error) from error
    raise _lost(None)


def _lost(error: OperationError | None) -> CommandKilled:
    why = "the stream ended" if error is None else str(error)
    return CommandKilled(f"the command was not run, or was killed, and nobody saw its end: {why}")
