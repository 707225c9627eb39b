"""Pods of a served simulation that really run."""

import asyncio
import os
import signal
import struct
import sys
import time
from pathlib import Path

import aiohttp
import pytest
from serve_caller import Caller

from iriscw._errors import InvalidArgument
from iriscw.processes.sweep import marked_processes
from iriscw_sims.processes.cluster import serve_with_processes
from iriscw_sims.processes.containers import MARKER
from iriscw_sims.serve.portforward import CHANNELS, TUNNEL
from iriscw_sims.serve.settings import PoolToBegin, ServeSettings, Timing
from raised import that

PODS = "/api/v1/namespaces/default/pods"
UNTIL_TERM = """
import signal, sys, time
def end(*_):
    print("asked to end", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(600)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


@pytest.fixture
async def cluster(tmp_path):
    """A quick cluster with a node, whose pods are processes."""
    settings = ServeSettings(timing=Timing.QUICK, speed=10, pools=(PoolToBegin("cpu", "cd-gp-i64", 1),))
    async with serve_with_processes(settings, tmp_path / "pods") as server:
        yield server
        assert server.statistics().failures == 0


@pytest.fixture
async def caller(cluster):
    """A caller of it."""
    async with Caller(cluster) as calling:
        yield calling


def python(name, program, **container):
    """Return a pod that runs a line of Python."""
    main = {"name": "main", "image": "x", "command": [sys.executable, "-c", program], **container}
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [main]}}


async def until(caller, name, holds):
    """Wait until a pod looks so; None stands for one that is gone."""
    async with asyncio.timeout(60), caller.watch(PODS) as event:
        while True:
            told = await event()
            item = told["object"]
            if item["metadata"]["name"] == name and holds(None if told["type"] == "DELETED" else item):
                return item


def phase(wanted):
    """Tell whether a pod is in this phase."""
    return lambda item: item is not None and (item.get("status") or {}).get("phase") == wanted


async def log_of(caller, name, contains=""):
    """Return a pod's log, up to the line that contains a text."""
    await until(caller, name, lambda item: item is not None and item["status"].get("phase") not in (None, "Pending"))
    said = ""
    async with asyncio.timeout(20), caller.session.get(f"{PODS}/{name}/log", params={"follow": "true"}) as answer:
        async for line in answer.content:
            said += line.decode()
            if contains and contains in said:
                return said
    assert contains in said, said
    return said


def state(item):
    """Return how a pod's container ended."""
    return item["status"]["containerStatuses"][0]["state"]["terminated"]


def processes(tmp_path, life):
    """Return all processes of one life of a pod, its supervisor among them."""
    return marked_processes({MARKER: str(tmp_path / "pods" / "pods" / life)})


def command_line(pid):
    """Return what a process was started with."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()


async def cluster_is_empty(tmp_path, life):
    """Wait until nothing of a life is left: killing takes some milliseconds."""
    async with asyncio.timeout(10):
        while processes(tmp_path, life):  # noqa: ASYNC110 - nobody is told when a process of somebody else is gone
            await asyncio.sleep(0.01)


def is_gone(item):
    """Tell whether a pod is gone."""
    return item is None


async def test_a_pod_runs_says_something_and_ends(caller):
    """Its exit code and its log are those of the process."""
    await caller.done("POST", PODS, python("ok", "print('hello')"))
    await caller.done("POST", PODS, python("bad", "import sys; sys.exit('no')"))
    assert state(await until(caller, "ok", phase("Succeeded")))["exitCode"] == 0
    assert state(await until(caller, "bad", phase("Failed")))["exitCode"] == 1
    assert await log_of(caller, "ok") == "hello\n"
    assert await log_of(caller, "bad") == "no\n"


async def test_a_pod_that_is_deleted_is_asked_first(caller, cluster):
    """It gets SIGTERM, and is gone as soon as it has ended; that takes no longer than it needs."""
    await caller.done("POST", PODS, python("polite", UNTIL_TERM))
    await log_of(caller, "polite", "up")
    begun = time.monotonic()
    deleting = asyncio.create_task(until(caller, "polite", is_gone))
    await caller.done("DELETE", f"{PODS}/polite", {"kind": "DeleteOptions", "gracePeriodSeconds": 500})
    item = await deleting
    assert time.monotonic() - begun < 45
    assert state(item)["exitCode"] == 7


async def test_a_pod_that_does_not_end_is_killed(caller, tmp_path):
    """After its grace nothing of it is left."""
    await caller.done("POST", PODS, python("stubborn", STUBBORN))
    await log_of(caller, "stubborn", "up")
    deleting = asyncio.create_task(until(caller, "stubborn", is_gone))
    await caller.done("DELETE", f"{PODS}/stubborn", {"kind": "DeleteOptions", "gracePeriodSeconds": 5})
    assert state(await deleting)["exitCode"] == 137
    await cluster_is_empty(tmp_path, "stubborn-1")


async def test_a_pod_that_dies_is_told(caller, tmp_path):
    """Killed by somebody else: with the signal's exit code."""
    await caller.done("POST", PODS, python("victim", UNTIL_TERM))
    await log_of(caller, "victim", "up")
    (victim,) = [each for each in processes(tmp_path, "victim-1") if "signal.signal" in command_line(each.pid)]
    os.kill(victim.pid, signal.SIGKILL)
    assert state(await until(caller, "victim", phase("Failed")))["exitCode"] == 137


SHOUT = """
import os, socketserver
class Shout(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())
server = socketserver.ThreadingTCPServer((os.environ["IP"], 7007), Shout)
print("up", flush=True)
server.serve_forever()
"""


async def test_ports_of_a_pod_lead_to_its_process(caller, cluster):
    """Both ways, whoever ends first; where nothing listens the reason is told. Only channels are spoken."""
    field = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    await caller.done("POST", PODS, python("shout", SHOUT, env=[field]))
    await log_of(caller, "shout", "up")

    def opened(port, protocol=CHANNELS):
        return caller.session.ws_connect(f"{PODS}/shout/portforward", params={"ports": port}, protocols=[protocol])

    async with asyncio.timeout(30):
        async with opened("7007") as socket:
            port = struct.pack("<H", 7007)
            assert [await socket.receive_bytes(), await socket.receive_bytes()] == [b"\0" + port, b"\1" + port]
            for words in (b"hello\n", b"again\n"):
                await socket.send_bytes(b"\0" + words)
                assert await socket.receive_bytes() == b"\0" + words.upper()
        async with opened("7008") as socket:
            said = [await socket.receive_bytes() for _ in range(3)][2]
            assert said.endswith(b"connect: connection refused")
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        for port, protocol in (("7007", TUNNEL), ("7007,7008", CHANNELS)):
            with pytest.raises(aiohttp.WSServerHandshakeError, check=that(status=400)):
                await opened(port, protocol)
        async with opened("7007") as socket:  # the process goes first
            await socket.receive_bytes()
            await caller.done("DELETE", f"{PODS}/shout", {"kind": "DeleteOptions", "gracePeriodSeconds": 0})
            while (await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                pass
    assert cluster.statistics().failures == 0


async def test_a_pod_that_cannot_be_run_says_why(caller):
    """It fails to start, and its log names what is missing."""
    await caller.done("POST", PODS, python("lost", "", command=["no-such-program"]))
    assert state(await until(caller, "lost", phase("Failed")))["reason"] == "StartError"
    assert "no-such-program" in await log_of(caller, "lost")


async def test_the_end_of_the_server_is_that_of_all_pods(tmp_path):
    """Nothing is left running."""
    settings = ServeSettings(timing=Timing.QUICK, speed=10, pools=(PoolToBegin("cpu", "cd-gp-i64", 1),))
    async with serve_with_processes(settings, tmp_path / "pods") as server, Caller(server) as calling:
        await calling.done("POST", PODS, python("p", STUBBORN))
        await log_of(calling, "p", "up")
        assert processes(tmp_path, "p-1")
    assert not processes(tmp_path, "p-1")


async def test_without_controllers_there_are_no_pods(tmp_path):
    """A server alone would start none: said at once."""
    with pytest.raises(InvalidArgument):
        async with serve_with_processes(ServeSettings(controllers=False), tmp_path / "pods"):
            raise AssertionError("it began")
