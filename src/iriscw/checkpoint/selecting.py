"""Selectors of labels, in the forms that Kubernetes has. Pure.

::

    model=a          model==a      the label is there, and is that
    model!=a                       it is another one, or there is none
    model in (a,b)                 it is one of these
    model notin (a,b)              it is another one, or there is none
    model            !model        there is such a label; there is none

Requirements are separated by commas, and all have to hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from iriscw._errors import InvalidArgument

MAX_SELECTOR_CHARS = 4096
"""Of a selector's text: a label has at most 2 times 256, and nobody asks for more than a few."""

_NAME = r"[^\s,()=!]+"
_VALUE = r"[^\s,()=!]*"
_REQUIREMENT = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_NAME})"
    rf"|(?P<listed>{_NAME})\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|(?P<name>{_NAME})\s*(?P<sign>==|!=|=)\s*(?P<value>{_VALUE})"
    rf"|(?P<present>{_NAME}))\s*(?P<end>,|$)"
)
_ONE_VALUE = re.compile(_VALUE)


@attrs.frozen
class Requirement:
    """What is asked of one label: to have one of ``values``, or, without any, to be there; or not that."""

    name: str
    values: tuple[str, ...] | None = None
    negated: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels are so."""
        value = labels.get(self.name)
        return (value is not None and (self.values is None or value in self.values)) is not self.negated


@attrs.frozen
class Selector:
    """Which labels are wanted: those for which all requirements hold."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether labels are wanted; of those that cannot be read (None) nothing is known, so nothing holds."""
        return not self.requirements or (labels is not None and all(each.holds(labels) for each in self.requirements))


def read_selector(text: str) -> Selector:
    """Read a selector; an empty one wants everything.

    Raises:
        InvalidArgument: it is malformed; the text names the place.
    """
    if len(text) > MAX_SELECTOR_CHARS:
        raise InvalidArgument(f"a selector of {len(text)} characters: at most {MAX_SELECTOR_CHARS}")
    found: list[Requirement] = []
    at = 0
    more = bool(text.strip())
    while more:
        match = _REQUIREMENT.match(text, at)
        if match is None:
            raise InvalidArgument(
                f"selector {text[:80]!a}: {text[at : at + 40]!a} is not a requirement; such are NAME=VALUE, "
                "NAME!=VALUE, NAME in (A,B), NAME notin (A,B), NAME and !NAME"
            )
        found.append(_requirement(text, match))
        at, more = match.end(), match["end"] == ","
    return Selector(tuple(found))


def _requirement(text: str, match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["absent"], negated=True)
    if match["listed"]:
        values = tuple(each.strip() for each in match["values"].split(","))
        for value in values:
            if not _ONE_VALUE.fullmatch(value):
                raise InvalidArgument(f"selector {text[:80]!a}: {value[:40]!a} is not a value")
        return Requirement(match["listed"], values, negated=match["word"] == "notin")
    if match["name"]:
        return Requirement(match["name"], (match["value"],), negated=match["sign"] == "!=")
    return Requirement(match["present"])
