"""Rows for people and for programs: a table, JSON, or YAML. Pure, but for writing.

JSON and YAML have every field of the value, tables the columns that people look at.
"""

from __future__ import annotations

import enum
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TextIO, TypeVar

import attrs
import click

from iriscw._errors import OperationError

FORMATS: Final = ("table", "json", "yaml")
_MARGIN: Final = 2
_LEAST_ROOM: Final = 40
"""Characters of a last column below which a text that is longer stands on a line of its own: half a sentence."""
_INDENT: Final = 4
_NARROW: Final = 8
"""Characters to which a column in the middle is cut at most: the beginning of a text tells it from others."""

Row = TypeVar("Row")
Function = TypeVar("Function", bound=Callable[..., Any])


class OutputLost(OperationError):
    """Standard output cannot be written to: a full disk, or it is closed."""


def emit(text: str) -> None:
    """Write to standard output, at once.

    Raises:
        OutputLost: it cannot be written to.
        BrokenPipeError: its reader has gone.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(f"standard output cannot be written: {error.strerror}") from error


def emit_bytes(data: bytes, stream: TextIO) -> None:
    """Write bytes as they are to standard output or standard error, at once.

    Raises:
        OutputLost: it cannot be written to.
        BrokenPipeError: its reader has gone.
    """
    try:
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(f"an output cannot be written: {error.strerror}") from error


def format_option(function: Function) -> Function:
    """Add ``-o table|json|yaml`` to a command: its parameter ``form``, which :func:`show` takes."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="A table for people, or every field for programs.",
    )(function)


def plain(value: Any) -> Any:
    """Turn values into what JSON knows."""
    if attrs.has(type(value)):
        return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def show(
    rows: Sequence[Row],
    form: str,
    columns: Mapping[str, Callable[[Row], object]],
    *,
    kept: Sequence[str] = (),
    whole: bool = False,
    level: Callable[[Row], int] | None = None,
) -> None:
    """Write rows to standard output; ``kept`` and ``whole`` are :func:`table`'s, rows are indented by their ``level``.

    A table names its first column's cells, and those that are ``kept``, as a whole at any width.
    """
    if form == "json":
        emit(to_json(rows))
    elif form == "yaml":
        emit(to_yaml(rows))
    else:
        emit(rows_table(rows, columns, kept=kept, whole=whole, level=level))


def rows_table(
    rows: Sequence[Row],
    columns: Mapping[str, Callable[[Row], object]],
    *,
    kept: Sequence[str] = (),
    whole: bool = False,
    level: Callable[[Row], int] | None = None,
) -> str:
    """Write rows as a table of the terminal's width; arguments as of :func:`show`."""
    cells = [[cell(column(row)) for column in columns.values()] for row in rows]
    if level is not None:
        cells = [["  " * level(row) + first, *rest] for row, (first, *rest) in zip(rows, cells, strict=True)]
    return table(list(columns), cells, terminal_columns(), kept=kept, whole=whole)


def can_redraw(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether standard output is a terminal that can write over its lines."""
    return sys.stdout.isatty() and environment.get("TERM", "dumb") not in ("", "dumb", "unknown")


def is_coloured(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether standard output is a terminal that shows colours, and its user wants them (https://no-color.org)."""
    return can_redraw(environment) and not environment.get("NO_COLOR")


def show_one(value: Any, form: str, text: Callable[[], str]) -> None:
    """Write one value to standard output; ``text`` gives what people read."""
    if form == "json":
        emit(to_json(value))
    elif form == "yaml":
        emit(to_yaml(value))
    else:
        emit(text())


def to_json(value: Any) -> str:
    """Write JSON: one document, ending in a line feed."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False)
    # What JSON leaves as it is, and a terminal obeys (C1 controls, text direction), stands in texts only.
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text) + "\n"


def to_yaml(value: Any) -> str:
    """Write YAML: block style, all texts quoted."""
    lines = list(_yaml_lines(plain(value)))
    return "\n".join(lines) + "\n"


def _yaml_lines(value: Any) -> Iterable[str]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _nested(f"{_scalar(name)}:", item)
    elif isinstance(value, list) and value:
        for item in value:
            first, *rest = _yaml_lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _nested(head: str, item: Any) -> Iterable[str]:
    if isinstance(item, dict | list) and item:
        yield head
        yield from (f"  {line}" for line in _yaml_lines(item))
    else:
        yield f"{head} {_scalar(item)}"


def _scalar(value: Any) -> str:
    """Write a text, number or the like, or an empty collection: JSON, but for what YAML escapes in another way."""
    if not isinstance(value, str):
        return json.dumps(value)
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08X}" for each in quoted)


def terminal_columns() -> int | None:
    """Return the width of the terminal that standard output is; None if it is none, and nothing is to be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    columns: int | None = None,
    *,
    kept: Sequence[str] = (),
    whole: bool = False,
) -> str:
    """Write aligned columns; without rows only the heads.

    With ``columns``, the width of a terminal, no line is longer, unless names alone are. The first column, and those
    that are ``kept``, have the names that other commands take, and states: they are never cut. The others in the middle
    are cut, the widest first, so that there is room for a short last one; where that is not enough they are left out,
    from the right, and a last line says which. What stands in the last column is cut, or goes on in further lines if it
    is to be ``whole``; where there is little room for it, it follows below.
    """
    widths = [max(len(row[index]) for row in [heads, *rows]) for index in range(len(heads))]
    left_out: list[str] = []
    if columns is not None and len(heads) > 1:
        floors = [
            width if index == 0 or head in kept else min(width, max(_NARROW, len(head)))
            for index, (head, width) in enumerate(zip(heads, widths, strict=True))
        ]
        shown = _with_room(heads, floors, kept, columns)
        left_out = [head for index, head in enumerate(heads) if index not in shown]
        heads = [heads[index] for index in shown]
        widths, floors = ([each[index] for index in shown] for each in (widths, floors))
        widths = _narrowed(widths, floors, len(heads[-1]), columns)
        room = columns - sum(width + _MARGIN for width in widths[:-1])
        fitted = _continued if whole else _fitted
        rows = [
            line
            for row in rows
            for line in fitted(
                [*(_cut(row[index], width) for index, width in zip(shown[:-1], widths, strict=False)), row[-1]],
                room,
                columns,
            )
        ]
    lines = [
        "".join(text.ljust(width + _MARGIN) for text, width in zip(row, widths, strict=False)).rstrip()
        for row in [heads, *rows]
    ]
    if left_out:
        lines += _lines_of(f"(no room for {', '.join(left_out)}: -o json has all)", columns or 0)
    return "\n".join(lines) + "\n"


def _with_room(heads: Sequence[str], floors: Sequence[int], kept: Sequence[str], columns: int) -> list[int]:
    """Return the indexes of the columns that fit beside each other, once they are cut and the last one has its head."""
    shown = list(range(len(heads)))
    for index in range(len(heads) - 2, 0, -1):
        if sum(floors[each] + _MARGIN for each in shown[:-1]) + len(heads[-1]) <= columns:
            break
        if heads[index] not in kept:
            shown.remove(index)
    return shown


def _narrowed(widths: Sequence[int], floors: Sequence[int], head: int, columns: int) -> list[int]:
    """Return the widths of columns so that all but the last fit beside each other, and that one too if it is short.

    Args:
        widths: of what stands in them.
        floors: to which they may be cut.
        head: the width of what stands above the last one.
        columns: of the terminal.
    """
    *others, last = widths
    room = columns - len(others) * _MARGIN - (last if last <= _LEAST_ROOM else head)
    limit = max(others)
    while (
        limit > _NARROW
        and sum(min(width, max(limit, floor)) for width, floor in zip(others, floors, strict=False)) > room
    ):
        limit -= 1
    return [*(min(width, max(limit, floor)) for width, floor in zip(others, floors, strict=False)), last]


def _fitted(row: Sequence[str], room: int, columns: int) -> Iterable[Sequence[str]]:
    """Give a row with its last text cut to ``room``, or that text by itself, as far as a line has place for it."""
    *others, last = row
    if room >= _LEAST_ROOM or len(last) <= room:
        yield [*others, _cut(last, room)]
        return
    yield others
    yield [" " * _INDENT + _cut(last, columns - _INDENT)]


def _continued(row: Sequence[str], room: int, columns: int) -> Iterable[Sequence[str]]:
    """Yield a row whose last text goes on below itself, or below the row where there is little room beside it."""
    *others, last = row
    if room >= _LEAST_ROOM or len(last) <= room:
        first, *more = _lines_of(last, room)
        yield [*others, first]
        yield from ([*([""] * len(others)), line] for line in more)
        return
    yield others
    yield from ([" " * _INDENT + line] for line in _lines_of(last, columns - _INDENT))


def indented(text: str, indent: int, columns: int | None) -> str:
    """Write a text behind a heading of so many characters: on further lines, where a terminal is not as wide."""
    if columns is None:
        return text
    return f"\n{' ' * indent}".join(_lines_of(text, max(_LEAST_ROOM, columns - indent)))


def _lines_of(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(1, width), break_on_hyphens=False) or [""]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}\N{HORIZONTAL ELLIPSIS}"


def cell(value: object) -> str:
    """Write one cell: on one line, never empty, so that columns can be cut, and with nothing that a terminal obeys."""
    text = " ".join(str(value).split())
    return visible(text) or "-"


def labels_cell(labels: Mapping[str, str], trouble: str, copies: Iterable[tuple[str, str]]) -> str:
    """Write what is wrong with a checkpoint, or its labels, and what is wrong with some of its copies.

    Args:
        labels: of the checkpoint.
        trouble: of all of it; empty: it can be used.
        copies: where each lies, and its trouble.
    """
    bad = [f"{where}: {why}" for where, why in copies if why and why != trouble]
    labelled = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return cell("; ".join(part for part in (trouble or labelled, *bad) if part))


def visible(text: str) -> str:
    """Write what cannot be shown as an escape: a job's command or error must not command the reader's terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def age(since_ms: int, now_ms: int) -> str:
    """Write how long ago something was: ``42s``, ``7m``, ``3h``, ``2d``; ``-`` if it never was."""
    if not since_ms:
        return "-"
    seconds = max(0, now_ms - since_ms) // 1000
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def counts(of: Mapping[Any, int]) -> str:
    """Write counts by name: ``2 RUNNING, 1 PENDING``."""
    return ", ".join(f"{count} {plain(name)}" for name, count in of.items() if count)


def size(size_bytes: float) -> str:
    """Write a size in the largest unit of 1024 that it fills, to four digits: ``23.54GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.4g}{unit}"
        size_bytes /= 1024
    return f"{size_bytes:.4g}TiB"


def amount(cpu_milli: int, memory_bytes: int, gpu_count: int = 0, gpu_class: str = "") -> str:
    """Write an amount: ``4 CPU, 8GiB, 1 H100``."""
    parts = [f"{cpu_milli / 1000:g} CPU", size(memory_bytes)]
    if gpu_count:
        parts.append(f"{gpu_count} {gpu_class or 'GPU'}")
    return ", ".join(parts)
