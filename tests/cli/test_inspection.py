"""``inspect tree``, against a real door of a tree that has a sick actor."""

import anyio
import pytest

from iriscw._errors import InvalidArgument
from iriscw.cli.inspection import level
from iriscw.client.model import ActorStatus
from iriscw.inspection.doors import InspectionDoor
from iriscw.proto.iriscw import v1
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Role
from iriscw.runtime import ActorSystem, Behavior
from iriscw.runtime.behavior import ChildSpec, Supervision


def fail(state, received, ctx):
    """Be sick."""
    raise InvalidArgument("no GPU has this number")


@pytest.fixture
async def ask(tmp_path, iriscw):
    """Run the command against a socket's door; give its exit code, standard output and standard error."""
    sick = ChildSpec("sick", Behavior(decide=fail), entity=True)
    group = Behavior(children=(sick, ChildSpec("well", Behavior())), supervision=Supervision(restarts=0))
    async with (
        ActorSystem(Behavior(children=(ChildSpec("group", group),)), name="test") as system,
        RpcServer([InspectionDoor(lambda: system, Role.LOCAL)], authenticate=lambda token: None) as server,
    ):
        await server.listen_unix(tmp_path / "door.sock")
        system.tell("/group/sick", "work")

        async def run(*words, status=0):
            at = ["inspect", "tree", "--address", f"unix:{tmp_path}/door.sock"]
            code, out, err = await anyio.to_thread.run_sync(iriscw, *at, *words)
            assert code == status, err
            return out or err

        yield run


@pytest.mark.anyio
async def test_what_people_see(ask):
    """The tree by indentation, what is wrong in words; only that if it is asked for; and a wrong path by its name."""
    lines = (await ask()).splitlines()
    assert [line.split("  ACTIVE")[0].split("  QUAR")[0].rstrip() for line in lines[1:]] == [
        "/",
        "  group",
        "    sick",
        "    well",
    ]
    assert "QUARANTINED" in lines[3]
    assert lines[3].endswith(" ago: InvalidArgument: no GPU has this number")
    assert [line.split()[0] for line in (await ask("--troubled")).splitlines()[1:]] == ["/group/sick"]
    assert await ask("--troubled", "/group/well/") == "no actor at or below /group/well is in trouble\n"
    assert "there is no actor at /nobody" in await ask("/nobody", status=2)
    assert "leave one out" in await ask("--agent", status=2)


@pytest.mark.anyio
async def test_gpus_are_listed(tmp_path, iriscw):
    """What is not known is a dash, and why stands beside it; a process without GPUs says so."""
    known = v1.GpuStatus("GPU-a", "NVIDIA H100", 0, 97, 40 << 30, 80 << 30, 61, 688_210)
    hung = v1.GpuStatus("GPU-b", "NVIDIA H100", 1, memory_total_bytes=80 << 30, problem="it did not answer")
    shown = v1.ListGpusResponse(gpus=[known, hung])
    door = InspectionDoor(lambda: None, Role.LOCAL, gpus=lambda: shown)
    async with RpcServer([door], authenticate=lambda token: None) as server:
        await server.listen_unix(tmp_path / "door.sock")
        at = ["inspect", "gpus", "--address", f"unix:{tmp_path}/door.sock"]
        code, out, _ = await anyio.to_thread.run_sync(iriscw, *at)
        lines = [line.split() for line in out.splitlines()[1:]]
        assert code == 0
        assert lines[0] == ["GPU-a", "0", "NVIDIA", "H100", "97%", "40.0/80.0", "GiB", "61", "C", "688", "W", "-"]
        assert lines[1][4:8] == ["-", "-/80.0", "GiB", "-"]
        assert out.rstrip().endswith("it did not answer")
        shown.gpus.clear()
        assert await anyio.to_thread.run_sync(iriscw, *at) == (0, "it hands out no GPUs\n", "")


def test_levels():
    """Counted from the actor that was asked for."""
    levels = [level(ActorStatus(path, "", "ACTIVE"), "/") for path in ("/", "/a", "/a/b")]
    assert levels == [0, 1, 2]
    assert [level(ActorStatus(path, "", "ACTIVE"), "/a") for path in ("/a", "/a/b", "/a/b/a")] == [0, 1, 2]
