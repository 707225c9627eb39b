"""YAML text to plain values that know their lines.

The tree is built from the parser's events, not by a constructor: so depth and aliases are bounded before anything
is built, a key that occurs twice is seen, and each value keeps the line of its key. YAML is 1.2: ``no`` is text,
``010`` is ten, only ``true`` and ``false`` are bools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from iriscw.config.errors import ConfigSyntaxError, Problem, ProblemKind

DEPTH_LIMIT = 32
"""Mappings and lists within each other; the deepest key of the model is at 6."""

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}", re.ASCII)
_BASED = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


@attrs.frozen
class Marked:
    """A value and the line of its key, counted from 1; 0 where it did not come from a text.

    ``value`` is a scalar, a list of Marked, or a dict from text to Marked.
    """

    value: Any
    line: int

    def plain(self) -> Any:
        """Return the value without its lines."""
        if isinstance(self.value, dict):
            return {name: child.plain() for name, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


@attrs.define
class _Open:
    """A mapping or list whose end has not come yet; ``key`` is the key that waits for its value."""

    items: dict[str, Marked] | list[Marked]
    line: int
    key: str | None = None
    key_line: int = 0


def mark(value: Any, depth: int = 0) -> Marked:
    """Mark a plain value that did not come from a text.

    Raises:
        ConfigSyntaxError: it is nested deeper than ``DEPTH_LIMIT``.
    """
    if depth > DEPTH_LIMIT:
        raise _refusal("the mapping", 0, f"nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, Mapping):
        return Marked({str(name): mark(child, depth + 1) for name, child in value.items()}, 0)
    if isinstance(value, list | tuple):
        return Marked([mark(child, depth + 1) for child in value], 0)
    return Marked(value, 0)


def parse(text: str, source: str) -> tuple[Marked, list[Problem]]:
    """Read YAML.

    Returns:
        The document, an empty mapping if there is none, and a problem for each key that occurs twice.

    Raises:
        ConfigSyntaxError: it is no YAML, or has aliases, tags, or a second document, or is nested deeper than
            ``DEPTH_LIMIT``.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return _build(iter(YAML(typ="safe", pure=True).parse(text)), source)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        raise _refusal(source, line, f"not YAML: {error.problem or error.context}") from None
    except (YAMLError, ValueError) as error:
        raise _refusal(source, 0, f"not YAML: {str(error).splitlines()[0]}") from None


def _build(events: Iterator[Any], source: str) -> tuple[Marked, list[Problem]]:
    problems: list[Problem] = []
    stack: list[_Open] = []
    document: Marked | None = None
    for event in events:
        kind = type(event).__name__
        line = event.start_mark.line + 1
        if getattr(event, "anchor", None) is not None:  # an alias names its anchor in the same attribute
            raise _refusal(source, line, "anchors and aliases are not supported: write the value out")
        if kind == "ScalarEvent":
            if event.tag is not None:
                raise _refusal(source, line, f"tags such as {event.tag} are not supported")
            value: Any = _scalar(event.value) if event.implicit[0] else event.value
            if stack and isinstance(stack[-1].items, dict) and stack[-1].key is None:
                stack[-1].key, stack[-1].key_line = event.value, line
                continue
            done = Marked(value, line)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            _check_start(event, stack, source, line)
            stack.append(_Open({} if kind == "MappingStartEvent" else [], line))
            continue
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            ended = stack.pop()
            done = Marked(ended.items, ended.line)
        else:
            continue
        if stack:
            _put(stack, done, problems)
        elif document is not None:
            raise _refusal(source, line, "a second document: a configuration is one")
        else:
            document = done
    return document or Marked({}, 1), problems


def _check_start(event: Any, stack: list[_Open], source: str, line: int) -> None:
    if event.tag is not None:
        raise _refusal(source, line, f"tags such as {event.tag} are not supported")
    if len(stack) >= DEPTH_LIMIT:
        raise _refusal(source, line, f"nested deeper than {DEPTH_LIMIT} levels")
    if stack and isinstance(stack[-1].items, dict) and stack[-1].key is None:
        raise _refusal(source, line, "a key must be text")


def _put(stack: list[_Open], done: Marked, problems: list[Problem]) -> None:
    top = stack[-1]
    if isinstance(top.items, list):
        top.items.append(done)
        return
    name, top.key = top.key or "", None
    earlier = top.items.get(name)
    if earlier is not None:
        path = ".".join([*(above.key or "" for above in stack[:-1]), name])
        text = f"occurs twice; the first time on line {earlier.line}"
        problems.append(Problem(ProblemKind.DUPLICATE_KEY, path, top.key_line, text))
        return
    top.items[name] = Marked(done.value, top.key_line)


def _scalar(text: str) -> Any:
    """Return what an unquoted scalar means in YAML 1.2's core schema."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    return float(text) if len(text) <= 40 and _FLOAT.fullmatch(text) else text


def _refusal(source: str, line: int, text: str) -> ConfigSyntaxError:
    return ConfigSyntaxError(source, [Problem(ProblemKind.INVALID_VALUE, "", line, text)])
