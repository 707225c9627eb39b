"""What is under src/ and sims/, parsed and walked once in each process that asks: for house rules that is most of it.

A million nodes are parsed in 2 s, and walked in as much by :func:`ast.walk`; a dozen files of tests look at them.
"""

import ast
import functools
from pathlib import Path
from typing import NamedTuple

from garbage import lasting

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = (ROOT / "src", ROOT / "sims")


_OURS: dict[ast.AST, None] = {}
"""The trees of the sources that were parsed: a tree that a test plants needs none of them."""


class Source(NamedTuple):
    """One module of ours: ``path`` is relative to the repository."""

    module: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self):
        """How many lines the file has."""
        return self.text.count("\n")


def _module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def sources() -> list[Source]:
    """Return every module under src/ and sims/ that people wrote; what protoc wrote is left out."""
    found = []
    with lasting():
        for root in SOURCE_ROOTS:
            for path in sorted(root.rglob("*.py")):
                module = _module_name(path, root)
                if module.startswith("iriscw.proto"):
                    continue
                text = path.read_text(encoding="utf-8")
                found.append(Source(module, path.relative_to(ROOT), text, ast.parse(text, str(path))))
                _OURS[found[-1].tree] = None
    assert len(found) > 10, "the checkout has more modules than this: the walk is broken"
    return found


def of_package() -> list[Source]:
    """Return those of the package ``iriscw``."""
    return [source for source in sources() if source.module.partition(".")[0] == "iriscw"]


def nodes(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes of a tree, as :func:`ast.walk` does, and sooner; those of a source are found once."""
    return _kept(tree) if tree in _OURS else _walk(tree)


@functools.cache
def _kept(tree: ast.AST) -> list[ast.AST]:
    return _walk(tree)


def _walk(tree: ast.AST) -> list[ast.AST]:
    found = [tree]
    for node in found:  # it grows meanwhile
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += [each for each in value if isinstance(each, ast.AST)]
    return found
