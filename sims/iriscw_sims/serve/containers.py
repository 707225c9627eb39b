"""When simulated containers end: by what their command says, if it is one that can be foreseen.

A pod whose command is ``sleep 30``, ``true``, ``false`` or ``exit 3``, or a line of these for a shell
(``sh -c "sleep 5; exit 3"``), ends as those would. All others run until somebody ends them: what they would have done
is not simulated.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.serve.surroundings import LiveSurroundings

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)", re.ASCII)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")


@attrs.frozen
class Ending:
    """A container ends by itself ``after`` ns, with an exit code."""

    after: int
    exit_code: int


def ending_of(pod: Mapping[str, Any]) -> Ending | None:
    """Return how a pod's first container will end, ``None`` if it will not."""
    container = pod["spec"]["containers"][0]
    argv = [*(container.get("command") or ()), *(container.get("args") or ())]
    if len(argv) == 3 and argv[0] in _SHELLS and argv[1] == "-c":
        return _ending_of_line(argv[2])
    return _ending([argv])


def _ending_of_line(line: str) -> Ending | None:
    parts = re.split(r";|&&|\n", line)
    try:
        return _ending([argv for argv in map(shlex.split, parts) if argv])
    except ValueError:
        return None


def _ending(commands: Sequence[Sequence[str]]) -> Ending | None:
    """Return how a series of commands ends, ``None`` if one of them is not known."""
    after, code = 0, 0
    for argv in commands:
        if not argv:
            return None
        name, words = argv[0], argv[1:]
        if name == "sleep" and len(words) == 1:
            found = _SPAN.fullmatch(words[0])
            if found is None:
                return None
            after += int(float(found[1]) * _UNITS[found[2]] * SECOND)
            code = 0
        elif name in ("true", "false", "echo"):
            code = int(name == "false")
        elif name == "exit":
            return Ending(after, int(words[0]) % 256 if words and words[0].isdecimal() else code)
        else:
            return None
    return Ending(after, code)


class ScriptedContainers:
    """The containers of a served simulation: they live until they are killed, or end by their command.

    Args:
        surroundings: Time.
    """

    def __init__(self, surroundings: LiveSurroundings) -> None:
        self._surroundings = surroundings
        self._alive: dict[str, int] = {}
        self._begun = 0
        self.exited: Callable[[str, int, str], object] = lambda _uid, _code, _reason: None
        """Is told of each end by itself: the pod's uid, the exit code, the reason."""

    @property
    def running(self) -> int:
        """How many pods have processes."""
        return len(self._alive)

    def started(self, pod: Mapping[str, Any], node: str) -> None:
        """Take note that a pod's processes have begun on a node."""
        uid = pod["metadata"]["uid"]
        self._begun += 1
        self._alive[uid] = self._begun
        self._surroundings.note("container", "started", pod["metadata"]["name"], node)
        ending = ending_of(pod)
        if ending is not None:
            self._surroundings.after(ending.after, self._end, uid, self._begun, ending.exit_code)

    def ending(self, pod_uid: str, grace_ns: int) -> None:
        """Take note that a pod's processes are asked to end: how long they take to, the kubelet draws."""
        self._surroundings.note("container", "asked to end", pod_uid)

    def killed(self, pod_uid: str, why: str) -> None:
        """Take note that none of a pod's processes runs any more."""
        if self._alive.pop(pod_uid, None) is not None:
            self._surroundings.note("container", "killed", pod_uid, why)

    def _end(self, uid: str, number: int, exit_code: int) -> None:
        if self._alive.get(uid) != number:
            return  # it was killed, or started anew, meanwhile
        del self._alive[uid]
        self.exited(uid, exit_code, "Completed" if exit_code == 0 else "Error")
