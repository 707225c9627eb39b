"""A plan as an assertion."""

import re
import subprocess
import sys
import traceback

import attrs
import pytest

from iriscw_sims import holding
from iriscw_sims.holding import assert_holds, command, commit_of
from iriscw_sims.plan_text import read_plan, unpack
from iriscw_sims.swarm import draw_plan
from iriscw_sims.world import World
from raised import that


@pytest.fixture
def planted(monkeypatch):
    """Have every run break an invariant when it is healed."""
    monkeypatch.setattr(World, "heal", lambda world: world.violate("X1", "planted"))


def test_a_plan_that_holds_gives_its_run():
    """For what a test wants to look at."""
    run = assert_holds(draw_plan(3))
    assert run.violations == ()
    assert run.seed == 3


@pytest.mark.usefixtures("planted")
def test_a_failure_says_everything():
    """What, which seed and commit, the plan as Python, the faults, the trace, the command."""
    plan = draw_plan(3).without("disk full")
    with pytest.raises(AssertionError) as failed:
        assert_holds(attrs.evolve(plan, seed=9))
    text = str(failed.value)
    assert text.startswith("INV-X1: planted\n(seed 9")
    kept = text.partition("to keep it as a test:\n\n")[2].partition("\n\nseed 9: ")[0]
    assert read_plan(kept) == attrs.evolve(plan, seed=9)
    assert "faults that fired:" in text
    assert text.count("\n") > 200
    word = text.rpartition("repeat it: python -m iriscw_sims.rerun ")[2].strip()
    assert unpack(word) == attrs.evolve(plan, seed=9)
    assert text.count("repeat it:") == 1


def starve(view):
    """Want nothing, ever."""
    return 0


def test_a_policy_is_asked(calm_plan):
    """Its answers decide; the outcome has figures for what a test wants to assert."""
    outcome = assert_holds(calm_plan(1), policy=lambda view: view.max_slices)
    assert outcome.most_slices == sum(group.max_slices for group in calm_plan(1).groups)
    assert outcome.idle_slice_seconds > 0
    assert len(outcome.waited_s) > 0


def test_a_policy_that_breaks_something_is_told_of(calm_plan):
    """The failure names it, what it answered, and how to repeat that; the plan alone would not break."""
    with pytest.raises(AssertionError) as failed:
        assert_holds(calm_plan(1), policy=starve)
    text = str(failed.value)
    assert text.startswith("INV-liveness: not at rest")
    assert "what starve answered last:\n" in text
    assert "g0: 0 slices, when demand wanted" in text
    assert text.endswith("repeat it: assert_holds(PLAN, policy=starve)\n")


def test_a_policy_that_raises_fails_the_test(calm_plan):
    """Though the fleet lives on with the default one: whoever tests a policy wants to know. Its error is the cause."""
    with pytest.raises(
        AssertionError, check=that(comes_from="holding.assert_holds", names="ZeroDivisionError")
    ) as failed:
        assert_holds(calm_plan(1), policy=lambda view: 1 // view.ready)
    assert type(failed.value.__cause__) is ZeroDivisionError


def test_a_policy_that_raises_ends_the_run(calm_plan):
    """What the fleet does afterwards tells nothing of the policy, and Hypothesis would run it hundreds of times."""
    with pytest.raises(AssertionError) as failed:
        assert_holds(calm_plan(1), policy=lambda view: view.ready + view.idle)
    told = re.search(r"at ([\d.]+) s, for .*, (\d+) steps, ([\d.]+) s, trace", str(failed.value), re.DOTALL)
    assert told is not None
    assert float(told[3]) - float(told[1]) < 1


def half(view):
    """Answer with no whole number."""
    return 0.5


def raising(view):
    """Fail in a function of its own."""
    return starve(1 // 0)


@pytest.mark.parametrize(("policy", "mine"), [(raising, ["raising"]), (half, [])])
def test_a_failed_policy_is_shown_without_our_own_frames(calm_plan, policy, mine):
    """Neither those between the test and the run, nor those between the fleet and the policy."""
    with pytest.raises(AssertionError) as failed:
        assert_holds(calm_plan(1), policy=policy)
    (shown,) = failed.traceback.filter(failed)
    assert shown.name == "test_a_failed_policy_is_shown_without_our_own_frames"
    cause = failed.value.__cause__
    assert [each.name for each in traceback.extract_tb(cause.__traceback__)] == mine
    assert cause.__context__ is None


def test_what_a_seed_draws_is_named_by_the_seed():
    """The command is as short as it can be."""
    assert command(draw_plan(7)) == "iriscw sim replay 7"
    assert "rerun" in command(attrs.evolve(draw_plan(7), faults=()))


def test_a_folder_without_history_has_no_commit(tmp_path, monkeypatch):
    """Neither has one where git is missing."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) == ""


def test_the_commit_is_named(tmp_path):
    """With a mark if something is not committed."""

    def git(*words):
        options = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *options, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "first")
    clean = commit_of(tmp_path)
    assert len(clean) == 12
    (tmp_path / "a").write_text("2")
    assert commit_of(tmp_path) == f"{clean}-dirty"


@pytest.mark.slow
def test_importing_it_runs_nothing():
    """The commit is asked for when something fails, not before."""
    program = "import subprocess, sys\nsubprocess.run = None\nimport iriscw_sims.holding\n"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert holding.__doc__
