"""SIGTERM and a closed terminal, taken as Ctrl-C is."""

import signal
import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest

from iriscw.cli import main
from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.outcome import run_async


@pytest.fixture
def heard():
    """Note each interrupt; afterwards all signals do what they did before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    heard = []
    signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    yield heard
    for number, action in before.items():
        signal.signal(number, action)


def test_other_signals_interrupt(heard):
    """Each SIGTERM does what Ctrl-C does; of SIGHUP only the first, and none after the block."""
    term = signal.getsignal(signal.SIGTERM)
    with as_interrupts():
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
            signal.raise_signal(number)
    assert heard == [signal.SIGINT] * 3
    assert signal.getsignal(signal.SIGTERM) is term
    signal.raise_signal(signal.SIGHUP)  # the process is about to end


def test_a_closed_terminal_hurries_nothing(heard):
    """Who is stopping already is not hurried by SIGHUP, but by SIGTERM."""
    with as_interrupts(stopping=True):
        signal.raise_signal(signal.SIGHUP)
        assert heard == []
        signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGINT]


def test_nothing_changes_for_who_was_not_signalled(heard):
    """After the block every signal does what it did before."""
    before = signal.getsignal(signal.SIGHUP)
    with as_interrupts():
        assert signal.getsignal(signal.SIGHUP) is not before
    assert signal.getsignal(signal.SIGHUP) == before


def test_a_second_interrupt_cuts_no_step_short():
    """Raised where asyncio wakes a task it would have the program hang; it ends the loop after the step. A third cuts.

    So it is with a loop that a step holds.
    """
    steps = []

    async def program(count):
        signal.raise_signal(signal.SIGINT)
        try:
            await anyio.sleep_forever()
        finally:
            for number in range(2, count + 1):
                signal.raise_signal(signal.SIGINT)
                steps.append(number)
            await anyio.lowlevel.checkpoint()

    for count in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            run_async(program, count)
    assert steps == [2, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


IN_THE_BACKGROUND = """
import os, signal
import anyio, anyio.lowlevel
from iriscw.cli.interrupts import as_interrupts

async def program():
    try:
        os.kill(os.getpid(), signal.SIGINT)  # to the process, as a terminal sends it
        await anyio.lowlevel.checkpoint()
        print("not by SIGINT")
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep_forever()
    finally:
        print("in order")

signal.signal(signal.SIGINT, signal.SIG_IGN)
try:
    with as_interrupts():
        anyio.run(program)
except KeyboardInterrupt:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and not signal.pthread_sigmask(signal.SIG_BLOCK, []):
        print("as before")
"""


def test_an_ignored_interrupt_stays_ignored():
    """As in a shell's background: Ctrl-C is for others, SIGTERM ends the program in order; then all is as before."""
    program = [sys.executable, "-c", IN_THE_BACKGROUND]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("not by SIGINT\nin order\nas before\n", "")


def test_interrupted_before_it_runs(monkeypatch, capsys):
    """Ctrl-C that no command took is one line and 130."""

    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("iriscw.cli.app.run", interrupted)
    assert main([]) == 130
    assert capsys.readouterr().err == "interrupted\n"
