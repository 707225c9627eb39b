"""A process is frozen on one machine, stored in S3 over HTTP, and goes on on another one: by the commands alone.

A machine is a state folder and a folder for memory of its own. The S3 server is the simulated one behind a port, which
checks signatures, digests and conditions as Amazon's does.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from iriscw.freeze.drivers.criu.ability import probe
from iriscw.freeze.model import CriuMissing, CriuUnfit, RightsMissing
from iriscw_sims.objects.messages import CreateBucket, DeleteObject, Request
from iriscw_sims.objects.rules import AWS
from iriscw_sims.objects.serve.server import S3Server
from iriscw_sims.objects.storage import ObjectStorage

COMMAND = [sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main())"]
BUCKET, KEY = "checkpoints", "CWKEY"
TIMEOUT_S = 120
PROGRAM = """
import os, sys, time
state, said = os.urandom(24 << 20), 0
while True:
    said += 1
    with open("said.new", "w") as file:
        file.write(f"{said} {hash(state)}")
    os.replace("said.new", "said")
    time.sleep(0.02)
"""


@pytest.fixture
def storage():
    """A simulated S3, served at a port; give its storage and the port."""
    there = ObjectStorage(AWS)
    there.add_key(KEY)
    assert there.handle(Request(BUCKET, CreateBucket(), KEY), 0).ok
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(S3Server(there)) as server:
        yield there, server.port


class Machine:
    """A machine: where its operations and checkpoints lie."""

    def __init__(self, folder, port):
        self.memory = folder / "memory"
        self.environment = {
            **os.environ,
            "IRISCW_STATE_DIR": str(folder / "state"),
            "IRISCW_RAM_DIR": str(self.memory),
            "IRISCW_REPOSITORY": f"s3://{BUCKET}/team-a",
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
            "AWS_REGION": "eu-test-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_CONFIG_FILE": str(folder / "no-config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "no-credentials"),
        }
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            self.environment.pop(name, None)

    def run(self, *arguments):
        """Run a command; give its code, its output and its errors."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def said(self, *arguments):
        """Run a command that succeeds; return what it says for programs."""
        code, out, err = self.run(*arguments, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    def kept(self):
        """Return the checkpoints that lie on it."""
        return sorted(path.name for path in self.memory.glob("artifacts/*"))


def said_by(folder, beyond=0):
    """Return what the program has said last, once it is beyond this."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        try:
            count, state = (folder / "said").read_text().split()
        except FileNotFoundError:
            count, state = "0", ""
        if int(count) > beyond:
            return int(count), state
        time.sleep(0.02)
    raise TimeoutError(f"it says nothing beyond {beyond}")


@contextmanager
def program(folder):
    """Run the program so that it can be frozen; end it, and whatever was thawed of it."""
    command = [*COMMAND, "freezable", "--", sys.executable, "-c", PROGRAM]
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        for each in Path("/proc").glob("[0-9]*"):
            try:
                if (each / "cwd").readlink() == folder:
                    os.kill(int(each.name), signal.SIGKILL)
            except OSError:  # it has ended, or is a thread's
                continue
        process.wait()


@pytest.mark.slow
def test_it_goes_on_on_another_machine(tmp_path, storage):
    """With its memory; a second checkpoint stores what has changed; and what is damaged is never thawed."""
    try:
        probe()
    except (CriuMissing, CriuUnfit, RightsMissing) as error:
        pytest.skip(f"{type(error).__name__}: {error}")
    there, port = storage
    one, other = Machine(tmp_path / "one", port), Machine(tmp_path / "other", port)
    home = tmp_path / "home"
    home.mkdir()

    def stored():
        return {key: body.rendered() for key, body in there.buckets[BUCKET].contents().items()}

    with program(home) as process:
        before = said_by(home)
        first = one.said("checkpoint", "--pid", str(process.pid))["checkpoint"]
        process.wait()
        frozen = said_by(home, before[0] - 1)
        assert one.said("move", first, "repository")["outcome"] == "moved"
        assert one.kept() == []
        size = sum(map(len, stored().values()))
        assert size > 24 << 20
        assert all(key.startswith("team-a/") for key in stored())

        (listed,) = other.said("checkpoints")
        assert (listed["artifact"], [copy["tier"] for copy in listed["copies"]]) == (first, ["repository"])
        thawed = other.said("restore", first)
        assert said_by(home, frozen[0])[1] == before[1]
        assert other.kept() == [first]

        second = other.said("checkpoint", "--pid", str(thawed["pid"]))["checkpoint"]
        assert other.said("move", second, "repository")["outcome"] == "moved"
        assert sum(map(len, stored().values())) < 1.2 * size

        (manifest,) = [key for key in stored() if f"manifests/{second}/" in key]
        assert there.handle(Request(BUCKET, DeleteObject(manifest), KEY), 0).ok
        code, _, err = one.run("restore", second)
        assert (code, "has lost its manifest" in err) == (3, True)
        assert one.kept() == []
        assert one.said("restore", first)["outcome"] == "thawed"
        assert said_by(home, frozen[0])[1] == before[1]
