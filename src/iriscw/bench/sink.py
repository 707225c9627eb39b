"""A bucket of S3 on loopback that does as little as can be: bodies lie in memory, and nothing is hashed or checked.

What others take beside it is theirs alone, so clients are compared with it. It knows what the contenders of
:mod:`iriscw.bench.buckets` ask for: objects written whole or in parts, with conditions, read whole or by ranges, listed
and deleted. Run as a program it writes its port as a line, and ends with its standard input.
"""

from __future__ import annotations

import itertools
import socket
import socketserver
import sys
import threading
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import attrs

HEAD_BYTES: Final = 64 << 10
BUFFER_BYTES: Final = 1 << 20
PAGE: Final = 1000

Body = tuple[memoryview, ...]
"""An object: its parts, one after the other."""


@attrs.frozen
class SinkObject:
    """An object of the sink."""

    body: Body
    etag: str

    @property
    def size_bytes(self) -> int:
        """Return how long it is."""
        return sum(len(part) for part in self.body)

    def span(self, start: int, end: int) -> Body:
        """Return the bytes from ``start`` up to ``end``."""
        found, at = [], 0
        for part in self.body:
            if at < end and start < at + len(part):
                found.append(part[max(0, start - at) : end - at])
            at += len(part)
        return tuple(found)


@attrs.define(eq=False)
class Sink:
    """What the bucket holds; all threads share it."""

    objects: dict[str, SinkObject] = attrs.field(factory=dict)
    uploads: dict[str, dict[int, memoryview]] = attrs.field(factory=dict)
    lock: threading.Lock = attrs.field(factory=threading.Lock)
    _numbers: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1))

    def new_tag(self) -> str:
        """Return an entity tag that nothing else has."""
        return f'"{next(self._numbers):032x}"'


@attrs.frozen
class SinkRequest:
    """A request: what its first line and its headers say, and its body."""

    method: str
    key: str
    said: dict[str, str]
    headers: dict[str, str]
    body: memoryview


@attrs.frozen
class SinkAnswer:
    """What is answered."""

    status: str
    headers: dict[str, str] = attrs.field(factory=dict)
    body: Body = ()


def answered(sink: Sink, request: SinkRequest) -> SinkAnswer:
    """Carry a request out."""
    match request.method:
        case "GET" if not request.key:
            return _listed(sink, request)
        case "GET" | "HEAD":
            return _read(sink, request)
        case "PUT" if "uploadId" in request.said:
            with sink.lock:
                sink.uploads[request.said["uploadId"]][int(request.said["partNumber"])] = request.body
            return SinkAnswer("200 OK", {"ETag": sink.new_tag()})
        case "PUT":
            return _written(sink, request, (request.body,))
        case "POST" if "uploads" in request.said:
            upload = sink.new_tag().strip('"')
            sink.uploads[upload] = {}
            return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
        case "POST" if "uploadId" in request.said:
            parts = sink.uploads.pop(request.said["uploadId"])
            done = _written(sink, request, tuple(parts[number] for number in sorted(parts)))
            return _xml("CompleteMultipartUploadResult", f"<ETag>{escape(done.headers['ETag'])}</ETag>")
        case "DELETE":
            with sink.lock:
                sink.objects.pop(request.key, None)
            return SinkAnswer("204 No Content")
    return SinkAnswer("501 Not Implemented")


def _written(sink: Sink, request: SinkRequest, body: Body) -> SinkAnswer:
    with sink.lock:
        there = sink.objects.get(request.key)
        if "if-none-match" in request.headers and there is not None:
            return SinkAnswer("412 Precondition Failed")
        wanted = request.headers.get("if-match")
        if wanted is not None and (there is None or there.etag != wanted):
            return SinkAnswer("412 Precondition Failed")
        sink.objects[request.key] = SinkObject(body, sink.new_tag())
        return SinkAnswer("200 OK", {"ETag": sink.objects[request.key].etag})


def _read(sink: Sink, request: SinkRequest) -> SinkAnswer:
    found = sink.objects.get(request.key)
    if found is None:
        return attrs.evolve(_xml("Error", "<Code>NoSuchKey</Code><Message>none</Message>"), status="404 Not Found")
    size = found.size_bytes
    headers = {"ETag": found.etag, "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Accept-Ranges": "bytes"}
    if "range" not in request.headers:
        return SinkAnswer("200 OK", headers, found.body)
    first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
    start, end = int(first), min(size, int(last) + 1 if last else size)
    if start >= size:
        return attrs.evolve(_xml("Error", "<Code>InvalidRange</Code>"), status="416 Range Not Satisfiable")
    return SinkAnswer(
        "206 Partial Content", {**headers, "Content-Range": f"bytes {start}-{end - 1}/{size}"}, found.span(start, end)
    )


def _listed(sink: Sink, request: SinkRequest) -> SinkAnswer:
    prefix, after = request.said.get("prefix", ""), request.said.get("start-after", "")
    with sink.lock:
        keys = sorted(key for key in sink.objects if key.startswith(prefix) and key > after)
        rows = [
            f"<Contents><Key>{escape(key)}</Key><Size>{sink.objects[key].size_bytes}</Size>"
            f"<ETag>{escape(sink.objects[key].etag)}</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys[:PAGE]
        ]
    more = "true" if len(keys) > PAGE else "false"
    return _xml("ListBucketResult", f"<Name>bucket</Name><IsTruncated>{more}</IsTruncated>{''.join(rows)}")


def _xml(name: str, inner: str) -> SinkAnswer:
    text = f'<?xml version="1.0" encoding="UTF-8"?><{name}>{inner}</{name}>'
    return SinkAnswer("200 OK", {"Content-Type": "application/xml"}, (memoryview(text.encode()),))


class SinkServer(socketserver.ThreadingTCPServer):
    """A thread for each connection."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self) -> None:
        self.sink = Sink()
        super().__init__(("127.0.0.1", 0), _SinkConnection)


class _SinkConnection(socketserver.BaseRequestHandler):
    """Requests of one connection, one after the other."""

    def handle(self) -> None:
        connection: socket.socket = self.request
        server = self.server
        assert isinstance(server, SinkServer)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rest = b""
        while True:
            try:
                request, rest = _received(connection, rest)
                if request is None:
                    return
                _send(connection, answered(server.sink, request), bare=request.method == "HEAD")
            except ConnectionError:  # a client that has what it wanted may end a body early
                return


def _received(connection: socket.socket, rest: bytes) -> tuple[SinkRequest | None, bytes]:
    """Read one request; None at the end of the connection. ``rest`` are bytes that came before."""
    while b"\r\n\r\n" not in rest:
        more = connection.recv(HEAD_BYTES)
        if not more:
            return None, b""
        rest += more
    head, _, rest = rest.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("expect"):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = memoryview(bytearray(int(headers.get("content-length", "0"))))
    taken = min(len(rest), len(body))
    body[:taken], rest = rest[:taken], rest[taken:]
    while taken < len(body):
        count = connection.recv_into(body[taken : taken + BUFFER_BYTES])
        if not count:
            return None, b""
        taken += count
    parts = urlsplit(target)
    said = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    key = unquote(parts.path).lstrip("/").partition("/")[2]  # behind the bucket's name
    return SinkRequest(method, key, said, headers, body), rest


def _send(connection: socket.socket, answer: SinkAnswer, *, bare: bool) -> None:
    length = sum(len(part) for part in answer.body)
    headers = {**answer.headers, "Content-Length": str(length)}
    lines = [f"HTTP/1.1 {answer.status}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    connection.sendall("\r\n".join(lines).encode("latin-1"))
    if not bare:
        for part in answer.body:
            connection.sendall(part)


def main() -> None:
    """Serve until standard input ends."""
    with SinkServer() as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
