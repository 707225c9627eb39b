"""What the demo's tasks do: index the Python sources of a folder, each task its share.

Real work on real files: lines, tokens (:mod:`tokenize`), imports (:mod:`ast`), SHA-256. A share is every n-th file, so
the shares are alike. A task reads its share again until some seconds have passed, so that the throughput means
something and there is time to watch; every pass must find the same.

Tasks import this module, so it imports nothing of the terminal.
"""

from __future__ import annotations

import ast
import hashlib
import io
import sys
import time
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from iriscw.task.context import context

SKIPPED = ("site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__")
"""Not everywhere installed, or no sources of the library itself."""

REPORT_EVERY_FILES = 30

Facts: TypeAlias = tuple[int, int, tuple[str, ...], str]
"""Of one file: lines, tokens, the modules it imports, and its SHA-256."""

Index: TypeAlias = dict[str, Facts]
"""By the file's path below the folder."""


def sources(root: Path) -> list[Path]:
    """Return the Python sources below ``root``, in the order of their names."""
    found = (path for path in root.rglob("*.py") if not {*SKIPPED} & {*path.relative_to(root).parts})
    return sorted(found)


def facts_of(path: Path) -> Facts:
    """Look at one file."""
    data = path.read_bytes()
    tokens = sum(1 for _ in tokenize.tokenize(io.BytesIO(data).readline))
    return data.count(b"\n"), tokens, tuple(_imports(ast.parse(data))), hashlib.sha256(data).hexdigest()


def _imports(tree: ast.AST) -> Iterator[str]:
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names[node.module] = None
    return iter(sorted(names))


def index_files(root: Path, paths: Iterable[Path]) -> Index:
    """Index some files."""
    return {path.relative_to(root).as_posix(): facts_of(path) for path in paths}


def index_share(root: str, seconds: float) -> Index:
    """Index this task's share of the sources below ``root``; the body of a task.

    Raises:
        RuntimeError: two passes over the same files found different things.
    """
    task = context()
    folder = Path(root)
    paths = sources(folder)[task.index :: task.num_tasks]
    _say(f"attempt {task.attempt} on {task.worker_id}: {len(paths)} files")
    began_s, bytes_read, number = time.monotonic(), 0, 0
    first: Index = {}
    while number == 0 or time.monotonic() - began_s < seconds:
        number += 1
        found: Index = {}
        for count, path in enumerate(paths, 1):
            found.update(index_files(folder, [path]))
            bytes_read += path.stat().st_size
            if count % REPORT_EVERY_FILES == 0 or count == len(paths):
                _say(f"pass {number}, {count} of {len(paths)} files, {bytes_read} bytes")
            if number > 1 and time.monotonic() - began_s >= seconds:
                break
        if number == 1:
            first = found
        elif any(first[name] != facts for name, facts in found.items()):
            raise RuntimeError("two passes over the same files found different things")
    return first


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def merge(shares: Iterable[Index]) -> Index:
    """Put the tasks' shares together.

    Raises:
        ValueError: a file is in two of them.
    """
    whole: Index = {}
    for share in shares:
        twice = whole.keys() & share.keys()
        if twice:
            raise ValueError(f"{len(twice)} files are in two shares, first {min(twice)}")
        whole.update(share)
    return whole


def summary(index: Mapping[str, Facts]) -> tuple[str, str]:
    """Say in two lines, of less than 100 characters each, what was found."""
    lines, tokens = sum(each[0] for each in index.values()), sum(each[1] for each in index.values())
    uses: dict[str, int] = {}
    for _, _, modules, _ in index.values():
        for module in modules:
            uses[module] = uses.get(module, 0) + 1
    top = ", ".join(sorted(uses, key=lambda module: (-uses[module], module))[:5])
    digest = hashlib.sha256("".join(index[name][3] for name in sorted(index)).encode()).hexdigest()[:16]
    merged = f"merged: {len(index)} files, {lines} lines, {tokens} tokens; SHA-256 of all {digest}"
    return merged, f"most imported: {top}"
