"""What is done about a program in the terminal of ``iriscw restore``: the table."""

import signal

import pytest

from iriscw.cli.foreground import (
    Act,
    EndCommand,
    Ended,
    ForegroundSight,
    PassOn,
    Signalled,
    Stop,
    StoppedBySignal,
    ToldToGoOn,
    decide,
)

ITS = ForegroundSight(alone=False, ours=False, its=True)
OURS = ForegroundSight(alone=False, ours=True, its=False)
SOMEBODYS = ForegroundSight(alone=False, ours=False, its=False)
ALONE = ForegroundSight(alone=True, ours=False, its=True)


@pytest.mark.parametrize(
    ("event", "sight", "acts"),
    [
        (Ended(7), ITS, (Act.TAKE, EndCommand(7))),
        (Ended(0), SOMEBODYS, (EndCommand(0),)),
        (StoppedBySignal(signal.SIGTSTP), ITS, (Act.TAKE, Stop(signal.SIGTSTP))),
        (StoppedBySignal(signal.SIGTTIN), SOMEBODYS, (Stop(signal.SIGTTIN),)),
        (StoppedBySignal(signal.SIGTTIN), OURS, (Act.GIVE, Act.CONTINUE)),
        (StoppedBySignal(signal.SIGTTOU), OURS, (Act.GIVE, Act.CONTINUE)),
        (StoppedBySignal(signal.SIGTSTP), OURS, (Stop(signal.SIGTSTP),)),
        (StoppedBySignal(signal.SIGSTOP), ITS, (Act.TAKE, Stop(signal.SIGSTOP))),
        (StoppedBySignal(signal.SIGUSR1), ITS, (Act.TAKE, Stop(signal.SIGSTOP))),
        (StoppedBySignal(signal.SIGTSTP), ALONE, (Act.CONTINUE,)),
        (StoppedBySignal(signal.SIGSTOP), ALONE, ()),
        (ToldToGoOn(), OURS, (Act.GIVE, Act.CONTINUE)),
        (ToldToGoOn(), SOMEBODYS, (Act.CONTINUE,)),
        (ToldToGoOn(), ITS, (Act.CONTINUE,)),
        (Signalled(signal.SIGHUP), ITS, (PassOn(signal.SIGHUP),)),
        (Signalled(signal.SIGTERM), SOMEBODYS, (PassOn(signal.SIGTERM),)),
    ],
)
def test_what_is_done(event, sight, acts):
    """The terminal is taken from the program alone, never from a shell, and given only if the shell gave it to us."""
    assert decide(event, sight) == acts
