"""``checkpoint``, ``restore`` and ``checkpoints`` are one path: whoever does it is asked the same."""

import pytest

from iriscw.cli.at_agent import AtAgent
from iriscw.cli.at_controller import AtController
from iriscw.cli.at_here import AtHere
from iriscw.cli.freeze_shown import Listing, Shown, follow


@pytest.fixture
def asked(monkeypatch):
    """What each kind of backend is asked, instead of doing it."""
    seen = []
    for backend in (AtHere, AtAgent, AtController):
        for what in ("checkpoint", "restore", "checkpoints"):
            monkeypatch.setattr(
                backend, what, lambda self, value, form, what=what: seen.append((type(self), what, value, form))
            )
    return seen


WAYS = [(("--pid", "4"), (), AtHere), (("--pid", "4", "--agent", "s"), ("--agent", "s"), AtAgent)]


@pytest.mark.parametrize(("frozen", "listed", "backend"), [*WAYS, (("job-a",), ("--cluster",), AtController)])
def test_a_command_asks_each_backend_the_same(iriscw, asked, frozen, listed, backend):
    """One plan for a freeze, one for a thaw, one question for a listing."""
    assert iriscw("checkpoint", *frozen, "--tier", "disk", "--label", "a=b")[0] == 0
    assert iriscw("restore", "ck-1", "--force", *listed)[0] == 0
    assert iriscw("checkpoints", "--remove", "ck-1", *listed)[0] == 0
    (_, _, freeze, _), (_, _, thaw, _), (_, _, listing, _) = asked
    assert [each[:2] for each in asked] == [(backend, what) for what in ("checkpoint", "restore", "checkpoints")]
    assert (freeze.tier, freeze.labels, freeze.root.pid) == ("disk", (("a", "b"),), 4 if "--pid" in frozen else 0)
    assert (thaw.artifact, thaw.force) == ("ck-1", True)
    assert listing == Listing(removed=("ck-1",))


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("checkpoint", "--pid", "4", "--task", "0", "--address", "x:1"), "--address"),
        (("checkpoint", "--pid", "4", "--agent", "s", "--ram-budget", "1GiB"), "--ram-budget"),
        (("checkpoint", "job-a", "--state-dir", "x"), "--state-dir"),
        (("checkpoint", "job-a", "--hook-url", "http://x"), "--hook-url"),
        (("checkpoint", "job-a", "--tcp-established"), "--tcp-established"),
        (("restore", "ck-1", "--node", "n"), "--node"),
        (("restore", "ck-1", "--cluster", "--lazy"), "--lazy"),
        (("restore", "ck-1", "--cluster", "--agent", "s"), "--agent"),
        (("checkpoints", "--cluster", "--release", "ck-1"), "--release"),
        (("checkpoints", "--agent", "s", "--release", "ck-1"), "--release"),
    ],
)
def test_what_a_backend_is_not_told_is_refused(iriscw, words, option):
    """An option that would mean nothing is a mistake, by name."""
    code, _, error = iriscw(*words)
    assert code == 2
    assert f"{option}: " in error or f"{option}," in error


def test_each_step_is_shown_once():
    """Whoever tells all steps so far again shows the new ones only."""
    steps, moved = [], []
    see = follow(Shown(steps.append, lambda done, total: moved.append((done, total))))
    see(["looking"], 0, 0)
    see(["looking", "dumping"], 5, 9)
    see(["looking", "dumping"], 9, 9)
    assert steps == ["looks at the process tree", "writes the images"]
    assert moved == [(5, 9), (9, 9)]
