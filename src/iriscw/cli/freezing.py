"""``checkpoint``, ``restore`` and ``checkpoints``: what is asked, and of whom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iriscw.cli.connection import connection_options
from iriscw.cli.freeze_shown import Backend, Listing, refuse_options
from iriscw.cli.kinds import Duration
from iriscw.cli.output import format_option
from iriscw.cli.retaining import Retention
from iriscw.cli.tier_options import fetch_option, place_options, tier_option
from iriscw.runtime.vocabulary import SECOND

if TYPE_CHECKING:
    from iriscw.checkpoint.retention import RetentionPolicy
    from iriscw.freeze.model import Hook


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
    TCP connections are given up. With `--tier repository` it can go on on any machine whose agent has the same
    repository. With --leave-running it is a copy that the job knows nothing of.

    The tree ends only when the checkpoint is whole. Whatever goes wrong before, it runs on as if nothing had been; a
    command that is killed is undone or finished by the next one. An application that cannot be told to go on changes no
    exit code: the last line says so.

    Interrupted (Ctrl-C, SIGTERM, a closed terminal) it undoes what it did. From the moment in which the tree is ended
    that cannot be: then it comes to its end, names the checkpoint as ever, and has the exit code 130 all the same.
    """
    from iriscw.checkpoint.manifest import label_trouble
    from iriscw.freeze.model import CriuOptions, FreezePlan, TaskIdentity

    labels = _labels(given["labels"])
    if label_trouble(labels):
        raise click.UsageError(label_trouble(labels))
    if (job is None) == (pid is None):
        raise click.UsageError("either --pid or a JOB")
    backend = backend_of(given, job=job)
    backend.refuse(given)
    if given["tcp_established"] and given["tcp_close"]:
        raise click.UsageError("--tcp-established keeps connections and --tcp-close gives them up: say one of them")
    plan = FreezePlan(
        operation="",
        root=TaskIdentity(pid or 0, 0, ""),
        tier=given["tier"],
        leave_running=given["leave_running"],
        force=given["force"],
        options=CriuOptions(
            shell_job=given["shell_job"], tcp_established=given["tcp_established"], tcp_close=given["tcp_close"]
        ),
        hook=_hook(given),
        lock_within_ns=round(given["lock_timeout"] * SECOND),
        labels=labels,
    )
    backend.checkpoint(plan, form)


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
@fetch_option
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

    A checkpoint that only the repository has is fetched into a tier of this machine first, and stays there.

    An application that cannot be told that it was thawed changes no exit code: the last line says so.

    Interrupted, it ends what it brought back so far, and the checkpoint is as it was; from the moment in which the tree
    is let run it comes to its end, and says so. The exit code is 130 in either case.
    """
    from iriscw.freeze.model import Numbers, ThawPlan

    gpus = _pairs(given["gpus"], "--gpu OLD=NEW")
    backend = backend_of(given, cluster=cluster)
    backend.refuse(given)
    if given["agent"] is not None or cluster:
        refuse_options(given, ("tier",), "an agent chooses it")
    plan = ThawPlan(
        operation="",
        artifact=checkpoint_id,
        gpus=gpus,
        force=given["force"],
        lazy=given["lazy"],
        numbers=Numbers(given["pids"] or ("auto" if given["clone"] else "same")),
        clone=given["clone"],
        verify=_verify_hook(given),
    )
    code = backend.restore(plan, form)
    if code:
        click.get_current_context().exit(code)


@click.command()
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only those with all of these labels.")
@click.option(
    "-l",
    "--selector",
    default="",
    metavar="SELECTOR",
    help="Only those whose labels are so: NAME=VALUE, NAME!=VALUE, NAME in (A,B), NAME notin (A,B), NAME, !NAME; "
    "several with commas between them.",
)
@click.option(
    "--remove", "removed", multiple=True, metavar="CHECKPOINT", help="Remove this one, and list the rest. Repeatable."
)
@click.option(
    "--release",
    "released",
    metavar="CHECKPOINT",
    help="Forget the operation that uses this one, if nothing else is left of it: then --remove takes it.",
)
@click.option(
    "--retain",
    "policy",
    type=Retention(),
    metavar="POLICY",
    help="Of those that are selected, remove the oldest beyond max-checkpoints=N or max-total-size=SIZE, and all "
    "beyond max-age=TIME or max-checkpoint-size=SIZE; several with commas between them. per=LABEL counts for each "
    "value of a label, as per=job. What is in use, or is a suspended task's, stays.",
)
@click.option("--dry-run", is_flag=True, help="With --retain: only say what would be removed.")
@agent_option
@click.option(
    "--stored",
    is_flag=True,
    help="With --cluster: what the agents' repositories have, too; --retain and --remove take it last.",
)
@cluster_option
@node_option
@connection_options
@place_options
@format_option
def checkpoints(
    *,
    labels: tuple[str, ...],
    selector: str,
    removed: tuple[str, ...],
    released: str | None,
    policy: RetentionPolicy | None,
    dry_run: bool,
    stored: bool,
    cluster: bool,
    form: str,
    **given: Any,
) -> None:
    """List the checkpoints of this machine, and take up what killed commands left; or those of a cluster's nodes."""
    from iriscw.checkpoint.selecting import read_selector

    if dry_run and policy is None:
        raise click.UsageError("--dry-run: only with --retain")
    if stored and not cluster:
        raise click.UsageError("--stored: only with --cluster; of this machine the --repository is listed anyway")
    read_selector(selector)  # before anything is removed or taken up
    asked = Listing(_labels(labels), removed, released, selector, policy, dry_run, stored)
    backend = backend_of(given, cluster=cluster)
    backend.refuse(given)
    backend.checkpoints(asked, form)


def backend_of(given: dict[str, Any], *, job: str | None = None, cluster: bool = False) -> Backend:
    """Choose who does it: this command, an agent of this machine, or the agents of a cluster's nodes."""
    if job is not None or cluster:
        from iriscw.cli.at_controller import AtController

        return AtController(given, job)
    if given["agent"] is not None:
        from iriscw.cli.at_agent import AtAgent

        return AtAgent(given["agent"])
    from iriscw.cli.at_here import AtHere

    return AtHere(given)


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
