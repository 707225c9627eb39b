"""ShimService: containers by their runtime's state, folders of callers, over a simulated machine."""

import json
import os
import shutil
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for agent_world
sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for artifacts

from agent_world import PATIENCE_S, StepWorld, agent_of
from artifacts import FROZEN, fill

from iriscw._errors import InvalidArgument, UsageError
from iriscw.agent.caller_folders import tier_of
from iriscw.agent.errors import ArtifactAmbiguous, ContainerRefused, ContainerUnknown, PathNotAllowed
from iriscw.agent.local import FreezeUndone
from iriscw.agent.operations import Asked, OperationKind
from iriscw.agent.paths import Root
from iriscw.checkpoint.drivers.store import Folders, default_reading
from iriscw.files import make_private_folder
from iriscw.freeze.model import ArtifactUnknown, CudaRefused, TaskIdentity
from iriscw.processes.identity import identify
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from raised import that

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("claims_of_ours")]


@pytest.fixture
def world():
    """A machine whose first process has the number of this one, so that a container can be it."""
    me = identify(os.getpid())
    made = StepWorld()
    made.processes[0].identity = TaskIdentity(me.pid, me.start_ticks, me.boot_id)
    made.source = tuple(process.identity for process in made.processes)
    return made


@pytest.fixture
def runtime(tmp_path, world):
    """The state of a container runtime with one container, ``box``."""
    me = world.source[0]
    folder = tmp_path / "runc" / "k8s.io" / "box"
    folder.mkdir(parents=True)
    folder.chmod(0o700)  # whatever the umask
    state = {"id": "box", "init_process_pid": me.pid, "init_process_start": me.start_ticks}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    (folder / "state.json").chmod(0o600)
    return folder


@pytest.fixture
async def shim(tmp_path, world, runtime):
    """An agent that may use one root, and a function that calls its shim's methods."""
    (tmp_path / "root").mkdir(mode=0o700)
    words = {"roots": (Root.of(tmp_path / "root"),), "runtime_roots": (tmp_path / "runc",)}
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, **words) as (agent, caller), RpcChannel(agent.address) as channel:

            async def call(message):
                name = type(message).__name__.removesuffix("Request")
                reply = getattr(v1, f"{name}Response")
                name = {"Migrate": "MigrateStorage"}.get(name, name)
                return await channel.unary(f"/iriscw.v1.ShimService/{name}", message, reply)

            call.agent, call.caller = agent, caller
            yield call


def checkpoint(tmp_path, **words):
    """Return a request."""
    return v1.CheckpointRequest(
        **{"container_id": "box", "destination_path": str(tmp_path / "root" / "chk-1"), **words}
    )


async def test_a_container_is_frozen(shim, tmp_path, world):
    """Its process is frozen into the folder that was named, which is known after a restart, too."""
    reply = await shim(checkpoint(tmp_path))
    assert reply.checkpoint_id.startswith("ck-")
    assert not world.living()
    folder = tmp_path / "root" / "chk-1"
    assert folder.stat().st_mode & 0o777 == 0o700
    places = tmp_path / "state" / "agent" / "places.json"
    assert json.loads(places.read_text(encoding="utf-8")) == [str(folder)]
    assert tier_of(folder) in (await shim.agent.tiers()).folders


async def test_a_container_that_cannot_be_frozen(shim, tmp_path, world):
    """The error says what became of it."""
    world.faults = {("lock", 1): CudaRefused("no", 801)}
    with pytest.raises(FreezeUndone, check=that(names="CudaRefused")):
        await shim(checkpoint(tmp_path))
    assert len(world.living()) == 3


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"container_id": "none"}, ContainerUnknown),
        ({"container_id": ""}, InvalidArgument),
        ({"container_id": "../k8s.io/box"}, InvalidArgument),
        ({"container_id": "x" * 300}, InvalidArgument),
        ({"compress": True}, InvalidArgument),
        ({"destination_path": ""}, PathNotAllowed),
        ({"destination_path": "/tmp/elsewhere"}, PathNotAllowed),
        ({"destination_path": "root/chk"}, PathNotAllowed),
        ({"destination_path": "{root}/../chk"}, PathNotAllowed),
        ({"destination_path": "{root}"}, PathNotAllowed),
        ({"destination_path": "{root}/link/chk"}, PathNotAllowed),
    ],
)
async def test_requests_that_are_refused(shim, tmp_path, world, words, error):
    """By name, before anything is touched."""
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    words = {name: text.format(root=tmp_path / "root") if text != True else text for name, text in words.items()}  # noqa: E712
    with pytest.raises(error):
        await shim(checkpoint(tmp_path, **words))
    assert len(world.living()) == 3
    assert world.log == []
    assert not (tmp_path / "chk").exists()


async def test_a_number_that_another_process_has(shim, tmp_path, world, runtime):
    """A container whose process has ended is refused, although its number lives."""
    me = world.source[0]
    state = {"id": "box", "init_process_pid": me.pid, "init_process_start": me.start_ticks - 1}
    (runtime / "state.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(ContainerUnknown, check=that(names="box")):
        await shim(checkpoint(tmp_path))
    assert world.log == []


async def test_a_folder_with_a_checkpoint(shim, tmp_path):
    """It takes no second one, is what a restore reads, and is forgotten when its checkpoint is removed."""
    folder = tmp_path / "root" / "chk-1"
    place = kept(folder, "ck-1")
    with pytest.raises(PathNotAllowed, check=that(names="chk-1")):
        await shim(checkpoint(tmp_path))
    with pytest.raises(ContainerRefused, check=that(names=("box", "other"))):
        await shim(v1.RestoreRequest(container_id="other", source_path=str(folder)))
    with pytest.raises(ArtifactUnknown):  # the simulated machine never made it
        await shim(v1.RestoreRequest(container_id="box", source_path=str(folder)))
    (found,) = await shim.caller.checkpoints()
    assert (found.checkpoint_id, found.tier, found.labels) == ("ck-1", f"path:{folder}", {"container-id": "box"})
    await shim.caller.remove("ck-1")
    assert tier_of(folder) not in (await shim.agent.tiers()).folders
    assert not place.has("ck-1")
    with pytest.raises(ArtifactUnknown, check=that(names="0")):
        await shim(v1.RestoreRequest(source_path=str(folder)))
    with pytest.raises(PathNotAllowed, check=that(names="none")):
        await shim(v1.RestoreRequest(source_path=str(tmp_path / "root" / "none")))


async def test_a_folder_that_is_spoilt(shim, tmp_path, world, caplog):
    """One that others may enter by now, or that is gone with its parent, keeps nobody from what lies in the others."""
    make_private_folder(tmp_path / "root" / "gone")
    for name in ("chk-1", "gone/chk", "chk-2"):
        kept(tmp_path / "root" / name, f"ck-{name.replace('/', '-')}")
        with pytest.raises(ArtifactUnknown):
            await shim(v1.RestoreRequest(source_path=str(tmp_path / "root" / name)))
    (tmp_path / "root" / "chk-1").chmod(0o755)
    (tmp_path / "root" / "gone").rename(tmp_path / "elsewhere")
    (tmp_path / "root" / "gone").touch()
    for _ in range(2):
        assert [each.checkpoint_id for each in await shim.caller.checkpoints()] == ["ck-chk-2"]
    assert caplog.text.count("chk-1 is not a folder of mode 0700") == 1
    with pytest.raises(ArtifactUnknown):
        await shim(v1.RestoreRequest(source_path=str(tmp_path / "root" / "chk-2")))
    await shim.caller.remove("ck-chk-2")
    assert (await shim(checkpoint(tmp_path, destination_path=str(tmp_path / "root" / "chk-3")))).checkpoint_id
    assert not world.living()


async def test_an_operation_has_one_place(shim, tmp_path, world):
    """What a place of another one has become is nothing to it; and what it leaves in its own is removed."""
    kept(tmp_path / "root" / "other", "ck-other")
    with pytest.raises(ArtifactUnknown):
        await shim(v1.RestoreRequest(source_path=str(tmp_path / "root" / "other")))
    (tmp_path / "root" / "other").chmod(0o755)
    folder = tmp_path / "root" / "chk-1"
    world.hold("dump")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shim, checkpoint(tmp_path))
        await world.arrived.wait()
        (view,) = shim.agent.board.running()
        tiers = shim.agent.tiers_of(view.asked.operation)
        assert [name for name in tiers.folders if name.startswith("path:")] == [tier_of(folder)]
        work = folder / "work" / view.asked.operation
        make_private_folder(work)
        world.let_go()
    assert not work.exists()


async def test_the_work_of_an_operation_in_a_spoilt_folder(shim, tmp_path, world, caplog):
    """It is left where it is, and that is told: somebody else may have put a link on the way."""
    folder = tmp_path / "root" / "chk-1"
    world.hold("dump")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shim, checkpoint(tmp_path))
        await world.arrived.wait()
        (view,) = shim.agent.board.running()
        work = folder / "work" / view.asked.operation
        make_private_folder(work)
        folder.chmod(0o777)
        world.let_go()
    assert work.exists()
    assert "could not be removed" in caplog.text
    assert shim.agent.board.view(view.asked.operation).over


def kept(folder, name):
    """Put the checkpoint of a container into a folder."""
    folder.mkdir(mode=0o700)
    place = Folders("", folder, 1 << 30)
    fill(place.reserve(name, 1 << 20), large=False)
    place.seal(name, FROZEN, (("container-id", "box"),), default_reading(lambda count: None), lambda size: None)
    place.publish(name)
    place.unpin(name, name)
    return place


async def test_a_folder_that_was_copied(shim, tmp_path, world):
    """What is read is what lies in the folder that was named, or nothing."""
    first, copy = tmp_path / "root" / "chk-1", tmp_path / "root" / "chk-2"
    kept(first, "ck-1")
    with pytest.raises(ArtifactUnknown):  # the simulated machine never made it
        await shim(v1.RestoreRequest(source_path=str(first)))
    shutil.copytree(first, copy)
    with pytest.raises(ArtifactAmbiguous, check=that(names="chk-1")):
        await shim(v1.RestoreRequest(source_path=str(copy)))
    shutil.rmtree(first / "artifacts" / "ck-1")
    with pytest.raises(ArtifactUnknown):
        await shim(v1.RestoreRequest(source_path=str(copy)))


async def test_a_folder_in_use(shim, tmp_path, world):
    """Two freezes never write to one folder at the same time."""
    world.hold("dump")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shim, checkpoint(tmp_path))
        await world.arrived.wait()
        with pytest.raises(PathNotAllowed, check=that(names="chk-1")):
            await shim(checkpoint(tmp_path))
        world.let_go()
    assert not world.living()


async def test_a_folder_of_a_freeze_that_was_undone(shim, tmp_path, world):
    """It is empty, and known no more when the next one is named; the folder itself is its caller's."""
    world.faults = {("lock", 1): CudaRefused("no", 801)}
    with pytest.raises(FreezeUndone):
        await shim(checkpoint(tmp_path))
    folder = tmp_path / "root" / "chk-2"
    await shim(checkpoint(tmp_path, destination_path=str(folder)))
    places = tmp_path / "state" / "agent" / "places.json"
    assert json.loads(places.read_text(encoding="utf-8")) == [str(folder)]
    assert (tmp_path / "root" / "chk-1").is_dir()


async def test_a_folder_that_gets_a_checkpoint_while_one_is_removed(shim, tmp_path, world):
    """It is not forgotten: who begins meanwhile is looked for when nobody can begin."""
    folder = tmp_path / "root" / "chk-1"
    kept(folder, "ck-1")
    with pytest.raises(ArtifactUnknown):
        await shim(v1.RestoreRequest(source_path=str(folder)))
    async with anyio.create_task_group() as tasks, shim.agent._adding:
        tasks.start_soon(shim.agent.remove, "ck-1")
        while not shim.agent._adding.statistics().tasks_waiting:
            await anyio.lowlevel.checkpoint()
        shim.agent.board.begin(Asked("ck-2", OperationKind.FREEZE, ""), "ck-2", tier_of(folder))
    assert tier_of(folder) in (await shim.agent.tiers()).folders
    shim.agent.board.closed("ck-2")


async def test_two_that_ask_for_one_folder(shim, tmp_path, world):
    """One of them gets it, however close they come."""
    refused = []
    world.hold("tree")

    async def ask():
        try:
            await shim(checkpoint(tmp_path))
        except PathNotAllowed as error:
            refused.append(error)
            world.let_go()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)
    assert len(refused) == 1
    assert not world.living()


async def views_of(agent, name, message):
    """Return all views of a call that streams them."""
    async with RpcChannel(agent.address) as channel:
        call = channel.server_stream(f"/iriscw.v1.ShimService/{name}", message, v1.ContainerView)
        async with call as views:
            return [view async for view in views]


def of_runtime(tmp_path, **words):
    """Return the request of a runtime's checkpoint."""
    root, place = str(tmp_path / "runc" / "k8s.io"), str(tmp_path / "root" / "chk-1")
    return v1.CheckpointContainerRequest(
        **{"container_id": "box", "runtime_root": root, "image_path": place, "file_locks": True, **words}
    )


async def test_a_container_is_frozen_by_its_runtime(shim, tmp_path, world):
    """The checkpoint says whose it is, and how it was asked for; while it runs everybody can see on what."""
    world.hold("dump")
    async with anyio.create_task_group() as tasks:

        async def watch():
            await world.arrived.wait()
            root = str(tmp_path / "runc" / "k8s.io")
            assert len(shim.agent.on_container("box", root)) == 1
            assert shim.agent.on_container("box", "/run/runc") == []
            assert shim.agent.on_container("other", root) == []
            world.let_go()

        tasks.start_soon(watch)
        words = {"leave_running": True, "cgroups_mode": "soft", "empty_namespaces": ["network", "network"]}
        views = await views_of(shim.agent, "CheckpointContainer", of_runtime(tmp_path, **words))
    assert views[-1].operation.end.outcome == "copied"
    assert all(view.turn is None for view in views)
    assert len(world.living()) == 3
    assert shim.agent.on_container("box", str(tmp_path / "runc" / "k8s.io")) == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"container_id": "none"}, ContainerUnknown),
        ({"container_id": "../box"}, InvalidArgument),
        ({"runtime_root": "/run/elsewhere"}, ContainerRefused),
        ({"runtime_root": ""}, ContainerRefused),
        ({"cgroups_mode": "hard"}, InvalidArgument),
        ({"empty_namespaces": ["mount"]}, InvalidArgument),
        ({"image_path": "/tmp/elsewhere"}, PathNotAllowed),
    ],
)
async def test_requests_of_a_runtime_that_are_refused(shim, tmp_path, world, words, error):
    """By name, before anything is touched."""
    with pytest.raises(error):
        await views_of(shim.agent, "CheckpointContainer", of_runtime(tmp_path, **words))
    assert len(world.living()) == 3
    assert world.log == []


async def test_what_runs_on_a_container_is_stopped(shim, tmp_path, world):
    """Whoever ends a container has what runs on it undone, and hears when it is."""
    world.hold("dump")
    root = str(tmp_path / "runc" / "k8s.io")
    ask = v1.ContainerOperationsRequest(container_id="box", runtime_root=root)
    route = "/iriscw.v1.ShimService/ContainerOperations"
    ends = []
    async with anyio.create_task_group() as tasks, RpcChannel(shim.agent.address) as channel:

        async def freeze():
            views = await views_of(shim.agent, "CheckpointContainer", of_runtime(tmp_path))
            ends.append(views[-1].operation.end)

        tasks.start_soon(freeze)
        await world.arrived.wait()
        running = (await channel.unary(route, ask, v1.ListOperationsResponse)).operations
        assert [each.kind for each in running] == ["freeze"]
        ask.stop = True
        left = await channel.unary(route, ask, v1.ListOperationsResponse)
        assert left.operations == []
    assert [(end.outcome, end.kind) for end in ends] == [("undone", "Cancelled")]
    assert "its container is to end" in ends[0].text
    assert len(world.living()) == 3


async def test_a_restore_where_there_is_no_runtime(shim, tmp_path):
    """A simulated machine has none, and says so."""
    request = v1.RestoreContainerRequest(
        container_id="box", runtime_root=str(tmp_path / "runc" / "k8s.io"), image_path=str(tmp_path / "root" / "x")
    )
    with pytest.raises(ContainerRefused, check=that(names="containers")):
        await views_of(shim.agent, "RestoreContainer", request)


async def test_a_thaw_reads_where_it_was_told(shim, tmp_path):
    """What lies elsewhere under the same id is not part of it; a freeze writes to its folder beside the tiers."""
    folder = tmp_path / "root" / "chk-1"
    await shim(checkpoint(tmp_path))
    name = tier_of(folder)
    for operation, kind in (("th-9", OperationKind.THAW), ("ck-9", OperationKind.FREEZE)):
        shim.agent.board.begin(Asked(operation, kind, operation), "ck-1", name)
    assert [*shim.agent.tiers_of("th-9").folders] == [name]
    assert [*shim.agent.tiers_of("ck-9").folders] == ["ram", name]
    for operation in ("th-9", "ck-9"):
        shim.agent.board.refused(operation)


# MigrateStorage


def put(folder, artifact="ck-9"):
    """Put a checkpoint into a folder of a caller."""
    folder.mkdir(mode=0o700)
    tier = Folders("", folder, 1 << 30)
    fill(tier.reserve(artifact, 1 << 20), large=False)
    tier.seal(artifact, FROZEN, (), default_reading(lambda count: None), lambda size: None)
    tier.publish(artifact)
    tier.unpin(artifact, artifact)
    return tier


async def test_a_checkpoint_goes_to_another_folder(tmp_path, shim):
    """As seed 002 has it: from RAM to disk; the folder is made, and the source is empty afterwards, unless kept."""
    source, other = put(tmp_path / "root" / "chk-1"), tmp_path / "root" / "chk-2"
    words = {"source_path": str(source.root), "destination_path": str(other)}
    reply = await shim(v1.MigrateRequest(**words, keep=True))
    assert (reply.checkpoint_id, reply.size_bytes > 70_000, reply.note) == ("ck-9", True, "")
    assert source.has("ck-9")
    with pytest.raises(PathNotAllowed, check=that(names="chk-2")):
        await shim(v1.MigrateRequest(**words))
    shutil.rmtree(other / "artifacts" / "ck-9")
    await shim(v1.MigrateRequest(**words))
    target = Folders("", other, 1 << 30)
    assert (source.listing(), [each.artifact for each in target.listing()]) == ([], ["ck-9"])
    target.verify("ck-9", lambda algorithm, total: default_reading(lambda count: None))


async def test_a_checkpoint_goes_to_a_tier(tmp_path, shim):
    """By its name; one of the two has to be said, and where nothing is, nothing is moved."""
    source = put(tmp_path / "root" / "chk-1")
    for words in ({}, {"tier": "ram", "destination_path": str(tmp_path / "root" / "x")}):
        with pytest.raises(InvalidArgument):
            await shim(v1.MigrateRequest(source_path=str(source.root), **words))
    for tier in ("cellar", "repository"):
        with pytest.raises(UsageError):
            await shim(v1.MigrateRequest(source_path=str(source.root), tier=tier))
    with pytest.raises(PathNotAllowed):
        await shim(v1.MigrateRequest(source_path=str(tmp_path / "root" / "none"), tier="ram"))
    with pytest.raises(PathNotAllowed):
        await shim(v1.MigrateRequest(source_path=str(source.root), destination_path="/nowhere/else"))
    assert source.has("ck-9")
