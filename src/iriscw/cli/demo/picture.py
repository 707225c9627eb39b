"""The picture of the live view: what is known, and the lines that show it. Pure.

A line has a tone, and what a tone says is in the words as well: a terminal without colours shows the same. Red is what
was killed, and what did not hold. Green is what the demo has checked, and nothing else: a task that says of itself that
it has succeeded is not green.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from iriscw.cli.fleet import used
from iriscw.cli.output import counts, visible
from iriscw.client.model import JobStatus, LogLine, SliceStatus, TaskStatus
from iriscw.jobs.model import TASK_TERMINAL

BAR_COLUMNS: Final = 24
BARS_IN_A_ROW: Final = 4
"""A bar leaves most of a narrow row to its text."""

MARGIN: Final = 2
NAME_COLUMNS: Final = 10
"""The longest name of a part, ``controller``."""

TITLE: Final = "iriscw demo"
SPACES: Final = str.maketrans("\t\n", "  ")


class Tone(enum.Enum):
    """How a line is meant."""

    PLAIN = "plain"
    DIM = "dim"
    GOOD = "good"
    BAD = "bad"


@attrs.frozen
class PictureLine:
    """One row of the terminal."""

    text: str
    tone: Tone = Tone.PLAIN


@attrs.frozen
class Killed:
    """A process that the demo has killed."""

    name: str
    """What it was: ``worker``, ``controller``."""
    what: str
    """Which one: a worker's id, a controller's address."""
    pid: int
    incarnation: str = ""
    """Of a worker: the next one has the same id."""
    attempts: frozenset[tuple[int, int]] = frozenset()
    """What was at work on it: index of the task, number of the attempt."""


@attrs.frozen
class Part:
    """A process of the story that is no worker: a controller, the server of the second act."""

    name: str
    state: str
    checked: bool = False
    """What ``state`` says was checked."""


@attrs.frozen
class PictureProgress:
    """How far a step is that takes a while."""

    text: str = ""
    done: int = 0
    total: int = 0
    """0: not known."""


@attrs.frozen
class Scene:
    """All that is known at one moment."""

    parts: tuple[Part, ...] = ()
    killed: tuple[Killed, ...] = ()
    slices: tuple[SliceStatus, ...] = ()
    job: JobStatus | None = None
    tasks: tuple[TaskStatus, ...] = ()
    checked: frozenset[int] = frozenset()
    """Tasks whose results were found to be right."""
    lines: Mapping[int, LogLine] = attrs.field(factory=dict)
    """The latest line of each task's log."""
    bytes_per_s: float = 0.0
    progress: PictureProgress = PictureProgress()

    def with_part(self, part: Part) -> Scene:
        """Return the scene with this part in the place of the one with its name."""
        known = {each.name: each for each in self.parts} | {part.name: part}
        return attrs.evolve(self, parts=tuple(known.values()))

    def with_killed(self, killed: Killed) -> Scene:
        """Return the scene in which this process was killed: it stays in the picture, and is no part any more."""
        parts = tuple(each for each in self.parts if each.name != killed.name)
        return attrs.evolve(self, parts=parts, killed=(*self.killed, killed))


def draw(scene: Scene, columns: int, rows: int) -> list[PictureLine]:
    """Draw it into at most so many rows of at most so many characters; nothing if there is nothing to show.

    Where there is too little room, tasks are left out first, those that are over before those at work; then what stands
    at the top.
    """
    above = [*_parts(scene), *_workers(scene)]
    below = [*_job(scene), *_progress(scene.progress, min(BAR_COLUMNS, columns // BARS_IN_A_ROW))]
    if not above and not below and not scene.tasks:
        return []
    title = f"{f'-- {TITLE} ':-<{columns}}"
    room = rows - 1 - len(above) - len(below)
    lines = [PictureLine(title, Tone.DIM), *above, *_tasks(scene, room), *below]
    lines = lines[len(lines) - rows :] if len(lines) > rows else lines
    return [attrs.evolve(line, text=_cut(line.text, columns)) for line in lines]


def _parts(scene: Scene) -> Iterable[PictureLine]:
    names = dict.fromkeys([*(each.name for each in scene.killed), *(each.name for each in scene.parts)])
    for name in names:
        if name == "worker":
            continue
        yield from (_killed(each) for each in scene.killed if each.name == name)
        for part in scene.parts:
            if part.name == name:
                checked = "CHECKED  " if part.checked else ""  # ahead of what a narrow terminal cuts
                yield PictureLine(_named(name, checked + part.state), Tone.GOOD if part.checked else Tone.PLAIN)


def _workers(scene: Scene) -> Iterable[PictureLine]:
    dead = {(each.what, each.incarnation) for each in scene.killed if each.name == "worker"}
    yield from (_killed(each) for each in scene.killed if each.name == "worker")
    for each in scene.slices:
        workers = [worker for worker in each.workers if (worker.worker_id, worker.incarnation) not in dead]
        for worker in workers:
            yield PictureLine(_named("worker", f"{worker.worker_id}  {each.state}  {used(each)} in use"))
        if not each.workers:
            yield PictureLine(_named("slice", f"{each.slice_id}  {each.state}"))


def _killed(each: Killed) -> PictureLine:
    return PictureLine(_named(each.name, f"{each.what}  KILLED (pid {each.pid})"), Tone.BAD)


def _tasks(scene: Scene, room: int) -> list[PictureLine]:
    """Draw a row for each task, as far as there is room: the first one is for the heads."""
    if not scene.tasks or room < 2:
        return []
    dead = frozenset().union(*(each.attempts for each in scene.killed))
    shown = sorted(scene.tasks, key=lambda task: (not _is_dead(task, dead), task.state in TASK_TERMINAL, task.index))
    left_out = 0
    if len(shown) > room - 1:
        left_out = len(shown) - max(0, room - 2)
        shown = shown[: max(0, room - 2)]
    shown.sort(key=lambda task: task.index)
    cells = [_task_cells(task, scene, dead) for task in shown]
    heads = ["TASK", "STATE", "WORKER", "TRIES", "LAST LINE"]
    widths = [max(map(len, column)) + MARGIN for column in zip(heads, *cells, strict=True)]
    lines = [PictureLine(_row(heads, widths), Tone.DIM)]
    for task, row in zip(shown, cells, strict=True):
        tone = Tone.BAD if _is_dead(task, dead) else Tone.GOOD if task.index in scene.checked else Tone.PLAIN
        lines.append(PictureLine(_row(row, widths), tone))
    if left_out:
        lines.append(PictureLine(f"and {left_out} more", Tone.DIM))
    return lines


def _task_cells(task: TaskStatus, scene: Scene, dead: frozenset[tuple[int, int]]) -> list[str]:
    killed = sum((task.index, attempt.number) in dead for attempt in task.attempts)
    tries = f"{len(task.attempts)}" + (f" ({killed} KILLED)" if killed else "")
    state = "KILLED" if _is_dead(task, dead) else "CHECKED" if task.index in scene.checked else task.state.value
    return [str(task.index), state, task.worker_id or "-", tries, _last_line(task, scene)]


def _last_line(task: TaskStatus, scene: Scene) -> str:
    """Return what the latest attempt of a task said last; nothing of one before it, and nothing when it is over."""
    line = scene.lines.get(task.index)
    latest = task.attempts[0].number if task.attempts else -1
    if line is None or line.attempt_number != latest or task.state in TASK_TERMINAL:
        return ""
    return visible(line.text.translate(SPACES))  # a tab would be wider than it counts


def _is_dead(task: TaskStatus, dead: frozenset[tuple[int, int]]) -> bool:
    """Whether the latest attempt of a task ended with a worker that was killed, and there is no other one yet."""
    return bool(task.attempts) and (task.index, task.attempts[0].number) in dead


def _job(scene: Scene) -> Iterable[PictureLine]:
    if scene.job is None:
        return
    ended = f", {counts(scene.job.tasks)}" if not scene.job.is_over else f", {scene.job.num_tasks} tasks"
    speed = f", {scene.bytes_per_s / 1e6:.1f} MB/s" if scene.bytes_per_s and not scene.job.is_over else ""
    yield PictureLine(_named("job", f"{scene.job.state.value}{ended}{speed}"))


def _progress(progress: PictureProgress, columns: int) -> Iterable[PictureLine]:
    if not progress.text:
        return
    bar = ""
    if progress.total:
        full = min(columns, columns * progress.done // progress.total)
        bar = f"[{'#' * full}{'.' * (columns - full)}]  "
    yield PictureLine(f"{bar}{progress.text}")


def _named(name: str, text: str) -> str:
    return f"{name:{NAME_COLUMNS + MARGIN}}{text}"


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else f"{text[: max(0, columns - 1)]}\N{HORIZONTAL ELLIPSIS}"[:columns]
