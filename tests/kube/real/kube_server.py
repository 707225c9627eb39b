"""A real Kubernetes API on loopback: etcd and kube-apiserver, alone, private, and surely ended.

Nothing else of Kubernetes runs: no scheduler, no controllers, no kubelet. So nothing happens in this cluster but what a
test asks for, and two runs of one program of requests end alike.

- **Where the binaries come from**: ``KUBEBUILDER_ASSETS``, or what ``build-apiserver`` built or builds now.
- **Private**: a folder of mode 0700, bearer tokens and keys of mode 0600, TLS with an authority made for this run.
  etcd speaks only to holders of a certificate of that authority.
- **Ended**: both processes are leaders of their own process groups and die with the test run, also when that is killed.
- **Quiet**: heartbeats, priority and fairness, endpoint and compaction timers are off: background writes would only
  take revisions. What a cluster of today has on by default in admission is on, but for the ServiceAccount plugin:
  it waits for accounts that a controller makes.
- **Reset**: :meth:`RealServer.erase` deletes ranges of keys in etcd, in one transaction. The server learns of it as of
  any other write, so its caches stay right; finalizers and grace do not get in the way.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import trustme

HERE = Path(__file__).parent
BOOT_TIMEOUT_S = 120.0
"""On two busy cores the server was ready in less than 10 s."""
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05
START_ATTEMPTS = 3
"""A port found free may be taken before the server opens it."""
SERVICE_RANGE = "10.0.0.0/12"
"""As large as the server allows: addresses of services that a reset erased are not given back."""
USERS = {"admin": "system:masters", "dev": "devs", "eve": "devs"}
"""Each user's one group; admin may do everything."""


class NoBinariesError(Exception):
    """There is no kube-apiserver on this machine and no way to make one. The text says why."""


def find_binaries() -> Path:
    """Return the folder with kube-apiserver and etcd.

    Raises:
        NoBinariesError: they are not there; ``build-apiserver`` builds them where Go is at hand (minutes, once).
    """
    done = subprocess.run([HERE / "build-apiserver", "--only-find"], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        if "KUBEBUILDER_ASSETS" in os.environ:
            raise RuntimeError("build-apiserver failed:\n" + "\n".join(said[-20:]))
        raise NoBinariesError(said[-1])
    return Path(done.stdout.strip())


def free_ports(count: int) -> list[int]:
    """Return loopback ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _write_private(path: Path, data: bytes) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    return path


@attrs.frozen
class Files:
    """What both programs read: paths below a folder of mode 0700."""

    folder: Path
    authority: Path
    certificate: Path
    key: Path
    tokens: Path

    @classmethod
    def make(cls, folder: Path, tokens: dict[str, str]) -> Files:
        """Write an authority, a certificate for loopback, and one token for each user."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost")
        lines = [f'{token},{user},{user},"{USERS[user]}"' for user, token in tokens.items()]
        return cls(
            folder,
            _write_private(folder / "authority.pem", authority.cert_pem.bytes()),
            _write_private(folder / "server.pem", b"".join(blob.bytes() for blob in issued.cert_chain_pems)),
            _write_private(folder / "server.key", issued.private_key_pem.bytes()),
            _write_private(folder / "tokens.csv", "\n".join(lines).encode()),
        )

    def context(self) -> ssl.SSLContext:
        """A client's TLS context: it trusts this run's authority only, and can show a certificate of it."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        return context


def etcd_arguments(files: Files, client_port: int, peer_port: int) -> list[str]:
    """A member alone that answers holders of our certificates; a crash may lose its data, so nothing waits for disk."""
    peer = f"http://127.0.0.1:{peer_port}"
    return [
        f"--data-dir={files.folder / 'etcd'}",
        f"--listen-client-urls=https://127.0.0.1:{client_port}",
        f"--advertise-client-urls=https://127.0.0.1:{client_port}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--cert-file={files.certificate}",
        f"--key-file={files.key}",
        f"--trusted-ca-file={files.authority}",
        "--client-cert-auth",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver_arguments(files: Files, port: int, etcd_port: int) -> list[str]:
    """The API as a cluster of today serves it, without what works in the background."""
    return [
        f"--etcd-servers=https://127.0.0.1:{etcd_port}",
        f"--etcd-cafile={files.authority}",
        f"--etcd-certfile={files.certificate}",
        f"--etcd-keyfile={files.key}",
        "--etcd-compaction-interval=0",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={files.certificate}",
        f"--tls-private-key-file={files.key}",
        f"--token-auth-file={files.tokens}",
        f"--service-account-key-file={files.key}",
        f"--service-account-signing-key-file={files.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--kubelet-certificate-authority={files.authority}",
        f"--kubelet-client-certificate={files.certificate}",
        f"--kubelet-client-key={files.key}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--enable-priority-and-fairness=false",
        "--endpoint-reconciler-type=none",
        "--feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false",
        "--allow-privileged=true",
        "--profiling=false",
    ]


def _spawn(program: Path, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, str(HERE / "die_with_parent.py"), str(os.getpid()), str(program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask, wait, then kill the whole group; the process is reaped in any case."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_TIMEOUT_S)


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_TIMEOUT_S)


class RealServer:
    """One running API server with its etcd. Made by :func:`running_server`."""

    def __init__(self, binaries: Path, folder: Path, more: Sequence[str] = ()) -> None:
        """Start nothing yet. ``more`` goes to the API's command line."""
        self.port = 0
        self.etcd_port = 0
        self._peer_port = 0
        self._more = more
        self.tokens = {user: secrets.token_urlsafe(24) for user in USERS}
        self.files = Files.make(folder, self.tokens)
        self.context = self.files.context()
        self._binaries = binaries
        self._etcd: subprocess.Popen[bytes] | None = None
        self._apiserver: subprocess.Popen[bytes] | None = None
        self._to_etcd: http.client.HTTPSConnection | None = None

    def __repr__(self) -> str:
        """Without the tokens."""
        return f"<RealServer on 127.0.0.1:{self.port}>"

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that run now."""
        return tuple(each.pid for each in (self._etcd, self._apiserver) if each is not None and each.poll() is None)

    def start(self) -> None:
        """Start both and wait until the API says that it is ready.

        Raises:
            RuntimeError: A program ended, or was not ready in time; with the end of its log.
        """
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._start()
            except RuntimeError:
                self.stop()
                if attempt == START_ATTEMPTS:
                    raise
            else:
                return

    def _start(self) -> None:
        self.port, self.etcd_port, self._peer_port = free_ports(3)
        self._start_etcd()
        self._start_apiserver()
        self._to_etcd = http.client.HTTPSConnection("127.0.0.1", self.etcd_port, context=self.context, timeout=30)

    def _start_etcd(self) -> None:
        arguments = etcd_arguments(self.files, self.etcd_port, self._peer_port)
        self._etcd = _spawn(self._binaries / "etcd", arguments, self.files.folder / "etcd.log")

    def _start_apiserver(self) -> None:
        log = self.files.folder / "apiserver.log"
        arguments = [*apiserver_arguments(self.files, self.port, self.etcd_port), *self._more]
        self._apiserver = _spawn(self._binaries / "kube-apiserver", arguments, log)
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while not self._is_ready():
            for name, process in (("etcd", self._etcd), ("apiserver", self._apiserver)):
                assert process is not None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S / 2)  # the pause between two looks; it ends with the process
                if process.returncode is not None or time.monotonic() > deadline:
                    tail = (self.files.folder / f"{name}.log").read_text(errors="replace")[-3000:]
                    raise RuntimeError(f"{name} is not ready (exit status {process.returncode}):\n{tail}")

    def _is_ready(self) -> bool:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=5)
        try:
            connection.request("GET", "/readyz", headers=self.authorization("admin"))
            return connection.getresponse().read() == b"ok"
        except OSError:
            return False
        finally:
            connection.close()

    def restart_apiserver(self) -> None:
        """Give the API new, empty caches over the same etcd, on the same port."""
        assert self._apiserver is not None
        _end(self._apiserver)
        self._start_apiserver()

    def crash_apiserver(self) -> None:
        """Kill the API, and have another one on the same port; returns when that is ready.

        Raises:
            RuntimeError: it is not, in time.
        """
        _kill(self._apiserver)
        self._start_apiserver()

    def crash_etcd(self) -> None:
        """Kill etcd, and start it again on its own data; returns when the API is ready again. What it wrote is in the
        kernel's hands, so nothing is lost.

        Raises:
            RuntimeError: it is not, in time.
        """
        _kill(self._etcd)
        if self._to_etcd is not None:
            self._to_etcd.close()  # the next request opens it anew
        self._start_etcd()
        self._wait_until_ready()

    def stop(self) -> None:
        """End both, the API first."""
        if self._to_etcd is not None:
            self._to_etcd.close()
        for process in (self._apiserver, self._etcd):
            if process is not None:
                _end(process)

    def authorization(self, user: str) -> dict[str, str]:
        """The header that says who asks; nobody for ``""``."""
        return {"Authorization": f"Bearer {self.tokens[user]}"} if user else {}

    def etcd(self, verb: str, body: dict[str, object]) -> dict[str, object]:
        """Ask etcd itself, through its JSON gateway: ``verb`` is for instance ``kv/txn`` or ``kv/compaction``.

        Raises:
            RuntimeError: etcd refused.
        """
        assert self._to_etcd is not None
        self._to_etcd.request("POST", f"/v3/{verb}", json.dumps(body), {"Content-Type": "application/json"})
        response = self._to_etcd.getresponse()
        answer = json.loads(response.read())
        if response.status != http.client.OK:
            raise RuntimeError(f"etcd answered {response.status}: {answer}")
        result: dict[str, object] = answer
        return result

    def compact(self) -> None:
        """Make etcd forget every version before the present."""
        header = self.etcd("kv/range", {"key": base64.b64encode(b"none").decode()})["header"]
        assert isinstance(header, dict)
        self.etcd("kv/compaction", {"revision": header["revision"], "physical": True})

    def erase(self, prefixes: Sequence[str]) -> None:
        """Delete all keys that begin with one of ``prefixes``, in one transaction."""
        operations = []
        for prefix in prefixes:
            key = prefix.encode()
            end = key[:-1] + bytes([key[-1] + 1])
            pair = {"key": base64.b64encode(key).decode(), "range_end": base64.b64encode(end).decode()}
            operations.append({"request_delete_range": pair})
        self.etcd("kv/txn", {"success": operations})


@contextlib.contextmanager
def running_server(binaries: Path, folder: Path, more: Sequence[str] = ()) -> Iterator[RealServer]:
    """A server for the length of a ``with`` block; its data lies in ``folder``."""
    server = RealServer(binaries, folder, more)
    try:
        server.start()
        yield server
    finally:
        server.stop()
