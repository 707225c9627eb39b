"""The demo's second act: a server with half a gigabyte of state is frozen to RAM, and goes on where it was.

Its checkpoint is stored in a repository. A second one, of the server that has gone on, shares nearly all of it; it
leaves this machine, and the server is thawed from the repository.

Every claim is a check here too: that the process is gone while it is frozen, with all its memory, that nobody answers
at its port, that the thawed one has the same state and counts on, and that nothing is left of it all. The state is
random, so its digest says that it is this one.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from collections.abc import Awaitable, Iterator, Mapping
from typing import Final

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.agent.local import Local, failure_of, new_id
from iriscw.agent.machine import this_machine
from iriscw.checkpoint.drivers.loading import default_tier
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import MovePlan
from iriscw.cli.demo.leftovers import files_in, processes_in
from iriscw.cli.demo.stage import MEMORY, DemoStage
from iriscw.cli.demo.story import Checks
from iriscw.cli.demo.view import DemoView
from iriscw.cli.freeze_shown import STEPS, Shown, decimal_size
from iriscw.cli.outcome import CheckFailed, run_async
from iriscw.cli.output import table
from iriscw.freeze.drivers.criu.ability import probe
from iriscw.freeze.drivers.processes.driver import KernelProcesses
from iriscw.freeze.messages import FreezeTree, OperationEnded, ThawTree
from iriscw.freeze.model import CriuMissing, CriuUnfit, FreezePlan, NoRoom, RightsMissing, TaskIdentity, ThawPlan

MIB: Final = 1 << 20
LEAST_STATE_BYTES: Final = 16 * MIB
"""What is less shows nothing."""

BESIDE_BYTES: Final = 256 * MIB
"""Memory that is wanted beside the state and its copy: the interpreters, and what freezing keeps free by itself."""

ANSWERS_WITHIN_S: Final = 60.0
DIGEST_BYTES_PER_S: Final = 20_000_000
"""Of the server, which reads all of its state for each answer: a tenth of what slow machines were seen to do."""

WHOLE: Final = ("dumping", "sealing", "verifying", "restoring")
"""The steps that go through every byte of the checkpoint."""


class ServerFailed(OperationError):
    """The server of the second act ended before it answered, or did not answer; the text says which, and why."""


@attrs.frozen
class ServerAnswer:
    """What the server says of itself."""

    answers: int
    bytes: int
    sha256: str


def perform(view: DemoView, state_bytes: int, *, asked: bool) -> None:
    """Play the act from an empty stage to an empty stage. What cannot be played is skipped, with its reason.

    Args:
        view: is told what happens.
        state_bytes: how much state the server has, where there is memory for it.
        asked: the user named this act: then it is an error that it cannot be played.

    Raises:
        CheckFailed: a claim did not hold; the text names all such.
        CriuMissing, CriuUnfit, RightsMissing, NoRoom: it cannot be played here, and was ``asked`` for.
        IriscwError: something did not work at all.
    """
    view.act("the second act: a server with its state is frozen, and thawed")
    try:
        probe()
        fits = run_async(_fitting, state_bytes)
    except (CriuMissing, CriuUnfit, RightsMissing, NoRoom) as error:
        if asked:
            raise
        view.say(f"the second act is skipped: {error}")
        return
    if fits < state_bytes:
        wanted = decimal_size(state_bytes)
        view.say(f"too little memory is free for {wanted} of state and its copy: it has {decimal_size(fits)}")
    checks = Checks(view)
    with contextlib.closing(DemoStage.make()) as stage:
        run_async(play, view, stage, fits, checks)
    view.part("server", "ended")
    found = processes_in(stage.folder)
    checks.that(not found, "no process is left", "; ".join(found))
    files = files_in(stage.folder)
    checks.that(not files, "no file is left", "; ".join(files[:3]))
    if checks.failed:
        raise CheckFailed("; ".join(f"not so: {claim}" for claim in checks.failed))


async def _fitting(wanted: int) -> int:
    if not MEMORY.is_dir():
        raise NoRoom(f"there is no {MEMORY}, the file system in memory that it is frozen to")
    found = os.statvfs(MEMORY)
    return fitting_state(wanted, await KernelProcesses().free_memory_bytes(), found.f_bavail * found.f_frsize)


def fitting_state(wanted: int, memory_free: int, folder_free: int) -> int:
    """Return how many bytes the state may have: it is in memory four times, in the server, in two checkpoints, and in a
    repository.

    Raises:
        NoRoom: there is too little memory for any.
    """
    room = min((memory_free - BESIDE_BYTES) // 4, (folder_free - BESIDE_BYTES // 2) // 3)
    fits = min(wanted, room // MIB * MIB)
    if fits < min(wanted, LEAST_STATE_BYTES):
        free = f"{decimal_size(memory_free)} of memory are free, {decimal_size(folder_free)} in {MEMORY}"
        raise NoRoom(f"there is too little room for a server and its checkpoint: {free}")
    return fits


async def play(view: DemoView, stage: DemoStage, state_bytes: int, checks: Checks) -> None:
    """Play it on a stage; what is left there is removed by whoever made the stage.

    Raises:
        IriscwError: something did not work at all.
    """
    local = this_machine(
        stage.state,
        folders={default_tier(): stage.tier},
        budgets={default_tier(): 2 * state_bytes + BESIDE_BYTES},
        repository=stage.repository.as_uri(),
    )
    try:
        await _play(view, stage, state_bytes, checks, local)
    finally:
        with anyio.CancelScope(shield=True):
            await local.machine.tiers.aclose()


async def _play(view: DemoView, stage: DemoStage, state_bytes: int, checks: Checks, local: Local) -> None:
    view.say(f"an HTTP server fills {decimal_size(state_bytes)} of state with random bytes, in {stage.folder}")
    view.part("server", f"begins, with {decimal_size(state_bytes)} of state")
    port, root = await _started(stage, state_bytes, local)
    view.part("server", f"RUNNING, pid {root.pid}")
    before = await _ask(port, state_bytes)
    resident = (await local.machine.processes.tree(root)).memory_bytes
    view.say(f"process {root.pid} answers: SHA-256 of its state {before.sha256[:16]}, answer {before.answers}")
    checks.that(before.bytes == state_bytes, "the server has all of its state", before.bytes)

    view.say(f"it is frozen to RAM, with {decimal_size(resident)} resident ...")
    artifact, phases = await _freeze(local, root, view)
    found = next(each for each in await local.machine.tiers.listing() if each.artifact == artifact)
    _tell(view, "freeze", phases, found.size_bytes)
    view.part("server", f"FROZEN, {decimal_size(found.size_bytes)} in RAM")
    gone = not await local.machine.processes.living([root])
    checks.that(gone, "its process is gone, with all of its memory", part="server")
    checks.that(not await anyio.to_thread.run_sync(_listens, port), "nobody answers at its port")
    checks.that(found.size_bytes >= state_bytes, f"its checkpoint is {decimal_size(found.size_bytes)}")

    view.say("it is thawed ...")
    phases = await _thaw(local, artifact, view)
    view.part("server", "THAWED, not asked yet")
    _tell(view, "thaw", phases, found.size_bytes)
    after = await _ask(port, state_bytes)
    back = await local.machine.processes.identify(root.pid)
    resident = (await local.machine.processes.tree(back)).memory_bytes
    view.say(
        f"process {back.pid} answers: SHA-256 of its state {after.sha256[:16]}, answer {after.answers}; "
        f"{decimal_size(resident)} resident"
    )
    view.part("server", f"RUNNING again, pid {back.pid}")
    same = after.sha256 == before.sha256
    checks.that(same, "it has the same state", f"{after.sha256} was {before.sha256}", part="server")
    checks.that(after.answers == before.answers + 1, "it counts on: it is the same server", after.answers)
    again = await _kept(local, artifact, back, view, checks)
    last = await _ask(port, state_bytes)
    view.part("server", f"RUNNING again, pid {back.pid}, out of the repository")
    checks.that(last.sha256 == before.sha256, "it has the same state still", again, part="server")
    checks.that(last.answers == after.answers + 1, "it counts on again", last.answers)


async def _kept(local: Local, first: str, root: TaskIdentity, view: DemoView, checks: Checks) -> str:
    """Store a checkpoint, and a second one of the same server; thaw the second one from the repository."""
    repository = local.machine.tiers.repository
    assert repository is not None
    view.say(f"the checkpoint is stored in a repository, {repository.place} ...")
    await _move(local, first, repository.name, view, keep=True)
    view.say("the server is frozen a second time, and that checkpoint moves to the repository ...")
    second, _ = await _freeze(local, root, view)
    view.part("server", "FROZEN again")
    await _move(local, second, repository.name, view, keep=False)
    stored = {each.artifact: each for each in await repository.listing()}
    sizes = [stored[each].added_bytes for each in (first, second)]
    view.say(f"the first one took {decimal_size(sizes[0])} there, the second one {decimal_size(sizes[1])} more")
    checks.that(sizes[1] < sizes[0] / 10, "what the second one shares with the first is stored once", sizes)
    here = [each.artifact for each in await local.machine.tiers.listing()]
    checks.that(second not in here, "nothing of it is on this machine any more", here)
    view.say("it is fetched, and thawed ...")
    await _finished(local.fetch(second, default_tier()))
    await _thaw(local, second, view)
    return second


async def _move(local: Local, artifact: str, target: str, view: DemoView, *, keep: bool) -> None:
    plan = MovePlan(new_id("mv"), artifact, target, keep=keep)
    with _shown(view, "move") as shown:
        await _finished(local.run(MoveCheckpoint(plan), report=shown.report, changed=shown.changed))


async def _finished(running: Awaitable[OperationEnded | None]) -> None:
    """Wait until an operation has ended well.

    Raises:
        IriscwError: it has not.
    """
    end = await running
    failure = failure_of(end) if end is not None else None
    if failure is not None:
        raise failure


async def _started(stage: DemoStage, state_bytes: int, local: Local) -> tuple[int, TaskIdentity]:
    process = stage.start(state_bytes)
    assert process.stdout is not None
    said = await anyio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)
    if not said:
        raise ServerFailed(f"the server did not start: {stage.errors()}")
    # The pipe ends when the server has let go of it: before, it could not be frozen.
    await anyio.to_thread.run_sync(process.stdout.read, abandon_on_cancel=True)
    return int(said), await local.machine.processes.identify(process.pid)


async def _freeze(local: Local, root: TaskIdentity, view: DemoView) -> tuple[str, Mapping[str, float]]:
    plan = FreezePlan(operation=new_id("ck"), root=root, tier=default_tier())
    with _shown(view, "freeze") as shown:
        await _finished(local.run(FreezeTree(plan), report=shown.report, changed=shown.changed))
    return plan.operation, shown.phases


async def _thaw(local: Local, artifact: str, view: DemoView) -> Mapping[str, float]:
    thaw = ThawTree(ThawPlan(new_id("th"), artifact))
    with _shown(view, "thaw") as shown:
        await _finished(local.run(thaw, report=shown.report, changed=shown.changed))
    return shown.phases


@contextlib.contextmanager
def _shown(view: DemoView, what: str) -> Iterator[Shown]:
    """Yield what shows the steps as the progress of the view."""
    now = ""

    def step(text: str) -> None:
        nonlocal now
        now = text
        view.progress(f"{what}: {text}")

    def bytes_done(done: int, total: int) -> None:
        so_far = f"{decimal_size(done)} of {decimal_size(total)}" if total else decimal_size(done)
        view.progress(f"{what}, {so_far}: {now}", done, total)

    try:
        yield Shown(step, bytes_done)
    finally:
        view.progress("")


def _tell(view: DemoView, what: str, phases: Mapping[str, float], size_bytes: int) -> None:
    for line in steps_table(what, phases, size_bytes).splitlines():
        view.say(line)


def steps_table(what: str, phases: Mapping[str, float], size_bytes: int) -> str:
    """Write how long each step took, and for those that go through the whole checkpoint how many bytes it did."""
    rows = []
    for phase, seconds in phases.items():
        whole = phase in WHOLE
        rate = f"{decimal_size(size_bytes / seconds)}/s" if whole and seconds else ""
        rows.append([STEPS.get(phase, phase), f"{seconds:.2f}", decimal_size(size_bytes) if whole else "", rate])
    rows.append(["in all", f"{sum(phases.values()):.2f}", "", ""])
    return table([what.upper(), "SECONDS", "BYTES", "SPEED"], rows)


async def _ask(port: int, state_bytes: int) -> ServerAnswer:
    within_s = ANSWERS_WITHIN_S + state_bytes / DIGEST_BYTES_PER_S
    return await anyio.to_thread.run_sync(asked, port, within_s, abandon_on_cancel=True)


def asked(port: int, within_s: float) -> ServerAnswer:
    """Ask the server, and read until it has closed the connection: an open one could not be frozen. Blocks.

    Raises:
        ServerFailed: it does not answer within this time, or not as it should.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=within_s)
    try:
        connection.request("GET", "/")
        return ServerAnswer(**json.loads(connection.getresponse().read()))
    except TimeoutError as error:
        raise ServerFailed(f"the server at port {port} did not answer within {within_s:.0f} s") from error
    except (OSError, http.client.HTTPException, ValueError, TypeError) as error:
        raise ServerFailed(f"the server at port {port} did not answer: {type(error).__name__}: {error}") from error
    finally:
        connection.close()


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWERS_WITHIN_S) as channel:
            # A free port may be given to this very connection, which then leads to itself.
            return bool(channel.getsockname() != channel.getpeername())
    except ConnectionRefusedError:
        return False
