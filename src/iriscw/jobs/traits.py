"""What an observation is made of: what went wrong, and what is known of a result. What a traceback says in one line."""

from __future__ import annotations

import re

import attrs

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


MAX_REASON_CHARS = 1024
"""Of the sentence that an end carries into the journal."""

MAX_DETAIL_LINES = 40
"""Of what the user's code said about its end: a traceback with a dozen frames. The last ones say most, and the whole is
in the log."""

MAX_DETAIL_CHARS = 4096
"""Likewise: lines may be long. Kubernetes keeps as many bytes of a container's termination message."""

CUT = "..."
"""The first line of a text of which the beginning is left out."""

STOPPED = "AttemptStopped"
"""The kind of a fault whose sentence says what its name does."""


@attrs.frozen
class Fault:
    """An error as text. ``kind`` is the name of an error of iriscw or of the user's exception; empty: text says all.

    ``sentence`` is its reason, where the text is cut and might not show that any more; empty: it follows from the text.
    """

    kind: str
    text: str
    retryable: bool = False
    sentence: str = ""

    @property
    def reason(self) -> str:
        """It in one sentence, which names its kind once."""
        if self.sentence:
            return self.sentence
        said = one_line(self.text, self.kind)
        name = self.kind.rpartition(".")[2]  # as a traceback ends: without the module if that is the program itself
        named = self.kind == STOPPED or self.kind in said or said == name or said.startswith(f"{name}:")
        whole = said if named else f"{self.kind}: {said}".removesuffix(": ")
        return whole[:MAX_REASON_CHARS]

    @property
    def details(self) -> str:
        """The end of the text, if that is more than the line that the reason has."""
        whole = self.text.strip("\n")
        if "\n" not in whole:
            return ""
        lines = whole.split("\n")
        kept = "\n".join(lines[-MAX_DETAIL_LINES:])[-MAX_DETAIL_CHARS:]
        return kept if kept == whole else f"{CUT}\n{kept}"


def kept_fault(reason: str, details: str) -> Fault | None:
    """Return what is kept of a fault: its sentence and, unless that says it all, its last lines. None: of neither."""
    if not details:
        return Fault("", reason) if reason else None
    return Fault("", details, sentence=reason)


@attrs.frozen
class ResultFacts:
    """What is known of a callable's result before its bytes have arrived."""

    size_bytes: int
    sha256: str
    python: str
