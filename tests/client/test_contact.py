"""A controller that is away: told once, after a moment, and not waited for where that is of no use."""

import errno
import logging
import os
import socket
import subprocess
import sys

import pytest

from iriscw.client import contact as module
from iriscw.client.contact import Contact, why
from iriscw.errors import JournalFull
from iriscw.processes.identity import identify
from iriscw.rpc.errors import RpcDeadline, RpcUnavailable


@pytest.fixture
def told(caplog):
    """Give what the user was told so far."""
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
    clock[0] = 110.0
    contact.lost(refused(), 120)
    assert told()[1:] == ["iriscw: cannot reach 127.0.0.1:1 (connection refused); trying for 120 s"]


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
    """Nobody waits for a cluster whose process is gone; one that lives is waited for."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = identify(process.pid)
        contact = Contact("127.0.0.1:1", owner)
        contact.lost(refused(), 60)
        process.communicate(b"\n")
    with pytest.raises(RpcUnavailable, match=f"has ended \\(process {owner.pid} is gone\\)"):
        contact.lost(refused(), 60)
    Contact("127.0.0.1:1", identify(os.getpid())).lost(refused(), 60)
    assert told() == []


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
