"""What ``runc`` is told on its command line, as far as it concerns the agent. Pure.

Options are those of runc 1.1 to 1.4: with one dash or two, with their value behind ``=`` or as the next word, before
or behind the container's id.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import NamedTuple

GLOBAL_VALUES = ("root", "log", "log-format", "criu", "rootless")

ENDS = ("kill", "delete")
"""What ends a container: it goes on whatever the agent says."""

FLAGS = {
    "checkpoint": (
        *("leave-running", "tcp-established", "ext-unix-sk", "shell-job", "file-locks", "link-remap"),
        *("tcp-skip-in-flight", "lazy-pages", "pre-dump", "auto-dedup"),
    ),
    "restore": (
        *("tcp-established", "ext-unix-sk", "shell-job", "file-locks", "detach", "d", "no-subreaper", "no-pivot"),
        *("auto-dedup", "lazy-pages"),
    ),
    "kill": ("all", "a"),
    "delete": ("force", "f"),
    "pause": (),
    "resume": (),
}
VALUES = {
    "checkpoint": (
        *("image-path", "work-path", "parent-path", "status-fd", "page-server", "manage-cgroups-mode", "empty-ns"),
    ),
    "restore": (
        *("console-socket", "image-path", "work-path", "manage-cgroups-mode", "bundle", "b", "pid-file", "empty-ns"),
        *("lsm-profile", "lsm-mount-context"),
    ),
}

REFUSED = {
    "checkpoint": {
        "parent-path": "a checkpoint that rests on an earlier one",
        "pre-dump": "a checkpoint in several steps",
        "lazy-pages": "pages on demand",
        "status-fd": "pages on demand",
        "page-server": "a checkpoint over the network",
        "auto-dedup": "a checkpoint that rests on an earlier one",
        "tcp-skip-in-flight": "connections that are being made",
    },
    "restore": {"lazy-pages": "pages on demand", "auto-dedup": "images that are changed while they are read"},
}
"""What ``runc`` can and the agent cannot, with why."""


class NotHonoured(Exception):
    """What is asked for cannot be done; the text says what and why. Nothing was touched."""


class RuncCommand(NamedTuple):
    """A command line of ``runc``. Commands that do not concern the agent are not read any further than their name."""

    command: str
    given: tuple[tuple[str, str], ...] = ()
    """Options before the command, by their names; a flag's value is ``true``."""
    options: tuple[tuple[str, str], ...] = ()
    """Those behind it, in their order."""
    words: tuple[str, ...] = ()
    """What is not an option."""
    before: tuple[str, ...] = ()
    """The words before the command, as they were."""

    def option(self, *names: str) -> str:
        """Return the last value of an option; empty if it was not given."""
        return next((value for name, value in reversed(self.options) if name in names), "")

    def all_of(self, name: str) -> tuple[str, ...]:
        """Return all values of an option."""
        return tuple(value for given, value in self.options if given == name)

    def flag(self, *names: str) -> bool:
        """Whether a flag was given, and not taken back (``--x=false``)."""
        return self.option(*names) in ("true", "1", "t", "T", "TRUE", "True")

    @property
    def helps(self) -> bool:
        """Whether only help is asked for."""
        return any(name in ("help", "h") for name, _ in self.options)

    @property
    def container(self) -> str:
        """The id.

        Raises:
            NotHonoured: there is none.
        """
        if not self.words:
            raise NotHonoured(f"{self.command} needs the id of a container")
        return self.words[0]

    def root(self, environment: Mapping[str, str], uid: int) -> str:
        """Return the folder in which the runtime keeps state, as ``runc`` finds it."""
        named = next((value for name, value in reversed(self.given) if name == "root"), "")
        if not named:
            runtime = environment.get("XDG_RUNTIME_DIR", "")
            named = f"{runtime}/runc" if uid and runtime else "/run/runc"
        return posixpath.normpath(named)


def read(words: Sequence[str]) -> RuncCommand:
    """Read a command line. Whatever is not understood is left to ``runc``, which says what is wrong with it."""
    given: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        name, value, at = _option(words, at, GLOBAL_VALUES)
        given.append((name, value))
    if at >= len(words):
        return RuncCommand("", tuple(given))
    command, before = words[at], tuple(words[:at])
    if command not in FLAGS:
        return RuncCommand(command, tuple(given), before=before)
    options: list[tuple[str, str]] = []
    others: list[str] = []
    at += 1
    while at < len(words):
        if words[at] == "--":
            others += words[at + 1 :]
            break
        if words[at].startswith("-") and words[at] != "-":
            name, value, at = _option(words, at, VALUES.get(command, ()))
            options.append((name, value))
            continue
        others.append(words[at])
        at += 1
    return RuncCommand(command, tuple(given), tuple(options), tuple(others), before)


def _option(words: Sequence[str], at: int, with_value: Sequence[str]) -> tuple[str, str, int]:
    name, has_value, value = words[at].lstrip("-").partition("=")
    if has_value:
        return name, value, at + 1
    if name in with_value:
        return name, words[at + 1] if at + 1 < len(words) else "", at + 2
    return name, "true", at + 1


def check(asked: RuncCommand) -> None:
    """Refuse what a checkpoint or a restore is told that cannot be honoured.

    Raises:
        NotHonoured: there is such a thing.
    """
    refused = REFUSED.get(asked.command, {})
    known = (*FLAGS[asked.command], *VALUES.get(asked.command, ()))
    for name, value in asked.options:
        if name in refused and value not in ("", "false", "0"):
            raise NotHonoured(f"--{name}: {refused[name]} cannot be had from iriscw-runc")
        if name not in known:
            raise NotHonoured(f"--{name}: {asked.command} of iriscw-runc has no such option")
    if any(name == "criu" for name, _ in asked.given):
        raise NotHonoured("--criu: the agent has its own CRIU, and says which (IRISCW_CRIU)")
    if len(asked.words) != 1:
        raise NotHonoured(f"{asked.command} needs the id of one container")
