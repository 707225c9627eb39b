"""``submit``."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import click

from iriscw.cli.attempts import fields
from iriscw.cli.connection import connection_options, with_client
from iriscw.cli.following import conclude, follow, write_aside
from iriscw.cli.kinds import ArgumentList, Assignment, Duration, SizeType
from iriscw.cli.outcome import DONE
from iriscw.cli.output import emit, format_option, show_one, visible
from iriscw.client.advice import files_named
from iriscw.client.client import Client
from iriscw.client.submission import Command
from iriscw.jobs.model import MAX_NAME_LENGTH, JobState
from iriscw.packages.reading import dependencies_of
from iriscw.resources import Resources


@click.command(context_settings={"allow_interspersed_args": False})  # what follows the program is the program's
@click.option("--name", help="For people, and to find the job by; default: the program's name and some digits.")
@click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder whose files the command finds in its working folder. Without it that is empty.",
)
@click.option(
    "--bundle-exclude",
    multiple=True,
    metavar="PATTERN",
    help="What the bundle leaves out, beside .git, virtual environments and the like: 'data', '*.ckpt', 'out/*'; may "
    "be repeated.",
)
@click.option("--replicas", type=int, default=1, show_default=True, help="How many tasks run the command.")
@click.option("--cpu", default="1", show_default=True, help="CPU cores of each task: 4, 0.5 or 500m.")
@click.option(
    "--memory",
    type=SizeType(),
    default="1GiB",
    show_default=True,
    help="Memory of each task; digits: bytes. On an `iriscw up` cluster it only decides where "
    "tasks run: nothing stops one that uses more.",
)
@click.option("--disk", type=SizeType(), help="Disk space of each task, such as 10GiB.")
@click.option("--gpu", type=int, default=0, help="GPUs of each task.")
@click.option("--gpu-class", help="Which, such as H100.")
@click.option("--env", type=Assignment(), multiple=True, metavar="NAME=VALUE", help="A variable; may be repeated.")
@click.option("--image", default="", help="What each task runs in, in a pod of its own; where the cluster has such.")
@click.option(
    "--freezable", is_flag=True, help="Keep io_uring from each task, so that it can be frozen with uvloop, too."
)
@click.option("--detached", is_flag=True, help="In a task: go on when the task's own job ends; else end with it.")
@click.option("--port", "ports", multiple=True, metavar="NAME", help="A port to set aside; may be repeated.")
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    help="Which workers will do: 'key=value', 'key>=4', 'key in a,b', 'key' or '!key'; may be repeated.",
)
@click.option(
    "--prefer",
    "preferred",
    multiple=True,
    metavar="CONSTRAINT",
    help="What workers should be like, in the same form: no task waits for it; may be repeated.",
)
@click.option("--coscheduling", metavar="ATTRIBUTE", help="Run all tasks at once, on workers that share its value.")
@click.option(
    "--priority",
    type=click.Choice(["production", "interactive", "batch"]),
    default="interactive",
    show_default=True,
    help="Who is placed first.",
)
@click.option(
    "--preemption",
    type=click.Choice(["kill", "freeze", "never"]),
    default="kill",
    show_default=True,
    help="What becomes of a task that has to give way to one of a higher priority.",
)
@click.option("--timeout", type=Duration(), help="How long one attempt may run, such as 30m.")
@click.option("--scheduling-timeout", type=Duration(), help="How long a task may wait for a worker.")
@click.option("--max-retries-failure", type=int, default=0, show_default=True, help="Failed attempts of a task.")
@click.option(
    "--max-retries-preemption", type=int, default=100, show_default=True, help="Attempts lost to the infrastructure."
)
@click.option(
    "--max-task-failures", type=int, default=0, show_default=True, help="Tasks that may fail before the job does."
)
@click.option(
    "--checkpoint-every", type=Duration(), help="How often a checkpoint is made of each task that runs on, such as 30m."
)
@click.option(
    "--keep-checkpoints", type=int, default=2, show_default=True, help="How many of these are kept of a task."
)
@click.option(
    "--retry-from-checkpoint",
    is_flag=True,
    help="Begin a task that is tried again from the newest: what it did since, it does again.",
)
@click.option(
    "--dependency",
    "dependencies",
    multiple=True,
    metavar="REQUIREMENT",
    help="A package to install for the tasks, such as 'numpy>=2'; may be repeated.",
)
@click.option(
    "--dependencies-from",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file that lists them: pyproject.toml, uv.lock, requirements.txt.",
)
@click.option(
    "--setup",
    multiple=True,
    type=ArgumentList(),
    metavar="COMMAND",
    help="A command to run in each task's folder before it begins, as one word: 'make data'; may be repeated. No shell "
    "runs it.",
)
@click.option(
    "--setup-timeout",
    type=Duration(),
    default="30m",
    show_default=True,
    help="How long the installation, and each of these commands, may take.",
)
@click.option(
    "--existing",
    type=click.Choice(["error", "keep", "recreate"]),
    default="error",
    show_default=True,
    help="What to do about a job of this --name that has not ended.",
)
@click.option("-f", "--follow", "followed", is_flag=True, help="Show the job's log and wait for its end.")
@click.argument("argv", metavar="COMMAND [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED)
@connection_options
@format_option
def submit(
    *,
    argv: tuple[str, ...],
    name: str | None,
    followed: bool,
    form: str,
    address: str | None,
    token_file: Path | None,
    **wishes: Any,
) -> int:
    """Run a command on the cluster: `iriscw submit -f --bundle . -- python train.py`.

    Neither this folder nor this environment travels: a command has an empty working folder, some variables of its
    worker, and those that --env names. --bundle gives it a copy of a folder's files.

    Prints the job's id; the exit code is 1 if the job can never run. With -f the exit code is that of the program if a
    job's only task failed (128 and the number of a signal), and 1 if the job does not end well otherwise. With -f -o
    json the log goes to standard error, and standard output has the job at its end.
    """
    if name is None and wishes["existing"] != "error":
        raise click.UsageError(
            f"--existing {wishes['existing']} needs the --name of that job", click.get_current_context()
        )
    if name == "":
        raise click.UsageError("--name is empty: is a variable unset?", click.get_current_context())
    sizes = {key: wishes.pop(key) for key in ("cpu", "memory", "gpu", "gpu_class")}
    if (disk := wishes.pop("disk")) is not None:
        sizes["disk"] = disk
    wishes["environment"] = dict(wishes.pop("env"))
    if (listed := wishes.pop("dependencies_from")) is not None:
        if wishes["dependencies"]:
            raise click.UsageError("give either --dependency or --dependencies-from", click.get_current_context())
        wishes["dependencies"] = dependencies_of(listed)  # before anybody is asked
    command, resources = Command(argv), Resources(**sizes)
    if wishes["bundle"] is None and (named := files_named(argv)):
        shown = ", ".join(visible(each) for each in named)
        sys.stderr.write(f"{shown}: not sent along; the command's working folder is empty without --bundle .\n")

    async def submitted(client: Client) -> int:
        job = await client.submit(
            command, name=default_name(argv[0]) if name is None else name, resources=resources, **wishes
        )
        status = await job.status()
        if not followed:
            show_one(fields(status), form, lambda: f"{job.id}\n")
            # `iriscw jobs` lists no job that has ended: nobody would hear that this one never ran.
            return await conclude(job, "table") if status.state is JobState.UNSCHEDULABLE else DONE
        sys.stderr.write(f"{job.id}\n")
        write = emit if form == "table" else write_aside
        words = await follow(job, with_task=status.num_tasks > 1, write=write)
        return await conclude(job, form, words)

    return with_client(address, token_file, submitted)


def default_name(program: str) -> str:
    """Make up a name that no other job has: only one that a user gave is worth a refusal."""
    digits = uuid.uuid4().hex[:8]
    shown = "".join(each for each in Path(program).name if each.isprintable()) or "job"
    return f"{shown[: MAX_NAME_LENGTH - len(digits) - 1]}-{digits}"
