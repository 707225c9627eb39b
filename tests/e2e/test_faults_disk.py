"""A full disk: work is refused by name and at once, whoever waits is told for what, and with room again all goes on."""

import collections
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kill_cluster

from kill_cluster import PATIENCE_S, SMALL, controller_process, still_serves

from iriscw._errors import JournalFull, OutcomePending
from iriscw.client.calls import SERVICE
from iriscw.client.submission import Command
from iriscw.jobs.model import JobState
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.tokens import Secret

COMMAND = [sys.executable, "-c", "import sys; from iriscw.cli import main; sys.exit(main())"]
PROMPT_S = 20.0
"""What is told at once takes less, however slow the machine; a client that is not told waits for 60."""

STRIDE_S = 1.0
"""How long a client tries before somebody looks whether the disk was found full."""


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a few MiB, if this user may mount one."""
    folder = tmp_path / "state"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a disk of its own")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
async def test_a_full_disk_refuses_and_recovers(tmp_path, small_disk):
    """With a full disk the door refuses by name, reading and /health go on; with room again, all works.

    What was acknowledged is there, once; what was refused is not.
    """
    async with controller_process(tmp_path, nodes=1) as controller, controller.client() as client:
        await still_serves(client)
        [quiet] = await client.jobs()
        job = await client.submit(Command(["sleep", "1000"]), name="sleeper", resources=SMALL)
        ballast = small_disk / "ballast"
        fill(ballast)
        async with RpcChannel(controller.address, Secret(controller.token)) as channel:
            with anyio.fail_after(PATIENCE_S):
                fates, refusal = await until_refused(channel)
        journal = re.escape(str(small_disk / "journal"))
        assert re.match(rf"the disk of the journal in {journal} is full \(\d+ bytes free\)", str(refusal))
        # A job that changed since is described when its changes are on the disk; one that did not, at once.
        assert (await client.job(quiet.id)).seen.state is JobState.SUCCEEDED
        assert await quiet.result() == [15]
        code, body = await get(controller, "/health")
        assert code == 200
        assert json.loads(body) == {"status": "degraded", "reason": "journal stalled: its disk is full"}
        assert b"iriscw_journal_stalled 1.0" in (await get(controller, "/metrics"))[1]
        ballast.unlink()
        with anyio.fail_after(PATIENCE_S):
            while json.loads((await get(controller, "/health"))[1])["status"] != "ok":  # noqa: ASYNC110 - a page
                await anyio.sleep(0.1)
            assert (await job.terminate()).name == "sleeper"
        assert b"iriscw_journal_stalled 0.0" in (await get(controller, "/metrics"))[1]
        there = collections.Counter(each.name for each in await client.jobs())
        there -= collections.Counter(("sleeper", "after-the-fault"))
        assert there == collections.Counter(fates["acknowledged"] + fates["pending"])
        await still_serves(client)


@pytest.mark.slow
async def test_killed_while_the_disk_is_full(tmp_path, small_disk):
    """A controller that dies with a full disk lost nothing that it acknowledged, and kept nothing that it refused."""
    async with controller_process(tmp_path, nodes=1) as controller:
        async with controller.client() as client:
            await client.submit(Command(["sleep", "1000"]), name="sleeper", resources=SMALL)
        ballast = small_disk / "ballast"
        fill(ballast)
        async with RpcChannel(controller.address, Secret(controller.token)) as channel:
            with anyio.fail_after(PATIENCE_S):
                fates, _ = await until_refused(channel)
        await controller.kill()
        ballast.unlink()
        await controller.start()
        async with controller.client() as client:
            there = [each.name for each in await client.jobs()]
            assert len(there) == len(set(there))
            assert {"sleeper", *fates["acknowledged"]} <= set(there)
            assert set(there) <= {"sleeper", *fates["acknowledged"], *fates["pending"]}
            await still_serves(client)


async def until_refused(channel):
    """Submit without the client's patience until one is refused. Give the names by fate, and the refusal.

    What was accepted before the disk was known to be full is pending; that is told as promptly.
    """
    entrypoint = v1.Entrypoint(command=v1.Command(argv=["sleep", "1000"]))
    amount = v1.Amount(cpu_milli=100, memory_bytes=1 << 20)
    fates = {"acknowledged": [], "pending": []}
    for number in range(100):
        name = f"more-{number}"
        request = v1.SubmitJobRequest(
            name=name, replicas=1, entrypoint=entrypoint, resources=amount, idempotency_key=name
        )
        try:
            with anyio.fail_after(PROMPT_S):
                await channel.unary(SERVICE + "SubmitJob", request, v1.SubmitJobResponse)
            fates["acknowledged"].append(name)
        except OutcomePending:
            fates["pending"].append(name)
        except JournalFull as refusal:
            return fates, refusal
    raise AssertionError(f"the disk was never full: {fates}")


@pytest.mark.slow
async def test_who_submits_to_a_full_disk_is_told(tmp_path, small_disk):
    """`iriscw submit` says within seconds what it waits for; with room again it ends well, and there is one job."""
    # What jobs run lies elsewhere, so that the journal's disk is what refuses.
    elsewhere = {"local": {"port": 0}, "bundle_prefix": f"file://{tmp_path}/objects"}
    async with controller_process(tmp_path, nodes=1, controller=elsewhere) as controller, controller.client() as client:
        await still_serves(client)
        ballast = small_disk / "ballast"
        fill(ballast)
        await until_found_full(controller, client)
        submitted = await anyio.open_process(submit_command(controller, "patient"), stdin=subprocess.DEVNULL)
        try:
            assert submitted.stderr is not None
            with anyio.fail_after(PATIENCE_S):  # most of it the start of an interpreter
                told = await line_of(submitted.stderr)
            assert re.match(r"iriscw: SubmitJob has to wait: (JournalFull|OutcomePending): .* is full \(", told), told
            assert str(small_disk) in told
            assert "trying again for up to 60 s" in told
            ballast.unlink()
            with anyio.fail_after(PATIENCE_S):
                assert await submitted.wait() == 0
        finally:
            if submitted.returncode is None:
                submitted.kill()
            await submitted.aclose()
        assert [each.name for each in await client.jobs()].count("patient") == 1
        await still_serves(client)


async def until_found_full(controller, client):
    """Have the journal write until it finds its disk full: SQLite's log may have room of its own."""
    number = 0
    with anyio.fail_after(PATIENCE_S):
        while json.loads((await get(controller, "/health"))[1])["status"] == "ok":
            number += 1
            with anyio.move_on_after(STRIDE_S):
                await client.submit(Command(["true"]), name=f"probe-{number}", resources=SMALL)


def submit_command(controller, name):
    """Return the command line of a user."""
    token = str(controller.state_dir / "secrets" / "admin-token")
    connection = ("--address", controller.address, "--token-file", token)
    return [*COMMAND, "submit", *connection, "--name", name, "--cpu", "100m", "--memory", "32MiB", "true"]


async def line_of(stream):
    """Read one line."""
    text = b""
    while not text.endswith(b"\n"):
        text += await stream.receive(1)
    return text.decode()


def fill(path):
    """Write until nothing more fits."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue


async def get(controller, path):
    """Ask for a page as Prometheus does; /health needs no token. Give the status and the body."""
    host, _, port = controller.address.partition(":")
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {controller.token}\r\nConnection: close\r\n\r\n"
    async with await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send(head.encode())
        answer = b""
        try:
            while True:
                answer += await stream.receive()
        except anyio.EndOfStream:
            said, _, body = answer.partition(b"\r\n\r\n")
            return int(said.split()[1]), body
