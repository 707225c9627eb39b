"""Exit codes, and the one line that goes with them."""

import pytest

from iriscw.cli.outcome import BUG, MEANINGS, REFUSED, UNWELL, USAGE, CheckFailed, alone, exit_code, report, run_async
from iriscw.client.errors import JobFailed, NoController, ResultDamaged
from iriscw.errors import InvalidArgument, JournalUnavailable
from iriscw.rpc.errors import RpcUnavailable

CODES = [
    (JobFailed("x"), UNWELL),
    (CheckFailed("x"), UNWELL),
    (NoController("x"), USAGE),
    (InvalidArgument("x"), USAGE),
    (JournalUnavailable("x"), REFUSED),
    (RpcUnavailable("x"), REFUSED),
    (ResultDamaged("x"), BUG),
    (ZeroDivisionError("x"), BUG),
]


@pytest.mark.parametrize(("error", "code"), CODES)
def test_codes_say_whose_fault_it_is(error, code):
    """Each kind of error has its documented code."""
    assert exit_code(error) == code
    assert code in MEANINGS


def test_one_line_with_the_way_out(capsys):
    """The line names the error, and what to do where that is known."""
    assert report(RpcUnavailable("no connection"), verbose=False) == REFUSED
    assert capsys.readouterr().err == (
        "iriscw: RpcUnavailable: no connection; is the controller running? `iriscw up` starts one here\n"
    )


def test_a_tasks_traceback_is_shown(capsys):
    """What a failed task said is why the user looks."""
    report(JobFailed("job j ended FAILED\ntask 0:\nValueError: x"), verbose=False)
    assert capsys.readouterr().err == "iriscw: job j ended FAILED\ntask 0:\nValueError: x\n"


def test_a_bug_says_how_to_see_more(capsys):
    """Whatever is not known is ours, and says so."""
    assert report(ZeroDivisionError("division by zero"), verbose=False) == BUG
    assert "report it" in capsys.readouterr().err
    assert report(ZeroDivisionError("division by zero"), verbose=True) == BUG
    assert "ZeroDivisionError: division by zero" in capsys.readouterr().err


def test_groups_are_unwrapped():
    """An error alone in task groups is shown as itself; several stay together."""
    inner = InvalidArgument("x")
    assert alone(ExceptionGroup("a", [ExceptionGroup("b", [inner])])) is inner
    both = ExceptionGroup("a", [inner, inner])
    assert alone(both) is both

    async def fails():
        raise ExceptionGroup("a", [inner])

    with pytest.raises(InvalidArgument):
        run_async(fails)
