"""What a cluster may have left on this machine: processes that live in its folder, and the folder itself."""

from __future__ import annotations

import os
from pathlib import Path

from iriscw.processes.identity import read_environment


def processes_in(folder: Path) -> list[str]:
    """Name the processes, this one excepted, that work in ``folder`` or were told of it. Blocks."""
    wanted = os.fsencode(folder)
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            texts = (command, *read_environment(int(entry.name)), os.fsencode((entry / "cwd").readlink()))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended, is about to, or belongs to somebody else
        if any(wanted in text for text in texts):
            shown = command.replace(b"\0", b" ").decode("utf-8", "replace").strip()
            found.append(f"{entry.name} {shown}"[:120])
    return found


def files_in(folder: Path) -> list[str]:
    """Name what is left of ``folder``, itself included; empty if it is gone."""
    if not folder.exists():
        return []
    return [str(folder), *sorted(str(path) for path in folder.rglob("*"))]
