"""`down` where no `up` is running: at the end of a script it may have been called before."""

import json
import os
import subprocess

import pytest

from iriscw.client.discovery import context_path, write_context
from iriscw.processes.identity import identify
from iriscw.rpc.tokens import Secret

DONE = (0, "", "no cluster of yours is up here; `iriscw down CONFIG` takes a deployed one away\n")


@pytest.fixture
def left(iriscw):
    """Leave a context of a process that was killed; give what calls `down`."""

    def leave(workdir):
        write_context(context_path(), "127.0.0.1:7", Secret("t"), workdir)
        with subprocess.Popen(["sleep", "60"]) as process:
            owner = identify(process.pid)
            process.kill()
        content = json.loads(context_path().read_text())
        content["owner"].update(pid=owner.pid, start_ticks=owner.start_ticks)
        context_path().write_text(json.dumps(content))
        return owner.pid

    return leave


def test_what_is_not_up_is_as_it_was_asked_for(iriscw):
    """Twice, as in a script that ends its cluster and has a trap besides: that is said, and no failure."""
    assert [iriscw("down"), iriscw("down")] == [DONE, DONE]
    code, _, err = iriscw("down", "--keep-state")
    assert (code, "name the CONFIG" in err) == (2, True)


def test_a_way_to_a_cluster_that_is_gone(iriscw, left):
    """Who only led to a cluster has left nothing."""
    left(None)
    assert iriscw("down") == DONE


def test_one_that_was_killed(iriscw, left, tmp_path):
    """It may have left workers, which is not as it was asked for."""
    pid = left(tmp_path)
    code, out, err = iriscw("down")
    assert (code, out) == (2, "")
    assert f"iriscw up (process {pid}) was killed, and may have left something running" in err


def test_a_way_to_a_cluster(iriscw):
    """It is no cluster of this machine, and ends otherwise."""
    write_context(context_path(), "127.0.0.1:7", Secret("t"))
    code, out, err = iriscw("down")
    assert (code, out) == (2, "")
    assert f"`iriscw connect` (process {os.getpid()}) leads to 127.0.0.1:7: Ctrl-C ends it" in err


@pytest.mark.parametrize(("platform", "said"), [("", "nothing is left running"), ("shed", "machines of shed are left")])
def test_what_is_left_is_said(iriscw, platform, said):
    """Machines of other platforms than this machine are the next controller's."""
    with subprocess.Popen(["sleep", "60"]) as process:
        write_context(context_path(), "127.0.0.1:7", Secret("t"), context_path().parent, left=platform)
        content = json.loads(context_path().read_text())
        owner = identify(process.pid)
        content["owner"].update(pid=owner.pid, start_ticks=owner.start_ticks)
        context_path().write_text(json.dumps(content))
        code, out, _ = iriscw("down")
    assert (code, said in out) == (0, True)
