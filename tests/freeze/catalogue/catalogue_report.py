"""The catalogue's result as a table at the end of a run, and as JSON: what became of each entry, beside CRIU alone.

It is a plugin of pytest that the topmost conftest.py registers: with pytest-xdist the one process that tells the result
is not one of those that run tests.
"""

import json
from pathlib import Path

HEAD = ("entry", "iriscw", "s", "bare CRIU", "s", "MB")
DETAIL_CHARS = 100


def rows_of(reports) -> list[dict]:
    """Return what the tests of the catalogue have recorded, by name."""
    found = [value for report in reports for name, value in report.user_properties if name == "catalogue"]
    return sorted(found, key=lambda row: row["name"])


def lines_of(rows: list[dict]) -> list[str]:
    """Return the table's lines; what CRIU alone lost, or changed, stands below."""
    cells = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(HEAD))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    outcomes = [row["iriscw"]["outcome"] for row in rows]
    counts = {each: outcomes.count(each) for each in ("whole", "without", "refused", "LOST")}
    closing = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return [*table, f"{len(rows)} entries: {closing}", *_details(rows)]


def _cells(row: dict) -> tuple[str, ...]:
    ours, bare = row["iriscw"], row["bare"]
    size = max(ours["size_bytes"], bare["size_bytes"]) / 1e6
    return row["name"], ours["outcome"], _seconds(ours), bare["outcome"], _seconds(bare), f"{size:.1f}" if size else "-"


def _seconds(judged: dict) -> str:
    return "/".join(f"{each:.2f}" for each in judged["seconds"]) or "-"


def _details(rows: list[dict]) -> list[str]:
    return [
        f"{row['name']}: {who}: {row[who]['outcome']}: {row[who]['detail'][:DETAIL_CHARS]!r}"
        for row in rows
        for who in ("iriscw", "bare")
        if row[who]["outcome"] in ("LOST", "changed", "without")
    ]


def pytest_terminal_summary(terminalreporter, config) -> None:
    """Write the table, if any entry was run, and the file that ``--catalogue-json`` names."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, [])]
    rows = rows_of(each for each in reports if getattr(each, "when", "") == "call")
    if not rows:
        return
    terminalreporter.section("catalogue of what is frozen")
    for line in lines_of(rows):
        terminalreporter.write_line(line)
    if config.option.catalogue_json:
        Path(config.option.catalogue_json).write_text(json.dumps(rows, indent=1) + "\n")
