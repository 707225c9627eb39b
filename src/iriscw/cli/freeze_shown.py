"""What people see while state is frozen or brought back, and the small protocol of those who do it.

The commands are one path (:mod:`iriscw.cli.freezing`), wherever the work is done: by the command itself
(:mod:`iriscw.cli.at_here`), by a node agent of this machine (:mod:`iriscw.cli.at_agent`), or by the agents of a
cluster's nodes, through its controller (:mod:`iriscw.cli.at_controller`).
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import attrs
import click

from iriscw.cli.outcome import headline
from iriscw.cli.output import emit, show, to_json, to_yaml, visible

if TYPE_CHECKING:
    from iriscw._errors import IriscwError
    from iriscw.checkpoint.model import MovePlan
    from iriscw.checkpoint.retention import RetentionPolicy
    from iriscw.freeze.messages import OperationChanged, OperationEnded
    from iriscw.freeze.model import FreezePlan, Progress, ThawPlan

T = TypeVar("T")

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
    "copying": "copies and compares every byte",
    "exporting": "writes the file, and compares every byte",
    "dropping": "lets it go from where it lay",
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


@attrs.frozen
class Listing:
    """Which checkpoints are listed: those with all ``labels`` that the ``selector`` wants, once some are ``removed``
    and one is ``released``.
    """

    labels: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()
    released: str | None = None
    selector: str = ""
    policy: RetentionPolicy | None = None
    """Which of them are removed, too; with ``dry_run`` that is only said."""
    dry_run: bool = False
    stored: bool = False
    """Of a cluster: what repositories have, too."""


class Backend(Protocol):
    """Who freezes and brings back. Each says how it ended on standard output, in the ``form`` that is asked for."""

    def refuse(self, given: Mapping[str, Any]) -> None:
        """Refuse options of the command that mean nothing where this does it.

        Raises:
            click.UsageError: one of them was given.
        """

    def checkpoint(self, plan: FreezePlan, form: str) -> None:
        """Have a tree frozen, or a task. The operation's name in the plan is still to be given."""

    def restore(self, plan: ThawPlan, form: str) -> int:
        """Have a tree brought back; give the exit code. The operation's name in the plan is still to be given."""

    def move(self, plan: MovePlan, form: str) -> None:
        """Have a checkpoint brought to another tier. The operation's name in the plan is still to be given."""

    def checkpoints(self, asked: Listing, form: str) -> None:
        """List what there is.

        Raises:
            click.UsageError: it releases none.
        """


def refuse_options(given: Mapping[str, Any], names: Sequence[str], why: str) -> None:
    """Refuse options that mean nothing here.

    Raises:
        click.UsageError: one of them was given.
    """
    named = [f"--{name.replace('_', '-')}" for name in names if given.get(name)]
    if named:
        raise click.UsageError(f"{', '.join(named)}: {why}")


def show_listing(
    found: Sequence[T],
    form: str,
    columns: Mapping[str, Callable[[T], object]],
    fields: Callable[[T], Any],
    kept: Sequence[str] = (),
) -> None:
    """Write what there is: a table for people, all of it for programs."""
    if form == "table":
        show(found, form, columns, kept=kept)
    else:
        emit((to_json if form == "json" else to_yaml)([fields(each) for each in found]))


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


def finish(done: Done, form: str) -> None:
    """Say what a command did."""
    if form == "json":
        emit(to_json(done))
    elif form == "yaml":
        emit(to_yaml(done))
    else:
        note = f" ({visible(done.note)})" if done.note else ""
        count = f"{done.processes} process{'es' if done.processes != 1 else ''}"
        who = f"process {done.pid}, {count}, " if done.pid else ""
        emit(
            f"{done.checkpoint}: {done.outcome} in {done.seconds:.2f} s, {who}"
            f"{decimal_size(done.size_bytes)} in {done.tier}{note}\n"
        )


def decimal_size(size_bytes: float) -> str:
    """Write a size for people."""
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


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


def follow(shown: Shown) -> Callable[[Sequence[str], int, int], None]:
    """Return what shows how far an operation is: from all its phases so far, and the bytes of the latest."""
    known = 0

    def see(phases: Sequence[str], done_bytes: int, total_bytes: int) -> None:
        nonlocal known
        for phase in phases[known:]:
            shown.step(STEPS.get(phase, phase))
        known = max(known, len(phases))
        if done_bytes or total_bytes:
            shown.bytes_done(done_bytes, total_bytes)

    return see
