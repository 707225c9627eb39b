"""``iriscw-runc``: an OCI runtime that asks the node agent first, and then is ``runc``.

A container runtime calls it as it would call ``runc``. What only ``runc`` knows of is passed on to it as it is, by
``execv``, within milliseconds: nothing but the standard library is loaded for that. See ``docs/containers.md``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from iriscw.shim.runc_options import ENDS, NotHonoured, RuncCommand, read


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what ``runc`` is asked to do. Returns an exit code only where it does not become ``runc``."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    asked = read(words)
    try:
        if asked.helps:
            return _become_runc(words)
        if asked.command in ("checkpoint", "restore"):
            from iriscw.shim import checkpointing

            return checkpointing.checkpoint(asked) if asked.command == "checkpoint" else checkpointing.restore(asked)
        if asked.command in ("pause", "resume", "kill", "delete"):
            _ask_first(asked)
        return _become_runc(words)
    except (NotHonoured, OSError) as error:
        return _fail(asked, str(error))


def _become_runc(words: Sequence[str]) -> int:
    from iriscw.freeze.drivers.runtime.finding import real_runc

    runc = real_runc(os.environ)
    os.execv(runc, [runc, *words])  # noqa: S606 - no shell, and the same words


def _ask_first(asked: RuncCommand) -> None:
    """See that no operation of the agent runs on the container. Whatever fails here, it can be killed and deleted.

    Raises:
        NotHonoured: one does, and this would run into it.
    """
    try:
        from iriscw.shim import agent_queries

        agent_queries.before(asked)
    except Exception as error:
        if asked.command not in ENDS:
            raise
        text = f"what runs on the container may not be undone: {type(error).__name__}: {error}"
        _warn(asked, f"{text}; {asked.command} goes on")


def _warn(asked: RuncCommand, text: str) -> None:
    """Tell it where ``runc`` would, or else where one still can."""
    try:
        from iriscw.shim.runc_messages import say

        say(asked, "warning", text)
    except Exception as error:  # noqa: BLE001 - a container does not live on because nobody can be told
        with suppress(OSError):
            os.write(2, f"iriscw-runc: {text} ({type(error).__name__}: {error})\n".encode(errors="replace"))


def _fail(asked: RuncCommand, text: str) -> int:
    from iriscw.shim.runc_messages import fail

    return fail(asked, text)
