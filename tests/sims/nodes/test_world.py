"""Nodes under faults: seeds in three sizes, and what the world of nodes itself promises."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import attrs
import pytest

from iriscw.freeze.model import FreezePhase, Outcome, ThawPhase
from iriscw_sims.nodes.keeping import SimArtifacts
from iriscw_sims.nodes.machine import Machine
from iriscw_sims.nodes.swarm import FAULTS, RATES, draw_nodes_plan
from iriscw_sims.nodes.world import NodesWorld

ROOT = Path(__file__).parents[3]
SEEDS = 40
"""What `make test` runs: a few seconds."""

COVERED_SEEDS = 800
"""What `.ci/run` looks at while they run: all faults, chances and phases; they hold there, too."""

SOAK_SEEDS = 10_000
BATCH = 100

PYTHONS = {"3.11": ".venv", "3.12": ".venv-3.12", "3.13": ".venv-3.13"}

FOUND = {
    421: "a CUDA process that left its tree stayed checkpointed for ever",
    6226: "an application that was brought to rest was never told of a thaw that died before it was verified",
    3990: "a CRIU that had outlived its agent and refused its tree ended the simulation",
    907535: "what was forked while the driver hung survived a thaw that failed, when whoever forked it had ended",
    910831: "a thaw took the memory that CUDA was about to move into a tree that was being frozen",
    3001082: "a process whose guard somebody had stopped was not let run after a thaw",
    1002658: "images of an undone freeze counted as the last of a tree that had run on and ended by itself",
    616: "a freeze whose tree and images went with their machine tried to make them visible for ever",
}
"""Seeds that once found something, and what it was."""

SELDOM = (
    "process dies slowly",
    "file cannot be read",
    "tree is not ended",
    "signal refused",
    "pager cannot begin",
    "pages cannot be told of",
    "supervisor cannot be told",
)
"""Chances that hundreds of seeds may miss; a test below arranges them."""

PROGRAM = """
import sys
from iriscw_sims.nodes.world import NodesWorld
for seed in (3, 15, 17, 100):
    sys.stdout.write(NodesWorld(seed).run().trace + chr(10))
"""


def hold(seeds):
    """Run seeds; fail with the report of the first that breaks something. Give what came true, and what was reached."""
    fired, reached = Counter(), Counter()
    for seed in seeds:
        world = NodesWorld(seed)
        world.watchers.append(lambda point: reached.update([point]))
        run = world.run()
        assert not run.violations, run.report
        fired.update(dict(run.fired))
    return fired, reached


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_some_seeds_hold(first):
    """No seed breaks an invariant."""
    hold(range(first, first + 20))


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_something_hold(seed):
    """What was found once stays fixed."""
    hold([seed])


@pytest.mark.soak
@pytest.mark.parametrize("first", range(COVERED_SEEDS, COVERED_SEEDS + SOAK_SEEDS, BATCH))
def test_thousands_of_seeds_hold(first):
    """No seed breaks an invariant, in a sample that takes minutes."""
    hold(range(first, first + BATCH))


@pytest.mark.slow
def test_every_fault_happens_and_every_phase_is_reached():
    """Every fault and chance comes true, every phase and outcome is met, and nothing breaks."""
    fired, reached = hold(range(COVERED_SEEDS))
    assert [name for name in (*FAULTS, *dict(RATES)) if not fired[name] and name not in SELDOM] == []
    phases = [f"freeze: {each.value}" for each in FreezePhase] + [f"thaw: {each.value}" for each in ThawPhase]
    points = [*phases, *(f"outcome: {each.value}" for each in Outcome)]
    never = ("freeze: new", "freeze: over", "thaw: new", "thaw: over")  # nobody enters them by a step
    never = (*never, "outcome: left")  # a test below arranges it
    never = (*never, "outcome: moved", "outcome: stayed")  # nobody moves checkpoints in this world
    assert [point for point in points if not reached[point] and point not in never] == []


TROUBLE = (("agent killed at a step", 40), ("criu fails", 500), ("GPU out of memory", 500))
"""What gives trees up, so that they have to be killed."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SELDOM)
def test_what_happens_seldom_is_arranged(name):
    """With a high rate of its own, among trees that are given up, it comes true, and nothing breaks."""
    for seed in range(120):
        plan = attrs.evolve(draw_nodes_plan(seed), faults=(), rates=((name, 900), *TROUBLE))
        run = NodesWorld(seed, plan).run()
        assert not run.violations, run.report
        if dict(run.fired).get(name):
            return
    pytest.fail(f"{name} never came true")


@pytest.mark.slow
def test_a_store_that_gives_back_only_in_memory_is_found(monkeypatch):
    """A pin or a reservation that a power cut brings back, when nobody owes it any more, breaks an invariant."""

    async def forgets(port, artifact):
        await port._pause()

    monkeypatch.setattr(SimArtifacts, "_given_back", forgets)
    found = set()
    for seed in range(120):
        found |= {violation.partition(":")[0] for violation in NodesWorld(seed).run().violations[:1]}
        if {"INV-P2", "INV-C12"} <= found:
            return
    pytest.fail(f"only {sorted(found)} were found")


FORKS = (
    ("driver hangs", 300),
    ("driver refuses", 300),
    ("process forks at a step", 500),
    ("process ends at a step", 300),
)
"""What leaves processes behind that nothing leads to, in trees that are given up."""


@pytest.mark.parametrize("seed", [310, 395])
def test_what_a_failed_thaw_has_forked_does_not_survive_it(seed, monkeypatch):
    """Nothing leads to it, as whoever forked it has ended: it is found by its session, or it would be left."""
    plan = attrs.evolve(draw_nodes_plan(seed), faults=(), rates=FORKS)
    run = NodesWorld(seed, plan).run()
    assert not run.violations, run.report
    monkeypatch.setattr(Machine, "came_of", lambda machine, tasks: [])
    (violation,) = NodesWorld(seed, plan).run().violations[:1]
    assert violation.startswith("INV-C6")


def test_memory_that_is_promised_is_not_given_twice(monkeypatch):
    """A thaw beside a freeze with CUDA, where memory is scarce: if what the other will take did not count, it would."""
    assert not NodesWorld(910831).run().violations
    free = Machine.free_where_trees_land
    monkeypatch.setattr(Machine, "free_where_trees_land", lambda machine, *beside_others: free(machine))
    (violation,) = NodesWorld(910831).run().violations[:1]
    assert violation.startswith("INV-P2")


def test_what_cannot_be_killed_is_told():
    """Processes that do not die in five tries end their operation as left, and nothing else breaks."""
    reached = Counter()
    for seed in range(40):
        plan = attrs.evolve(draw_nodes_plan(seed), faults=(), rates=(("process dies slowly", 1000), *TROUBLE))
        world = NodesWorld(seed, plan)
        world.watchers.append(lambda point: reached.update([point]))
        run = world.run()
        assert not run.violations, run.report
        if reached["outcome: left"]:
            return
    pytest.fail("nothing was left")


def traces(python=sys.executable, hash_seed="0"):
    """Run some seeds in a process of their own; give their traces."""
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "sims")))
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [str(python), "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found = done.stdout.split()
    assert len({*found}) == 4
    return found


def test_one_seed_gives_one_trace():
    """The same seed gives the same trace in another process with other hashes."""
    assert traces(hash_seed="4711") == [NodesWorld(seed).run().trace for seed in (3, 15, 17, 100)]


@pytest.mark.slow
@pytest.mark.parametrize("version", [each for each in PYTHONS if not sys.version.startswith(f"{each}.")])
def test_another_python_gives_the_same_traces(version):
    """Other releases of Python run the same worlds."""
    python = ROOT / PYTHONS[version] / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no Python {version}")
    assert traces(python) == traces()


def test_a_calm_world_freezes_and_thaws():
    """Without faults nothing is lost, and operations end as they should."""
    ends = Counter()
    for seed in range(12):
        plan = attrs.evolve(draw_nodes_plan(seed), faults=(), rates=())
        world = NodesWorld(seed, plan)
        world.watchers.append(lambda point: ends.update([point]))
        run = world.run()
        assert not run.violations, run.report
        assert {name for name, _ in run.fired} <= {"caller leaves"}
    assert ends["outcome: frozen"] > 12
    assert ends["outcome: thawed"] > 6
    assert ends["outcome: lost"] == ends["outcome: left"] == 0


def test_what_comes_true_is_counted_and_told():
    """A fault that hits somebody is in the counts, the log and what observers hear; without it the luck is the same."""
    world = NodesWorld(5)
    heard = []
    world.observers.append(lambda name, about, lasts: heard.append(name))
    run = world.run()
    assert dict(run.fired) == Counter(heard)
    kind = world.plan.faults[0].kind
    assert all(fault.kind != kind for fault in world.plan.without(kind).faults)
