"""Label and field selectors: parsed once per request, then asked for each object.

The grammar is that of ``k8s.io/apimachinery/pkg/labels`` and ``pkg/fields``. A selector that cannot be parsed, or that
names a field the kind has no index for, is a 400.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import METADATA_FIELDS, Json, Kind
from iriscw_sims.kube.refusals import Refused, bad_request, quoted

Test: TypeAlias = Callable[[Json], bool]

_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_DNS = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
KEY = re.compile(rf"(?:(?P<prefix>{_DNS})/)?(?P<name>{_PART})")
VALUE = re.compile(rf"(?:{_PART})?")
_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
LABEL_LIMIT = 63
"""Characters of a label's value and of a key's name, as in apimachinery's ``LabelValueMaxLength``."""

PREFIX_LIMIT = 253
"""Characters of a key's prefix, as in apimachinery's ``DNS1123SubdomainMaxLength``."""


def is_label_key(key: str) -> bool:
    """Tell whether ``key`` is a qualified name: an optional DNS prefix, and a name of at most 63 characters."""
    found = KEY.fullmatch(key)
    return found is not None and len(found["name"]) <= LABEL_LIMIT and len(found["prefix"] or "") <= PREFIX_LIMIT


def is_label_value(value: str) -> bool:
    """Tell whether ``value`` may stand in a label."""
    return len(value) <= LABEL_LIMIT and VALUE.fullmatch(value) is not None


@attrs.frozen(eq=False)
class Selection:
    """What a list or watch is restricted to; ``name`` and ``namespace``, if only what has them can match."""

    tests: tuple[Test, ...] = ()
    name: str = ""
    namespace: str = ""

    def matches(self, item: Json) -> bool:
        """Tell whether an object is selected."""
        for test in self.tests:  # noqa: SIM110 - all() with a generator takes twice the time, for each object
            if not test(item):
                return False
        return True


EVERYTHING = Selection()


@attrs.frozen(eq=False)
class Parsed:
    """Two selectors that make sense, whatever the kind: tests of labels, and terms of fields."""

    tests: tuple[Test, ...] = ()
    terms: tuple[tuple[str, bool, str], ...] = ()
    """Names of fields, whether they are to be equal, and to what."""


def parse(labels: str, fields: str) -> Parsed:
    """Parse the two selectors of a request.

    Raises:
        Refused: 400, one of them cannot be parsed.
    """
    terms = [_field_term(term) for term in fields.split(",") if term]
    return Parsed(tuple(_label_tests(labels)), tuple(terms))


def select(kind: Kind, parsed: Parsed) -> Selection:
    """Compile selectors for a kind.

    Raises:
        Refused: 400, the kind has no such field to select by.
    """
    if not parsed.tests and not parsed.terms:
        return EVERYTHING
    tests = [*parsed.tests]
    only: dict[str, str] = {}
    for field, equal, value in parsed.terms:
        read = kind.fields.get(field)
        if read is None:
            raise bad_request(_unknown_field(kind, field))
        tests.append(_field_test(read, value, equal))
        if equal:
            only.setdefault(field, value)
    return Selection(tuple(tests), only.get("metadata.name", ""), only.get("metadata.namespace", ""))


def _labels(item: Json) -> dict[str, Any]:
    return item["metadata"].get("labels") or EMPTY


class _Tokens:
    """A label selector, token by token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        position = 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                break
            self.tokens.append(found[1])
            position = found.end()
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.position += 1
        return token

    def wrong(self, wanted: str) -> Refused:
        return bad_request(f"unable to parse requirement: found '{self.peek()}', expected: {wanted}")


def _label_tests(text: str) -> list[Test]:
    tokens = _Tokens(text)
    tests: list[Test] = []
    while tokens.peek():
        tests.append(_requirement(tokens))
        if tokens.peek() == ",":
            tokens.take()
            if not tokens.peek():
                raise tokens.wrong("identifier after ','")
        elif tokens.peek():
            raise tokens.wrong("',' or 'end of string'")
    return tests


def _requirement(tokens: _Tokens) -> Test:
    absent = tokens.peek() == "!"
    if absent:
        tokens.take()
    key = tokens.take()
    if not is_label_key(key):
        raise bad_request(f"unable to parse requirement: <nil>: Invalid value: {quoted(key)}: name part must be valid")
    operator = tokens.peek()
    if absent or operator in ("", ","):
        return (lambda item: key not in _labels(item)) if absent else (lambda item: key in _labels(item))
    tokens.take()
    if operator in ("in", "notin"):
        return _membership(key, _values(tokens), operator == "in")
    if operator in ("=", "==", "!="):
        value = "" if tokens.peek() in ("", ",") else tokens.take()
        return _membership(key, (_label_value(value),), operator != "!=")
    if operator in ("<", ">"):
        return _comparison(key, tokens.take(), operator == ">")
    tokens.position -= 1
    raise tokens.wrong("in, notin, =, ==, !=, gt, lt")


def _label_value(value: str) -> str:
    if not is_label_value(value):
        raise bad_request(f"unable to parse requirement: values[0]: Invalid value: {quoted(value)}: not a label value")
    return value


def _values(tokens: _Tokens) -> tuple[str, ...]:
    if tokens.take() != "(":
        tokens.position -= 1
        raise tokens.wrong("'('")
    values: list[str] = []
    expect_value = True
    while tokens.peek() != ")":
        token = tokens.take()
        if token == "":
            raise tokens.wrong("',', or ')'")
        if token == ",":  # noqa: S105 - no password
            if expect_value:
                values.append("")
            expect_value = True
        else:
            values.append(_label_value(token))
            expect_value = False
    if expect_value:
        values.append("")
    tokens.take()
    return tuple(values)


def _membership(key: str, values: tuple[str, ...], wanted: bool) -> Test:
    if wanted and len(values) == 1:
        only = values[0]
        return lambda item: _labels(item).get(key) == only
    if wanted:
        return lambda item: _labels(item).get(key) in values
    return lambda item: _labels(item).get(key) not in values  # a label that is missing differs from every value


def _comparison(key: str, bound: str, greater: bool) -> Test:
    if not re.fullmatch(r"[+-]?\d+", bound):
        said = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise bad_request(f"unable to parse requirement: values[0]: Invalid value: {quoted(bound)}: {said}")
    limit = int(bound)

    def test(item: Json) -> bool:
        value = _labels(item).get(key, "")
        if not re.fullmatch(r"[+-]?\d+", value):
            return False
        return int(value) > limit if greater else int(value) < limit

    return test


def _field_term(term: str) -> tuple[str, bool, str]:
    found = re.match(r"((?:\\.|[^\\=!])*?)(!=|==|=)(.*)", term, re.DOTALL)
    if found is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    return found[1], found[2] != "!=", re.sub(r"\\([\\,=])", r"\1", found[3])


def _field_test(read: Callable[[Json], str], value: str, equal: bool) -> Test:
    if equal:
        return lambda item: read(item) == value
    return lambda item: read(item) != value


def _unknown_field(kind: Kind, name: str) -> str:
    if kind.typed and kind.fields is METADATA_FIELDS:
        known = ", ".join(map(quoted, METADATA_FIELDS))
        return f"{quoted(name)} is not a known field selector: only {known}"
    return f"field label not supported: {name}"
