"""A kubelet's inside on loopback, for a real API server to proxy to: exec, logs and port-forward of local processes.

The program is ``kubelet/main.go``: containerd's own streaming server, over folders and plain processes. It answers
holders of a certificate of the API server's authority only. Nothing here runs pods: their objects, and their folders,
are made by the tests.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
from kube_server import HERE, STOP_TIMEOUT_S, NoBinariesError, RealServer


def find_kubelet() -> Path:
    """Return the stub's path.

    Raises:
        NoBinariesError: it is not there; ``build-kubelet`` builds it where Go is at hand (a minute, once).
    """
    done = subprocess.run([HERE / "build-kubelet", "--only-find"], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise NoBinariesError(said[-1])
    return Path(done.stdout.strip())


@attrs.frozen
class Kubelet:
    """One that runs. Made by :func:`running_kubelet`."""

    folder: Path
    port: int

    def node_status(self, port: int | None = None) -> dict[str, object]:
        """Return the status of a node whose kubelet this is, or would be if it listened on another port."""
        return {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port if port is None else port}},
            "conditions": [{"type": "Ready", "status": "True"}],
        }

    def pod(self, namespace: str, name: str) -> Path:
        """Make the folder of a pod: from now on the kubelet knows it."""
        folder = self.folder / namespace / name
        folder.mkdir(parents=True)
        return folder


@contextlib.contextmanager
def running_kubelet(program: Path, server: RealServer, folder: Path) -> Iterator[Kubelet]:
    """A kubelet for the length of a ``with`` block; pods are folders below ``folder``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = server.files
    with (folder / "kubelet.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, str(HERE / "die_with_parent.py"), str(os.getpid())),
                *map(str, (program, folder, files.authority, files.certificate, files.key)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    with process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.strip().isdigit(), (folder / "kubelet.log").read_text(errors="replace")[-3000:]
            yield Kubelet(folder, int(line))
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)
