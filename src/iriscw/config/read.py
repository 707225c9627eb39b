"""What the file says, key by key, against the schema.

Reading gives a *tree*: attribute names and values as the model holds them, only where the file said something. A value
that was refused stays in the tree as ``INVALID``, so that later steps neither take a default in its place nor complain
about what follows from it.
"""

from __future__ import annotations

import difflib
import enum
import re
from typing import Any, Final

import attrs

from iriscw.config.errors import Misfit, Problem, ProblemKind
from iriscw.config.kinds import Section, Sections, shown
from iriscw.config.quantities import QuantityError
from iriscw.config.schema import UNSUPPORTED, Key, keys, members
from iriscw.config.yaml_lines import Marked

GROUPS_LIMIT: Final = 1000
"""Scale groups of one cluster. Every pending task is matched against each of them."""

GROUP_NAME_LIMIT: Final = 40
"""Characters in a group's name; slice ids are made of it, and a Kubernetes label ends at 63."""

_GROUP_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?", re.ASCII)

NONE_CHOSEN: Final = "<none>"
"""Stands in a tree for the member of a oneof, where one was said but none can be used; no key is called so."""

Tree = dict[str, Any]
Path = tuple[str, ...]


class _Invalid(enum.Enum):
    INVALID = "INVALID"


INVALID: Final = _Invalid.INVALID
"""Stands for a value that was refused."""


@attrs.define
class Findings:
    """The problems found so far, and the line of every key that was read."""

    problems: list[Problem] = attrs.field(factory=list)
    lines: dict[Path, int] = attrs.field(factory=dict)

    def add(self, kind: ProblemKind, path: Path, text: str) -> None:
        """Note a problem at a key, given by its written names; the line is that of the nearest key above."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        self.problems.append(Problem(kind, ".".join(path), self.lines.get(known, 0), text))


def read(model: type, marked: Marked, found: Findings, path: Path = ()) -> Any:
    """Read a section into a tree; what is wrong goes to ``found``."""
    if marked.value is None:
        return {}
    if not isinstance(marked.value, dict):
        text = f"is {shown(marked.value)}, but holds keys: {', '.join(keys(model)) or 'none'}"
        found.add(ProblemKind.INVALID_VALUE, path, text)
        return INVALID
    tree: Tree = {}
    for written, child in marked.value.items():
        here = (*path, written)
        found.lines[here] = child.line
        known = keys(model).get(written)
        if known is not None:
            tree[known.name] = _value(known, child, found, here)
        elif members(model) and written in UNSUPPORTED:
            found.add(ProblemKind.NOT_SUPPORTED, here, UNSUPPORTED[written])
            tree[NONE_CHOSEN] = INVALID
        else:
            found.add(ProblemKind.UNKNOWN_KEY, here, f"unknown key{_nearest(model, written)}")
    _choose_one(model, tree, found, path)
    return tree


def _choose_one(model: type, tree: Tree, found: Findings, path: Path) -> None:
    """Refuse more than one member of a oneof; which was meant is not clear, so none stays."""
    chosen = [name for name in tree if any(name == member.name for member in members(model))]
    if len(chosen) > 1:
        text = f"{' and '.join(chosen)} exclude each other: keep one"
        found.add(ProblemKind.CONTRADICTION, (*path, chosen[1]), text)
        for name in chosen:
            del tree[name]
        tree[NONE_CHOSEN] = INVALID


def _value(known: Key, marked: Marked, found: Findings, path: Path) -> Any:
    if isinstance(known.kind, Section):
        return read(known.kind.model, marked, found, path)
    if isinstance(known.kind, Sections):
        return _sections(known.kind.model, marked, found, path)
    try:
        return known.kind.read(marked.plain())
    except (Misfit, QuantityError) as error:
        found.add(ProblemKind.INVALID_VALUE, path, str(error))
        return INVALID


def _sections(model: type, marked: Marked, found: Findings, path: Path) -> Any:
    if marked.value is None:
        return {}
    if not isinstance(marked.value, dict):
        text = f"is {shown(marked.value)}, but maps each group's name to its section"
        found.add(ProblemKind.INVALID_VALUE, path, text)
        return INVALID
    if len(marked.value) > GROUPS_LIMIT:
        found.add(ProblemKind.LIMIT_EXCEEDED, path, f"{len(marked.value)} groups; at most {GROUPS_LIMIT}")
        return INVALID
    tree: Tree = {}
    for name, child in marked.value.items():
        here = (*path, name)
        found.lines[here] = child.line
        if len(name) > GROUP_NAME_LIMIT or _GROUP_NAME.fullmatch(name) is None:
            text = f"not a name: 1 to {GROUP_NAME_LIMIT} of a-z, 0-9, '_', '-', a letter or digit at both ends"
            found.add(ProblemKind.INVALID_NAME, here, text)
        tree[name] = read(model, child, found, here)
    return tree


def _nearest(model: type, written: str) -> str:
    near = difflib.get_close_matches(written[:64], keys(model), n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; the keys here are {', '.join(keys(model))}" if keys(model) else "; there are no keys here"
