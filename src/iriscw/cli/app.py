"""The tree of commands. A command's module is imported when the command is called, or when help asks for its text.

Features of installed packages add commands of their own. They are looked for only where ``COMMANDS`` is not enough: by
help, and for a name that is not there.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from iriscw._version import __version__
from iriscw.cli.groups import CommandGroup
from iriscw.cli.outcome import DONE, USAGE, interrupted, report, silence_output
from iriscw.cli.output import OutputLost, emit

COMMANDS: Final = {
    "demo": "iriscw.cli.demo.command:demo",
    "up": "iriscw.cli.serve:up",
    "submit": "iriscw.cli.submit:submit",
    "jobs": "iriscw.cli.jobs:jobs",
    "job": "iriscw.cli.jobs:job",
    "logs": "iriscw.cli.jobs:logs",
    "exec": "iriscw.cli.exec:exec_command",
    "wait": "iriscw.cli.wait:wait",
    "stop": "iriscw.cli.jobs:stop",
    "slices": "iriscw.cli.fleet:slices",
    "pools": "iriscw.cli.fleet:pools",
    "nodes": "iriscw.cli.fleet:nodes",
    "checkpoint": "iriscw.cli.freezing:checkpoint",
    "restore": "iriscw.cli.freezing:restore",
    "freezable": "iriscw.cli.freezable:freezable",
    "resume": "iriscw.cli.jobs:resume",
    "checkpoints": "iriscw.cli.freezing:checkpoints",
    "move": "iriscw.cli.moving:move",
    "verify": "iriscw.cli.moving:verify",
    "export": "iriscw.cli.exporting:export",
    "import": "iriscw.cli.exporting:import_command",
    "tiers": "iriscw.cli.moving:tiers",
    "doctor": "iriscw.cli.doctor:doctor",
    "inspect": "iriscw.cli.inspection:inspect",
    "config": "iriscw.cli.config:config",
    "manifests": "iriscw.cli.manifests:manifests",
    "down": "iriscw.cli.manifests:down",
    "connect": "iriscw.cli.connect:connect",
    "controller": "iriscw.cli.serve:controller",
    "worker": "iriscw.cli.serve:worker",
    "agent": "iriscw.cli.agent:agent",
    "bench": "iriscw.cli.measure:bench",
    "sim": "iriscw.cli.sim.command:sim",
}
"""In the order in which people need them."""


@functools.cache
def further_commands() -> dict[str, str]:
    """Return the commands of installed packages, by name, as the table has its own.

    Raises:
        AmbiguousFeature: two features, or two commands, have one name.
        BrokenFeature: see :func:`iriscw.controller.installed.installed_features`.
    """
    from iriscw.controller.installed import AmbiguousFeature, installed_features

    found: dict[str, str] = {}
    for feature in installed_features():
        for name, target in feature.commands.items():
            if name in COMMANDS or name in found:
                raise AmbiguousFeature(f"the feature {feature.name!r} offers a command {name!r}, of which there is one")
            found[name] = target
    return found


class LazyGroup(CommandGroup):
    """Finds its commands in ``COMMANDS``, and among those of installed packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the table's order, then those of installed packages."""
        return [*COMMANDS, *further_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        target = COMMANDS.get(cmd_name)
        if target is not None:
            command = _imported(target)
        elif cmd_name in further_commands():
            command = _of_package(cmd_name, further_commands()[cmd_name])
        else:
            return None
        _understand_verbose(command)
        return command


def _imported(target: str) -> click.Command:
    module, _, name = target.partition(":")
    command: click.Command = getattr(importlib.import_module(module), name)
    return command


def _of_package(name: str, target: str) -> click.Command:
    """Import a command of an installed package.

    Raises:
        BrokenFeature: it cannot be imported, or is no command of click.
    """
    from iriscw.controller.installed import BrokenFeature

    where = f"the command {name!r} of an installed package ({target})"
    try:
        command = _imported(target)
    except Exception as error:  # somebody else's module: whatever its import raises
        raise BrokenFeature(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(command, click.Command):
        raise BrokenFeature(f"{where} is a {type(command).__name__}, and must be a click.Command")
    return command


@dataclasses.dataclass
class Noted:
    """What is known of the command that runs, for whoever reports how it failed."""

    verbose: bool = False
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    """How its parameters are spelled, by their names."""


def _note_verbose(ctx: click.Context, parameter: click.Parameter, verbose: bool) -> None:
    noted = ctx.ensure_object(Noted)
    noted.verbose = noted.verbose or verbose
    noted.options = {
        name: max(each.opts, key=len)
        for each in ctx.command.params
        if isinstance(each, click.Option) and each.name is not None
        for name in (each.name, *_OTHER_NAMES.get(each.name, ()))
    }


_OTHER_NAMES: Final = {"env": ("environment",)}
"""What the client calls what a command has another name for."""

_VERBOSE: Final = click.Option(
    ["--verbose"], is_flag=True, expose_value=False, hidden=True, is_eager=True, callback=_note_verbose
)


def _understand_verbose(command: click.Command) -> None:
    """Let ``--verbose`` stand behind the command's name, too; what a command passes on it never sees."""
    if _VERBOSE not in command.params:
        command.params.append(_VERBOSE)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _understand_verbose(each)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="iriscw")
@click.option(
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_note_verbose,
    help="Show where an error came from, too.",
)
def app() -> None:
    """The control plane for GPU fleets, as a tree of supervised actors.

    `iriscw demo` shows it at work; `iriscw up` starts a cluster here for the other commands.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stderr is None:  # `2>&-`; what is said there is lost, as was asked for
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it lasts as long as the process
    if sys.stdout is None:  # `>&-`: better refused than done with nobody to hear of it
        return report(OutputLost("standard output is closed"), verbose=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # better a letter that is written otherwise than no listing at all
            stream.reconfigure(errors="backslashreplace")
    noted = Noted()
    try:
        code = app(given, prog_name="iriscw", standalone_mode=False, obj=noted)
        emit("")
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "iriscw"
        sys.stderr.write(f"iriscw: {error.format_message().rstrip('.')}; see `{where} --help`\n")
        return USAGE
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return interrupted()
    except (BrokenPipeError, SystemExit):  # `iriscw jobs | head`; click knows no other reason to raise SystemExit here
        silence_output()
        return DONE
    except Exception as error:  # noqa: BLE001 - whatever it is becomes one line and an exit code
        return report(_output_lost() or error, verbose=noted.verbose, options=noted.options)
    return code if isinstance(code, int) else DONE


def _output_lost() -> OutputLost | None:
    """Say whether standard output is what failed, whoever wrote there; then let nothing more be written to it."""
    try:
        emit("")  # what could not be written is still to be
    except OutputLost as error:
        silence_output()
        return error
    except BrokenPipeError:
        silence_output()
    return None
