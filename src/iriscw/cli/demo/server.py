"""The program that the demo's second act freezes: an HTTP server with a state that nobody else has.

It knows nothing of iriscw, is nobody's part, and imports the standard library alone. Its state is random, and it counts
its answers: so an answer after a thaw says whether it is the same program or another one that was started. It is run as
a file::

    python -I -S server.py FOLDER BYTES

and writes its port to standard output, which it then lets go of, as whoever is frozen must: a pipe whose other end is
outside does not come back.
"""

from __future__ import annotations

import errno
import hashlib
import http.server
import json
import os
import random
import signal
import socketserver
import sys
from typing import Any

PIECE_BYTES = 8 << 20

LIFE_S = 600
"""It ends by itself after that: whoever started it may have been killed. The clock stands still while it is frozen."""

PORTS = range(20_000, 32_000)
"""Below those that Linux gives by itself."""

TRIES = 100
"""Ports that may be taken."""


class Server(http.server.HTTPServer):
    """One request after the other."""

    def __init__(self, state_bytes: int) -> None:
        super().__init__(("127.0.0.1", 0), Answering, bind_and_activate=False)
        self._bind()
        self.answers = 0
        self.state = bytearray(state_bytes)
        for at in range(0, state_bytes, PIECE_BYTES):
            self.state[at : at + PIECE_BYTES] = os.urandom(min(PIECE_BYTES, state_bytes - at))

    def _bind(self) -> None:
        """Listen on a port that the kernel gives nobody who asks for any: while this is frozen it has to stay free."""
        tries = random.sample(PORTS, TRIES)
        while True:
            self.server_address = ("127.0.0.1", tries.pop())
            try:
                self.server_bind()
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not tries:
                    raise
            else:
                break
        self.server_activate()

    def server_bind(self) -> None:
        """Ask nobody for a name of this machine: that may take a while."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()

    def shutdown_request(self, request: Any) -> None:
        """Only close the connection. When its peer hears of that, this process has no descriptor of it any more."""
        self.close_request(request)

    def digest(self) -> str:
        """Return the SHA-256 of the state as it is now."""
        found = hashlib.sha256()
        with memoryview(self.state) as state:
            for at in range(0, len(state), PIECE_BYTES):
                found.update(state[at : at + PIECE_BYTES])
        return found.hexdigest()


class Answering(http.server.BaseHTTPRequestHandler):
    """One request. The end of an answer is the end of the connection."""

    server: Server

    def do_GET(self) -> None:
        """Say what the state is, and which answer this is."""
        self.server.answers += 1
        content = {"answers": self.server.answers, "bytes": len(self.server.state), "sha256": self.server.digest()}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that it has there
        """Say nothing."""


def main(state_bytes: int) -> None:
    """Serve until a signal comes."""
    signal.alarm(LIFE_S)
    server = Server(state_bytes)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[2]))
