"""The command line's page of the documentation, made from the commands: ``python -m iriscw.cli.reference``.

A test compares the page with what this prints.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import click

from iriscw.cli.app import app
from iriscw.cli.outcome import MEANINGS

HEAD = """\
# Command line

<!-- Made by `python -m iriscw.cli.reference`; a test compares. -->

`iriscw demo` shows everything at once. For work of your own, `iriscw up` keeps a cluster up in one terminal and the
other commands find it by the file that it leaves (mode 0600: address and token): `$IRISCW_CONTEXT` if set, else
`$XDG_RUNTIME_DIR/iriscw/context.json`, else `~/.local/state/iriscw/context.json`. `iriscw connect` leaves the same file
for a controller in a Kubernetes cluster. Inside a task they find the task's own controller. `--address` and
`--token-file` name any other one.

Listings take `-o table|json|yaml`: a table has the columns that people look at, the others every field. An error is one
line with the way out; `--verbose`, anywhere before the program that `submit` runs, adds where it came from. Standard
output has results and nothing else; what is said beside them stands on standard error.

| exit code | meaning |
| --- | --- |
"""


def reference() -> str:
    """Give the page."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in MEANINGS.items())
    return HEAD + codes + "".join(_sections(app, click.Context(app, info_name="iriscw")))


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
