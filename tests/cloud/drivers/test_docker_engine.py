"""What answers at the Docker engine's socket and is not the engine: nothing is concluded of it (INV-C11)."""

import asyncio
from contextlib import aclosing, asynccontextmanager

import anyio
import pytest

from iriscw.cloud.docker.containers import ContainerOwner, TaskContainers
from iriscw.cloud.drivers.docker.engine import DockerEngine, open_engine
from iriscw.cloud.drivers.docker.tasks import DockerTasks
from iriscw.cloud.model import Gone, Unavailable
from raised import that

PAGE = b"<html><body>log in</body></html>"
OWNER = ContainerOwner("w-0", "i-0", "/var/cache/iris", 1000, 1001, "10.0.0.7")


@asynccontextmanager
async def at(folder, **answers):
    """Have the engine's place answer each path with a status and a body; its version is told, and events never come."""
    answers = {"version": (200, b"{}"), **answers}
    held = asyncio.Event()

    async def serve(reader, writer):
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            name = line.split()[1].partition(b"?")[0].rpartition(b"/")[2].decode()
            if name == "events":
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                await held.wait()
                break
            status, body = answers[name]
            writer.write(b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
        writer.close()

    socket = str(folder / "docker.sock")
    server = await asyncio.start_unix_server(serve, socket)
    async with server, open_engine(socket) as engine:
        try:
            yield engine
        finally:
            held.set()


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (404, b'{"message": "No such container: a"}', Gone, that(comes_from="engine.DockerEngine.call")),
        (404, PAGE, Unavailable, that(comes_from="engine.DockerEngine.call", names=("404", "Docker"))),
        (
            404,
            b'{"detail": "no route"}',
            Unavailable,
            that(comes_from="engine.DockerEngine.call", names=("404", "Docker")),
        ),
        (404, b'["message"]', Unavailable, that(comes_from="engine.DockerEngine.call", names=("404", "Docker"))),
        (200, PAGE, Unavailable, that(comes_from="engine.DockerEngine.call")),
    ],
)
async def test_absence_is_the_engines_to_say(tmp_path, status, body, error, said):
    """In its own form: a proxy's page, or another server's 404, says nothing of a container."""
    async with at(tmp_path, json=(status, body)) as engine:
        with pytest.raises(error, check=said) as caught:
            await engine.call("GET", "/containers/a/json")
    assert type(caught.value) is error


@pytest.mark.parametrize("body", [b"{}", b"", b"[{}]", b'[{"Names": []}]', b"[1]"])
async def test_a_list_that_is_none(tmp_path, body):
    """It is not one without containers: those of a worker would be called gone."""
    async with at(tmp_path, json=(200, body)) as engine, anyio.create_task_group() as group:
        tasks = DockerTasks(engine, TaskContainers(image="i", shown=()), OWNER, group)
        async with aclosing(tasks.watch()) as events:
            with pytest.raises(Unavailable, check=that(comes_from="tasks.DockerTasks._listed")):
                await anext(events)
        group.cancel_scope.cancel()


async def test_a_cancellation_of_somebody_elses(tmp_path):
    """A look-up that another request shared and gave up is a request that failed; our own cancellation passes."""

    class Shared:
        """Ends with somebody else's cancelled future."""

        def request(self, *args, **words):
            return self

        async def __aenter__(self):
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

        async def __aexit__(self, *exc):
            return None

    with pytest.raises(Unavailable, check=that(comes_from="engine._told")):
        await DockerEngine(Shared(), "/docker.sock").call("GET", "/version")
    async with at(tmp_path) as engine, engine.events("{}") as events:
        with anyio.move_on_after(0) as scope:
            await anext(events)
    assert scope.cancelled_caught
