"""sim replay: the story of one seed."""

import json

import attrs
import pytest

from iriscw.cli.sim.kinds import Moment
from iriscw.testing.simulation.world import TRACE_LINES
from iriscw_sims import Fault, World, draw_plan
from iriscw_sims.plan_text import pack
from iriscw_sims.plans import dump_plan, load_plan

SECOND = 1_000_000_000


@pytest.fixture
def broken(monkeypatch):
    """Have every world break an invariant where its faults end."""
    monkeypatch.setattr(World, "heal", lambda self: self.violate("X1", "planted"))


def test_a_replay_is_the_run(iriscw):
    """The trace is the seed's; faults of the plan, columns and the end are there."""
    code, out, err = iriscw("sim", "replay", "41")
    assert (code, err) == (0, "")
    assert out.startswith(f"seed 41: held; trace {World(41).run().trace}\n")
    heads = next(line for line in out.splitlines() if line.split() == ["TIME", "WHO", "WHAT", "WHY"])
    for fault in draw_plan(41).faults:
        assert f"  {fault.kind}" in out.partition(heads)[0]
    assert out.rstrip().splitlines()[-1].split()[1:4] == ["world", "at", "rest"]
    assert "\x1b" not in out


def test_what_became_of_each_fault_is_told(iriscw, tmp_path):
    """One that struck, one that found no victim, and one that waited for its moment are told apart."""
    faults = (
        Fault(1 * SECOND, "worker crashes", 0),
        Fault(2 * SECOND, "cloud lost while the controller is down", 0),
        Fault(100 * SECOND, "controller stands still", 0),
    )
    path = tmp_path / "plan.json"
    path.write_text(dump_plan(attrs.evolve(draw_plan(3), faults=faults, rates=())), encoding="utf-8")
    out = iriscw("sim", "replay", "3", "--plan", str(path), "--only", "nobody")[1]
    assert "0:01.000  worker crashes                                found nothing to strike\n" in out
    assert "0:02.000  cloud lost while the controller is down       later, when its moment came\n" in out
    assert "1:40.000  controller stands still\n" in out
    assert "chances: none\n" in out


def test_a_part_is_chosen(iriscw):
    """--only, --from and --to leave out all else."""
    chosen = ("--only", "slice/", "--from", "0:10.5", "--to", "5m")
    out = iriscw("sim", "replay", "50", *chosen)[1]
    told = out.partition("WHY\n")[2].splitlines()
    assert told
    kinds = ("slice/", "worker/", "task/", "node/", "fault ")
    assert all(line.split(maxsplit=1)[1].startswith(kinds) for line in told)
    times = [Moment().convert(line.split()[0], None, None) for line in told]
    assert 10 * SECOND < min(times) <= max(times) <= 300 * SECOND


def test_details_are_asked_for(iriscw):
    """--all tells more."""
    few, all_of_it = (json.loads(iriscw("sim", "replay", "41", *more, "-o", "json")[1]) for more in ((), ("--all",)))
    assert len(all_of_it["timeline"]["events"]) > len(few["timeline"]["events"])


def test_json_has_run_plan_and_timeline(iriscw):
    """One document; the plan in it can be saved and run."""
    code, out, _ = iriscw("sim", "replay", "41", "-o", "json")
    report = json.loads(out)
    assert code == 0
    assert (report["seed"], report["violations"], report["trace"]) == (41, [], World(41).run().trace)
    assert load_plan(json.dumps(report["plan"])) == draw_plan(41)
    assert report["timeline"]["spans"]


def test_a_plan_is_run(iriscw, tmp_path):
    """--plan runs a file's plan, or a word's, with the seed that it names or with another one."""
    path = tmp_path / "calm.json"
    plan = draw_plan(41)
    for kind in (fault.kind for fault in draw_plan(41).faults):
        plan = plan.without(kind)
    path.write_text(dump_plan(plan), encoding="utf-8")
    trace = World(41, plan).run().trace
    for arguments in (["41", "--plan", str(path)], ["--plan", str(path)], ["--plan", pack(plan)]):
        code, out, _ = iriscw("sim", "replay", *arguments, "--only", "nobody")
        assert code == 0
        assert out.startswith(f"seed 41, another plan: held; trace {trace}\n")
    path.write_text(dump_plan(draw_plan(41)), encoding="utf-8")
    assert iriscw("sim", "replay", "--plan", str(path))[1].startswith("seed 41, its own plan: held")


def test_a_broken_run_is_code_1(iriscw, broken, tmp_path):
    """Its story is told to the end, the violation last; the picture is drawn all the same."""
    path = tmp_path / "x.html"
    code, out, err = iriscw("sim", "replay", "41", "--picture", str(path))
    assert code == 1
    assert out.startswith("seed 41: broken; ")
    assert out.rstrip().splitlines()[-1] == "INV-X1: planted"
    assert "iriscw: seed 41 violates an invariant: INV-X1: planted" in err
    assert "<title>seed 41: broken</title>" in path.read_text(encoding="utf-8")


def test_the_picture_shows_what_was_chosen(iriscw, tmp_path):
    """Only the lanes and the time that were asked for."""
    path = tmp_path / "x.html"
    iriscw("sim", "replay", "3", "--only", "job/", "--from", "2m", "--picture", str(path))
    html = path.read_text(encoding="utf-8")
    assert 'data-s="job/' in html
    assert 'data-s="slice/' not in html
    assert "data-began=120000000000" in html


def test_the_trace_follows(iriscw):
    """--trace adds the simulation's own lines of the chosen time: all of them, not the last ones only."""
    for chosen, least in (((), TRACE_LINES), (("--to", "2s"), 10)):
        out = iriscw("sim", "replay", "34", "--trace", "--only", "nobody", *chosen)[1]
        times = [int(line.split(" ")[0]) for line in out.partition("WHY\n")[2].splitlines()]
        assert times == sorted(times)
        assert len(times) > least
    assert times[-1] <= 2 * SECOND


def test_the_trace_is_part_of_the_json(iriscw):
    """With -o json there is one document, whatever else was asked for."""
    report = json.loads(iriscw("sim", "replay", "41", "--trace", "-o", "json")[1])
    assert len(report["trace_lines"]) > TRACE_LINES
    assert report["trace"] == World(41).run().trace


def test_a_bug_of_the_simulator_has_a_story_too(iriscw, monkeypatch):
    """What happened until then is told; the code says that it is a bug."""

    def fail(world):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(World, "heal", fail)
    code, out, err = iriscw("sim", "replay", "41")
    assert (code, "ZeroDivisionError: planted" in err) == (4, True)
    assert "at rest" not in out
    assert out.split()[:4] == ["TIME", "WHO", "WHAT", "WHY"]
    assert "group/" in out


def test_a_terminal_has_colours(iriscw, monkeypatch):
    """Only there, and not where NO_COLOR is set."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[35m" in iriscw("sim", "replay", "34")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in iriscw("sim", "replay", "34")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a SEED or a --plan"),
        (["x"], "'x' is not a valid int"),
        (["--", "-1"], "-1 is not in the range"),
        (["99999999999999999999"], "is not in the range"),
        (["3", "--from", "2m", "--to", "1m"], "--to is before --from"),
        (["3", "--from", "yesterday"], "'yesterday' is not a length of time"),
        (["3", "--plan", "/no/such/plan.json"], "No such file"),
    ],
)
def test_nonsense_is_refused(iriscw, arguments, said):
    """One line that says what is wrong, and the code for misuse."""
    code, out, err = iriscw("sim", "replay", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_picture_that_cannot_be_written_is_the_world_s_fault(iriscw):
    """The timeline was told; the code says that the file is what failed."""
    code, out, err = iriscw("sim", "replay", "41", "--picture", "/proc/x.html")
    assert (code, out.startswith("seed 41: held")) == (3, True)
    assert "PictureUnwritable: /proc/x.html: No such file" in err


def test_a_picture_whose_folder_is_missing_is_refused_at_once(iriscw):
    """Nobody waits for a run whose picture cannot be drawn."""
    code, out, err = iriscw("sim", "replay", "41", "--picture", "/no/such/folder/x.html")
    assert (code, out) == (2, "")
    assert "there is no folder /no/such/folder" in err
