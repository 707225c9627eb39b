"""Moves by commands and by an agent: real folders and journals, a repository in memory, no CRIU."""

import contextlib
import json
import sys
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for agent_world
sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for moves

from agent_world import PATIENCE_S, StepWorld, agent_of, last, thaw_plan
from moves import FILES, MemoryRepository, Moving, Places
from real_trees import Command

from iriscw._errors import InvalidArgument, IriscwError
from iriscw.agent.claims import TargetBusy, claim, thawed_by_us
from iriscw.agent.errors import AgentStopping
from iriscw.agent.local import Local, Machine, MoveUndone, TierElsewhere, failure_of
from iriscw.agent.machine import this_machine
from iriscw.agent.uplink.ledger import LEFT
from iriscw.agent.uplink.messages import BeginOrder, Now, Past, Present, StopOrder
from iriscw.checkpoint.drivers import carrier as carrier_module
from iriscw.checkpoint.drivers.archive import ExportedFile
from iriscw.checkpoint.drivers.exporting import export
from iriscw.checkpoint.drivers.loading import NoRepository
from iriscw.checkpoint.drivers.store import Folders
from iriscw.checkpoint.effects import CopyOver, DropSource, PublishCopy
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import MovePlan
from iriscw.cli import at_here
from iriscw.client.nodes import node_status
from iriscw.files import make_private_folder
from iriscw.freeze.model import ArtifactInUse, ArtifactRefused, ArtifactUnknown, GateRefused, Outcome, UnsafeRequest
from iriscw.journal.sqlite import SqliteJournal
from iriscw.nodes.model import CHECKPOINT, ListOrder, MoveOrder, Order, RemoveOrder, ThawOrder, VerifyOrder
from iriscw.objects.ports import StoreUnreachable
from iriscw.proto.iriscw import v1
from raised import that

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("claims_of_ours")]


def machine_with(tiers):
    """Return a machine that can only move."""
    return MovingMachine(*[None] * 5, tiers)


class MovingMachine(Machine):
    """One whose other ports nobody asks."""

    def effects(self, report):
        """Return what a move needs."""
        return carrier_module.Carrier(self.tiers, report).effects()


def local_of(tmp_path, places):
    """Return the operations of a user whose tiers lie elsewhere."""
    return Local(tmp_path / "state", machine_with(places.tiers()))


@pytest.fixture
def places(tmp_path):
    """Two tiers and a repository, with a checkpoint in memory."""
    made = Places(tmp_path / "places")
    made.put("ram")
    return made


class Killed(BaseException):
    """What happens to a command."""


def left(tmp_path, places, step):
    """Leave what a command leaves that was killed before this step."""
    local = local_of(tmp_path, places)
    move = Moving(places, MovePlan("mv-1", "ck-1", "disk"))

    async def die(effect):
        if type(effect) is step:
            raise Killed

    move.before = die
    with pytest.raises(Killed):
        anyio.run(move.life)
    folder = local.state / "operations" / "mv-1"
    for each in (local.state, folder.parent, folder):
        make_private_folder(each)
    local._note_places(folder, [*local.machine.tiers.folders.values()], repository=True)
    journal = SqliteJournal.open(folder / "journal")
    journal.append("/move", move.records)
    journal.close()
    return folder


# Without a daemon


async def test_a_move_and_its_journal(tmp_path, places):
    """It is told step by step, and nothing of the operation is left."""
    seen = []
    move = MoveCheckpoint(MovePlan("mv-1", "ck-1", "disk"))
    end = await local_of(tmp_path, places).run(move, changed=seen.append)
    assert (end.outcome, places.whole()) == (Outcome.MOVED, ["disk"])
    phases = [getattr(event, "phase", None) for event in seen]
    assert [phase.value for phase in phases[:-1]] == ["opening", "copying", "publishing", "dropping"]
    assert [*(tmp_path / "state" / "operations").iterdir()] == []


@pytest.mark.parametrize(("step", "finished"), [(CopyOver, False), (PublishCopy, True), (DropSource, True)])
def test_a_command_that_dies_is_taken_up(tmp_path, places, step, finished):
    """By the next one, which undoes it or brings it to its end."""
    folder = left(tmp_path, places, step)
    (end,) = anyio.run(local_of(tmp_path, places).recover)
    assert (end.outcome is Outcome.MOVED) == finished
    assert places.whole() == (["disk"] if finished else ["ram"])
    assert places.debris() == []
    assert not folder.exists()


@pytest.mark.parametrize(("step", "finished"), [(CopyOver, False), (PublishCopy, True), (DropSource, True)])
def test_an_import_that_dies_is_taken_up_without_its_file(tmp_path, places, step, finished):
    """By the next command, which knows of no file; a repository that this machine has is none of its business."""
    file, repository = tmp_path / "ck-1.tar", places.repository
    anyio.run(export, places.tiers(), "ck-1", file, lambda progress: None)
    places.tiers().folders["ram"].remove("ck-1")
    places.repository = ExportedFile.open(file)
    folder = left(tmp_path, places, step)
    file.unlink()
    places.repository = repository
    (end,) = anyio.run(local_of(tmp_path, places).recover)
    assert (end.outcome is Outcome.MOVED) == finished
    assert places.whole() == (["disk"] if finished else [])
    assert places.debris() == []
    assert not folder.exists()
    assert "remove" not in repository.asked


def test_one_that_was_begun_elsewhere_waits(tmp_path, places, caplog):
    """With another folder for a tier, or another repository, it would find nothing."""
    folder = left(tmp_path, places, DropSource)
    assert {each.name for each in folder.iterdir()} == {"journal", "ram", "disk", "repository"}
    places.repository.place = "memory://other"
    assert anyio.run(local_of(tmp_path, places).recover) == []
    assert TierElsewhere.__name__ in caplog.text
    assert "memory://shelf" in caplog.text
    places.repository.place = "memory://shelf"
    assert [end.outcome for end in anyio.run(local_of(tmp_path, places).recover)] == [Outcome.MOVED]


async def test_an_interruption_undoes_it(tmp_path, places, monkeypatch):
    """Ctrl-C while it copies: nothing is at the target, and the source is as it was."""
    began, ends = anyio.Event(), []

    async def hang(self, effect):
        began.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(carrier_module.Carrier, "copy", hang)

    async def run():
        move = MoveCheckpoint(MovePlan("mv-1", "ck-1", "disk"))
        await local_of(tmp_path, places).run(move, changed=ends.append)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await began.wait()
        tasks.cancel_scope.cancel()
    assert (ends[-1].outcome, ends[-1].kind) == (Outcome.STAYED, "Cancelled")
    assert (places.whole(), places.debris()) == (["ram"], [])


async def test_an_interruption_while_it_is_read_back_undoes_it(tmp_path, places, monkeypatch):
    """What the repository has stored stays there, whole; nothing goes from here."""
    began, ends = anyio.Event(), []

    async def hang(self, artifact, report):
        began.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(MemoryRepository, "verify", hang)

    async def run():
        move = MoveCheckpoint(MovePlan("mv-1", "ck-1", "repository"))
        await local_of(tmp_path, places).run(move, changed=ends.append)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await began.wait()
            tasks.cancel_scope.cancel()
    assert (ends[-1].outcome, ends[-1].kind) == (Outcome.STAYED, "Cancelled")
    assert (places.whole(), places.debris()) == (["ram", "repository"], [])


async def test_what_is_thawed_is_not_moved(tmp_path, places):
    """Nor moved by two: whoever comes second is told so, and touches nothing."""
    with claim(thawed_by_us("ck-1")), pytest.raises(TargetBusy):
        await local_of(tmp_path, places).run(MoveCheckpoint(MovePlan("mv-1", "ck-1", "disk")))
    assert (places.whole(), places.debris()) == (["ram"], [])


async def test_a_tier_that_is_none_or_not_ours_alone(tmp_path, places):
    """Nothing is begun."""
    local = local_of(tmp_path, places)
    with pytest.raises(UnsafeRequest):
        await local.run(MoveCheckpoint(MovePlan("mv-1", "ck-1", "cellar")))
    local.machine.tiers.folders["disk"].root.mkdir(mode=0o755)
    with pytest.raises(UnsafeRequest, check=that(names="0700")):
        await local.run(MoveCheckpoint(MovePlan("mv-1", "ck-1", "disk")))
    assert places.tiers().folders["ram"].has("ck-1")


async def test_errors_of_a_move(tmp_path, places):
    """Each outcome is an error by name, or none."""
    local = local_of(tmp_path, places)
    unknown = await local.run(MoveCheckpoint(MovePlan("mv-1", "ck-9", "disk")))
    places.tiers().folders["ram"].pin("ck-1", "th-1")
    used = await local.run(MoveCheckpoint(MovePlan("mv-2", "ck-1", "disk")))
    places.tiers().folders["ram"].unpin("ck-1", "th-1")
    places.repository.failing = {"store": StoreUnreachable("no answer")}
    undone = await local.run(MoveCheckpoint(MovePlan("mv-3", "ck-1", "repository")))
    assert [type(failure_of(end)) for end in (unknown, used, undone)] == [ArtifactUnknown, ArtifactInUse, MoveUndone]


async def test_what_is_lost_lets_every_copy_go(tmp_path, places):
    """A pin of an operation of which nothing is left goes, whichever copy it keeps."""
    local = local_of(tmp_path, places)
    await local.run(MoveCheckpoint(MovePlan("mv-1", "ck-1", "disk", keep=True)))
    places.tiers().folders["disk"].pin("ck-1", "th-1")
    assert await local.release("ck-1") == ("th-1",)
    await local.machine.tiers.remove("ck-1")
    with pytest.raises(ArtifactUnknown):
        await local.release("ck-1")


async def test_what_only_the_repository_has_is_fetched(tmp_path, places):
    """Into the tier that is named, or the first with room; what a tier has is fetched no more."""
    local = local_of(tmp_path, places)
    assert await local.fetch("ck-1") is None
    await local.run(MoveCheckpoint(MovePlan("mv-1", "ck-1", "repository")))
    assert places.whole() == ["repository"]
    assert (await local.fetch("ck-1")).outcome is Outcome.COPIED
    assert places.whole() == ["ram", "repository"]
    places.tiers().folders["ram"].remove("ck-1")
    assert (await local.fetch("ck-1", "disk")).outcome is Outcome.COPIED
    places.tiers().folders["disk"].remove("ck-1")
    small = Local(tmp_path / "state", machine_with(places.tiers(ram=1000)))
    assert (await small.fetch("ck-1")).outcome is Outcome.COPIED
    assert places.whole() == ["disk", "repository"]
    assert await local.fetch("ck-9") is None


async def test_a_fetch_that_fails_leaves_nothing(tmp_path, places):
    """And the repository has it still."""
    local = local_of(tmp_path, places)
    await local.run(MoveCheckpoint(MovePlan("mv-1", "ck-1", "repository")))
    places.repository.failing = {"fetch": StoreUnreachable("no answer")}
    assert (await local.fetch("ck-1")).outcome is Outcome.STAYED
    assert (places.whole(), places.debris()) == (["repository"], [])


# By the command line


@pytest.fixture
def command(tmp_path, places, monkeypatch):
    """The command line over these places."""

    @contextlib.asynccontextmanager
    async def opened(given):
        yield local_of(tmp_path, places)

    monkeypatch.setattr(at_here, "_opened", opened)
    return Command(tmp_path)


def test_the_commands(command, places):
    """A move says what it did; a checkpoint is one row with its copies; tiers say how full they are."""
    code, out, err = command("move", "ck-1", "disk", "--keep")
    assert code == 0, err
    assert out.startswith("ck-1: copied in ")
    assert out.endswith(" in disk\n")
    assert (command("move", "ck-1", "repository", "--keep", "-o", "json"))[0] == 0
    code, out, _ = command("checkpoints", "-o", "json")
    (row,) = json.loads(out)
    assert [copy["tier"] for copy in row["copies"]] == ["ram", "disk", "repository"]
    code, out, _ = command("checkpoints")
    assert "ram, disk, repository" in out
    code, out, _ = command("tiers", "-o", "json")
    rows = {row["tier"]: row for row in json.loads(out)}
    size = sum(map(len, FILES.values()))
    assert [row["checkpoints"] for row in rows.values()] == [1, 1, 1]
    assert size < rows["ram"]["used_bytes"] < size + 10_000
    assert (rows["repository"]["where"], rows["repository"]["budget_bytes"]) == ("memory://shelf", None)
    assert (command("checkpoints", "--remove", "ck-1"))[0] == 0
    assert places.whole() == []


def test_a_repository_that_cannot_be_read_hides_nothing(command, places):
    """What is here is listed, and what is not known is said."""
    places.repository.failing = {"listing": StoreUnreachable("no answer")}
    code, out, err = command("checkpoints")
    assert (code, "ck-1" in out, "no answer" in err) == (0, True, True)
    code, out, _ = command("tiers")
    assert (code, "no answer" in out) == (0, True)


def test_a_repository_that_falls_silent_after_a_move(command, places, monkeypatch):
    """What was done was done: looking at it once more changes no outcome (C15)."""
    remove = places.tiers().folders["ram"].drop

    def last(tier, artifact, operation):
        remove(artifact, operation)
        places.repository.failing = {"manifest": StoreUnreachable("no answer")}

    monkeypatch.setattr("iriscw.checkpoint.drivers.store.Folders.drop", last)
    code, out, err = command("move", "ck-1", "repository")
    assert (code, out.startswith("ck-1: moved in ")) == (0, True), err
    assert places.whole() == ["repository"]


def test_restore_fetches_first(tmp_path, places, monkeypatch):
    """Into the tier that is named, and it stays there without CRIU. A fetch that fails leaves nothing.

    What cannot be thawed here is not fetched: the manifest alone is read.
    """
    repository, local = places.repository, local_of(tmp_path, places)
    anyio.run(local.run, MoveCheckpoint(MovePlan("mv-1", "ck-1", "repository")))
    monkeypatch.setenv("IRISCW_CRIU", str(tmp_path / "no-criu"))
    real = this_machine(tmp_path / "state")
    real.machine.tiers.folders.update(places.tiers().folders)
    real.machine.tiers.repository = repository
    monkeypatch.setattr(at_here, "_opened", lambda given: contextlib.nullcontext(real))
    command = Command(tmp_path)
    repository.asked.clear()
    code, _, err = command("restore", "ck-1")
    assert (code, "CRIU" in err, dict.fromkeys(repository.asked)) == (3, True, {"manifest": None}), err
    assert (places.whole(), places.debris()) == (["repository"], [])

    async def pass_all(self, plan, found):
        """Shut no gate."""

    monkeypatch.setattr(Machine, "check_gates", pass_all)
    repository.failing = {"fetch": StoreUnreachable("no answer")}
    code, _, err = command("restore", "ck-1")
    assert (code, "MoveUndone" in err, places.whole(), places.debris()) == (3, True, ["repository"], [])
    repository.failing = {}
    code, _, err = command("restore", "ck-1", "--tier", "disk")
    assert (code, "copies and compares" in err) == (3, True)
    assert "CRIU" in err
    assert places.whole() == ["disk", "repository"]
    repository.asked.clear()
    assert command("restore", "ck-1")[0] == 3
    assert repository.asked == []


def test_errors_of_the_commands(command, places):
    """A wrong name is the caller's mistake; nothing is moved."""
    code, _, err = command("move", "ck-1", "cellar")
    assert (code, "cellar" in err) == (2, True)
    code, _, err = command("move", "ck-9", "disk")
    assert (code, "ck-9" in err) == (2, True)
    assert places.whole() == ["ram"]


# By an agent


class AgentPlaces:
    """The tiers of an agent, and the machine of which nobody freezes anything."""

    def __init__(self, tmp_path):
        self.folders = [Folders(name, tmp_path / name, 1 << 30) for name in ("shelf", "disk")]
        self.places = Places(tmp_path / "places")

    def put(self, tier):
        """Put the checkpoint there."""
        self.places.put("disk")
        (self.places.folder / "disk").rename(tier.root)


@pytest.fixture
def kept(tmp_path):
    """Two tiers beside that of the simulated machine, one with a checkpoint."""
    made = AgentPlaces(tmp_path)
    made.put(made.folders[0])
    return made


async def test_an_agent_moves(tmp_path, kept):
    """Each step is told, the last view has the outcome, and its metrics count it."""
    shelf, disk = kept.folders
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, StepWorld(), folders=kept.folders) as (agent, caller):
            view = await last(caller.move(MovePlan("", "ck-1", "disk", keep=True)))
            assert (view.end.outcome, view.tier, view.made.tier) == (Outcome.COPIED, "disk", "disk")
            (listed,) = await caller.checkpoints()
            assert listed.tiers == ["shelf", "disk"]
            view = await last(caller.move(MovePlan("", "ck-1", "disk")))
            assert view.end.outcome is Outcome.MOVED
            assert [step.phase for step in view.steps] == ["opening", "copying", "publishing", "dropping"]
            assert (shelf.has("ck-1"), disk.has("ck-1")) == (False, True)
            tiers = {each.name: each.checkpoints for each in (await caller.capabilities()).tiers}
            assert (tiers["shelf"], tiers["disk"]) == (0, 1)
            figures = agent._figures.registry
            labels = {"operation": "move", "tier": "disk", "outcome": "moved"}
            assert figures.get_sample_value("iriscw_agent_operations_ended_total", labels) == 1
            with pytest.raises(UnsafeRequest):
                await last(caller.move(MovePlan("", "ck-1", "cellar")))
            with pytest.raises(InvalidArgument):
                await last(caller.move(MovePlan("", "../x", "disk")))
            assert agent.board.running() == []


def end_all(world):
    """End all processes of a machine."""
    for process in world.processes:
        process.alive = False


async def test_an_agent_fetches_what_it_thaws(tmp_path, kept):
    """The views of a move come first, without its end; one that fails leaves nothing, and is the thaw's error."""
    shelf, disk = kept.folders
    shelf_only = attrs.evolve(shelf, name="ram")  # the simulated machine writes nothing there
    repository = MemoryRepository()
    await repository.store("ck-1", shelf.images("ck-1"), shelf.text("ck-1"), lambda progress: None)
    shelf.remove("ck-1")
    world = StepWorld()
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, folders=[shelf_only, disk]) as (agent, caller):
            agent.machine.tiers.repository = repository
            repository.asked.clear()
            with pytest.raises(GateRefused, check=that(names="source")):  # what was frozen lives
                await last(caller.thaw(thaw_plan("ck-1")))
            assert {*repository.asked} == {"manifest"}
            end_all(world)
            repository.failing = {"fetch": StoreUnreachable("no answer")}
            with pytest.raises(MoveUndone, check=that(names="StoreUnreachable")):
                await last(caller.thaw(thaw_plan("ck-1")))
            assert shelf.listing() == []
            repository.failing = {}
            kinds = []
            async for view in caller.thaw(thaw_plan("ck-1")):
                kinds.append(view.asked.kind.value)
                assert kinds[-1] == "thaw" or view.end is None
            assert list(dict.fromkeys(kinds)) == ["move", "thaw"]
            assert shelf.has("ck-1")


async def test_an_agent_is_ordered_to_move(tmp_path, kept):
    """The operation has the order's id; what cannot be is refused by name, and nothing is moved."""
    shelf, disk = kept.folders
    async with agent_of(tmp_path, StepWorld(), folders=kept.folders) as (agent, caller):

        async def ordered(operation, **words):
            order = Order(operation, move=MoveOrder(**{"checkpoint": "ck-1", "target": "disk", **words}))
            await agent._link._begin(BeginOrder(order))
            return await last(caller.watch(operation))

        with anyio.fail_after(PATIENCE_S):
            for words in ({"target": "cellar"}, {"target": "repository"}, {"checkpoint": "../x"}):
                with pytest.raises((UnsafeRequest, NoRepository, InvalidArgument)):
                    await ordered("mv-0", **words)
            assert (await ordered("mv-1", keep=True)).end.outcome is Outcome.COPIED
            assert (shelf.has("ck-1"), disk.has("ck-1")) == (True, True)
            assert (await ordered("mv-2")).end.outcome is Outcome.MOVED
            assert (shelf.has("ck-1"), disk.has("ck-1")) == (False, True)


async def test_an_agent_that_has_another_repository_than_is_meant(tmp_path, kept):
    """It refuses to store there, and to fetch from there; what lies in its tiers it thaws all the same."""
    async with agent_of(tmp_path, StepWorld(), folders=kept.folders) as (agent, _):
        repository = agent.machine.tiers.repository = MemoryRepository()
        for meant in ("s3://another", repository.place):
            stored = Order("mv-1", move=MoveOrder("ck-1", repository.name, repository=meant))
            fetches = Order("th-1", thaw=ThawOrder("ck-9", repository=meant))
            for order in (stored, fetches):
                with contextlib.nullcontext() if meant == repository.place else pytest.raises(NoRepository):
                    assert await agent._link._begin(BeginOrder(order)) is None


async def test_an_agent_is_ordered_to_prefetch_and_to_verify(tmp_path, kept, monkeypatch):
    """What lies here is fetched no more. All copies are read, the repository's too; one that is damaged is named."""
    shelf, disk = kept.folders
    repository = MemoryRepository()
    await repository.store("ck-1", shelf.images("ck-1"), shelf.text("ck-1"), lambda progress: None)
    shelf.remove("ck-1")
    async with agent_of(tmp_path, StepWorld(), folders=[attrs.evolve(shelf, name="ram"), disk]) as (agent, caller):
        agent.machine.tiers.repository = repository
        link = agent._link
        with anyio.fail_after(PATIENCE_S):
            fetch = Order("mv-1", move=MoveOrder("ck-1", "", keep=True))
            assert await link._begin(BeginOrder(fetch)) is None
            assert (await last(caller.watch("mv-1"))).end.outcome is Outcome.COPIED
            end = await link._begin(BeginOrder(attrs.evolve(fetch, operation="mv-2")))
            assert (end.outcome, end.tier, shelf.has("ck-1")) == ("copied", "ram", True)
            with pytest.raises(ArtifactUnknown):
                await link._begin(BeginOrder(Order("mv-3", move=MoveOrder("ck-9", "", keep=True))))

            told = []
            monkeypatch.setattr(link, "_tell", lambda message, key: told.append(message))
            verify = Order("vf-1", verify=VerifyOrder("ck-1"))
            end = await link._begin(BeginOrder(verify))
            assert (end.outcome, end.text) == ("verified", "ram, repository")
            assert end.size_bytes == 2 * shelf.manifest("ck-1").sealed.size_bytes  # of both copies together
            assert {type(each) for each in told} == {Now, Past}
            assert isinstance(told[-1], Past)
            image = max(shelf.images("ck-1").iterdir(), key=lambda each: each.stat().st_size)
            image.chmod(0o600)
            image.write_bytes(bytes(image.stat().st_size))
            with pytest.raises(ArtifactRefused, check=that(names="ram")):
                await link._begin(BeginOrder(verify))


async def test_an_agent_is_ordered_to_list_its_repository(tmp_path, kept, monkeypatch):
    """It tells of it from then on, as it was; what it removes there it tells of no more, and tiers are not counted."""
    shelf, disk = kept.folders
    repository = MemoryRepository()
    text = shelf.text("ck-1")
    await repository.store("ck-1", shelf.images("ck-1"), text, lambda progress: None)
    async with agent_of(tmp_path, StepWorld(), folders=[attrs.evolve(shelf, name="ram"), disk]) as (agent, _):
        link, told = agent._link, []
        with pytest.raises(NoRepository):
            await link._begin(BeginOrder(Order("ls-0", listing=ListOrder())))
        agent.machine.tiers.repository = repository
        monkeypatch.setattr(link, "_tell", lambda message, key: told.append(message))
        monkeypatch.setattr(link, "_uplink", "somebody")

        def rows():
            found = [each for each in told if isinstance(each, Present) and each.kind == CHECKPOINT]
            return [(row.checkpoint, row.tier, row.size_bytes) for row in found[-1].facts]

        end = await link._begin(BeginOrder(Order("ls-1", listing=ListOrder())))
        size = shelf.manifest("ck-1").sealed.size_bytes
        assert (end.outcome, [row[:2] for row in rows()]) == ("listed", [("ck-1", "ram"), ("ck-1", "repository")])
        assert rows()[1][2] == size
        remove = Order("rm-1", remove=RemoveOrder("ck-1", here_only=True))
        await link._begin(BeginOrder(remove))
        assert ([row[1] for row in rows()], list(repository.kept)) == (["repository"], ["ck-1"])
        await link._begin(BeginOrder(attrs.evolve(remove, operation="rm-2", remove=RemoveOrder("ck-1"))))
        assert (rows(), repository.kept) == ([], {})
        repository.failing = {"listing": StoreUnreachable("it does not answer")}
        with pytest.raises(StoreUnreachable):
            await link._begin(BeginOrder(Order("ls-2", listing=ListOrder())))


async def test_an_ordered_thaw_fetches_first(tmp_path, kept, monkeypatch):
    """It is refused before that by what is not as it has to be here; a withdrawal undoes what was fetched."""
    shelf, disk = kept.folders
    shelf_only = attrs.evolve(shelf, name="ram")
    repository = MemoryRepository()
    await repository.store("ck-1", shelf.images("ck-1"), shelf.text("ck-1"), lambda progress: None)
    shelf.remove("ck-1")
    world, began = StepWorld(), anyio.Event()

    async def hang(self, effect):
        began.set()
        await anyio.sleep_forever()

    async with agent_of(tmp_path, world, folders=[shelf_only, disk]) as (agent, caller):
        agent.machine.tiers.repository = repository
        link = agent._link
        assert (await link._abilities()).repository == repository.place  # the controller hears which
        able = await caller.capabilities()
        assert node_status(v1.NodeStatus(capabilities=able)).repository == repository.place
        with anyio.fail_after(PATIENCE_S):
            with pytest.raises(GateRefused, check=that(names="source")):
                await link._begin(BeginOrder(Order("th-1", thaw=ThawOrder("ck-1"))))
            assert "fetch" not in repository.asked
            end_all(world)
            ends = []

            async def begin():
                ends.append(await link._begin(BeginOrder(Order("th-2", thaw=ThawOrder("ck-1")))))

            with monkeypatch.context() as patch:
                patch.setattr(carrier_module.Carrier, "copy", hang)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(begin)
                    await began.wait()
                    await link._stop(StopOrder("th-2"))
                await agent.board.until_idle()
            assert [(end.outcome, end.kind) for end in ends] == [("refused", "OrderCancelled")]
            assert (shelf.listing(), agent.board.shows("th-2")) == ([], False)
            assert await link._begin(BeginOrder(Order("th-3", thaw=ThawOrder("ck-1")))) is None
            await last(caller.watch("th-3"))
            assert shelf.has("ck-1")


async def test_an_agent_ends_while_it_fetches(tmp_path, kept, monkeypatch):
    """The order is not settled: the next agent begins it."""
    shelf, disk = kept.folders
    repository = MemoryRepository()
    await repository.store("ck-1", shelf.images("ck-1"), shelf.text("ck-1"), lambda progress: None)
    shelf.remove("ck-1")
    world, began = StepWorld(), anyio.Event()
    end_all(world)

    async def hang(self, effect):
        began.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(carrier_module.Carrier, "copy", hang)
    errors = []

    async def begin(link):
        try:
            await link._begin(BeginOrder(Order("th-1", thaw=ThawOrder("ck-1"))))
        except IriscwError as error:
            errors.append(error)

    with anyio.fail_after(PATIENCE_S):
        async with (
            anyio.create_task_group() as tasks,
            agent_of(tmp_path, world, folders=[attrs.evolve(shelf, name="ram"), disk]) as (agent, _),
        ):
            agent.machine.tiers.repository = repository
            tasks.start_soon(begin, agent._link)
            await began.wait()
    assert [type(error) for error in errors] == [AgentStopping]
    assert isinstance(errors[0], LEFT)


@pytest.mark.parametrize(("step", "finished"), [("copy", False), ("drop", True)])
async def test_what_an_agent_left_is_taken_up(tmp_path, kept, monkeypatch, step, finished):
    """By the next one."""
    shelf, disk = kept.folders
    began = anyio.Event()

    async def hang(self, effect):
        began.set()
        await anyio.sleep_forever()

    with anyio.fail_after(PATIENCE_S):
        with monkeypatch.context() as patch:
            patch.setattr(carrier_module.Carrier, step, hang)
            async with agent_of(tmp_path, StepWorld(), folders=kept.folders, stop_patience_s=0) as (agent, caller):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(last, caller.move(MovePlan("", "ck-1", "disk"), detached=True))
                    await began.wait()
                    tasks.cancel_scope.cancel()
                (left,) = agent.board.running()
        async with agent_of(tmp_path, StepWorld(), folders=kept.folders) as (agent, caller):
            view = await last(caller.watch(left.asked.operation))
            assert view.owed
            assert (view.end.outcome is Outcome.MOVED) == finished
            assert (shelf.has("ck-1"), disk.has("ck-1")) == (not finished, finished)


async def test_a_caller_who_leaves(tmp_path, kept, monkeypatch):
    """What he began is undone."""
    shelf, disk = kept.folders
    began = anyio.Event()

    async def hang(self, effect):
        began.set()
        await anyio.sleep_forever()

    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, StepWorld(), folders=kept.folders) as (agent, caller):
            monkeypatch.setattr(carrier_module.Carrier, "copy", hang)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(last, caller.move(MovePlan("", "ck-1", "disk")))
                await began.wait()
                tasks.cancel_scope.cancel()
            await agent.board.until_idle()
            assert (shelf.has("ck-1"), disk.has_of("ck-1"), disk.listing()) == (True, False, [])
