"""What a look into a worker's pod finds, where a pod is this machine."""

import os
import socket
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from iriscw.processes import unregistered

SOURCE = Path(unregistered.__file__).read_text(encoding="utf-8")
SLEEP = "import sys; sys.stdout.write('there'); sys.stdout.flush(); import time; time.sleep(600)"


def found(incarnation):
    """Look, as it is done in a pod."""
    words = [sys.executable, "-I", "-S", "-c", SOURCE, incarnation]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


@contextmanager
def worker(*words, **variables):
    """A process that looks like a worker; gives its incarnation."""
    incarnation = uuid.uuid4().hex
    environment = {**os.environ, "IRIS_INCARNATION": incarnation, **variables}
    command = [sys.executable, "-c", SLEEP, "worker", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.read(5)
            yield incarnation
        finally:
            process.kill()


@pytest.fixture
def listening():
    """A port that takes connections and says nothing that is TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed():
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_worker_that_is_not_there():
    """Whatever else runs."""
    assert "no process of the worker" in found("no-such-incarnation")


def test_a_controller_that_can_be_reached(listening):
    """By the address of the command line, which wins, or of the variables."""
    with worker(f"--controller=127.0.0.1:{listening}", IRIS_CONTROLLER_ADDRESS="x:1") as incarnation:
        assert f"127.0.0.1:{listening} can be reached" in found(incarnation)
    with worker(IRIS_CONTROLLER_ADDRESS=f"http://127.0.0.1:{listening}") as incarnation:
        assert "can be reached" in found(incarnation)
    with worker() as incarnation:
        assert "no controller's address" in found(incarnation)


def test_a_controller_that_cannot(closed):
    """Refused, not known, or no address at all."""
    with worker("--controller", f"127.0.0.1:{closed}") as incarnation:
        assert "cannot be reached from its pod: [Errno 111]" in found(incarnation)
    with worker("--controller", "controller.invalid:1") as incarnation:
        assert "'controller.invalid' is not known" in found(incarnation)
    with worker("--controller", "127.0.0.1:x") as incarnation:
        assert "cannot be reached" in found(incarnation)


def test_a_certificate_that_is_not_accepted(tmp_path):
    """Another door's, or an authority that is none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        with worker("--controller", address, "--ca-file", str(tmp_path / "none.crt")) as incarnation:
            assert "certificate is not accepted in its pod: [Errno 2]" in found(incarnation)
