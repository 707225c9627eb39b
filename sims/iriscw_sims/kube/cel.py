"""The part of CEL that node pools are guarded with: fields compared with each other, with constants, and with before.

Understood are ``self`` and ``oldSelf`` with fields, ``has()``, ``size()``, literals, lists, ``in``, comparison, ``!``,
``&&`` and ``||``. A rule that names ``oldSelf`` holds where there is no before. A rule that is not understood is a
mistake of whoever wrote the definition into the simulation, and is told at once.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from iriscw._errors import InvalidArgument

Scope: TypeAlias = dict[str, Any]
Term: TypeAlias = Callable[[Scope], Any]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>'[^']*'|"[^"]*")|(?P<name>[A-Za-z_]\w*)|(?P<sign>&&|\|\||[=!<>]=|[!<>().,\[\]-]))"""
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "in": lambda item, items: item in items,
}


class _Missing(Exception):
    """A field that is not there was asked for."""


def holds(rule: str, value: Any, old: Any) -> bool:
    """Tell whether a rule holds for a value and what it was before (``None``: it was not).

    A field that is missing makes the rule fail, as it does in the server.
    """
    if "oldSelf" in rule and old is None:
        return True
    try:
        return bool(compiled(rule)({"self": value, "oldSelf": old}))
    except (_Missing, TypeError):
        return False


@lru_cache(maxsize=256)
def compiled(rule: str) -> Term:
    """Compile a rule.

    Raises:
        InvalidArgument: It uses more of CEL than is understood here.
    """
    parser = _Parser(rule)
    term = parser.either()
    if parser.peek():
        raise InvalidArgument(f"CEL rule {rule!r}: not understood from {parser.peek()!r} on")
    return term


class _Parser:
    """Recursive descent over one rule; every method gives a term."""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.tokens: list[str] = []
        position, text = 0, rule.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise InvalidArgument(f"CEL rule {rule!r}: not understood at {position}")
            self.tokens.append(found[0].strip())
            position = found.end()
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise InvalidArgument(f"CEL rule {self.rule!r}: expected {wanted or 'more'}, found {token or 'the end'}")
        self.position += 1
        return token

    def either(self) -> Term:
        left = self.both()
        while self.peek() == "||":
            self.take()
            left = _either(left, self.both())
        return left

    def both(self) -> Term:
        left = self.comparison()
        while self.peek() == "&&":
            self.take()
            left = _both(left, self.comparison())
        return left

    def comparison(self) -> Term:
        left = self.unary()
        if self.peek() in _COMPARISONS:
            compare = _COMPARISONS[self.take()]
            right = self.unary()
            return lambda scope: compare(left(scope), right(scope))
        return left

    def unary(self) -> Term:
        if self.peek() == "!":
            self.take()
            inner = self.unary()
            return lambda scope: not inner(scope)
        if self.peek() == "-":
            self.take()
            number = self.unary()
            return lambda scope: -number(scope)
        return self.member()

    def member(self) -> Term:
        term = self.primary()
        while self.peek() in (".", "["):
            if self.take() == ".":
                name = self.take()
                if name == "size" and self.peek() == "(":
                    self.take("(")
                    self.take(")")
                    term = _size(term)
                else:
                    term = _field(term, name)
            else:
                index = self.either()
                self.take("]")
                term = _item(term, index)
        return term

    def primary(self) -> Term:
        token = self.take()
        if token == "(":  # noqa: S105 - a bracket
            inner = self.either()
            self.take(")")
            return inner
        if token == "[":  # noqa: S105 - a bracket
            return self.items()
        if token in ("has", "size") and self.peek() == "(":
            self.take("(")
            inner = self.either()
            self.take(")")
            return _has(inner) if token == "has" else _size(inner)  # noqa: S105 - a function
        if token in ("true", "false", "null"):
            constant = {"true": True, "false": False, "null": None}[token]
            return lambda _scope: constant
        if token[0] in "'\"":
            text = token[1:-1]
            return lambda _scope: text
        if token[0].isdigit():
            number = float(token) if "." in token else int(token)
            return lambda _scope: number
        if token in ("self", "oldSelf"):
            return lambda scope: scope[token]
        raise InvalidArgument(f"CEL rule {self.rule!r}: {token!r} is not understood")

    def items(self) -> Term:
        terms: list[Term] = []
        while self.peek() != "]":
            terms.append(self.either())
            if self.peek() == ",":
                self.take()
        self.take("]")
        return lambda scope: [term(scope) for term in terms]


def _either(left: Term, right: Term) -> Term:
    return lambda scope: left(scope) or right(scope)


def _both(left: Term, right: Term) -> Term:
    return lambda scope: left(scope) and right(scope)


def _size(inner: Term) -> Term:
    return lambda scope: len(inner(scope))


def _field(inner: Term, name: str) -> Term:
    def read(scope: Scope) -> Any:
        value = inner(scope)
        if not isinstance(value, dict) or name not in value:
            raise _Missing(name)
        return value[name]

    return read


def _item(inner: Term, index: Term) -> Term:
    def read(scope: Scope) -> Any:
        try:
            return inner(scope)[index(scope)]
        except LookupError as missing:
            raise _Missing(str(missing)) from missing

    return read


def _has(inner: Term) -> Term:
    def test(scope: Scope) -> bool:
        try:
            inner(scope)
        except _Missing:
            return False
        return True

    return test
