"""Commands in containers: the public suite on a real engine, and what is no engine's answer."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from iriscw.cloud.drivers.docker.connection import DockerConnection
from iriscw.cloud.drivers.docker.engine import open_engine
from iriscw.cloud.drivers.kube import exec as exec_module
from iriscw.cloud.model import ExecEnd, ExecOutput, Gone, InvalidSpec, Unavailable
from iriscw.testing.conformance.connection import ConnectionConformance

sys.path.insert(0, str(Path(__file__).parents[2] / "worker" / "runtimes"))

from docker_world import IMAGE, docker_world, shown

MARK = "iriscw-test:"


@pytest.fixture(scope="module")
def anyio_backend():
    """The asyncio backend, for the engine as well, which outlives tests."""
    return "asyncio"


@pytest.fixture(scope="module")
async def machine(tmp_path_factory):
    """A machine with an engine, for all of the file."""
    async with docker_world(tmp_path_factory.mktemp("machine")) as made:
        yield made


@asynccontextmanager
async def container(machine, name, *, runs=True):
    """A container, which runs or has ended."""
    mounts = [{"Type": "bind", "Source": path, "Target": path, "ReadOnly": True} for path in shown()]
    body = {"Image": IMAGE, "Cmd": ["sleep", "600"], "HostConfig": {"NetworkMode": "host", "Mounts": mounts}}
    async with open_engine(str(machine.socket)) as engine:
        await engine.call("POST", "/containers/create", query={"name": name}, body=body)
        try:
            await engine.call("POST", f"/containers/{name}/start")
            if not runs:
                await engine.call("POST", f"/containers/{name}/kill")
                await engine.call("POST", f"/containers/{name}/wait")
            yield DockerConnection(str(machine.socket), name)
        finally:
            await engine.call("DELETE", f"/containers/{name}", query={"force": "1"})


@pytest.mark.slow
class TestConformance(ConnectionConformance):
    """The contract of the port."""

    @pytest.fixture
    async def connection(self, machine):
        async with container(machine, "box") as made:
            yield made


@pytest.mark.slow
async def test_a_container_that_is_not_there_or_has_ended(machine):
    """Is gone, whatever is asked; and one that ends while a command says nothing is found to be."""
    async with container(machine, "ended", runs=False) as ended:
        for gone in (ended, DockerConnection(str(machine.socket), "never")):
            for attempt in (gone.run(["true"], 20), anext(gone.stream(["true"])), gone.wait_until_ready(20)):
                with pytest.raises(Gone):
                    await attempt
        with pytest.raises(Gone):
            await ended._check()
    async with container(machine, "bare") as bare:
        await bare._check()
        other = DockerConnection(bare.socket, bare.container, interpreter=("no-such-python",))
        with pytest.raises(InvalidSpec):
            await other.run(["true"], 20)


@asynccontextmanager
async def at(folder, start, more=b"", inspected=b"{}"):
    """Have the engine's place answer a start with these bytes, the order with more, and a look at the command."""

    async def serve(reader, writer):
        while line := await reader.readline():
            length = 0
            while head := (await reader.readline()).strip().lower():
                if head.startswith(b"content-length:"):
                    length = int(head.partition(b":")[2])
            await reader.readexactly(length)
            path = line.split()[1]
            if path.endswith(b"/start"):
                writer.write(start)
                if start == READY:
                    await reader.readexactly(len(exec_module.SOURCE))
                    writer.write(more)
                break
            made = b'{"Id": "e1"}' if path.endswith(b"/exec") else inspected if b"/exec/" in path else b"{}"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(made), made))
        writer.close()

    socket = str(folder / "docker.sock")
    async with await asyncio.start_unix_server(serve, socket):
        yield DockerConnection(socket, "a")


def piece(channel, data):
    """What an engine sends of an output."""
    return bytes((channel, 0, 0, 0)) + len(data).to_bytes(4) + data


UPGRADE = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
READY = UPGRADE + piece(2, MARK.encode())


@pytest.fixture
def known_mark(monkeypatch):
    """Every attendant's mark is the same."""
    monkeypatch.setattr("iriscw.cloud.drivers.docker.connection.new_mark", lambda: MARK)
    monkeypatch.setattr(exec_module, "KILL_S", 0.1)


async def test_pieces_and_the_code(tmp_path, known_mark):
    """As an engine sends them."""
    more, ended = piece(1, b"out") + piece(2, b"err"), b'{"Running": false, "ExitCode": 3}'
    async with at(tmp_path, READY, more, ended) as connection:
        found = [each async for each in connection.stream(["x"])]
    assert found == [ExecOutput(b"out"), ExecOutput(b"err", stderr=True), ExecEnd(3)]


@pytest.mark.parametrize(
    ("start", "more", "inspected", "error"),
    [
        (b"", b"", {}, Unavailable),
        (b"<html>log in</html>\r\n\r\n", b"", {}, Unavailable),
        (b"HTTP/1.1 500 oh\r\n\r\n", b"", {}, Unavailable),
        (b"HTTP/1.1 409 Conflict\r\n\r\n", b"", {}, Gone),
        (b"x" * 1_000_000, b"", {}, Unavailable),
        (UPGRADE, b"", {"Running": False, "ExitCode": 127}, InvalidSpec),
        (UPGRADE, b"", {"Running": False, "ExitCode": 1}, Unavailable),
        (READY, piece(7, b"x"), {}, Unavailable),
        (READY, bytes((1, 0, 0, 0, 255, 255, 255, 255)), {}, Unavailable),
        (READY, piece(1, b"xx")[:-1], {"Running": True}, Unavailable),
        (READY, b"", {"Running": False, "ExitCode": None}, Unavailable),
        (READY, b"", [], Unavailable),
    ],
)
async def test_what_is_no_engines_answer_means_nothing(tmp_path, known_mark, start, more, inspected, error):
    """It has a name, and soon; a command whose end nobody saw has no code."""
    async with at(tmp_path, start, more, json.dumps(inspected).encode()) as connection:
        with anyio.fail_after(20), pytest.raises(error):
            [each async for each in connection.stream(["x"])]
