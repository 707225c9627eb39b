"""Exit codes, and the one line that goes with them."""

import ssl
import sys

import pytest

from iriscw._errors import InvalidArgument, JournalUnavailable
from iriscw.agent.errors import UnsafeSocketFolder
from iriscw.agent.local import ThawFailed
from iriscw.cli import outcome
from iriscw.cli.outcome import (
    BUG,
    INTERRUPTED,
    MEANINGS,
    REFUSED,
    UNWELL,
    USAGE,
    CheckFailed,
    alone,
    exit_code,
    report,
    run_async,
    spelled,
)
from iriscw.client.errors import JobFailed, NoController, ResultDamaged
from iriscw.cloud.drivers.local.folder import WorkdirLocked
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


@pytest.mark.parametrize(
    ("error", "said"),
    [(NoController("x"), "nothing says where a controller is"), (RpcUnavailable("x"), "does not answer")],
)
def test_a_controller_that_is_missing(error, said):
    """One that nobody has named and one that is not there are told apart, in the table of exit codes as by the code."""
    assert [code for code, meaning in MEANINGS.items() if said in meaning] == [exit_code(error)]
    assert [code for code, meaning in MEANINGS.items() if "controller" in meaning] == [USAGE, REFUSED]


def test_the_table_is_the_modules_own():
    """What the module says of itself is what the page says, but for marks of code."""
    for code, meaning in MEANINGS.items():
        assert f"\n{code:<5}{meaning}".replace("`", "") in outcome.__doc__.replace("``", "")


def test_one_line_with_the_way_out(capsys):
    """The line names the error, and what to do where that is known."""
    assert report(RpcUnavailable("no connection"), verbose=False) == REFUSED
    assert capsys.readouterr().err == (
        "iriscw: RpcUnavailable: no connection; is the controller running? `iriscw up` starts one here; "
        "one that had a --workdir needs the same\n"
    )


OPTIONS = {"worker_lease": "--worker-lease", "orphan_after": "--orphan-after", "bundle_exclude": "--bundle-exclude"}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("worker_lease: 5 is less than 10", "--worker-lease: 5 is less than 10"),
        ("orphan_after: worker_lease is 50 s", "--orphan-after: --worker-lease is 50 s"),
        ("bundle_exclude: say so (bundle_exclude=, --bundle-exclude)", "--bundle-exclude: say so (--bundle-exclude)"),
        ("a.yaml: timeouts.worker_lease: no", "a.yaml: timeouts.worker_lease: no"),
        ("worker_lease", "worker_lease"),
        ("bundle_exclude: not my_worker_lease", "--bundle-exclude: not my_worker_lease"),
    ],
)
def test_options_are_spelled_as_they_are_given(said, shown):
    """An error about an argument names the option; one about a file's keys stays as it is."""
    assert spelled(said, OPTIONS) == shown


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["up", "--worker-lease", "5"], "--worker-lease: 5.0"),
        (["up", "--orphan-after", "20", "--worker-lease", "50"], "and --worker-lease is 50 s"),
        (["up", "--nodes", "0"], "--nodes: 0 "),
        (["submit", "--gpu-class", "-", "--", "true"], "--gpu-class: '-'"),
    ],
)
def test_errors_of_what_commands_call_name_their_options(iriscw, arguments, shown):
    """Nobody who types a command knows the names that Python has for them."""
    code, _, err = iriscw(*arguments)
    assert (code, err.startswith("iriscw: "), shown in err) == (USAGE, True, True), err


def test_a_way_out_says_what_the_error_does_not(capsys):
    """A folder that others can read is named with the command that mends it; who has a folder is said once."""
    report(UnsafeSocketFolder("/x is not a folder of mode 0700 that belongs to user 0"), verbose=False)
    assert "; `chmod 700` it, or name a socket" in capsys.readouterr().err
    report(WorkdirLocked("another controller uses /x"), verbose=False)
    assert capsys.readouterr().err.count("another controller uses") == 1


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


def test_numbers_of_openssl_are_not_the_systems():
    """One that happens to be EPERM says nothing of a place that somebody may use."""
    assert exit_code(PermissionError(1, "not yours")) == REFUSED
    assert exit_code(ssl.SSLCertVerificationError(1, "certificate verify failed")) == BUG


@pytest.mark.parametrize("somebody_listens", [False, True])
def test_what_a_second_interrupt_cuts_off_is_not_told(monkeypatch, capsys, somebody_listens):
    """Whoever has a hook of their own for it keeps that."""
    hook = (lambda _: None) if somebody_listens else sys.__unraisablehook__
    monkeypatch.setattr(sys, "unraisablehook", hook)
    assert report(KeyboardInterrupt(), verbose=False) == INTERRUPTED
    assert (sys.unraisablehook is hook) == somebody_listens
    assert capsys.readouterr().err == "interrupted\n"


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


def test_a_line_names_one_error(capsys):
    """A sentence that says what its name says has none before it; the cause has, which is looked up."""
    report(ThawFailed("it was not thawed, and the checkpoint is as it was: CriuFailed: no room"), verbose=False)
    said = capsys.readouterr().err
    assert said == "iriscw: it was not thawed, and the checkpoint is as it was: CriuFailed: no room\n"
