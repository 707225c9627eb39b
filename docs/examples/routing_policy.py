"""A routing policy: the cheap region first, the dear one for what has waited, and what that costs in simulation.

`python routing_policy.py` runs one burst of tasks twice, in virtual time: by the built-in order, which goes to the dear
region as soon as the cheap one is full, and by the policy. `pytest routing_policy.py` tests it with drawn jobs. Both
need the extra `testing`.
"""

from hypothesis import given, settings

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.model import GroupConfig
from iriscw.jobs.model import JobSpec
from iriscw.testing.fleet import assert_holds, plans
from iriscw_sims.plan_text import ENTRYPOINT
from iriscw_sims.swarm import GIB, TIMING, Plan, PlannedJob

SECOND = 10**9
PATIENCE = 60 * SECOND


def price(group):
    """Return what the configuration says that an hour costs."""
    return int(group.attributes.get("price") or 0)


def cheap_first(view):
    """The cheapest groups at once; all of them, by their price, for what has waited a minute."""
    by_price = sorted(view.groups, key=price)
    patient = [each for each in by_price if price(each) == price(by_price[0])]
    return by_price if view.waited >= PATIENCE else patient


def region(name, cost, slices):
    """Describe a group, as the file of a cluster does with `attributes: { zone: cheap, price: "1" }`."""
    return GroupConfig(
        name=name,
        per_worker=Capacity(cpu_milli=4000, memory_bytes=16 * GIB),
        attributes=Attributes({"zone": name, "price": str(cost)}),
        instance_type="cd-gp-i64",
        priority=cost,
        max_slices=slices,
        timing=TIMING,
    )


GROUPS = (region("cheap", 1, 2), region("dear", 3, 4))
TASK = JobSpec(name="burst", entrypoint=ENTRYPOINT, demand=Capacity(cpu_milli=4000, memory_bytes=GIB), replicas=6)
BURST = Plan(
    seed=0,
    groups=GROUPS,
    jobs=(PlannedJob(at=10 * SECOND, key="burst", spec=TASK),),
    faults=(),
    rates=(),
    safety=60 * SECOND,
    task_length=(10 * SECOND, 20 * SECOND),
)
"""Six tasks of a few seconds each, at once: the cheap region has room for two."""


@settings(max_examples=5, deadline=None)
@given(plans(among=GROUPS, kinds=(), chances=(), max_jobs=3))
def test_nobody_waits_for_long(plan):
    """What finds no room in the cheap region gets some in the dear one."""
    outcome = assert_holds(plan, routing=cheap_first)
    assert outcome.waited_percentile_s(90) <= 300


def main():
    """Compare what the burst costs, and for how long its tasks wait."""
    print(f"{'':12} {'cheap':>9} {'dear':>9} {'cost':>9} {'longest wait':>13}")
    for name, outcome in (
        ("by priority", assert_holds(BURST)),
        ("cheap first", assert_holds(BURST, routing=cheap_first)),
    ):
        cheap, dear = (outcome.slice_seconds_by_group[group.name] for group in GROUPS)
        print(f"{name:12} {cheap:7.0f} s {dear:7.0f} s {cheap + 3 * dear:9.0f} {max(outcome.waited_s):11.0f} s")


if __name__ == "__main__":
    main()
