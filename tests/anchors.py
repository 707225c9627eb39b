"""Plants bugs in copies of the sources by the syntax tree: in which function, what, and what stands there instead.

Where lines break, comments, quotes and everything outside of that function may change as they like. A place that is not
there exactly once is an error, not a pass: when that code changes, so does the bug.
"""

import ast
import functools
import itertools
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import attrs


class NotFoundOnce(AssertionError):
    """There is no such place in the source, or there are several."""


class Edit(NamedTuple):
    """One change."""

    module: str
    """Its path below the package."""
    where: str
    """The function or class, as ``__qualname__`` has it without ``<locals>``; empty for what stands in no function."""
    old: str
    """An expression; statements that follow each other; a `case`; or a dictionary of one item, for that item of one."""
    new: str
    """Of the same kind; nothing for statements that go."""


@attrs.frozen
class Mutant:
    """A planted bug, and what finds it."""

    name: str
    edits: tuple[Edit, ...] = attrs.field(converter=lambda edits: tuple(Edit(*each) for each in edits))
    seeds: int = 300
    """How many seeds of the simulated world may miss it, where seeds are what finds it."""
    first: int = 0
    """The seed with which the search begins: for what is seldom seen, so that it is found in a minute."""
    fails_with: str = ""
    """What a run fails with instead of breaking an invariant: for what the language itself does not allow."""


def sources(mutant: Mutant, package: Path) -> dict[str, str]:
    """Return the modules that a bug changes, as they read with it, by their path below the package.

    Raises:
        NotFoundOnce: the sources have changed.
    """
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.get(edit.module) or (package / edit.module).read_text(encoding="utf-8")
        texts[edit.module] = changed(text, edit)
    return texts


def plant(mutant: Mutant, package: Path) -> None:
    """Put a bug into a copy of the sources.

    Raises:
        NotFoundOnce: the sources have changed.
    """
    for module, text in sources(mutant, package).items():
        (package / module).write_text(text, encoding="utf-8")


Place = tuple[int, int, int, int]
"""Line and byte in it of the beginning and of the end."""


def changed(text: str, edit: Edit) -> str:
    """Return the source with the change.

    Raises:
        NotFoundOnce: the place is not there exactly once.
    """
    found = list(_places(_scope(_parsed(text), edit.where), edit.old))
    if len(found) != 1:
        raise NotFoundOnce(f"{len(found)} places in {edit.where or 'the body'} of {edit.module} are {edit.old!r}")
    first, column, last, after = found[0]
    data = text.encode()
    starts = [0, *itertools.accumulate(map(len, data.splitlines(keepends=True)))]
    new = textwrap.indent(textwrap.dedent(edit.new).strip() or "pass", " " * column).lstrip()
    if _item(edit.old):
        new = new.removeprefix("{").removesuffix("}")
    return (data[: starts[first - 1] + column] + new.encode() + data[starts[last - 1] + after :]).decode()


@functools.lru_cache(maxsize=128)  # many bugs are of one module
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _scope(tree: ast.Module, where: str) -> ast.AST:
    scope: ast.AST = tree
    for name in where.split(".") if where else ():
        found = [
            each
            for each in _within(scope)
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and each.name == name
        ]
        if len(found) != 1:
            raise NotFoundOnce(f"{len(found)} places are called {where}")
        scope = found[0]
    return scope


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in it, but not in another definition in it."""
    for each in ast.iter_child_nodes(scope):
        yield each
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _within(each)


def _places(scope: ast.AST, old: str) -> Iterator[Place]:
    old = textwrap.dedent(old).strip()
    if item := _item(old):
        for each in ast.walk(scope):
            if isinstance(each, ast.Dict):
                for key, value in zip(each.keys, each.values, strict=True):
                    if key is not None and (_key(key), _key(value)) == item:
                        yield key.lineno, key.col_offset, value.end_lineno, value.end_col_offset
    elif old.startswith("case "):
        (match,) = ast.parse("match _:\n" + textwrap.indent(old, " ")).body
        for each in ast.walk(scope):
            if isinstance(each, ast.match_case) and _key(each) == _key(match.cases[0]):
                last = each.body[-1]
                yield each.pattern.lineno, each.pattern.col_offset - len("case "), last.end_lineno, last.end_col_offset
    else:
        wanted = ast.parse(old).body
        if len(wanted) == 1 and isinstance(wanted[0], ast.Expr):
            runs = [[each] for each in ast.walk(scope) if isinstance(each, ast.expr)]
            keys = [_key(wanted[0].value)]
        else:
            runs = [found for each in ast.walk(scope) for found in _runs(each, len(wanted))]
            keys = [_key(each) for each in wanted]
        for run in runs:
            if [_key(each) for each in run] == keys:
                yield run[0].lineno, run[0].col_offset, run[-1].end_lineno, run[-1].end_col_offset


def _item(old: str) -> tuple[str, str] | None:
    """Return the keys of what a dictionary of one item holds; None for all else."""
    if not old.startswith("{"):
        return None
    found = ast.parse(old, mode="eval").body
    if not isinstance(found, ast.Dict) or len(found.keys) != 1 or found.keys[0] is None:
        return None
    return _key(found.keys[0]), _key(found.values[0])


def _runs(node: ast.AST, length: int) -> Iterator[list[ast.stmt]]:
    """Yield statements that follow each other in a body of this node."""
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield from (body[at : at + length] for at in range(len(body) - length + 1))


def _key(node: ast.AST) -> str:
    """Return what is the same for the same code, whether it is read from or assigned to."""
    return ast.dump(node).replace("Store()", "Load()").replace("Del()", "Load()")
