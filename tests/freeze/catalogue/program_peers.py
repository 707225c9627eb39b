"""Who is connected to a program of the catalogue while it is frozen: clients that notice when a connection breaks."""

import base64
import http.client
import os
import socket
import threading

from catalogue_entry import PATIENCE_S, Live, Stage, answers, connect, until


class Lines:
    """A client of a protocol of lines, over one connection."""

    def __init__(self, stage: Stage, port: int) -> None:
        self.channel = stage.held.enter_context(connect(port))
        self.heard = stage.held.enter_context(self.channel.makefile("rb"))

    def ask(self, line: str) -> str:
        """Send a line and give the first one of the answer."""
        self.channel.sendall(line.encode() + b"\r\n")
        return self.heard.readline().decode().rstrip()


class KeptAlive:
    """A client of HTTP that stays connected: whatever breaks its connection breaks it."""

    def __init__(self, stage: Stage, port: int, path: str = "/") -> None:
        self.client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        stage.held.callback(self.client.close)
        self.path = path
        self.get()
        self.channel = self.client.sock
        assert self.channel is not None, "the server closes each connection"

    def get(self) -> str:
        """Ask over the connection that was there from the beginning."""
        assert getattr(self, "channel", None) is self.client.sock, "the connection is another one"
        self.client.request("GET", self.path)
        answer = self.client.getresponse()
        content = answer.read().decode()
        assert answer.status == 200, content
        return content


def http_server(stage: Stage, process, port: int, clients: int = 1, path: str = "/") -> Live:
    """Return a server of HTTP that runs, with clients that stay connected."""
    stage.ready(process, lambda: answers(port), "it listens")
    connected = [KeptAlive(stage, port, path) for _ in range(clients)]

    def goes_on() -> None:
        for each in connected:
            each.get()
        KeptAlive(stage, port, path)

    return Live(process.pid, lambda: None, goes_on)


class Load:
    """Asks a server over one connection, again and again, from a thread of its own."""

    def __init__(self, stage: Stage, port: int) -> None:
        self.client = KeptAlive(stage, port)
        self.answered = 0
        self.error: Exception | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        stage.held.callback(self._end)

    def _ask(self) -> None:
        while not self._ends.is_set():
            try:
                self.client.get()
            except (OSError, AssertionError, http.client.HTTPException) as error:
                self.error = error
                return
            self.answered += 1

    def _end(self) -> None:
        self._ends.set()
        if (channel := self.client.client.sock) is not None:
            channel.close()
        self._thread.join()

    def goes_on(self) -> None:
        """Wait until more was answered."""
        before = self.answered

        def so() -> bool:
            assert self.error is None, f"a request failed: {self.error!r}"
            return self.answered > before + 5

        until(so, "requests are answered")


class WebSocket:
    """A client of a web socket, for short texts."""

    def __init__(self, stage: Stage, port: int, path: str) -> None:
        self.channel = stage.held.enter_context(connect(port))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            "Host: localhost",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        ]
        self.channel.sendall("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._exactly(1)
        assert head.startswith(b"HTTP/1.1 101"), head

    def _exactly(self, count: int) -> bytes:
        data = self.channel.recv(count, socket.MSG_WAITALL)
        assert len(data) == count, "the connection has ended"
        return data

    def ask(self, text: str) -> str:
        """Send a text and give the one that is answered."""
        mask = os.urandom(4)
        masked = bytes(each ^ mask[at % 4] for at, each in enumerate(text.encode()))
        self.channel.sendall(bytes([0x81, 0x80 | len(masked)]) + mask + masked)
        kind, length = self._exactly(2)
        assert kind == 0x81, kind
        return self._exactly(length).decode()
