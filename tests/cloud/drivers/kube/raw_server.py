"""A server made of a socket and a script: what it says is bytes, so it can say anything."""

import asyncio
import json
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import attrs

from iriscw.cloud.drivers.kube.access import ClusterAccess
from iriscw.cloud.drivers.kube.credentials import Fixed, Header
from waiting import until

TOKEN = "CW-SECRET-not-to-be-seen"


@attrs.frozen
class Asked:
    """A request as it came."""

    method: str
    path: str
    query: dict
    headers: dict
    body: bytes

    @property
    def watches(self):
        return "watch" in self.query


class Peer:
    """One request and the connection that it came on: what a script answers through."""

    def __init__(self, asked, reader, writer):
        self.asked = asked
        self.reader = reader
        self.writer = writer

    async def raw(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, code, body, **headers):
        """Answer in full; the connection lives on."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {code} Whatever", f"Content-Length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    async def begin(self):
        """Begin a stream in chunks."""
        await self.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n")

    async def chunk(self, data):
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, kind, thing):
        await self.chunk(json.dumps({"type": kind, "object": thing}).encode() + b"\n")

    async def end(self):
        await self.raw(b"0\r\n\r\n")

    def cut(self):
        """Break the connection off, at once."""
        self.writer.transport.abort()


class RawServer:
    """Counts requests, and lets a script answer each."""

    def __init__(self, script):
        self.script = script
        self.asked = []
        self.connections = 0
        self.open = 0
        self.port = 0

    @property
    def lists(self):
        return sum(not each.watches for each in self.asked)

    @property
    def watches(self):
        return sum(each.watches for each in self.asked)

    @property
    def access(self):
        return ClusterAccess(f"http://127.0.0.1:{self.port}", Fixed(Header.of("Bearer", TOKEN)))

    async def _serve(self, reader, writer):
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                parts = urlsplit(target)
                asked = Asked(method, parts.path, parse_qs(parts.query), headers, body)
                self.asked.append(asked)
                await self.script(Peer(asked, reader, writer))
        except (OSError, EOFError):
            pass
        finally:
            self.open -= 1
            writer.transport.abort()

    async def gone(self):
        """Wait until no connection is open."""
        await until(lambda: not self.open)


@asynccontextmanager
async def serving(script, port=0):
    """A server for the length of a block; ``script`` is an async function of a :class:`Peer`."""
    raw = RawServer(script)
    tasks = set()

    def connected(reader, writer):
        task = asyncio.ensure_future(raw._serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(connected, "127.0.0.1", port)
    raw.port = listening.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        listening.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
