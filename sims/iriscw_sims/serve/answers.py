"""From a response of the store to HTTP: JSON, headers that cannot be split, and readers that take their time.

Small answers are written in one piece. Large ones go out piece by piece, each of which its reader has to take within
``Limits.write_s``; who does not is cut off, and what was encoded for it is given back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from iriscw_sims.kube.messages import Response

JSON = "application/json"
PIECE_BYTES = 2**16
"""Of an answer; what the transport holds before it makes a writer wait."""

WARNINGS_BYTES, WARNING_BYTES = 4096, 256
"""Of all warnings together, and of each one once they are more: ``warning.go`` cuts at the same lengths."""


def encoded(value: Any) -> bytes:
    """Return JSON as bytes, frozen or not."""
    return json.dumps(value, separators=(",", ":")).encode()


def headers_of(response: Response) -> list[tuple[str, str]]:
    """Return the headers of a response that may be sent as they are."""
    kept: list[tuple[str, str]] = []
    warnings = [value for name, value in response.headers if name == "Warning" and value.isprintable()]
    total = sum(map(len, warnings))
    left = WARNINGS_BYTES
    for value in warnings:
        shown = value if total <= WARNINGS_BYTES or len(value) <= WARNING_BYTES else value[: WARNING_BYTES - 1] + '"'
        if len(shown) <= left:
            kept.append(("Warning", shown))
            left -= len(shown)
    kept.extend((name, value) for name, value in response.headers if name != "Warning" and value.isprintable())
    return kept


async def send(request: web.BaseRequest, response: Response, write_s: float) -> web.StreamResponse:
    """Send a response of the store."""
    return await send_bytes(request, response.code, encoded(response.body), write_s, headers_of(response))


async def send_bytes(
    request: web.BaseRequest,
    code: int,
    body: bytes,
    write_s: float,
    headers: Sequence[tuple[str, str]] = (),
    content_type: str = JSON,
) -> web.StreamResponse:
    """Send a body, in pieces if it is long."""
    every = [*headers, ("Content-Type", content_type), ("Cache-Control", "no-cache, private")]
    if len(body) <= PIECE_BYTES:
        return web.Response(status=code, body=body, headers=every)
    answer = web.StreamResponse(status=code, headers=every)
    answer.content_length = len(body)
    await answer.prepare(request)
    for start in range(0, len(body), PIECE_BYTES):
        await write(request, answer, body[start : start + PIECE_BYTES], write_s)
    return answer


async def write(request: web.BaseRequest, answer: web.StreamResponse, piece: bytes, write_s: float) -> None:
    """Write a piece of an answer, and wait until the transport has room again.

    Raises:
        ConnectionResetError: the reader is gone, or was cut off because it did not read.
    """
    try:
        async with asyncio.timeout(write_s):
            await answer.write(piece)
    except TimeoutError as slow:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(f"the reader took nothing for {write_s:g} s") from slow
