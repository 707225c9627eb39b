"""`/fleet` message by message: what it opens, passes on, reclaims, routes and answers."""

from __future__ import annotations

import attrs
import pytest

from iriscw.cloud.effects import DeleteNodePool, WatchNodePools, WatchPods
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_GROUP,
    LABEL_MANAGED,
    LABEL_ROLE,
    Attributes,
    Constraint,
    Gone,
    NodePool,
    Op,
    Pod,
    Relisted,
    Removed,
    Throttled,
    Unavailable,
    Upserted,
)
from iriscw.fleet import root
from iriscw.fleet.messages import (
    MAX_DEMAND_ENTRIES,
    ActivityChanged,
    Cordoned,
    DemandChanged,
    DemandEntry,
    DemandRouted,
    DescribeFleet,
    ExplainDemand,
    ReopenGroup,
    RoutingFailed,
    SchedulerStarted,
    WorkersMissed,
)
from iriscw.fleet.model import Availability, FleetConfig, NoSuchGroup, SliceRow, SliceState, Trouble, slice_name
from iriscw.fleet.pacing import REMOVALS_BURST
from iriscw.fleet.signals import (
    Evaluate,
    GroupReported,
    GroupStarted,
    PodsListed,
    PoolsListed,
    Relist,
    SliceRowChanged,
    SlicesWanted,
    Takeover,
    TryAgain,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    Arrived,
    Close,
    Closed,
    Completed,
    Continue,
    Emit,
    Failed,
    Open,
    Refuse,
    Reply,
    Run,
    SetTimer,
    StopReason,
    Tell,
    Terminated,
    Undelivered,
    replace,
)

FLEET = ActorPath("/fleet")


@pytest.fixture
def ctx(ctx):
    ctx.path = FLEET
    return ctx


@pytest.fixture
def fleet(group_config, ctx):
    """A fleet of two groups, begun."""
    it = root.Fleet(FleetConfig("test", (group_config("gpu"), group_config("cpu")), takeover_delay=7 * SECOND))
    commands = root.resume(it, ctx)
    assert commands == (SetTimer("takeover", 7 * SECOND, Takeover()), Continue(Relist()))
    return it


def send(it, ctx, message):
    return root.RULES[type(message)](it, message, ctx) or ()


def told(commands, name=None):
    """Return what is told, to one receiver or to all."""
    return [each.message for each in commands if isinstance(each, Tell) and name in (None, each.to.name)]


def runs(commands):
    return [each.effect for each in commands if isinstance(each, Run)]


def looks(commands):
    return [each.message for each in commands if isinstance(each, Continue)]


def row(name="iris-gpu-a", group="gpu"):
    return SliceRow(name, group, SliceState.READY, Trouble.NONE, "", 1, 1)


def report(it, group, availability=Availability.AVAILABLE, room=2):
    """Return the report of a group that can take ``room`` slices."""
    (config,) = [each for each in it.config.groups if each.name == group]
    return GroupReported(root.empty_row(config, ""), availability, 0, 0, room)


def entry(big, name="job", count=1):
    return DemandEntry(name, big, (), count, 1, 0)


def pool(labels, name="p", group="gpu", uid="u1"):
    return NodePool(name, uid, "1", {**labels(name), LABEL_GROUP: group})


# Watches


def test_both_watches_are_opened_for_what_is_ours(fleet, ctx):
    """By the labels of this cluster; anew means that the one before is closed first."""
    assert fleet.labels == {LABEL_MANAGED: "true", LABEL_CLUSTER: fleet.config.cluster}
    assert [type(each) for each in send(fleet, ctx, Relist())] == [Open, Open]
    again = send(fleet, ctx, Relist())
    assert [type(each) for each in again] == [Close, Open, Close, Open]
    assert [each.session for each in again if isinstance(each, Open)] == [
        WatchNodePools(fleet.labels),
        WatchPods(fleet.labels),
    ]


def test_a_watch_that_ends_is_opened_after_a_growing_pause(fleet, ctx):
    """What it ended with is shown to people until it brings something again, and then forgotten."""
    send(fleet, ctx, Relist())
    delays = []
    for _ in range(5):
        (clock,) = send(fleet, ctx, Closed(root.POOLS, Unavailable("no route")))
        delays.append(clock.delay)
        (opened,) = send(fleet, ctx, clock.message)
        assert (type(opened), opened.key) == (Open, root.POOLS)
        assert send(fleet, ctx, clock.message) == ()
    assert delays[4] > 3 * delays[0]
    (answer,) = send(fleet, ctx, DescribeFleet())
    assert "no route" in answer.value.watch_error
    send(fleet, ctx, Arrived(root.POOLS, Relisted(())))
    (answer,) = send(fleet, ctx, DescribeFleet())
    assert answer.value.watch_error == ""
    (clock,) = send(fleet, ctx, Closed(root.POOLS, None))
    assert clock.delay <= delays[0] * 4 // 3
    (answer,) = send(fleet, ctx, DescribeFleet())
    assert "the watch ended" in answer.value.watch_error


def test_the_fleet_is_synced_when_both_lists_came(fleet, ctx):
    """One list alone says half of the truth."""
    for key, synced in ((root.POOLS, False), (root.PODS, True)):
        send(fleet, ctx, Arrived(key, Relisted(())))
        (answer,) = send(fleet, ctx, DescribeFleet())
        assert answer.value.synced == synced


def test_lists_go_to_each_group_with_its_own(fleet, ctx, labels):
    """A group of which nothing exists hears that, too."""
    mine = pool(labels)
    commands = send(fleet, ctx, Arrived(root.POOLS, Relisted((mine,))))
    assert (told(commands, "gpu"), told(commands, "cpu")) == ([PoolsListed((mine,))], [PoolsListed(())])
    pod = Pod("x", "u", "1", {**labels("x"), LABEL_GROUP: "cpu"})
    commands = send(fleet, ctx, Arrived(root.PODS, Relisted((pod,))))
    assert (told(commands, "gpu"), told(commands, "cpu")) == ([PodsListed(())], [PodsListed((pod,))])


@pytest.mark.parametrize("change", [Upserted, Removed])
def test_changes_go_to_their_group(fleet, ctx, labels, change):
    """As they came."""
    item = change(pool(labels, group="cpu"))
    (passed,) = send(fleet, ctx, Arrived(root.POOLS, item))
    assert (passed.to, passed.message) == (FLEET / "cpu", item)


def test_a_group_that_begins_is_told_everything_anew(fleet, ctx, big):
    """Everything is listed, once for all that begin together; what is wanted of it is told though it is the same."""
    fleet.relisting = False
    for group in ("gpu", "cpu"):
        send(fleet, ctx, SliceRowChanged(f"iris-{group}-a", row(f"iris-{group}-a", group)))
        send(fleet, ctx, report(fleet, group))
    send(fleet, ctx, DemandChanged((entry(big),)))
    before = told(send(fleet, ctx, Evaluate()), "cpu") + told(send(fleet, ctx, Evaluate()), "cpu")
    assert len(before) == 1
    assert looks(send(fleet, ctx, GroupStarted("gpu"))) == [Evaluate(), Relist()]
    assert looks(send(fleet, ctx, GroupStarted("cpu"))) == []
    assert [*fleet.rows] == []
    assert [*fleet.reports] == []
    again = send(fleet, ctx, Evaluate())
    assert [type(each) for each in told(again, "gpu") + told(again, "cpu")] == [SlicesWanted, SlicesWanted]
    send(fleet, ctx, Relist())
    assert Relist() in looks(send(fleet, ctx, GroupStarted("gpu")))


def test_groups_that_begin_with_the_fleet_share_its_first_lists(fleet, ctx):
    """They are on their way already: nobody's asking has a watch closed and everything listed once more."""
    asked = [looks(send(fleet, ctx, GroupStarted(group))) for group in ("gpu", "cpu")]
    assert asked == [[Evaluate()], []]
    assert [type(each) for each in send(fleet, ctx, Relist())] == [Open, Open]


def test_rows_of_other_groups_stay(fleet, ctx):
    """When one group begins anew."""
    for group in ("gpu", "cpu"):
        send(fleet, ctx, SliceRowChanged(f"iris-{group}-a", row(f"iris-{group}-a", group)))
    send(fleet, ctx, GroupStarted("gpu"))
    assert [*fleet.rows] == ["iris-cpu-a"]


# Things of groups that are not configured


@pytest.mark.parametrize("change", [{LABEL_CLUSTER: "other"}, {LABEL_MANAGED: "no"}, {LABEL_ROLE: "controller"}])
def test_what_is_not_ours_goes_nowhere(fleet, ctx, labels, change):
    """Pools of others and of the controller are neither passed on nor taken for orphans (INV-F2)."""
    send(fleet, ctx, Takeover())
    for group in ("gpu", "nobody"):
        foreign = NodePool("p", "u", "1", {**labels("p"), "iris-scale-group": group, **change})
        for item in (Upserted(foreign), Removed(foreign)):
            assert send(fleet, ctx, Arrived(root.POOLS, item)) == ()
        listed = told(send(fleet, ctx, Arrived(root.POOLS, Relisted((foreign,)))))
        assert listed == [PoolsListed(())] * 2
    assert fleet.orphans.names == ()


def test_what_belongs_to_no_group_goes_after_the_takeover(fleet, ctx, labels):
    """Until then an earlier controller may have made it a moment ago; a list or a change shows it."""
    assert runs(send(fleet, ctx, Arrived(root.POOLS, Upserted(pool(labels, group="old"))))) == []
    assert runs(send(fleet, ctx, Takeover())) == [DeleteNodePool("p", "u1")]
    listed = Relisted((pool(labels, group="old"), pool(labels, "q", "old", "u2")))
    assert runs(send(fleet, ctx, Arrived(root.POOLS, listed))) == [DeleteNodePool("q", "u2")]
    send(fleet, ctx, Arrived(root.PODS, Relisted(())))
    assert fleet.orphans.names == ("pool:p", "pool:q")
    send(fleet, ctx, Arrived(root.POOLS, Relisted((pool(labels, group="old"),))))
    assert fleet.orphans.names == ("pool:p",)
    send(fleet, ctx, Arrived(root.POOLS, Removed(pool(labels, group="old"))))
    assert fleet.orphans.names == ()


@pytest.mark.parametrize("answer", ["done", "failed"])
def test_their_deletion_is_repeated_until_they_are_gone(fleet, ctx, labels, answer):
    """An acknowledgement is no end; that there is nothing to delete is."""
    send(fleet, ctx, Takeover())
    (run,) = send(fleet, ctx, Arrived(root.POOLS, Upserted(pool(labels, group="old"))))
    message = Completed(run.key, run.effect, None)
    (clock,) = send(fleet, ctx, message if answer == "done" else Failed(run.key, run.effect, Unavailable("x")))
    (again,) = runs(send(fleet, ctx, clock.message))
    assert again == run.effect
    assert send(fleet, ctx, Failed(run.key, run.effect, Gone("x"))) == ()
    assert fleet.orphans.names == ()


def test_many_go_at_their_rate(fleet, ctx, labels):
    """The first burst at once, the others when the rate allows: the clock says when (INV-F9)."""
    send(fleet, ctx, Takeover())
    things = tuple(pool(labels, f"p{index}", "old", f"u{index}") for index in range(REMOVALS_BURST + 2))
    commands = send(fleet, ctx, Arrived(root.POOLS, Relisted(things)))
    assert len(runs(commands)) == REMOVALS_BURST
    (clock,) = [each for each in commands if isinstance(each, SetTimer)]
    assert clock.delay > 0
    assert len(runs(send(fleet, ctx.later(clock.delay / SECOND), clock.message))) == 1


# Demand


def test_demand_is_routed_once_for_all_that_waits(fleet, ctx, big):
    """Each group hears what is wanted of it, the scheduler what is done; neither hears it twice."""
    send(fleet, ctx, report(fleet, "gpu"))
    fleet.routing = False
    assert looks(send(fleet, ctx, DemandChanged((entry(big),)))) == [Evaluate()]
    assert looks(send(fleet, ctx, report(fleet, "cpu"))) == []
    commands = send(fleet, ctx, Evaluate())
    assert sum(each.count for name in ("gpu", "cpu") for each in told(commands, name)) == 1
    (routed,) = [each for each in told(commands) if isinstance(each, DemandRouted)]
    assert [name for name, _ in routed.reasons] == ["job"]
    assert looks(send(fleet, ctx, DemandChanged((entry(big),)))) == [Evaluate()]
    assert send(fleet, ctx, Evaluate()) == ()


@pytest.mark.parametrize("why", ["scheduler began anew", "scheduler had no room"])
def test_a_scheduler_that_does_not_know_is_told_again(fleet, ctx, big, why):
    """Though nothing has changed."""
    send(fleet, ctx, DemandChanged((entry(big),)))
    send(fleet, ctx, Evaluate())
    if why == "scheduler began anew":
        commands = send(fleet, ctx, SchedulerStarted())
        assert told(commands, "gpu") == told(commands, "cpu") == [SchedulerStarted()]
        assert looks(commands) == [Evaluate()]
    else:
        (clock,) = send(fleet, ctx, Undelivered(ActorPath("/jobs/scheduler"), DemandRouted(())))
        assert looks(send(fleet, ctx, clock.message)) == [Evaluate()]
    assert any(isinstance(each, DemandRouted) for each in told(send(fleet, ctx, Evaluate())))


def test_a_group_that_had_no_room_is_brought_up_to_date(fleet, ctx):
    """By a list of what the watch brought, by routing anew, or not at all if the scheduler asks again."""
    (clock,) = send(fleet, ctx, Undelivered(FLEET / "gpu", PoolsListed(())))
    assert (clock.key, clock.message) == ("relist", Relist())
    (clock,) = send(fleet, ctx, Undelivered(FLEET / "gpu", SlicesWanted(1)))
    fleet.wanted["gpu"] = 0
    send(fleet, ctx, clock.message)
    assert told(send(fleet, ctx, Evaluate()), "gpu") == [SlicesWanted(0)]
    assert send(fleet, ctx, Undelivered(FLEET / "gpu", WorkersMissed(()))) == ()


def test_a_group_that_is_gone_offers_nothing(fleet, ctx, big):
    """Its demand is routed elsewhere at once."""
    for group in ("gpu", "cpu"):
        send(fleet, ctx, report(fleet, group))
    fleet.routing = False
    assert looks(send(fleet, ctx, Terminated(FLEET / "gpu", StopReason.QUARANTINED))) == [Evaluate()]
    send(fleet, ctx, DemandChanged((entry(big, count=4),)))
    commands = send(fleet, ctx, Evaluate())
    assert (told(commands, "gpu"), told(commands, "cpu")) == ([SlicesWanted(0)], [SlicesWanted(2)])


def test_a_group_that_has_not_reported_takes_no_demand(fleet, big):
    """It says so, instead of being asked for slices that it may not have."""
    offered = {each.config.name: each for each in root.offers(fleet)}
    assert offered["gpu"].availability is Availability.COOLDOWN
    assert (offered["gpu"].room, "starting" in offered["gpu"].reason) == (0, True)


@pytest.mark.parametrize("own", [Availability.AVAILABLE, Availability.INVALID])
def test_one_quota_closes_all_groups_that_share_it(group_config, ctx, own):
    """A group whose quota pool is used up by another one offers nothing, and says whose it is. One that is closed
    itself says its own trouble.
    """
    shared = (group_config("a", quota_pool="h100"), group_config("b", quota_pool="h100"), group_config("c"))
    it = root.Fleet(FleetConfig("test", shared))
    for name, state in (("a", Availability.QUOTA_EXCEEDED), ("b", own), ("c", Availability.AVAILABLE)):
        it.reports[name] = report(it, name, state, room=3)
    it.reports["a"] = replace(it.reports["a"], row=replace(it.reports["a"].row, retry_at=77))
    offered = {each.config.name: each for each in root.offers(it)}
    closed = own is Availability.AVAILABLE
    assert offered["b"].availability is (Availability.QUOTA_EXCEEDED if closed else own)
    assert ("'a'" in offered["b"].reason) == closed
    assert offered["b"].room == 0 or not closed
    assert offered["c"].room == 3
    (answer,) = send(it, ctx, DescribeFleet())
    shown = {each.group: each for each in answer.value.groups}
    assert [shown[name].quota_used_up_by for name in "abc"] == ["a", "a", ""]
    assert ((shown["b"].availability, shown["b"].retry_at) == (Availability.QUOTA_EXCEEDED, 77)) == closed


def test_what_a_group_waits_for_that_only_starts(group_config, ctx):
    """First for the lists, then for the end of what an earlier controller asked for: ``iriscw pools`` tells which."""
    it = root.Fleet(FleetConfig("test", (group_config("a"),), takeover_delay=90 * SECOND))
    before = root.starting(it)
    for key in (root.POOLS, root.PODS):
        root.arrived(it, Arrived(key, Relisted(())), ctx)
    listed = root.starting(it)
    root.takeover(it, Takeover(), ctx)
    assert len({before, listed, root.starting(it)}) == 3
    assert "90 s" in listed
    assert "api_timeout" in listed


def test_what_a_group_says_of_boots_reaches_who_waits(fleet):
    """When the first slice should be ready, and how long boots take."""
    told = report(fleet, "gpu")
    fleet.reports["gpu"] = attrs.evolve(told, row=attrs.evolve(told.row, boot_estimate=7), expected_at=99)
    offered = root.offers(fleet)[0]
    assert (offered.expected_at, offered.boot_estimate) == (99, 7)


def test_demand_beyond_the_limit_is_told_so(fleet, ctx, big):
    """More kinds of demand than are routed at once each get a sentence (INV-J7)."""
    entries = tuple(entry(big, f"d{index}") for index in range(MAX_DEMAND_ENTRIES + 2))
    send(fleet, ctx, DemandChanged(entries))
    (routed,) = [each for each in told(send(fleet, ctx, Evaluate())) if isinstance(each, DemandRouted)]
    assert len(routed.reasons) == len(entries)
    assert "more than 1000 kinds" in dict(routed.reasons)[f"d{MAX_DEMAND_ENTRIES + 1}"]


# What is passed on, and what people ask


def test_missed_workers_go_to_the_one_group_that_can_have_named_them(group_config, ctx):
    """A group whose name begins with another one's is not taken for it; unknown groups are not asked."""
    it = root.Fleet(FleetConfig("test", (group_config("gpu"), group_config("gpu-a"))))
    places = tuple((f"{slice_name(group, 'abc')}-0", "i1") for group in ("gpu", "gpu-a", "other"))
    told = root.workers_missed(it, WorkersMissed(places), ctx)
    assert [(each.to.name, each.message.places) for each in told] == [("gpu", places[:1]), ("gpu-a", places[1:2])]


def test_what_concerns_a_slice_goes_to_it(fleet, ctx):
    """By way of the group that has it; about an unknown slice nobody is told."""
    messages = (ActivityChanged("iris-gpu-a-0", "i1", 2), Cordoned("iris-gpu-a", 0, 5))
    for message in messages:
        assert send(fleet, ctx, message) == ()
    send(fleet, ctx, SliceRowChanged("iris-gpu-a", row()))
    for message in messages:
        (passed,) = send(fleet, ctx, message)
        assert (passed.to, passed.message) == (FLEET / "gpu" / "iris-gpu-a", message)
    send(fleet, ctx, SliceRowChanged("iris-gpu-a", None))
    assert send(fleet, ctx, messages[0]) == ()


def test_a_description_has_all_groups_and_slices_by_name(fleet, ctx):
    """A group that has not reported is shown as starting."""
    for name in ("b", "a"):
        send(fleet, ctx, SliceRowChanged(name, row(name)))
    shown = report(fleet, "gpu")
    send(fleet, ctx, shown)
    (answer,) = send(fleet, ctx, DescribeFleet())
    assert [each.slice_id for each in answer.value.slices] == ["a", "b"]
    assert [each.group for each in answer.value.groups] == ["cpu", "gpu"]
    assert answer.value.groups[1] == shown.row


def test_a_group_is_reopened_by_name(fleet, ctx):
    """It is told, and whoever asked is answered; a name that no group has is refused."""
    passed, answer = send(fleet, ctx, ReopenGroup("gpu"))
    assert (passed.to, passed.message, answer) == (FLEET / "gpu", ReopenGroup("gpu"), Reply(None))
    (refused,) = send(fleet, ctx, ReopenGroup("nobody"))
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, NoSuchGroup)


def test_an_orphan_in_line_is_not_asked_for_out_of_turn(fleet, ctx, labels):
    """A pause that is over puts it in line again, once."""
    send(fleet, ctx, Takeover())
    (run,) = send(fleet, ctx, Arrived(root.POOLS, Upserted(pool(labels, group="old"))))
    (clock,) = send(fleet, ctx, Failed(run.key, run.effect, Throttled(retry_after=SECOND)))
    assert send(fleet, ctx, TryAgain("reclaim")) == ()
    assert len(runs(send(fleet, ctx, clock.message))) == 1


def test_a_group_is_told_which_idle_slices_do_not_do_for_a_gang(fleet, ctx, big):
    """As soon as their workers are known, and again once other ones are there; nobody looks for less."""
    it = fleet
    asked = (Constraint("python", Op.EQ, ("3.12",)),)
    gang = DemandEntry("gang", big, asked, 2, 2, 0, "group")
    idle = attrs.evolve(row(), idle_since=1)
    old, new = (Attributes({"python": python, "group": "gpu"}) for python in ("3.11", "3.12"))
    assert looks(send(it, ctx, SliceRowChanged("iris-gpu-a", idle, (old,)))) == []
    send(it, ctx, attrs.evolve(report(it, "gpu", room=3), idle=1))
    send(it, ctx, DemandChanged((gang,)))
    doubtful = send(it, ctx, Evaluate())
    assert told(doubtful, "gpu") == [SlicesWanted(0)]
    (trial,) = (each for each in doubtful if isinstance(each, SetTimer))
    assert trial.message == Evaluate()
    ctx.now += trial.delay
    assert told(send(it, ctx, Evaluate()), "gpu") == [SlicesWanted(1)], "one to see whether new ones are better"
    assert looks(send(it, ctx, SliceRowChanged("iris-gpu-a", idle, (old,)))) == []
    assert looks(send(it, ctx, SliceRowChanged("iris-gpu-a", idle, (new,)))) == [Evaluate()]
    assert told(send(it, ctx, Evaluate()), "gpu") == [SlicesWanted(2, 2)]
    assert looks(send(it, ctx, SliceRowChanged("iris-gpu-a", row(), (new,)))) == [Evaluate()]
    send(it, ctx, Evaluate())
    assert looks(send(it, ctx, SliceRowChanged("iris-gpu-a", None))) == []
    send(it, ctx, GroupStarted("gpu"))
    assert it.workers == {}


def test_a_group_is_told_which_idle_slices_nothing_that_waits_could_use(fleet, ctx, big):
    """And is told anew once other ones are idle; of slices that all run the same nobody asks which they are."""
    it = fleet
    (group,) = (each for each in it.config.groups if each.name == "gpu")
    asked = (Constraint("python", Op.EQ, ("3.12",)), Constraint("group", Op.EQ, ("gpu",)))
    idle = attrs.evolve(row(), idle_since=1)
    old = Attributes({"python": "3.11", "group": "gpu"})
    send(it, ctx, SliceRowChanged("iris-gpu-a", idle, (old,)))
    full = attrs.evolve(report(it, "gpu", Availability.AT_MAX, room=0), idle=1)
    send(it, ctx, attrs.evolve(full, row=attrs.evolve(full.row, slices=group.max_slices)))
    send(it, ctx, DemandChanged((DemandEntry("task", big, asked, 1, 1, 0),)))
    assert told(send(it, ctx, Evaluate()), "gpu") == [SlicesWanted(0, renew=1, useless=("iris-gpu-a",))]
    assert looks(send(it, ctx, SliceRowChanged("iris-gpu-a", row(), (old,)))) == [Evaluate()]
    assert told(send(it, ctx, Evaluate()), "gpu") == [SlicesWanted(0)]
    send(it, ctx, SliceRowChanged("iris-gpu-a", idle, (old,)))
    send(it, ctx, DemandChanged((DemandEntry("task", big, asked[1:], 1, 1, 0),)))
    assert told(send(it, ctx, Evaluate()), "gpu") == []


@pytest.mark.parametrize("availability", Availability)
def test_what_is_there_is_kept_for_a_gang_unless_people_have_to_act(fleet, ctx, big, availability):
    """A closed group would bring the rest once it opens; one whose specification is invalid does not open by itself."""
    it = fleet
    zone = Attributes({"zone": "z"})
    groups = tuple(attrs.evolve(each, attributes=zone, max_slices=1) for each in it.config.groups)
    it.config = attrs.evolve(it.config, groups=groups)
    here = report(it, "gpu", Availability.AT_MAX, room=0)
    send(it, ctx, attrs.evolve(here, row=attrs.evolve(here.row, slices=1), idle=1))
    send(it, ctx, report(it, "cpu", availability, room=0))
    send(it, ctx, DemandChanged((DemandEntry("gang", big, (), 2, 2, 0, "zone"),)))
    kept = 0 if availability is Availability.INVALID else 1
    assert told(send(it, ctx, Evaluate()), "gpu") == [SlicesWanted(kept, kept)]


@pytest.fixture
def spilling(group_config, ctx):
    """A fleet of two groups: a policy keeps demand off the second one until it has waited for a minute."""

    def cpu_later(view):
        return view.groups if view.waited >= 60 * SECOND else [each for each in view.groups if each.name != "cpu"]

    it = root.Fleet(FleetConfig("test", (group_config("gpu"), group_config("cpu"))), policy=cpu_later)
    for group, room in (("gpu", 0), ("cpu", 2)):
        send(it, ctx, report(it, group, room=room))
    return it


def asks_again(commands):
    return [each.delay for each in commands if isinstance(each, SetTimer) and each.key == "ask"]


def test_a_routing_policy_is_asked_again_as_time_goes_by(spilling, ctx, big):
    """For as long as something waits, though nothing happens; what waits anew begins anew."""
    send(spilling, ctx, DemandChanged((entry(big),)))
    commands = send(spilling, ctx, Evaluate())
    assert asks_again(commands) == [spilling.timing.evaluation_interval]
    assert "leaves out 'cpu'" in told(commands, "scheduler")[0].reasons[0][1]
    send(spilling, ctx.later(59), DemandChanged((entry(big, count=2),)))
    assert told(send(spilling, ctx, Evaluate()), "cpu") == []
    assert told(send(spilling, ctx.later(1), Evaluate()), "cpu") == [SlicesWanted(2)]
    send(spilling, ctx, DemandChanged(()))
    assert asks_again(send(spilling, ctx, Evaluate())) == []
    send(spilling, ctx, DemandChanged((entry(big),)))
    assert told(send(spilling, ctx, Evaluate()), "cpu") == []


def test_nobody_asks_again_where_the_built_in_order_holds(fleet, ctx, big):
    """It knows no time: the fleet is at rest until something happens."""
    send(fleet, ctx, DemandChanged((entry(big),)))
    assert asks_again(send(fleet, ctx, Evaluate())) == []


def test_a_routing_policy_that_fails_is_reported(spilling, ctx, big):
    """The default decides; each failure is counted, one in a minute is published."""

    def published(commands):
        return [each.event for each in commands if isinstance(each, Emit)]

    spilling.policy = lambda view: ["gpu"]
    send(spilling, ctx, DemandChanged((entry(big, "a"), entry(big, "b"))))
    commands = send(spilling, ctx, Evaluate())
    assert told(commands, "cpu") == [SlicesWanted(2)]
    assert published(commands) == [RoutingFailed("a: ValueError: 'gpu' is none of the groups of the view")]
    assert published(send(spilling, ctx.later(59), Evaluate())) == []
    assert len(published(send(spilling, ctx.later(1), Evaluate()))) == 1
    (answer,) = send(spilling, ctx, DescribeFleet())
    assert answer.value.routing_failures == 6


def test_what_was_decided_is_explained(spilling, ctx, big):
    """Of the groups that were asked about and are known; nothing before demand was routed."""
    assert send(spilling, ctx, ExplainDemand(("cpu",))) == (Reply(()),)
    send(spilling, ctx, DemandChanged((entry(big),)))
    since = ctx.wall
    send(spilling, ctx.later(61), Evaluate())
    (answer,) = send(spilling, ctx, ExplainDemand(("cpu", "nobody", "gpu")))
    cpu, gpu = answer.value
    assert (cpu.group, cpu.tasks, gpu.group, gpu.tasks) == ("cpu", 1, "gpu", 0)
    assert (cpu.told[0].since, cpu.told[0].takes) == (since, 1)
    assert gpu.told[0].before == (("cpu", cpu.told[0].why),)
