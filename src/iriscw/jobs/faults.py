"""What a traceback says in one line. Pure."""

from __future__ import annotations

import re

_GROUP = re.compile(r"[\w.]+: .*\(\d+ sub-exceptions?\)")
"""How a group of exceptions is headed, whatever its kind."""


def one_line(text: str, kind: str = "") -> str:
    """Return the line that says what was raised; empty if there is none.

    Args:
        text: A traceback, or what a program said last.
        kind: Of what was raised, with its module. Notes and further lines of a message stand behind the line that
            begins with it. Without one it is the last line.

    A group of exceptions is drawn as a tree: its own line says how many there are, so what stands last is added to it.
    """
    drawn = " \t|+" if "Exception Group Traceback" in text else " \t"
    lines = [(len(line) - len(line.lstrip(drawn)), line.lstrip(drawn).rstrip()) for line in text.split("\n")]
    said = [(indent, line) for indent, line in lines if line.strip("-")]
    if not said:
        return ""
    last = said[-1][1]
    groups = [(indent, line) for indent, line in said if _GROUP.fullmatch(line)]
    heads = groups
    if kind:
        shown = (kind, kind.rpartition(".")[2])  # without its module, if that is the program itself
        heads = [each for each in said if each[1].startswith(tuple(f"{name}: " for name in shown)) or each[1] in shown]
        heads = heads or groups
    if not heads:
        return last
    outermost = min(indent for indent, _ in heads)
    head = [line for indent, line in heads if indent == outermost][-1]
    return f"{head}: {last}" if _GROUP.fullmatch(head) and last != head else head


__all__ = ["one_line"]
