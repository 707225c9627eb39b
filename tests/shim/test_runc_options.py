"""What runc is told, and what of it cannot be had."""

import pytest
from hypothesis import given, strategies as st

from iriscw.shim.runc_options import NotHonoured, RuncCommand, check, read
from raised import that

GO_RUNC = ("--root", "/run/containerd/runc/k8s.io", "--log", "/b/log.json", "--log-format", "json", "--systemd-cgroup")
"""What go-runc, the library of containerd's shim, says before each command."""


def test_a_checkpoint_as_containerd_asks_for_it():
    """Options and the container are found."""
    words = (
        "checkpoint",
        "--image-path",
        "/i",
        "--work-path",
        "/w",
        "--tcp-established",
        "--empty-ns",
        "network",
        "c1",
    )
    asked = read([*GO_RUNC, *words])
    check(asked)
    assert (asked.command, asked.container, asked.before) == ("checkpoint", "c1", GO_RUNC)
    assert (asked.option("image-path"), asked.option("work-path")) == ("/i", "/w")
    assert (asked.flag("tcp-established"), asked.flag("shell-job")) == (True, False)
    assert asked.all_of("empty-ns") == ("network",)
    assert asked.root({}, 0) == "/run/containerd/runc/k8s.io"


@pytest.mark.parametrize(
    "words",
    [
        ("restore", "--image-path", "/i", "--pid-file", "/p", "--detach", "--bundle", "/b", "c1"),
        ("restore", "--image-path=/i", "--pid-file=/p", "--detach=true", "--bundle=/b", "c1"),
        ("restore", "-image-path", "/i", "-pid-file=/p", "-d", "-b", "/b", "c1"),
        ("restore", "c1", "--image-path", "/i", "--pid-file", "/p", "-d", "--bundle", "/b"),
        ("restore", "--image-path", "/i", "--pid-file", "/p", "-d", "--bundle", "/b", "--", "c1"),
    ],
)
def test_the_ways_to_write_it(words):
    """One dash or two, a value behind ``=`` or as a word of its own, before the id or behind it."""
    asked = read(words)
    check(asked)
    assert (asked.container, asked.option("image-path"), asked.option("pid-file")) == ("c1", "/i", "/p")
    assert asked.flag("detach", "d")
    assert asked.option("bundle", "b") == "/b"


def test_a_container_whose_name_begins_with_a_dash():
    """Behind two dashes nothing is an option."""
    assert read(["kill", "--", "-c1", "KILL"]).words == ("-c1", "KILL")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("checkpoint", "--pre-dump", "c1"), that(names="pre-dump")),
        (("checkpoint", "--parent-path", "p", "c1"), that(names="parent-path")),
        (("checkpoint", "--lazy-pages", "c1"), that(names="lazy-pages")),
        (("checkpoint", "--page-server", "1.2.3.4:5", "c1"), that(names="page-server")),
        (("checkpoint", "--tcp-skip-in-flight", "c1"), that(names="tcp-skip-in-flight")),
        (("restore", "--lazy-pages", "c1"), that(names="lazy-pages")),
        (("checkpoint", "--of-tomorrow", "c1"), that(comes_from="runc_options.check")),
        (("checkpoint",), that(comes_from="runc_options.check")),
        (("checkpoint", "c1", "c2"), that(comes_from="runc_options.check")),
        (
            ("--criu", "/usr/sbin/criu", "checkpoint", "c1"),
            that(comes_from="runc_options.check", names="--criu"),
        ),
    ],
)
def test_what_cannot_be_had(words, said):
    """It is refused by its name."""
    with pytest.raises(NotHonoured, check=said):
        check(read(words))


def test_what_was_taken_back():
    """A flag that is false is none, for what is refused, too."""
    asked = read(["checkpoint", "--pre-dump=false", "--leave-running=false", "c1"])
    check(asked)
    assert not asked.flag("leave-running")


def test_where_state_is_kept():
    """As runc finds it: said, or root's, or the user's."""
    assert read(["state", "c1"]).root({"XDG_RUNTIME_DIR": "/run/user/0"}, 0) == "/run/runc"
    assert read(["state", "c1"]).root({"XDG_RUNTIME_DIR": "/run/user/7"}, 7) == "/run/user/7/runc"
    assert read(["--root=/a//b/", "state", "c1"]).root({}, 0) == "/a/b"


def test_commands_that_are_passed_on_are_not_read():
    """Whatever stands behind them is runc's business."""
    for words in (["create", "--bundle", "/b", "c1"], ["exec", "c1", "kill", "--all"], ["features"]):
        assert read(words) == RuncCommand(words[0], before=())
    assert read([]).command == ""
    assert read(["--version"]).command == ""


@given(
    st.lists(st.sampled_from(["checkpoint", "kill", "--root", "--", "-", "--x", "-d", "--image-path", "=", "", "c1"]))
)
def test_whatever_is_written(words):
    """It is read, or refused by name; nothing else happens."""
    asked = read(words)
    if asked.command in ("checkpoint", "restore"):
        try:
            check(asked)
        except NotHonoured:
            return
        assert len(asked.words) == 1
