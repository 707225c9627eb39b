"""Groups of commands: their help has the whole first sentence of each command, and a wrong name is told the nearest."""

from __future__ import annotations

import difflib
import inspect
import re
from typing import Any, Final

import click

_END: Final = re.compile(r"(?<=\S)[.!?](?=\s|$)")
"""Of a sentence; a dot by itself is a folder's name."""

FEW: Final = 8
"""Commands of a group that are all named in an error."""

OTHER_NAMES: Final = {
    "cancel": "stop",
    "freeze": "checkpoint",
    "join": "wait",
    "kill": "stop",
    "list": "jobs",
    "ls": "jobs",
    "ps": "jobs",
    "run": "submit",
    "status": "job",
    "suspend": "checkpoint",
    "thaw": "restore",
}
"""What people call a command that has another name here."""


def summary(command: click.Command) -> str:
    """Return the first sentence of a command's help, without the dot."""
    text = " ".join(inspect.cleandoc(command.short_help or command.help or "").partition("\n\n")[0].split())
    end = _END.search(text)
    return text if end is None else text[: end.start()]


class CommandGroup(click.Group):
    """A group whose help is not cut, and which knows what somebody may have meant."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, in as many lines as those need."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, summary(command)) for name, command in found if command is not None and not command.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command below; what was wrong about its words is told as that command's, whoever found it."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if error.ctx is None:  # click's parser leaves it out
                name = ctx.invoked_subcommand
                command = self.get_command(ctx, name) if name else None
                error.ctx = ctx if command is None else click.Context(command, info_name=name, parent=ctx)
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` begin with; a wrong name is told the nearest right one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            names = self.list_commands(ctx)
            meant = {other: name for other, name in OTHER_NAMES.items() if name in names}
            meant.update((name, name) for name in names)
            near = difflib.get_close_matches(args[0], meant, n=1)
            said = error.message.rstrip(".")
            if near:
                raise click.UsageError(f"{said}: did you mean '{meant[near[0]]}'?", ctx) from None
            if len(names) <= FEW:
                raise click.UsageError(f"{said}: there are {', '.join(names)}", ctx) from None
            raise
