"""``checkpoint``, ``restore`` and ``checkpoints``: a process tree of this machine, with no daemon or by an agent."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import attrs
import click

from iriscw.checkpoint.drivers.loading import named_tier
from iriscw.cli.connection import connection_options, job_named
from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.kinds import Duration
from iriscw.cli.outcome import headline, run_async, silence_output
from iriscw.cli.output import OutputLost, age, cell, emit, format_option, plain, show, to_json, to_yaml, visible
from iriscw.cli.tier_options import budgets_of, place_options, tier_option

if TYPE_CHECKING:
    from iriscw.agent.local import Local
    from iriscw.checkpoint.model import Listed
    from iriscw.errors import IriscwError
    from iriscw.freeze.messages import FreezeTree, OperationChanged, OperationEnded, ThawTree
    from iriscw.freeze.model import Hook, Progress

T = TypeVar("T")

SECOND = 1_000_000_000
STEPS = {
    "looking": "looks at the process tree",
    "reserving": "reserves room",
    "quiescing": "asks the application to come to rest",
    "locking": "locks CUDA",
    "checkpointing": "moves device memory to the host",
    "dumping": "writes the images",
    "sealing": "gives every byte a digest",
    "publishing": "publishes the checkpoint",
    "ending": "ends the tree",
    "resuming": "lets the tree run on",
    "undoing": "undoes what was done",
    "opening": "looks at the checkpoint and this machine",
    "verifying": "reads and compares every byte",
    "restoring": "brings the tree back",
    "proving": "compares it with what was frozen",
    "starting": "lets the tree run",
    "paging": "brings its pages while it runs",
    "confirming": "asks whether it is what it was",
    "leaving": "tells the application",
    "killing": "ends what came back",
}
"""What a phase does, for people."""


@attrs.frozen
class Done:
    """What a command says at its end. ``phases`` are seconds."""

    checkpoint: str
    outcome: str
    pid: int
    processes: int
    tier: str
    size_bytes: int
    seconds: float
    phases: dict[str, float]
    note: str = ""


Ended: TypeAlias = "tuple[Done | IriscwError, BaseException | None]"
"""How an operation ended, and what has interrupted it meanwhile."""


agent_option = click.option(
    "--agent",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="SOCKET",
    help="Have the node agent that listens there do it. Default: this command does it itself.",
)


cluster_option = click.option("--cluster", is_flag=True, help="Those of the cluster's nodes, by its controller.")
node_option = click.option("--node", metavar="NODE", help="With --cluster: only on this node.")


@click.command()
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--pid", type=click.IntRange(2), help="The first process of the tree, on this machine.")
@click.option("--task", type=click.IntRange(min=0), help="Which task of JOB; default: 0.")
@tier_option
@click.option("--leave-running", is_flag=True, help="Let the tree run on. Without it, it ends once its state is safe.")
@click.option("--force", is_flag=True, help="Go on when the application did not come to rest.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Kept in the manifest; may be repeated.")
@click.option(
    "--shell-job",
    is_flag=True,
    help="For a program started from a shell. `restore` attaches it to your terminal, and stays in the "
    "foreground until the program ends.",
)
@click.option("--tcp-established", is_flag=True, help="Freeze open TCP connections too.")
@click.option("--tcp-close", is_flag=True, help="Give open TCP connections up: a thaw finds them closed.")
@click.option("--hook-exec", metavar="PROGRAM", help="Run it with 'freeze' before, and with 'thaw' after.")
@click.option("--hook-url", metavar="URL", help="POST to URL/freeze before, and to URL/thaw after.")
@click.option(
    "--hook-dir", metavar="DIR", help="Put 'freeze-requested' there and wait for 'ready-to-freeze'; 'thawed' after."
)
@click.option("--hook-timeout", type=Duration(), default=30.0, help="For the hook.  [default: 30s]")
@click.option("--lock-timeout", type=Duration(), default=60.0, help="For CUDA to finish its work.  [default: 60s]")
@agent_option
@connection_options
@place_options
@format_option
def checkpoint(*, job: str | None, pid: int | None, form: str, **given: Any) -> None:
    """Freeze a process with all below it: memory, files, threads, and its GPUs.

    With --pid it is a process of this machine. JOB, an id or the name of the latest such job, has the agent of the
    machine that its task runs on do it. The task is suspended: it holds no room, and `iriscw resume` has it go on. Its
    TCP connections are given up. With --leave-running it is a copy that the job knows nothing of.

    The tree ends only when the checkpoint is whole. Whatever goes wrong before, it runs on as if nothing had been; a
    command that is killed is undone or finished by the next one. An application that cannot be told to go on changes no
    exit code: the last line says so.

    Interrupted (Ctrl-C, SIGTERM, a closed terminal) it undoes what it did. From the moment in which the tree is ended
    that cannot be: then it comes to its end, names the checkpoint as ever, and has the exit code 130 all the same.
    """
    from iriscw.checkpoint.manifest import label_trouble
    from iriscw.freeze.messages import FreezeTree
    from iriscw.freeze.model import CriuOptions, FreezePlan, TaskIdentity

    labels = _labels(given["labels"])
    if label_trouble(labels):
        raise click.UsageError(label_trouble(labels))
    from iriscw.cli import at_controller

    if (job is None) == (pid is None):
        raise click.UsageError("either --pid or a JOB")
    if job is None and given["agent"] is None:
        given["tier"] = named_tier(given["tier"])  # a cluster's tiers and an agent's are known there
    if job is not None:
        hooks = ("hook_exec", "hook_url", "hook_dir", "shell_job", "tcp_close")
        at_controller.refuse_local_options(given, *hooks)
        if not given["leave_running"] and given["tcp_established"]:
            raise click.UsageError("--tcp-established: a task that is suspended gives its connections up")
        with job_named(job):
            at_controller.checkpoint(job, labels, given, form)
        return
    assert pid is not None
    at_controller.refuse_cluster_options(given)
    if given["tcp_established"] and given["tcp_close"]:
        raise click.UsageError("--tcp-established keeps connections and --tcp-close gives them up: say one of them")
    options = CriuOptions(
        shell_job=given["shell_job"], tcp_established=given["tcp_established"], tcp_close=given["tcp_close"]
    )
    hook = _hook(given)

    def plan_of(operation: str, root: TaskIdentity) -> FreezePlan:
        return FreezePlan(
            operation=operation,
            root=root,
            tier=given["tier"],
            leave_running=given["leave_running"],
            force=given["force"],
            options=options,
            hook=hook,
            lock_within_ns=round(given["lock_timeout"] * SECOND),
            labels=labels,
        )

    async def freeze(local: Local, shown: Shown) -> Ended:
        from iriscw.agent.local import new_id

        plan = plan_of(new_id("ck"), await local.machine.processes.identify(pid))
        return await _ended(local, FreezeTree(plan), plan.operation, shown)

    if given["agent"] is None:
        _run(given, freeze, form)
    else:
        from iriscw.cli import at_agent

        at_agent.refuse_local_options(given)
        at_agent.checkpoint(given["agent"], plan_of("", TaskIdentity(pid, 0, "")), form)


@click.command()
@click.argument("checkpoint_id", metavar="CHECKPOINT")
@click.option("--gpu", "gpus", multiple=True, metavar="OLD=NEW", help="Bring what was on GPU OLD to GPU NEW (UUIDs).")
@click.option(
    "--force",
    is_flag=True,
    help="Thaw although this processor lacks features of the old one, files or namespaces are others, somebody else "
    "has the names of its Unix sockets or its ports by now, or what comes back is not all that it was.",
)
@click.option("--clone", is_flag=True, help="Make a second copy, while the first one runs; not of a server.")
@click.option(
    "--verify-exec", metavar="PROGRAM", help="Run it with 'verify' and the process's number: 0 says all is well."
)
@click.option("--verify-url", metavar="URL", help="Read it until it answers 2xx. If it never does, end what came back.")
@click.option("--verify-timeout", type=Duration(), default="30s", show_default=True, help="For that answer.")
@click.option("--lazy", is_flag=True, help="Let it run before all of its memory is read; where that cannot be, say so.")
@click.option(
    "--pids",
    type=click.Choice(["same", "auto", "fresh"]),
    help="Its process numbers. same, the default: those that it had. auto: if one is taken, in a PID namespace of its "
    "own. fresh: there in any case.",
)
@agent_option
@cluster_option
@node_option
@connection_options
@place_options
@format_option
def restore(*, checkpoint_id: str, cluster: bool, form: str, **given: Any) -> None:
    """Bring a frozen process tree back. Every byte is verified first; the tree outlives this command.

    What was frozen with --shell-job comes back in the terminal of this command, in its foreground, and this command
    stays there as its parent: Ctrl-Z stops both, `fg` lets both go on, and signals to this command are passed on. It
    ends when the tree's first process does, with the same exit code, or 128 and the number of the signal.

    With --lazy the tree runs at once, and its memory comes while it does, what it touches first: each piece is verified
    before anything of it is given out. The command stays until all is there. A tree whose checkpoint turns out to be
    damaged meanwhile is ended.

    With --pids auto or fresh the tree sees its old process numbers; outside it has other ones. The last line of output
    names those. Use them with `iriscw checkpoint --pid`.

    A tree that runs is not made a second time: a repeated command says who came back. --clone makes one more on
    purpose, with numbers of its own where those it had are taken.

    What comes back is compared with what was frozen before it runs. With --verify-url or --verify-exec somebody is
    asked afterwards, too: if the answer is no, what came back is ended, and the checkpoint is as it was.

    An application that cannot be told that it was thawed changes no exit code: the last line says so.

    Interrupted, it ends what it brought back so far, and the checkpoint is as it was; from the moment in which the tree
    is let run it comes to its end, and says so. The exit code is 130 in either case.
    """
    from iriscw.freeze.messages import ThawTree
    from iriscw.freeze.model import Numbers, ThawPlan

    gpus = _pairs(given["gpus"], "--gpu OLD=NEW")
    numbers = Numbers(given["pids"] or ("auto" if given["clone"] else "same"))
    from iriscw.cli import at_controller

    if cluster:
        at_controller.refuse_local_options(given, "gpus", "lazy", "pids", "clone", "verify_exec", "verify_url")
        at_controller.restore(checkpoint_id, given, form)
        return
    at_controller.refuse_cluster_options(given)
    asked = ThawPlan(
        operation="",
        artifact=checkpoint_id,
        gpus=gpus,
        force=given["force"],
        lazy=given["lazy"],
        numbers=numbers,
        clone=given["clone"],
        verify=_verify_hook(given),
    )

    def message(operation: str, *, terminal: bool) -> ThawTree:
        return ThawTree(attrs.evolve(asked, operation=operation, terminal=terminal))

    if given["agent"] is None:
        code = _thaw_here(given, checkpoint_id, message, form)
        if code:
            click.get_current_context().exit(code)
    else:
        from iriscw.cli import at_agent

        at_agent.refuse_local_options(given)
        at_agent.restore(given["agent"], asked, form)


@click.command()
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only those with all of these labels.")
@click.option(
    "--remove", "removed", multiple=True, metavar="CHECKPOINT", help="Remove this one, and list the rest. Repeatable."
)
@click.option(
    "--release",
    "released",
    metavar="CHECKPOINT",
    help="Forget the operation that uses this one, if nothing else is left of it: then --remove takes it.",
)
@agent_option
@cluster_option
@node_option
@connection_options
@place_options
@format_option
def checkpoints(
    *, labels: tuple[str, ...], removed: tuple[str, ...], released: str | None, cluster: bool, form: str, **given: Any
) -> None:
    """List the checkpoints of this machine, and take up what killed commands left; or those of a cluster's nodes."""
    from iriscw.cli import at_controller

    wanted = _labels(labels)
    if cluster:
        if released is not None:
            raise click.UsageError("--release: of this machine only, and the cluster's agents do it")
        at_controller.refuse_local_options(given)
        at_controller.checkpoints(wanted, removed, given, form)
        return
    at_controller.refuse_cluster_options(given)
    if given["agent"] is not None:
        if released is not None:
            raise click.UsageError("--release: not by an agent, which releases what it knows; end it first")
        from iriscw.cli import at_agent

        at_agent.refuse_local_options(given)
        at_agent.checkpoints(given["agent"], wanted, removed, form)
        return

    async def listed() -> None:
        local = _local(given)
        await _recover(local)
        if released is not None:
            for operation in await local.release(released):
                sys.stderr.write(f"iriscw: operation {operation}, which is lost, uses {released} no more\n")
        there = await local.machine.tiers.listing()
        for checkpoint in removed:
            _check_needed(there, checkpoint)
            await local.machine.tiers.remove(checkpoint)
            sys.stderr.write(f"iriscw: removed {checkpoint}\n")
        found = [
            each
            for each in (await local.machine.tiers.listing() if removed else there)
            if not wanted or (each.manifest is not None and all(pair in each.manifest.labels for pair in wanted))
        ]
        if form == "table":
            show(found, form, _COLUMNS)
        else:
            emit((to_json if form == "json" else to_yaml)([_fields(each) for each in found]))

    run_async(listed)


def _check_needed(there: Sequence[Listed], checkpoint: str) -> None:
    """Refuse to remove the state of a suspended task: it would begin anew.

    Raises:
        CheckpointNeeded: its attempt is still there.
    """
    guards = [each.manifest.frozen.guard for each in there if each.artifact == checkpoint and each.manifest]
    if any(guard and Path(guard).is_dir() for guard in guards):
        from iriscw.nodes.errors import CheckpointNeeded

        raise CheckpointNeeded(
            f"{checkpoint} is of a job's task, whose attempt is still here: resume the job (iriscw resume JOB), or "
            "ask its controller, which knows whether it is needed (iriscw checkpoints --cluster --remove)"
        )


_COLUMNS: dict[str, Callable[[Listed], object]] = {
    "CHECKPOINT": lambda each: each.artifact,
    "TIER": lambda each: each.tier,
    "SIZE": lambda each: decimal_size(each.size_bytes),
    "PID": lambda each: each.manifest.frozen.tasks[0].identity.pid if each.manifest else "",
    "PROCESSES": lambda each: len(each.manifest.frozen.tasks) if each.manifest else "",
    "PROGRAM": lambda each: cell(each.manifest.frozen.tasks[0].name) if each.manifest else "",
    "AGE": lambda each: (
        age(each.manifest.sealed_wall_ns // 1_000_000, time.time_ns() // 1_000_000) if each.manifest else ""
    ),
    "LABELS": lambda each: (
        cell(",".join(f"{name}={value}" for name, value in each.manifest.labels))
        if each.manifest
        else cell(each.trouble)
    ),
}


def _fields(each: Listed) -> dict[str, Any]:
    """Return a checkpoint for programs: the manifest without its list of files."""
    content: dict[str, Any] = plain(each)
    if content["manifest"] is not None:
        content["manifest"].pop("files")
    return content


def _labels(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return _pairs(given, "--label NAME=VALUE")


def _pairs(given: tuple[str, ...], form: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise click.UsageError(f"{form}: {each!r} has no '=', or nothing before it")
        pairs.append((name, value))
    return tuple(pairs)


def _hook(given: dict[str, Any]) -> Hook | None:
    return _one_hook(given, "hook", given["hook_timeout"], {"exec": "exec", "url": "http", "dir": "files"})


def _verify_hook(given: dict[str, Any]) -> Hook | None:
    return _one_hook(given, "verify", given["verify_timeout"], {"exec": "exec", "url": "http"})


def _one_hook(given: dict[str, Any], word: str, within_s: float, kinds: dict[str, str]) -> Hook | None:
    """Read the options of one hook: ``word`` begins their names, each of which ends in the key of a kind."""
    from iriscw.freeze.gates import hook_trouble
    from iriscw.freeze.model import Hook, HookKind

    chosen = [(end, given[f"{word}_{end}"]) for end in kinds if given[f"{word}_{end}"]]
    if len(chosen) > 1:
        *most, last = (f"--{word}-{end}" for end in kinds)
        raise click.UsageError(f"{', '.join(most)} and {last}: one of them at most")
    if not chosen:
        return None
    end, target = chosen[0]
    kind = kinds[end]
    target = target if kind == "http" else str(Path(target).absolute())
    hook = Hook(HookKind(kind), (target,), round(within_s * SECOND))
    if trouble := hook_trouble(hook):
        raise click.UsageError(f"--{word}-{end}: {trouble}")
    return hook


def _local(given: dict[str, Any]) -> Local:
    from iriscw.agent.local import state_folder
    from iriscw.agent.machine import this_machine

    state = given["state_dir"].absolute() if given["state_dir"] is not None else state_folder(os.environ)
    return this_machine(state, budgets=budgets_of(given))


async def _recover(local: Local) -> None:
    """Take up what killed commands left, and say so."""
    from iriscw.freeze.messages import OperationEnded

    def changed(event: OperationChanged | OperationEnded) -> None:
        if isinstance(event, OperationEnded):  # at once: whoever interrupts the command hears of it, too
            note = f" ({visible(event.text)})" if event.text else ""
            what = f"took up operation {event.operation}, which was left: {event.outcome.value}{note}"
            sys.stderr.write(f"iriscw: {what}\n")

    await local.recover(changed)


def _run(given: dict[str, Any], work: Callable[[Local, Shown], Coroutine[Any, Any, Ended]], form: str) -> None:
    """Do the work, and say how it ended: below the bars, and to who has interrupted it, too."""
    begun: list[Shown] = []

    async def run() -> None:
        local = _local(given)
        await _recover(local)
        with progress() as shown:
            begun.append(shown)
            done, interrupted = await work(local, shown)
        tell(done, form, interrupted)

    with as_interrupts():
        _interruptible(run, begun)


def _interruptible(run: Callable[[], Coroutine[Any, Any, T]], begun: list[Shown]) -> T:
    """Run until it is over or interrupted, and name the operation that is left unfinished."""
    try:
        return run_async(run)
    except KeyboardInterrupt:  # a second one waits for nothing, and the first not for ever
        for shown in begun:
            if shown.operation and shown.end is None:
                what = f"operation {shown.operation} is not over: the next command undoes or finishes it"
                sys.stderr.write(f"iriscw: {what}\n")
        raise


async def _ended(local: Local, message: FreezeTree | ThawTree, artifact: str, shown: Shown) -> Ended:
    """Run an operation; give how it ended, and what has interrupted it meanwhile."""
    from anyio import get_cancelled_exc_class

    interrupted = None
    try:
        await local.run(message, report=shown.report, changed=shown.changed)
    except get_cancelled_exc_class() as error:
        interrupted = error
    if shown.end is None and interrupted is not None:
        raise interrupted
    assert shown.end is not None
    return await _done(local, artifact, shown.end, shown), interrupted


def tell(done: Done | IriscwError, form: str, interrupted: BaseException | None) -> None:
    """Say how an operation ended, before its interruption goes on: what it was past cannot be undone.

    Raises:
        IriscwError: it is how it ended.
        BaseException: the interruption.
    """
    if isinstance(done, Done):
        finish(done, form)
    elif interrupted is None:
        raise done
    else:
        sys.stderr.write(f"iriscw: {headline(done)}\n")
    if interrupted is not None:
        raise interrupted


def _thaw_here(given: dict[str, Any], checkpoint_id: str, message: Callable[..., ThawTree], form: str) -> int:
    """Thaw a tree, and stay in front of it if it has a terminal. Give the exit code."""
    from iriscw.agent.local import new_id
    from iriscw.freeze.drivers.terminal import holding_back_sigttou, lendable

    begun: list[Shown] = []

    async def run() -> Done | None:
        """Return what is to be told when the tree has its terminal; None: all was told."""
        local = _local(given)
        await _recover(local)
        found = await local.machine.tiers.find(checkpoint_id)
        frozen = found.manifest.frozen if found is not None and found.manifest is not None else None
        stays = frozen is not None and frozen.options.shell_job and frozen.container is None
        with progress(until=STEPS["starting"] if stays else "") as shown:
            begun.append(shown)
            thaw = message(new_id("th"), terminal=terminal is not None)
            done, interrupted = await _ended(local, thaw, checkpoint_id, shown)
        if stays and terminal is not None and isinstance(done, Done) and interrupted is None:
            return done
        tell(done, form, interrupted)
        return None

    terminal = lendable()
    if terminal is None:
        with as_interrupts():
            _interruptible(run, begun)
        return 0
    done = None
    try:
        with holding_back_sigttou(), as_interrupts():  # it is the tree's terminal before the last word was said
            done = _interruptible(run, begun)
        if done is None:
            return 0
        from iriscw.cli.foreground import attend

        return attend(terminal, done.pid, partial(_finish_anyway, done, form))
    finally:
        if done is not None or terminal.foreground() != terminal.group:
            terminal.put_back()
        terminal.close()


def _finish_anyway(done: Done, form: str) -> None:
    """Say what was done. The tree runs, and is stayed with, whether anybody hears of it or not."""
    try:
        finish(done, form)
    except BrokenPipeError:
        silence_output()
    except OutputLost as error:
        silence_output()
        sys.stderr.write(f"iriscw: {error}\n")


def finish(done: Done, form: str) -> None:
    """Say what a command did."""
    if form == "json":
        emit(to_json(done))
    elif form == "yaml":
        emit(to_yaml(done))
    else:
        note = f" ({visible(done.note)})" if done.note else ""
        count = f"{done.processes} process{'es' if done.processes != 1 else ''}"
        emit(
            f"{done.checkpoint}: {done.outcome} in {done.seconds:.2f} s, process {done.pid}, "
            f"{count}, {decimal_size(done.size_bytes)} in {done.tier}{note}\n"
        )


async def _done(local: Local, artifact: str, end: OperationEnded, shown: Shown) -> Done | IriscwError:
    from iriscw.agent.local import failure_of

    failure = failure_of(end)
    if failure is not None:
        return failure
    found = await local.machine.tiers.find(artifact)
    tasks = found.manifest.frozen.tasks if found is not None and found.manifest is not None else ()
    return Done(
        checkpoint=artifact,
        outcome=end.outcome.value,
        pid=end.root or (tasks[0].identity.pid if tasks else 0),
        processes=len(tasks),
        tier=found.tier if found is not None else "",
        size_bytes=found.size_bytes if found is not None else 0,
        seconds=round(sum(shown.phases.values()), 6),
        phases=shown.phases,
        note=end.text,
    )


def decimal_size(size_bytes: float) -> str:
    """Write a size for people."""
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


# Progress


@attrs.define(eq=False)
class Shown:
    """What the user sees of an operation on standard error, and how long each phase took."""

    step: Callable[[str], None]
    bytes_done: Callable[[int, int], None]
    phases: dict[str, float] = attrs.field(factory=dict)
    operation: str = ""
    end: OperationEnded | None = None
    """How it ended; None until then."""
    _phase: str = ""
    _since: float = 0.0

    def changed(self, event: OperationChanged | OperationEnded) -> None:
        """Show the next step."""
        from iriscw.freeze.messages import OperationEnded

        self.operation = event.operation
        if isinstance(event, OperationEnded):
            self.end = event
        now = time.monotonic()
        if self._phase:
            self.phases[self._phase] = round(self.phases.get(self._phase, 0.0) + now - self._since, 6)
        self._phase, self._since = getattr(getattr(event, "phase", None), "value", ""), now
        if self._phase:
            self.step(STEPS.get(self._phase, self._phase))

    def report(self, progress: Progress) -> None:
        """Show how far it is."""
        self.bytes_done(progress.done_bytes, progress.total_bytes)


@contextlib.contextmanager
def progress(until: str = "") -> Iterator[Shown]:
    """Show bars on a terminal, a line for each step otherwise; nothing more from the step ``until`` on."""
    if not sys.stderr.isatty():
        yield Shown(_say, lambda done, total: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress as Bars, Task, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Moved(DownloadColumn):
        """How many bytes a step has moved; of one that moves none, nothing."""

        def render(self, task: Task) -> Text:
            return super().render(task) if task.fields["moves"] else Text()

    columns = (TextColumn("{task.description:<40}"), BarColumn(), Moved(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=False) as bars:
        tasks: list[Any] = []

        def step(text: str) -> None:
            if tasks:
                bars.stop_task(tasks[-1])
                bars.update(tasks[-1], total=bars.tasks[-1].completed or 1, completed=bars.tasks[-1].completed or 1)
            if text == until:
                bars.stop()
            if not bars.live.is_started:  # somebody else has the terminal
                return
            tasks.append(bars.add_task(text, total=None, moves=False))

        def bytes_done(done: int, total: int) -> None:
            if tasks:
                bars.update(tasks[-1], completed=done, total=total or None, moves=True)

        yield Shown(step, bytes_done)


def _say(text: str) -> None:
    sys.stderr.write(f"iriscw: {text}\n")
    sys.stderr.flush()
