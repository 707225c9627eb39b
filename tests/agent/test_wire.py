"""Plans and views come out of the wire as they went in, and what cannot be is refused."""

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.agent import wire
from iriscw.agent.operation_views import Made, OperationStep, RunningOperation
from iriscw.agent.operations import Asked, OperationKind
from iriscw.freeze.messages import OperationEnded
from iriscw.freeze.model import CriuOptions, FreezePlan, Hook, HookKind, Numbers, Outcome, TaskIdentity, ThawPlan
from iriscw.proto.iriscw import v1
from raised import that

MS = 1_000_000
ROOT = TaskIdentity(100, 500, "boot-1")
NAMES = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8)
TIMES = st.integers(1, 86_400_000).map(lambda ms: ms * MS)
HOOKS = st.one_of(
    st.none(),
    st.builds(lambda words, ns: Hook(HookKind.EXEC, ("/bin/x", *words), ns), st.lists(NAMES, max_size=3), TIMES),
    st.builds(lambda ns: Hook(HookKind.HTTP, ("http://x",), ns), TIMES),
    st.builds(lambda ns: Hook(HookKind.FILES, ("/a",), ns), TIMES),
)
PLANS = st.builds(
    FreezePlan,
    operation=st.just("ck-1"),
    root=st.just(ROOT),
    tier=st.sampled_from(["ram", "disk"]),
    leave_running=st.booleans(),
    force=st.booleans(),
    options=st.builds(CriuOptions, tcp_established=st.booleans(), tcp_close=st.booleans(), shell_job=st.booleans()),
    hook=HOOKS,
    lock_within_ns=TIMES,
    labels=st.dictionaries(NAMES, NAMES, max_size=4).map(lambda found: tuple(sorted(found.items()))),
    guard=st.sampled_from(["", "/attempt"]),
    carries_folder=st.booleans(),
)


@given(PLANS)
def test_a_plan_crosses_the_wire(plan):
    """Through bytes, so that what is not said is filled in."""
    sent = v1.FreezeRequest.parse(bytes(wire.freeze_request(plan)))
    assert wire.freeze_plan("ck-1", ROOT, sent) == plan


VIEWS = st.builds(
    lambda kind, steps, done, outcome, made, over: RunningOperation(
        Asked("op-1", kind, ""),
        "ck-1",
        "disk",
        True,
        steps=tuple(OperationStep(f"p{at}", at * MS) for at in steps),
        done_bytes=done,
        total_bytes=2 * done,
        end=OperationEnded("op-1", outcome, "Kind", "why") if over else None,
        made=Made("ck-1", "disk", 7, 100, 3) if made and over else None,
        over=over,
        lasted_ns=9 * MS if over else 0,
    ),
    st.sampled_from(OperationKind),
    st.lists(st.integers(0, 1000), max_size=4),
    st.integers(0, 1 << 50),
    st.sampled_from(Outcome),
    st.booleans(),
    st.booleans(),
)


@given(VIEWS)
def test_a_view_crosses_the_wire(view):
    """All that a caller needs of it."""
    assert wire.read_view(v1.OperationView.parse(bytes(wire.operation_view(view)))) == view


def test_one_that_is_put_aside():
    """It is no end, and says why."""
    view = RunningOperation(Asked("op-1", OperationKind.FREEZE, ""), "ck-1", "ram", False, aside="ZeroDivisionError: 1")
    read = wire.read_view(wire.operation_view(view))
    assert (read.aside, read.over, read.end) == ("ZeroDivisionError: 1", False, None)
    odd = bytes(wire.operation_view(attrs.evolve(view, aside="OSError: \udcff")))  # names of files may be any bytes
    assert wire.read_view(v1.OperationView.parse(odd)).aside == "OSError: \\udcff"


def test_a_view_of_a_newer_agent():
    """What it says is refused where it means nothing here."""
    for odd in (v1.OperationView(kind="melt"), v1.OperationView(kind="thaw", end=v1.OperationEnd(outcome="odd"))):
        with pytest.raises(InvalidArgument):
            wire.read_view(odd)


@pytest.mark.parametrize(
    "message",
    [
        v1.FreezeRequest(labels={"": "x"}),
        v1.FreezeRequest(labels={str(number): "x" for number in range(65)}),
        v1.FreezeRequest(tier="path:/a/b"),
        v1.FreezeRequest(lock_timeout_ms=-1),
        v1.FreezeRequest(lock_timeout_ms=86_400_001),
        v1.FreezeRequest(hook=v1.FreezeHook()),
        v1.FreezeRequest(hook=v1.FreezeHook(kind=v1.HookKind.EXEC)),
        v1.FreezeRequest(hook=v1.FreezeHook(kind=v1.HookKind.EXEC, target=["relative"])),
        v1.FreezeRequest(hook=v1.FreezeHook(kind=v1.HookKind.FILES, target=["/a", "/b"])),
        v1.FreezeRequest(hook=v1.FreezeHook(kind=v1.HookKind.EXEC, target=["/a"] * 257)),
    ],
)
def test_requests_that_cannot_be(message):
    """They are refused before anything is begun."""
    with pytest.raises(InvalidArgument):
        wire.freeze_plan("ck-1", ROOT, message)


@pytest.mark.parametrize("name", ["", "../x", "ck 1", "é", "x" * 64, "ck-1\0"])
def test_ids_that_are_none(name):
    """They never become the name of a file, or of a claim."""
    with pytest.raises(InvalidArgument, check=that(comes_from="wire.thaw_plan")):
        wire.thaw_plan("th-1", v1.ThawRequest(checkpoint_id=name))


def test_a_thaw():
    """With the GPUs that it comes to, of which there are not too many."""
    plan = wire.thaw_plan("th-1", v1.ThawRequest(checkpoint_id="ck-1", gpus={"b": "c", "a": "d"}, force=True))
    assert plan == ThawPlan("th-1", "ck-1", (("a", "d"), ("b", "c")), True)
    with pytest.raises(InvalidArgument, check=that(comes_from="wire.thaw_plan", names="65")):
        wire.thaw_plan("th-1", v1.ThawRequest(checkpoint_id="ck-1", gpus={str(each): "x" for each in range(65)}))


@pytest.mark.parametrize("numbers", Numbers)
def test_which_numbers_a_thaw_gets(numbers):
    """What is asked for is what is read; who says nothing wants the same ones; what is not known is refused."""
    plan = ThawPlan("th-1", "ck-1", (("a", "b"),), True, lazy=True, numbers=numbers)
    assert wire.thaw_plan("th-1", wire.thaw_request(plan)) == plan
    assert wire.thaw_plan("th-1", v1.ThawRequest(checkpoint_id="ck-1")).numbers is Numbers.SAME
    with pytest.raises(InvalidArgument, check=that(comes_from="wire.thaw_plan", names="9")):
        wire.thaw_plan("th-1", v1.ThawRequest(checkpoint_id="ck-1", numbers=9))


def test_a_tree_that_has_another_number_now():
    """It is shown by that, not by the one that it had when it was frozen."""
    view = RunningOperation(
        asked=Asked("th-1", OperationKind.THAW, ""),
        artifact="ck-1",
        tier="ram",
        owed=False,
        end=OperationEnded("th-1", Outcome.THAWED, "", "", 1100),
        made=Made("ck-1", "ram", 5, 100, 3),
        over=True,
    )
    assert view.pid == 1100
    assert wire.operation_view(view).end.pid == 1100
    assert wire.read_view(wire.operation_view(view)).pid == 1100
    assert attrs.evolve(view, end=attrs.evolve(view.end, root=0)).pid == 100
    assert attrs.evolve(view, end=None, made=None).pid == 0


def test_names_of_any_bytes():
    """The name of a process may be none that the wire takes."""
    assert wire.text("caf\udce9") == "caf\\udce9"
