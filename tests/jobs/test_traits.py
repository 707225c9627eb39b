"""What a traceback says in one line: tracebacks as Python writes them."""

import traceback

import pytest

from iriscw.jobs.traits import MAX_DETAIL_LINES, Fault, kept_fault, one_line


class Own(Exception):
    """Of this module."""


def noted():
    """Return an error with notes."""
    error = ValueError("boom")
    error.add_note("For further information visit https://example.org")
    return error


def chained():
    """Return an error with a cause of the same kind."""
    error = ValueError("the second")
    error.__cause__ = ValueError("the first")
    return error


def raises(error):
    """Raise it, so that it has a place."""
    raise error


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("boom"), "ValueError: boom"),
        (ValueError("two\nlines"), "ValueError: two"),
        (ValueError(), "ValueError"),
        (noted(), "ValueError: boom"),
        (chained(), "ValueError: the second"),
        (Own("x"), f"{__name__}.Own: x"),
        (
            ExceptionGroup("sync", [FULL]),
            "ExceptionGroup: sync (1 sub-exception): OSError: [Errno 28] No space left on device",
        ),
        (
            ExceptionGroup("outer", [ExceptionGroup("inner", [FULL]), Own("x")]),
            f"ExceptionGroup: outer (2 sub-exceptions): {__name__}.Own: x",
        ),
        (
            BaseExceptionGroup("b", [KeyboardInterrupt()]),
            "BaseExceptionGroup: b (1 sub-exception): KeyboardInterrupt",
        ),
    ],
)
def test_tracebacks(error, line):
    """The error's own line; of a group what the last one said, too. Groups are known without their kind as well."""
    with pytest.raises(type(error)) as caught:
        raises(error)
    text = "".join(traceback.format_exception(caught.value))
    kind = type(error).__qualname__ if type(error).__module__ == "builtins" else f"{type(error).__module__}.Own"
    assert one_line(text, kind) == line
    if isinstance(error, BaseExceptionGroup):
        assert one_line(text) == line


def test_what_is_no_traceback():
    """The last line that says something, as it is."""
    assert one_line("") == one_line("\n \n") == ""
    assert one_line("starting\n+ rm -r /x\n\n") == "+ rm -r /x"
    assert one_line("exit code 3", "FAILED") == "exit code 3"
    assert one_line("x\n| a table |", "ResultMissing") == "| a table |"


@pytest.mark.parametrize("lines", [0, 1, MAX_DETAIL_LINES + 3])
@pytest.mark.parametrize("kind", ["", "ValueError"])
def test_what_is_kept_says_what_it_said(lines, kind):
    """Cutting a fault to what is kept of it changes neither its sentence nor its last lines, once or twice."""
    fault = Fault(kind, "\n".join(["ValueError: boom", *("a note" for _ in range(lines))]))
    once = kept_fault(fault.reason, fault.details)
    twice = kept_fault(once.reason, once.details)
    assert (once.reason, once.details) == (twice.reason, twice.details) == (fault.reason, fault.details)


def test_nothing_is_kept_of_nothing():
    """Who ends without a word has no fault."""
    assert kept_fault("", "") is None
