"""A controller that is away: told once, after a moment, and not waited for where that is of no use."""

import errno
import logging
import os
import socket
import subprocess
import sys

import pytest

from iriscw._errors import JournalFull
from iriscw.client import contact as module
from iriscw.client.contact import Contact, Keeper, why
from iriscw.processes.identity import identify
from iriscw.rpc.errors import RpcCancelled, RpcDeadline, RpcUnavailable
from raised import that


@pytest.fixture
def told(caplog):
    """Return what the user was told so far."""
    caplog.set_level(logging.WARNING, "iriscw.client")
    return lambda: [each.getMessage() for each in caplog.records if each.name == "iriscw.client"]


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes when the test says so, in seconds."""
    now = [100.0]
    monkeypatch.setattr(module.anyio, "current_time", lambda: now[0])
    return now


def refused(cause=None):
    """Make the error of a call that found nobody."""
    error = RpcUnavailable("no connection")
    error.__cause__ = cause or ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
    return error


def test_a_moment_is_worth_no_word(told, clock):
    """What a restart takes is not told; what lasts is, once, until the next answer."""
    contact = Contact("127.0.0.1:1")
    contact.lost(refused(), 60)
    assert told() == []
    for clock[0] in (101.5, 103.0):
        contact.lost(refused(), 60)
    assert told() == ["iriscw: cannot reach 127.0.0.1:1 (connection refused); trying for 60 s"]
    contact.settled()
    contact.lost(refused(), 60)
    contact.settled()
    contact.lost(refused(), 60)
    clock[0] = 110.0
    contact.lost(refused(), 120)
    contact.settled(answered=False)
    assert told()[1:] == [
        "iriscw: 127.0.0.1:1 answers again",
        "iriscw: cannot reach 127.0.0.1:1 (connection refused); trying for 120 s",
    ]


@pytest.mark.parametrize(
    "cause", [None, FileNotFoundError(errno.ENOENT, "No such file or directory"), OSError("Multiple: [Errno 111] x")]
)
def test_a_command_is_not_refused_for_long(told, clock, cause):
    """Before its first answer: where nobody listens the address is wrong, or the cluster down. It says for how long."""
    contact = Contact("h:1", refused_s=3.0)
    for clock[0] in (100.0, 102.9):
        contact.lost(refused(cause), 60)
    clock[0] = 103.0
    error = refused(cause)
    with pytest.raises(RpcUnavailable) as raised:
        contact.lost(error, 60)
    assert raised.value is error
    assert len(told()) == 1
    assert told()[0].endswith("trying for 3 s")
    clock[0] = 200.0
    contact.lost(refused(cause), 60)  # of the next call, which is tried for as long


def test_a_command_that_was_answered_has_patience(told, clock):
    """The controller was there and restarts; and whoever does not answer, or cannot be found, may be slow."""
    contact = Contact("h:1", refused_s=3.0)
    for clock[0] in (100.0, 110.0):
        contact.lost(refused(TimeoutError()), 60)
    contact.settled(answered=False)
    contact.settled()
    for clock[0] in (120.0, 150.0):
        contact.lost(refused(), 60)
    assert [each.rpartition("trying")[2] for each in told()] == [" for 60 s"] * 2


@pytest.mark.parametrize(
    "other", [refused(TimeoutError()), RpcUnavailable("Connection lost"), RpcDeadline("slow"), RpcCancelled("gone")]
)
def test_only_refusals_in_a_row_end_a_command(told, clock, other):
    """A controller that is slow, then refuses as it restarts, is waited for from its first refusal on, and from the
    next first one after anything else.
    """
    contact = Contact("h:1", refused_s=3.0)
    contact.lost(other, 60, since_s=clock[0] - 50)
    for clock[0] in (101.0, 103.9):
        contact.lost(refused(), 60, since_s=50.0)
    contact.lost(other, 60, since_s=50.0)
    for clock[0] in (104.0, 106.9):
        contact.lost(refused(), 60, since_s=50.0)
    clock[0] = 107.0
    with pytest.raises(RpcUnavailable):
        contact.lost(refused(), 60, since_s=50.0)


def test_a_connection_that_hangs_is_told_at_once(told, clock):
    """Where the first try took long, its end is late enough to say so."""
    Contact("h:1").lost(refused(TimeoutError()), 60, since_s=90.0)
    assert told() == ["iriscw: cannot reach h:1 (no answer); trying for 60 s"]


def test_a_refusal_is_an_answer(told, clock):
    """What the controller itself says is told elsewhere."""
    contact = Contact("h:1")
    contact.lost(JournalFull("full"), 60, since_s=0.0)
    contact.lost(refused(), 60)
    contact.lost(RpcDeadline("slow"), 60)
    assert told() == []
    clock[0] = 103.0
    contact.lost(JournalFull("full"), 60)
    contact.lost(refused(), 60)
    assert told() == []
    clock[0] = 106.0
    contact.lost(refused(), 60)
    assert len(told()) == 1


def test_a_dead_owner_ends_the_waiting(told, clock):
    """Nobody waits for a cluster whose process is gone; one that lives is waited for, and one that is taken up again:
    who waits is told how.
    """
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = identify(process.pid)
        contact = Contact("127.0.0.1:1", Keeper(owner, f"process {owner.pid} is gone"))
        kept = Contact("127.0.0.1:1", Keeper(owner, "run `up` again", comes_back=True))
        contact.lost(refused(), 60)
        process.communicate(b"\n")
    with pytest.raises(RpcUnavailable, check=that(comes_from="contact.Contact.lost", names=owner.pid)):
        contact.lost(refused(), 60)
    Contact("127.0.0.1:1", Keeper(identify(os.getpid()), "gone")).lost(refused(), 60)
    kept.lost(refused(), 120)
    assert told() == []
    clock[0] += 2
    kept.lost(refused(), 120)
    assert told() == ["iriscw: run `up` again; trying for 120 s"]


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), "connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect ('::1'), [Errno 111] Connect"), "connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
        (TimeoutError(), "no answer"),
        (ValueError("Connection lost"), "connection lost"),
        (ValueError("\x1b[2J"), r"'\x1b[2J'"),
    ],
)
def test_reasons_are_short(cause, text):
    """Two or three words say why, whatever the system calls it, and command no terminal."""
    assert why(refused(cause)) == text


def test_the_controllers_own_word():
    """A controller that says itself that it goes is quoted."""
    assert why(RpcUnavailable("The controller stops")) == "the controller stops"
