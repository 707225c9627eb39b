"""Tasks that talk to each other, on a real local cluster."""

import json
import os
import socket
import sys
import time
from contextlib import ExitStack, aclosing

import anyio
import anyio.to_thread
import pytest

from iriscw.client.errors import InvalidJob, PeerOver, WaitTimeout
from iriscw.client.submission import Command
from iriscw.cluster import Cluster
from iriscw.resources import Resources
from iriscw.task.context import InsideLoop, NoSuchPort, context
from raised import that

SMALL = Resources(cpu="250m", memory="64MiB")
HALF = Resources(cpu="500m", memory="64MiB")
"""Two of them fill a worker."""

PATIENCE_S = 60
"""A cluster on a busy machine; each step takes a second or two otherwise."""


@pytest.fixture
def cluster(shared_cluster):
    """The one of this file."""
    return shared_cluster


def echoes(port):
    """Listen as the variables say, say where others get through, and answer one of them."""
    with socket.create_server((os.environ["IRIS_BIND_HOST"], int(os.environ[f"IRIS_PORT_{port.upper()}"]))) as door:
        sys.stdout.write(f"{os.environ['IRIS_ADVERTISE_HOST']} {door.getsockname()[1]}\n")
        sys.stdout.flush()
        visitor, _ = door.accept()
        with visitor:
            visitor.sendall(visitor.recv(64).upper())


@pytest.mark.slow
async def test_what_listens_as_told_is_reached_where_it_says(cluster):
    """A named port that is bound at IRIS_BIND_HOST answers at IRIS_ADVERTISE_HOST."""
    job = await cluster.client.submit(echoes, "door", name="echo", resources=SMALL, ports=["door"])
    with anyio.fail_after(PATIENCE_S):
        async with aclosing(job.logs(follow=True)) as lines:
            host, port = str(await anext(lines)).split()
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(b"knock")
            assert await stream.receive() == b"KNOCK"
        await job.result()


def reached(address):
    """Connect to a replica: it runs, and may not listen yet."""
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            time.sleep(0.02)


def passes_on():
    """Return the own index to two visitors, one of whom is the replica before; give what the next replica says.

    It stays until both visitors have left: a replica that is over has no address for one that asks late.
    """
    task = context()
    with socket.create_server((task.bind_host, task.port("ring"))) as door:
        peers = task.peers("ring")
        assert peers[task.index] == (task.advertise_host, task.port("ring"))
        with reached(peers[(task.index + 1) % len(peers)]) as following:
            visitors = [door.accept()[0] for _ in range(2)]
            for visitor in visitors:
                visitor.sendall(str(task.index).encode())
            told = int(following.recv(16))
        for visitor in visitors:
            assert visitor.recv(16) == b""
            visitor.close()
        return told


@pytest.mark.slow
async def test_peers_find_each_other(cluster):
    """Each replica learns where all listen, by index, and so does who asks from outside."""
    job = await cluster.client.submit(passes_on, name="ring", replicas=4, resources=HALF, ports=["ring"])
    with anyio.fail_after(PATIENCE_S):
        peers = await job.peers("ring")
        endpoints = await job.endpoints()
        assert [(each.host, each.ports["ring"]) for each in endpoints] == [*peers]
        assert len({each.host for each in endpoints}) == 2  # of two workers, each with an address of its own
        with ExitStack() as held:  # until each has learned of the others
            for index, address in enumerate(peers):
                # in a thread: the controller is in this loop
                stream = held.enter_context(await anyio.to_thread.run_sync(reached, address))
                assert int(await anyio.to_thread.run_sync(stream.recv, 16)) == index
        assert await job.result() == [1, 2, 3, 0]
        assert await job.endpoints() == []
        with pytest.raises(PeerOver, check=that(comes_from="peers.addresses")):
            await job.peers("ring")


def asks_in_vain(asked):
    """Ask for peers where they cannot be had, in the first task; return the names of the errors. The others wait."""
    task = context()
    while task.index and not asked.exists():
        time.sleep(0.02)
    errors = []
    for ask in (lambda: task.peers("other"), lambda: task.peers("door", 0.1), lambda: anyio.run(inside_a_loop, task)):
        try:
            ask()
        except (NoSuchPort, PeerOver, WaitTimeout, InsideLoop) as error:
            errors.append(type(error).__name__)
    asked.touch()
    return errors


async def inside_a_loop(task):
    """Call what would hold up the loop."""
    task.peers("door")


@pytest.mark.slow
async def test_peers_that_are_not_there(cluster, tmp_path):
    """A port that the job does not have, peers that do not come, a loop that would stand still: each by its name."""
    options = {"replicas": 5, "resources": HALF, "ports": ["door"]}  # the fifth finds no room
    job = await cluster.client.submit(asks_in_vain, tmp_path / "asked", name="vain", **options)
    with anyio.fail_after(PATIENCE_S):
        assert (await job.result())[0] == ["NoSuchPort", "WaitTimeout", "InsideLoop"]


MEETS = """
import json, os, socket, sys, time
told = {name: os.environ.get(name) for name in (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "IRIS_NUM_NODES", "IRIS_WORKER_ID",
    "MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")}
rank, size, at = int(told["RANK"]), int(told["WORLD_SIZE"]), (told["MASTER_ADDR"], int(told["MASTER_PORT"]))
once = sys.argv[1]
if rank == 1 and once and not os.path.exists(once):
    open(once, "w").close()
    sys.exit("fails once")
if rank == 0:
    with socket.create_server(("", at[1])) as door:
        members = [door.accept()[0] for _ in range(size - 1)]
        for member in members:
            told.setdefault("members", []).append(json.loads(member.makefile().readline()))
        for member in members:
            member.sendall(b"go\\n")
        print(json.dumps(told), flush=True)
else:
    while True:  # as every such program does
        try:
            master = socket.create_connection(at)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    master.sendall(json.dumps(told).encode() + b"\\n")
    assert master.makefile().readline() == "go\\n"
"""
"""What ``torch.distributed`` and JAX do to begin: rank 0 listens at the master's port, all others meet it there."""


@pytest.mark.slow
@pytest.mark.parametrize("fails_once", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_gang_meets(tmp_path, fails_once):
    """Four members on two workers find each other by the variables of torchrun and JAX; so they do after a retry."""
    once = str(tmp_path / "once") if fails_once else ""
    program = Command([sys.executable, "-c", MEETS, once])
    async with Cluster.local(nodes=2, boot_delay=0.0, policy=lambda view: 2) as cluster:
        options = {"replicas": 4, "resources": HALF, "coscheduling": "group", "max_retries_failure": 1}
        job = await cluster.client.submit(program, name="gang", **options)
        with anyio.fail_after(PATIENCE_S):
            assert (await job.result()) == [None] * 4
            [line] = [json.loads(line.text) async for line in job.logs(task=0)]
        tasks = await job.tasks()
    assert [len(task.attempts) for task in tasks] == [2 if fails_once else 1] * 4
    told = sorted([line, *line.pop("members")], key=lambda each: int(each["RANK"]))
    assert [each["RANK"] for each in told] == [each["JAX_PROCESS_ID"] for each in told] == ["0", "1", "2", "3"]
    common = ("WORLD_SIZE", "JAX_NUM_PROCESSES", "LOCAL_WORLD_SIZE", "IRIS_NUM_NODES")
    assert [{each[name] for each in told} for name in common] == [{"4"}, {"4"}, {"2"}, {"2"}]
    met = {(each["MASTER_ADDR"], each["MASTER_PORT"], each["JAX_COORDINATOR_ADDRESS"]) for each in told}
    [(host, port, coordinator)] = met
    assert coordinator == f"{host}:{port}"
    workers = [task.worker_id for task in tasks]
    assert [each["IRIS_WORKER_ID"] for each in told] == workers
    nodes = [*dict.fromkeys(workers)]
    assert [int(each["NODE_RANK"]) for each in told] == [nodes.index(worker) for worker in workers]
    assert [int(each["LOCAL_RANK"]) for each in told] == [workers[:i].count(worker) for i, worker in enumerate(workers)]


@pytest.mark.slow
async def test_variables_of_gangs(cluster):
    """A job that is not a gang is told none of them, and may set its own; a gang may not."""
    sets = {"environment": {"RANK": "7", "MASTER_PORT": "1"}, "resources": SMALL}
    script = Command(["sh", "-c", "env | grep -E '^(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_|JAX_|NODE_RANK)' | sort"])
    job = await cluster.client.submit(script, name="no-gang", **sets)
    with anyio.fail_after(PATIENCE_S):
        await job.wait()
        assert [line.text async for line in job.logs()] == ["MASTER_PORT=1", "RANK=7"]
    with pytest.raises(InvalidJob, check=that(comes_from="submission._environment", names="RANK")):
        await cluster.client.submit(script, name="gang", coscheduling="group", **sets)
