"""A copy of a task comes back without the supervisor that its program was to end with."""

import os
import signal
import subprocess
import sys

import anyio
import pytest

from iriscw.freeze.drivers.criu import driver as driver_module
from iriscw.freeze.drivers.identities import identify_task, lives
from iriscw.freeze.model import CriuOptions, DumpRequest, RestoreRequest, TargetUnfit

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENCE_NS = 60_000_000_000
BOUND = "import ctypes, time; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); print(flush=True); time.sleep(1000)"


@pytest.fixture
def bound(tmp_path):
    """A program that is to be killed when its parent ends."""
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BOUND],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    yield process
    process.kill()
    process.wait()


def folders(at):
    """Make folders for images and work."""
    for name in ("images", "work", "back"):
        (at / name).mkdir()
    return str(at / "images"), str(at / "work")


async def said(path):
    """Wait until the program has said that it is ready."""
    with anyio.fail_after(60):
        while not path.read_bytes():  # noqa: ASYNC110 - as anybody would
            await anyio.sleep(0.005)


async def test_it_ends_with_nobody(criu, bound, tmp_path, monkeypatch):
    """CRIU, its parent for a moment, ends, and it lives on."""
    monkeypatch.setattr(driver_module, "supervised", lambda task: True)
    await said(tmp_path / "output")
    root, (images, work) = identify_task(bound.pid), folders(tmp_path)
    held = await criu.dump(DumpRequest("op", root, images, work, CriuOptions(), PATIENCE_NS), lambda progress: None)
    await held.end(PATIENCE_NS)
    bound.wait()
    request = RestoreRequest("th", images, str(tmp_path / "back"), CriuOptions(), (root.pid,), 0, PATIENCE_NS)
    (back,) = (await criu.restore(request, lambda progress: None)).tasks
    try:
        descriptor = os.pidfd_open(back.pid)
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)
        with anyio.move_on_after(0.5):
            await anyio.wait_readable(descriptor)
        assert lives(back)
    finally:
        os.kill(back.pid, signal.SIGKILL)
        await anyio.wait_readable(descriptor)
        os.close(descriptor)


async def test_one_with_a_parent_of_somebody_else_is_refused(criu, bound, tmp_path):
    """It would be killed at once; it runs on."""
    await said(tmp_path / "output")
    root, (images, work) = identify_task(bound.pid), folders(tmp_path)
    with pytest.raises(TargetUnfit):
        await criu.dump(DumpRequest("op", root, images, work, CriuOptions(), PATIENCE_NS), lambda progress: None)
    assert lives(root)
