"""One job for people: what it is, its tasks, their retries, and what the user's code said last. Pure.

Texts of jobs are escaped wherever they are shown: what a program printed must not command the reader's terminal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from iriscw.cli.output import age, amount, cell, counts, indented, plain, table, terminal_columns, visible
from iriscw.client.model import AttemptStatus, JobStatus, ProgressStatus, TaskStatus

MAX_RETRIES_SHOWN: Final = 40
"""Attempts that were followed by another one, as a table shows them: a screenful. JSON has all."""


MAX_COMMAND_CHARS: Final = 1000
"""Of what a job runs: a dozen lines. JSON has all."""

AS_ABOVE: Final = "as above"
"""What stands for a reason that was just given: a thousand tasks wait for the same."""


class Tried(NamedTuple):
    """An attempt and the index of its task."""

    task: int
    attempt: AttemptStatus


def fields(status: JobStatus) -> dict[str, Any]:
    """Return a job's status for programs; ``tasks`` is the list of its tasks, so their counts have another name."""
    content: dict[str, Any] = plain(status)
    content["task_counts"] = content.pop("tasks")
    return content


def describe(status: JobStatus, tasks: Sequence[TaskStatus], now_ms: int) -> str:
    """Write a job for people. ``now_ms`` is the time since 1970."""
    earlier = [Tried(task.index, each) for task in tasks for each in task.attempts[1:]]
    earlier.sort(key=lambda each: each.attempt.finished_at_ms, reverse=True)
    parts = [_facts(status, now_ms), _tasks_table(status, tasks), _checkpoints_table(tasks, now_ms)]
    if earlier:
        parts.append(_retries_table(earlier, now_ms))
    parts.append(_last_words(status, tasks, earlier))
    return "\n".join(part for part in parts if part)


def _facts(status: JobStatus, now_ms: int) -> str:
    wanted = status.resources
    times = {"submitted": status.submitted_at_ms, "started": status.started_at_ms, "ended": status.finished_at_ms}
    facts = {
        "job": f"{status.job_id}  {status.name}",
        "state": status.shown_state + (f": {status.reason}" if status.reason else ""),
        "runs": shortened(status.entrypoint),
        "tasks": f"{status.num_tasks}: {counts(status.shown_tasks)}",
        "each": amount(wanted.cpu_milli, wanted.memory_bytes, wanted.gpu_count, wanted.gpu_class),
        **({} if status.progress is None else {"progress": progress_text(status.progress)}),
        "times": ", ".join(f"{what} {age(at_ms, now_ms)} ago" for what, at_ms in times.items() if at_ms),
        "attempts": f"{status.failures} failed, {status.preemptions} lost with their workers",
    }
    width = terminal_columns()
    return "".join(f"{name:9}{indented(cell(text), 9, width)}\n" for name, text in facts.items())


def _tasks_table(status: JobStatus, tasks: Sequence[TaskStatus]) -> str:
    rows = []
    said = cell(status.reason)
    shown = any(each.gpus for task in tasks for each in task.attempts[:1])
    told = any(task.progress is not None for task in tasks)
    for task in tasks:
        latest = task.attempts[0] if task.attempts else None
        reason = _suspension(task) or task.reason or (latest.reason if latest is not None else "")
        rows.append(
            [
                str(task.index),
                task.shown_state,
                cell(task.worker_id),
                str(latest.number if latest is not None else 0),
                cell("" if latest is None or latest.exit_code is None else latest.exit_code),
                *([cell(short_gpus(latest.gpus if latest is not None else ()))] if shown else []),
                *([cell(progress_text(task.progress))] if told else []),
                AS_ABOVE if reason and cell(reason) == said else cell(reason),
            ]
        )
        said = cell(reason) if reason else said
    more = [*(["GPUS"] if shown else []), *(["PROGRESS"] if told else [])]
    heads = ["TASK", "STATE", "WORKER", "ATTEMPT", "EXIT", *more, "REASON"]
    return table(heads, rows, terminal_columns(), kept=("STATE", "WORKER"))


def _checkpoints_table(tasks: Sequence[TaskStatus], now_ms: int) -> str:
    """Write what ``checkpoint_every`` has made of tasks that run: of each the newest, and what became of the latest."""
    rows = []
    made = [(task.index, task.checkpoints) for task in tasks if task.checkpoints is not None]
    for index, found in made[:MAX_RETRIES_SHOWN]:
        newest = found.kept[0] if found.kept else None
        said = ["one more is being made"] if found.being_made else []
        said += [f"the latest was not made: {found.failure}"] if found.failure else []
        if found.times_gone_back:
            times = "once" if found.times_gone_back == 1 else f"{found.times_gone_back} times"
            ago = age(found.gone_back_at_ms, now_ms)
            said.append(f"it went back {times}, last to {found.gone_back_to} {ago} ago")
        rows.append(
            [
                str(index),
                str(len(found.kept)),
                "" if newest is None else cell(newest.checkpoint),
                "" if newest is None else cell(newest.node),
                "" if newest is None else age(newest.taken_at_ms, now_ms),
                cell("; ".join(said)),
            ]
        )
    if not rows:
        return ""
    shown = table(["COPIED", "KEPT", "NEWEST", "NODE", "AGO", "SAID"], rows, terminal_columns(), kept=("NEWEST",))
    more = len(made) - len(rows)
    return shown + (f"and {more} more: -o json has them\n" if more else "")


def short_gpus(uuids: Sequence[str]) -> str:
    """Name GPUs as people tell them apart: by the first eight digits. JSON has all of each."""
    return ",".join(uuid.removeprefix("GPU-")[: 12 if uuid.startswith("MIG-") else 8] for uuid in uuids)


def progress_text(progress: ProgressStatus | None) -> str:
    """Write how far a task is, or a job: ``120/1000 (12%) loss 0.3``; empty if nobody says so."""
    if progress is None:
        return ""
    done = _amount_done(progress.done)
    if progress.total:
        percent = math.floor(100 * min(progress.done / progress.total, 1))
        done += f"/{_amount_done(progress.total)} ({percent}%)"
    return f"{done} {progress.text}".rstrip()


def _amount_done(number: float) -> str:
    return str(int(number)) if number % 1 == 0 and number < 1e15 else f"{number:.4g}"


def _suspension(task: TaskStatus) -> str:
    """Say that a task is suspended, or on its way there or back; and why it is not, if that was tried."""
    found = task.suspension
    if found is None:
        return ""
    if not found.phase:
        return f"not suspended: {found.reason}" if found.reason else ""
    lies = f"on {found.node}" if found.node else f"in {found.repository}"
    where = f" ({found.checkpoint} {lies})" if found.checkpoint else ""
    return f"{found.phase.lower()}{where}" + (f": {found.reason}" if found.reason else "")


def _retries_table(earlier: Sequence[Tried], now_ms: int) -> str:
    rows = [
        [
            str(task),
            str(each.number),
            each.state.value,
            cell(each.worker_id),
            cell("" if each.exit_code is None else each.exit_code),
            age(each.started_at_ms, each.finished_at_ms),
            age(each.finished_at_ms, now_ms),
            cell(each.reason),
        ]
        for task, each in earlier[:MAX_RETRIES_SHOWN]
    ]
    heads = ["TRIED", "ATTEMPT", "ENDED", "WORKER", "EXIT", "RAN", "AGO", "REASON"]
    more = len(earlier) - len(rows)
    shown = table(heads, rows, terminal_columns(), kept=("ATTEMPT", "ENDED", "WORKER"))
    return shown + (f"and {more} more: -o json has them\n" if more else "")


def _last_words(status: JobStatus, tasks: Sequence[TaskStatus], earlier: Sequence[Tried]) -> str:
    """Write what was said in more than one line: by the task that failed the job, else by the latest attempt."""
    said = [Tried(each.index, each.attempts[0]) for each in tasks if each.attempts]
    if "\n" in status.fault:
        said = [each for each in said if each.attempt.fault == status.fault]
    else:
        said = [each for each in (*said, *earlier) if "\n" in each.attempt.fault]
    if not said:
        return ""
    task, attempt = max(said, key=lambda each: each.attempt.finished_at_ms)
    lines = "".join(f"  {line}\n" for line in visible(attempt.fault).split("\n"))
    return f"task {task}, attempt {attempt.number}, ended with\n{lines}"


def shortened(command: str) -> str:
    """Return as much of a command as people read."""
    more = len(command) - MAX_COMMAND_CHARS
    return command if more <= 0 else f"{command[:MAX_COMMAND_CHARS]}... and {more} characters: -o json has them"
