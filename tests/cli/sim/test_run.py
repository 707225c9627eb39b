"""sim run: its output, its exit codes, its progress."""

import io
import json
import sys

import attrs
import pytest

from iriscw.cli.sim.run import SimProgress, run_line
from iriscw_sims import World
from iriscw_sims.run import Totals

QUIET = "41"
"""A seed in which little happens."""


@pytest.fixture
def broken(monkeypatch):
    """Have every world break an invariant where its faults end."""
    monkeypatch.setattr(World, "heal", lambda self: self.violate("X1", "planted"))


def test_each_seed_is_a_line(iriscw):
    """Seed, trace, time, steps, outcome; the sum stands on standard error."""
    code, out, err = iriscw("sim", "run", "--seeds", "1", "--first", QUIET)
    made = World(41).run()
    assert (code, out) == (0, run_line(made))
    assert out.split() == ["41", made.trace, f"{made.simulated_s:.1f}", "s", str(made.steps), "steps", "held"]
    assert err.startswith("1 seeds in ")
    assert "seeds/s" in err


def test_json_has_every_run(iriscw):
    """One document on standard output, equal for equal seeds but for the time it took."""
    code, out, _ = iriscw("sim", "run", "--seeds", "2", "--first", "41", "-o", "json")
    report = json.loads(out)
    assert code == 0
    assert [each["seed"] for each in report["runs"]] == [41, 42]
    assert {*report["runs"][0]} == {"seed", "trace", "simulated_s", "steps", "violations"}
    assert (report["broken"], report["wall_s"] > 0) == ([], True)
    again = json.loads(iriscw("sim", "run", "--seeds", "1", "--first", "42", "-o", "json")[1])
    assert again["runs"] == report["runs"][1:]


def test_a_broken_seed_is_code_1(iriscw, broken):
    """The line says what was broken, the report stands on standard error, the last line names the way on."""
    code, out, err = iriscw("sim", "run", "--seeds", "3", "--first", "41", "--until-broken")
    assert (code, out.count("\n")) == (1, 1)
    assert "INV-X1: planted" in out
    assert "faults that fired" in err
    assert err.splitlines()[-1] == "iriscw: seed 41 violates an invariant; `iriscw sim replay 41` tells the story"


@pytest.mark.slow
def test_all_broken_seeds_are_named(iriscw, broken):
    """Without --until-broken the search goes on; reports beyond the first are not repeated for ever."""
    code, out, err = iriscw("sim", "run", "--seeds", "4", "--first", "41", "-o", "json")
    assert (code, json.loads(out)["broken"]) == (1, [41, 42, 43, 44])
    assert err.count("faults that fired") == 3
    assert "seed 41 and 3 more violate an invariant" in err


def test_faults_are_counted(iriscw):
    """What came true stands on standard error, with how often."""
    code, _, err = iriscw("sim", "run", "--seeds", "1", "--first", "34", "--faults")
    assert code == 0
    for name, count in World(34).run().fired:
        assert f"{count:>8}  {name}\n" in err


@pytest.mark.sampled(2)
@pytest.mark.parametrize("planted", [False, True])
def test_a_picture_is_drawn(iriscw, tmp_path, monkeypatch, planted):
    """Of the first seed that is broken, or else of the last."""
    if planted:
        monkeypatch.setattr(World, "heal", lambda self: self.violate("X1", "planted"))
    path = tmp_path / "run.html"
    code, _, err = iriscw("sim", "run", "--seeds", "2", "--first", "41", "--picture", str(path))
    assert code == planted
    seed, state = (41, "broken") if planted else (42, "held")
    assert f"seed {seed} is drawn in {path}" in err
    assert f"<title>seed {seed}: {state}</title>" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seeds", "0"],
        ["--seeds", "-1"],
        ["--seeds", "99999999999"],
        ["--first", "-1"],
        ["--first", "99999999999999999999"],
        ["--first", "x"],
        ["--no-such-option"],
    ],
)
def test_nonsense_is_refused(iriscw, arguments):
    """One line, and the code for misuse; nothing is run."""
    code, out, err = iriscw("sim", "run", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self):
        return True


def test_progress_is_for_terminals_only(monkeypatch):
    """Elsewhere nothing is written; on a terminal one line that is taken away at the end."""
    totals = Totals()
    totals.add(attrs.evolve(World(41).run(), violations=("INV-X: x",)))
    for stream, silent, shown in ((io.StringIO(), False, False), (Terminal(), True, False), (Terminal(), False, True)):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr("iriscw.cli.sim.run.BETWEEN_S", -1.0)
        progress = SimProgress(7, silent=silent)
        progress.tell(totals)
        progress.clear()
        text = stream.getvalue()
        assert bool(text) == shown
        if shown:
            assert "1 of 7 seeds, 1 broken" in text
            assert text.endswith("\r\x1b[K")
