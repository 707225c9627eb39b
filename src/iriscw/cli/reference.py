"""The command line's page of the documentation, made from the commands: ``python -m iriscw.cli.reference``.

A test compares the page with what this prints.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import attrs
import click

from iriscw.checkpoint.model import ArtifactCopy, ListedArtifact, ShownTier
from iriscw.cli import doctor
from iriscw.cli.app import app
from iriscw.cli.balancing import BalancedCheckpoint
from iriscw.cli.fleet import DemandAtGroup
from iriscw.cli.jobs import UNLISTED
from iriscw.cli.outcome import MEANINGS
from iriscw.client.model import ActorStatus, GpuStatus, JobStatus, NodeStatus, PoolStatus, SliceStatus
from iriscw.client.nodes import Checkpoint
from iriscw.doctor import findings

HEAD = """\
# Command line

<!-- Made by `python -m iriscw.cli.reference`; a test compares. -->

`iriscw demo` shows everything at once. For work of your own, `iriscw up` keeps a cluster up in one terminal and the
other commands find it by the file that it leaves (mode 0600: address and token): `$IRISCW_CONTEXT` if set, else
`$XDG_RUNTIME_DIR/iriscw/context.json`, else `~/.local/state/iriscw/context.json`. `iriscw connect` leaves the same file
for a controller in a Kubernetes cluster. Inside a task they find the task's own controller. `--address` and
`--token-file` name any other one.

Listings take `-o table|json|yaml`: a table has the columns that people look at, the others every field. On a
terminal a table is as wide as that: ids, other names that commands take and states are never cut; other texts are, then
columns are left out, and the last line says which. An error is one
line with the way out; `--verbose`, anywhere before the program that `submit` runs, adds where it came from. Standard
output has results and nothing else; what is said beside them stands on standard error.

| exit code | meaning |
| --- | --- |
"""


JSON_HEAD = """
## What `-o json` and `-o yaml` hold

A list with an object for each row; `iriscw job`, `bench` and `sim` give one object. What a cluster has, has the fields
of the Python values of the same names, which [the reference](reference/client.md) describes, and new ones may be added:
ignore what you do not know. A tuple is a list, a mapping an object, an enumeration its text, `None` null. A manifest is
given without the list of its files; `checkpoints --agent` gives what `checkpoints` does. The `runs` of `sim run` have
the first five fields of `sim replay` each.

| command | fields |
| --- | --- |
"""

LISTINGS: dict[str, type] = {
    "jobs": JobStatus,
    "job": JobStatus,
    "slices": SliceStatus,
    "pools": PoolStatus,
    "pools demand": DemandAtGroup,
    "nodes": NodeStatus,
    "inspect tree": ActorStatus,
    "inspect gpus": GpuStatus,
    "checkpoints": ListedArtifact,
    "checkpoints --cluster": Checkpoint,
    "tiers": ShownTier,
    "tiers --balance": BalancedCheckpoint,
    "verify": ArtifactCopy,
    "doctor": doctor.Finding,
    "doctor --kube": findings.Finding,
}
"""What the rows of a listing are, by the words that ask for it."""

FIGURES = "Mapping[str, list[Mapping[str, float]]]"
"""Groups of figures by name: in each a row for every size."""

RUN = {"seed": "int", "trace": "str", "simulated_s": "float", "steps": "int", "violations": "list[str]"}
"""A run of the simulation."""

REPORTS: dict[str, dict[str, str]] = {
    "bench calls": {
        "figures": FIGURES,
        "goals": "Mapping[str, float]",
        "rounds": "int",
        "peers": "list[str]",
    },
    "bench control-plane": {"figures": FIGURES, "targets": "list[Mapping[str, float]]", "rounds": "int"},
    "bench end-to-end": {"figures": FIGURES, "goals": "Mapping[str, float]"},
    "bench freeze": {"figures": FIGURES, "goals": "Mapping[str, float]", "rounds": "int"},
    "bench pools": {"figures": FIGURES, "goals": "Mapping[str, float]"},
    "bench repository": {
        "figures": FIGURES,
        "goals": "Mapping[str, float]",
        "rounds": "int",
        "peers": "list[str]",
    },
    "bench runtime": {
        "ratios": "Mapping[str, Mapping[str, float]]",
        "bytes_per_idle_actor": "int",
        "rounds": "int",
        "rates_per_s": "Mapping[str, int]",
        "ratios_per_round": "Mapping[str, Mapping[str, list[float]]]",
    },
    "bench simulation": {"figures": FIGURES, "goals": "Mapping[str, float]", "rounds": "int"},
    "sim run": {"runs": "list[Run]", "wall_s": "float", "broken": "list[int]", "fired": "Mapping[str, int]"},
    "sim replay": {**RUN, "plan": "Plan", "timeline": "Timeline"},
    "sim replay --nodes": {**RUN, "plan": "Plan", "timeline": "list[Event]"},
    "sim replay --trace": {**RUN, "plan": "Plan", "timeline": "Timeline", "trace_lines": "list[str]"},
}
"""The fields of reports. The objects of ``runs`` have those of :data:`RUN`; a plan is what ``sim plan`` writes."""


def json_fields(command: str) -> dict[str, str]:
    """Return the fields of a listing's objects, with the types of the Python values that they are written of."""
    fields = [each for each in attrs.fields(LISTINGS[command]) if not each.name.startswith("_")]
    types = {each.name: _called(each.type) for each in fields}
    if LISTINGS[command] is JobStatus:
        types["task_counts"] = types.pop("tasks")
    if command == "job":
        types["tasks"] = "list[TaskStatus]"
    return {name: of for name, of in types.items() if command != "jobs" or name not in UNLISTED}


def _called(of: Any) -> str:
    """Return a type as it is written: the file that it stands in may keep annotations as text, or not."""
    return of if isinstance(of, str) else getattr(of, "__name__", str(of))


def reference() -> str:
    """Return the page."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in MEANINGS.items())
    listed = "".join(
        f"| `iriscw {name}` | {', '.join(f'`{field}: {of}`' for field, of in fields.items())} |\n"
        for name, fields in {**{each: json_fields(each) for each in LISTINGS}, **REPORTS}.items()
    ).replace(" | None", r" \| None")
    return HEAD + codes + JSON_HEAD + listed + "".join(_sections(app, click.Context(app, info_name="iriscw")))


def _sections(group: click.Group, above: click.Context) -> Iterator[str]:
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        ctx = click.Context(command, info_name=name, parent=above)
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield _section(command, ctx)
            yield from _sections(command, ctx)
        else:
            yield _section(command, ctx)


def _section(command: click.Command, ctx: click.Context) -> str:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    text = inspect.cleandoc(command.help or "")
    rows = [record for parameter in command.get_params(ctx) if (record := _record(parameter, ctx))]
    options = "\n| option | |\n| --- | --- |\n" + "".join(rows) if rows else ""
    return f"\n## `{ctx.command_path}`\n\n```text\n{usage}\n```\n\n{text}\n{options}"


def _record(parameter: click.Parameter, ctx: click.Context) -> str:
    record: Any = parameter.get_help_record(ctx)
    if record is None or isinstance(parameter, click.Argument) or "--help" in parameter.opts:
        return ""
    names, text = record
    names = names.replace("|", r"\|")  # a bar would end the table's cell
    return f"| `{names}` | {' '.join(text.split())} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
