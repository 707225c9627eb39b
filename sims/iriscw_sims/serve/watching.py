"""Watches over HTTP: one line of JSON per event, for as long as the reader reads.

Theory of operation. A watch is a position in its kind's history, which all watches share, so one that waits holds next
to nothing, and one whose reader is slow holds one piece of text and, at the start, references to what was there. It
goes on when the bell of its kind rings, or when it has something to say by itself (a bookmark, its end). A reader that
takes nothing for ``Limits.write_s`` is cut off; one that is behind the history's horizon is ended as the real server
does it, and lists again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aiohttp import web

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.paths import route
from iriscw_sims.kube.watches import BOOKMARK_BEFORE_END, BOOKMARK_PERIOD, Watch
from iriscw_sims.serve.answers import JSON, PIECE_BYTES, encoded, write
from iriscw_sims.serve.live import Live


def lines(events: Sequence[Any]) -> Iterator[bytes]:
    """Yield events as text, in pieces of some :data:`PIECE_BYTES`."""
    piece: list[bytes] = []
    size = 0
    for event in events:
        line = encoded(event) + b"\n"
        piece.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)


def waits(opened: int, now: int, timeout_s: int) -> int:
    """Return for how many ns a watch may be left alone, if nothing happens: until a bookmark may be due, or its end.

    Args:
        opened: When it was opened.
        now: The moment.
        timeout_s: For how many seconds it was asked for, 0 if that was left to the server.
    """
    moments = [now + BOOKMARK_PERIOD - (now - opened) % BOOKMARK_PERIOD]
    if timeout_s:
        end = opened + timeout_s * SECOND
        moments += [each for each in (end - BOOKMARK_BEFORE_END, end) if each > now]
    return min(moments) - now


async def stream_watch(
    http: web.BaseRequest, live: Live, asked: Request, watch: Watch, write_s: float
) -> web.StreamResponse:
    """Answer with the events of a watch until it ends, or its reader goes."""
    found = route(asked.path)
    assert found is not None, "a watch was opened on a path that is none"
    text = asked.parameter("timeoutSeconds")
    opened, timeout_s = live.now, int(text) if text.isdecimal() else 0
    answer = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
    await answer.prepare(http)
    try:
        while True:
            bell = live.bells.of(found.group, found.plural)
            for piece in lines(watch.take(live.timeline.catch_up())):
                await write(http, answer, piece, write_s)
            if watch.closed or live.closed:
                return answer
            await live.wait(bell, waits(opened, live.now, timeout_s))
    finally:
        watch.close()
