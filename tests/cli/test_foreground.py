"""What is done about a program in the terminal of ``iriscw restore``: the table."""

import signal

import pytest

from iriscw.cli.foreground import Act, End, Ended, PassOn, Sight, Signalled, Stop, Stopped, ToldToGoOn, decide

ITS = Sight(alone=False, ours=False, its=True)
OURS = Sight(alone=False, ours=True, its=False)
SOMEBODYS = Sight(alone=False, ours=False, its=False)
ALONE = Sight(alone=True, ours=False, its=True)


@pytest.mark.parametrize(
    ("event", "sight", "acts"),
    [
        (Ended(7), ITS, (Act.TAKE, End(7))),
        (Ended(0), SOMEBODYS, (End(0),)),
        (Stopped(signal.SIGTSTP), ITS, (Act.TAKE, Stop(signal.SIGTSTP))),
        (Stopped(signal.SIGTTIN), SOMEBODYS, (Stop(signal.SIGTTIN),)),
        (Stopped(signal.SIGTTIN), OURS, (Act.GIVE, Act.CONTINUE)),
        (Stopped(signal.SIGTTOU), OURS, (Act.GIVE, Act.CONTINUE)),
        (Stopped(signal.SIGTSTP), OURS, (Stop(signal.SIGTSTP),)),
        (Stopped(signal.SIGSTOP), ITS, (Act.TAKE, Stop(signal.SIGSTOP))),
        (Stopped(signal.SIGUSR1), ITS, (Act.TAKE, Stop(signal.SIGSTOP))),
        (Stopped(signal.SIGTSTP), ALONE, (Act.CONTINUE,)),
        (Stopped(signal.SIGSTOP), ALONE, ()),
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
