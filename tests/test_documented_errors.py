"""Errors that are spoken of can be caught: whoever reads of one finds it as ``iriscw.<name>``."""

import ast
import functools
import inspect
import re
from pathlib import Path

import iriscw
from parsed import of_package

ROOT = Path(__file__).resolve().parents[1]

NOT_CAUGHT = {
    **dict.fromkeys(
        (
            "FrameCorrupt",
            "ImageUnavailable",
            "NotFreezable",
            "DependenciesConflict",
            "DependenciesFailed",
            "DependenciesTimeout",
            "PackagesUnavailable",
            "ResultCorrupt",
            "ResultMissing",
            "ResultTooBig",
            "ResultUnreadable",
        ),
        "the kind of an attempt's fault: callers get JobFailed",
    ),
    **dict.fromkeys(
        ("StoreFull", "UnreadableRecord", "UnsupportedJournal"),
        "of a controller's process, which ends with it or tells its client OperationError",
    ),
    **dict.fromkeys(("NoSuchSelection", "OutputLost"), "of a command of the command line"),
    **dict.fromkeys(
        ("QuotaExceeded", "NoCapacity", "NameTaken"),
        "reasons of Events on node pools, which happen to be errors' names",
    ),
}
"""What the page of faults names although no caller of the package catches it by class."""


@functools.cache
def errors_by_name() -> set[str]:
    """Return the names of all errors of the package, read from its source: once, and not by who only collects tests."""
    bases: dict[str, set[str]] = {}
    for source in of_package():
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(ast.unparse(base).split(".")[-1] for base in node.bases)
    found = {"IriscwError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def raised(text: str) -> set[str]:
    """Return the names of the errors in the ``Raises:`` section of a docstring."""
    section = re.search(r"^Raises:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
    if section is None:
        return set()
    heads = [line.partition(":")[0] for line in section[1].splitlines() if re.match(r"    \S", line)]
    return {name for head in heads for name in re.findall(r"[A-Z]\w+", head)} & errors_by_name()


def spoken_of() -> list[tuple[str, str]]:
    """Return each public callable, method included, with its docstring."""
    found = []
    for name in iriscw.__all__:
        value = getattr(iriscw, name)
        members = vars(value).items() if inspect.isclass(value) else ()
        for label, each in ((name, value), *((f"{name}.{member}", each) for member, each in members)):
            if callable(each) and inspect.getdoc(each):
                found.append((label, inspect.getdoc(each) or ""))
    return found


def test_the_source_is_read() -> None:
    """The tests below have something to test."""
    assert len(errors_by_name()) > 100
    assert raised("Do.\n\nRaises:\n    NoSuchJob, JobExists: why.\n        more Words\n") == {"NoSuchJob", "JobExists"}
    assert "NotPicklable" in raised(inspect.getdoc(iriscw.Client.submit) or "")


def test_what_public_calls_raise_is_public() -> None:
    """Each error that a public docstring promises is ``iriscw.errors.<name>``."""
    public = set(iriscw.errors.__all__)
    assert {label: hidden for label, text in spoken_of() if (hidden := raised(text) - public)} == {}


def test_the_page_of_faults_names_public_errors() -> None:
    """So is each error that the page of faults names, but for those that no caller catches; those are listed."""
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:iriscw\.(?:errors\.)?)?([A-Z]\w+)`", page)) & errors_by_name()
    assert len(named) > 15
    assert named - set(iriscw.errors.__all__) <= set(NOT_CAUGHT)


def test_errors_from_the_net_are_the_public_ones() -> None:
    """What a peer names is raised as the class that callers can catch."""
    from grpclib.const import Status

    from iriscw.rpc.status import from_wire

    assert type(from_wire(Status.FAILED_PRECONDITION, "too many", "TooManyJobs")) is iriscw.errors.TooManyJobs
