"""Plans of nodes: as JSON, as Python, as one word; drawn by Hypothesis; shrunk; run again from the command line."""

import json

import attrs
import pytest
from hypothesis import given

from iriscw._errors import InvalidArgument
from iriscw.cli import main
from iriscw.testing.nodes import assert_holds, breaks_like, draw_nodes_plan, plans, shrink
from iriscw_sims.nodes import shrinking
from iriscw_sims.nodes.checks import Checks
from iriscw_sims.nodes.holding import command, failure
from iriscw_sims.nodes.story import Story
from iriscw_sims.nodes.world import NodesWorld
from iriscw_sims.plan_text import pack, plan_text, read_any_plan, read_plan, unpack_any
from iriscw_sims.plans import PlanInvalid, PlanUnreadable, dump_plan, load_any_plan, load_plan
from profiles import examples
from raised import that


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_survives_being_written(seed):
    """As JSON, as Python and as one word."""
    plan = draw_nodes_plan(seed)
    assert load_any_plan(dump_plan(plan)) == plan
    assert read_any_plan(plan_text(plan)) == plan
    assert unpack_any(pack(plan)) == plan


def test_a_plan_of_nodes_is_none_of_a_fleet():
    """Who wants a fleet says so."""
    plan = draw_nodes_plan(1)
    with pytest.raises(PlanUnreadable, check=that(comes_from="plans.load_plan")):
        load_plan(dump_plan(plan))
    with pytest.raises(InvalidArgument, check=that(comes_from="plan_text.read_plan")):
        read_plan(plan_text(plan))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"orders": ("freeze", 99)}, that(names=("workload", "99"))),
        ({"machines": ()}, that(comes_from="plans._check_nodes")),
        ({"rates": (("no such chance", 1),)}, that(comes_from="plans._check_luck")),
    ],
)
def test_what_cannot_be_is_refused(changes, text):
    """With the place where it stands, before anything runs."""
    plan = draw_nodes_plan(1)
    if "orders" in changes:
        changes = {"orders": (attrs.evolve(plan.orders[0], workload=99),)}
    with pytest.raises(PlanInvalid, check=text):
        NodesWorld(1, attrs.evolve(plan, **changes))


@examples(10)
@given(plans(max_orders=6))
def test_plans_that_hypothesis_draws_hold(plan):
    """Any plan that can be drawn holds."""
    assert_holds(plan)


def blind(monkeypatch):
    """Have a check object to each freeze that ends as frozen."""
    real = Checks.durable

    def durable(self, operation, record):
        real(self, operation, record)
        if getattr(getattr(record, "outcome", None), "value", "") == "frozen":
            self.violate("C8", "planted")

    monkeypatch.setattr(Checks, "durable", durable)


def test_a_failure_is_shrunk_and_can_be_repeated(monkeypatch):
    """One order is left of it, no fault and no chance; the message has the plan, and the command that runs it."""
    blind(monkeypatch)
    plan = next(plan for plan in map(draw_nodes_plan, range(50)) if shrinking.run_plan(plan).violations)
    run = shrinking.run_plan(plan)
    small = shrink(plan, breaks_like(run), max_runs=120)
    assert (len(small.orders), small.faults, small.rates) == (1, (), ())
    with pytest.raises(AssertionError) as caught:
        assert_holds(small)
    (shown,) = caught.traceback.filter(caught)  # the test's own lines, and none of ours
    assert shown.name == "test_a_failure_is_shrunk_and_can_be_repeated"
    text = str(caught.value)
    assert "INV-C8: planted" in text
    assert "from iriscw_sims.nodes.swarm import" in text
    assert f"iriscw sim replay --plan {pack(small)}" in text
    assert command(plan) == f"iriscw sim replay --nodes {plan.seed}"
    assert "planted" in failure(small, shrinking.run_plan(small))


def test_the_command_line_runs_and_replays_nodes(capsys, tmp_path):
    """Run, replay and plan know --nodes; a plan's own file says what it is of."""
    assert main(["sim", "run", "--nodes", "--seeds", "2", "-o", "json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [each["trace"] for each in runs] == [NodesWorld(seed).run().trace for seed in (0, 1)]
    assert main(["sim", "plan", "--nodes", "2", "--without", "power cut"]) == 0
    file = tmp_path / "plan.json"
    file.write_text(capsys.readouterr().out)
    assert load_any_plan(file.read_text()) == draw_nodes_plan(2).without("power cut")
    assert main(["sim", "replay", "--plan", str(file), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trace"] == NodesWorld(2, draw_nodes_plan(2).without("power cut")).run().trace
    assert any("accepted" in each["what"] for each in told["timeline"])
    assert main(["sim", "replay", "--nodes", "2", "--only", "no such subject"]) == 0
    assert main(["sim", "replay", "--nodes", "2", "--picture", str(tmp_path / "x.html")]) == 2
    assert main(["sim", "run", "--nodes", "--picture", str(tmp_path / "x.html")]) == 2


def test_who_listens_changes_nothing():
    """A story has the trace of the run."""
    world = NodesWorld(2)
    story = Story(world)
    assert world.run().trace == NodesWorld(2).run().trace
    assert {"fault"} < {event.who for event in story.events}
