"""What passes between an agent and its controller survives the wire, and what cannot be is refused."""

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw.nodes import wire
from iriscw.nodes.model import (
    CHECKPOINT,
    OPERATION,
    Abilities,
    AgentIdentity,
    AgentReport,
    CheckpointRow,
    FreezeOrder,
    GpuRow,
    ListOrder,
    MoveOrder,
    OperationRow,
    Order,
    OrderEnd,
    Orders,
    RemoveOrder,
    ThawOrder,
    TierRow,
    VerifyOrder,
)
from iriscw.proto.iriscw import v1
from profiles import examples

IDS = st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
COUNTS = st.integers(0, 1 << 40)
PIDS = st.integers(0, 1 << 22)
LABELS = st.dictionaries(TEXTS, TEXTS, max_size=3).map(lambda found: tuple(sorted(found.items())))
CHECKPOINTS = st.builds(CheckpointRow, IDS, TEXTS, COUNTS, TEXTS, PIDS, PIDS, TEXTS, COUNTS, LABELS)
STEPS = st.lists(st.tuples(TEXTS, COUNTS), max_size=3).map(tuple)
OPERATIONS = st.builds(OperationRow, IDS, TEXTS, IDS, TEXTS, st.booleans(), STEPS, COUNTS, COUNTS, TEXTS)
TIERS = st.builds(TierRow, TEXTS, TEXTS, COUNTS, COUNTS, COUNTS, COUNTS)
ENDS = st.builds(OrderEnd, IDS, IDS, TEXTS, TEXTS, COUNTS, COUNTS, PIDS, PIDS, TEXTS)
GONE = st.one_of(st.tuples(st.just(CHECKPOINT), IDS, TEXTS), st.tuples(st.just(OPERATION), IDS))
FREEZES = st.builds(
    FreezeOrder,
    PIDS,
    COUNTS,
    TEXTS,
    TEXTS,
    IDS,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    LABELS,
    COUNTS,
    st.booleans(),
    TEXTS,
    st.booleans(),
)
ORDER = st.one_of(
    st.builds(lambda name, freeze: Order(name, freeze=freeze), IDS, FREEZES),
    st.builds(
        lambda name, *asked: Order(name, thaw=ThawOrder(*asked)), IDS, IDS, st.booleans(), st.booleans(), LABELS, IDS
    ),
    st.builds(lambda name, *asked: Order(name, remove=RemoveOrder(*asked)), IDS, IDS, st.booleans()),
    st.builds(lambda name, *asked: Order(name, move=MoveOrder(*asked)), IDS, IDS, IDS, st.booleans(), IDS),
    st.builds(lambda name, held: Order(name, verify=VerifyOrder(held)), IDS, IDS),
    st.builds(lambda name: Order(name, listing=ListOrder()), IDS),
)


def several(kind):
    """Return some."""
    return st.lists(kind, max_size=4)


def travelled(message):
    """Return a message as it arrives."""
    return type(message).parse(bytes(message))


@examples(20)  # to draw one takes 30 ms
@given(several(CHECKPOINTS), several(OPERATIONS), several(TIERS), several(ENDS), several(GONE), COUNTS, st.booleans())
def test_reports(checkpoints, operations, tiers, ends, gone, sequence, complete):
    """Every fact comes as it was said, kind by kind."""
    gone.sort(key=lambda key: key[0])
    said = AgentReport(sequence, complete, (*checkpoints, *operations, *tiers, *ends), tuple(gone), 3)
    assert wire.read_report(travelled(wire.report(said))) == said


@examples(20)
@given(several(ORDER), several(IDS), several(IDS), st.booleans())
def test_orders(begin, cancel, release, complete):
    """Every order comes as it was given."""
    given_orders = Orders(complete, tuple(begin), tuple(cancel), tuple(release))
    assert wire.read_orders(travelled(wire.orders(given_orders))) == given_orders


def labelled(labels):
    """Return a report of a checkpoint with labels."""
    return v1.AgentReport(checkpoints=[v1.CheckpointView(checkpoint_id="ck-1", tier="ram", labels=labels)])


def test_as_many_labels_as_a_manifest_has():
    """What an agent can find in a manifest it can say."""
    labels = {f"{number:0256}": "v" * 256 for number in range(64)}
    (row,) = wire.read_report(travelled(labelled(labels))).facts
    assert dict(row.labels) == labels


def test_an_operation_with_too_many_steps():
    """The last ones are taken; a name of a tier that is gone is cut as it was when it was said."""
    steps = [v1.OperationStep(phase=f"s{number}") for number in range(65)]
    gone = [v1.CheckpointPlace(checkpoint_id="ck-1", tier="t" * 5000)]
    said = v1.AgentReport(operations=[v1.OperationView(operation_id="ck-1", steps=steps)], checkpoints_gone=gone)
    read = wire.read_report(said)
    assert [phase for phase, _ in read.facts[0].steps] == [f"s{number}" for number in range(1, 65)]
    assert read.gone == ((CHECKPOINT, "ck-1", "t" * wire.MAX_TEXT_CHARS),)


@pytest.mark.parametrize("more", [{"criu_features": ["x"] * 257}, {"gpus": [v1.GpuView()] * 257}])
def test_a_machine_that_is_none(more):
    """One with more features or GPUs than any is refused, and long names are cut."""
    with pytest.raises(InvalidArgument):
        wire.read_capabilities(v1.CapabilitiesResponse(**more))
    assert wire.read_capabilities(v1.CapabilitiesResponse(criu_features=["x" * 99])).criu_features == ("x" * 64,)


def test_who_dials():
    """The agent and its abilities come as they are."""
    identity = AgentIdentity("n1", "agent-1", 3, "boot")
    abilities = Abilities(
        "1", "4.2", "", ("a",), True, "570", "", (GpuRow("u", "H100", 0, 80),), 16, "s3://checkpoints/a"
    )
    assert wire.read_hello(travelled(wire.hello(identity, abilities))) == (identity, abilities)


def test_an_order_of_a_kind_that_is_not_known():
    """A newer controller's is left out, and the others are taken."""
    newer = v1.AgentOrder(operation_id="xx-1")
    known = v1.AgentOrder(operation_id="rm-1", remove=v1.RemoveCheckpointRequest(checkpoint_id="ck-1"))
    read = wire.read_orders(v1.AgentOrders(begin=[newer, known]))
    assert [order.operation for order in read.begin] == ["rm-1"]


@pytest.mark.parametrize(
    "message",
    [
        v1.AgentOrders(cancel=["../x"]),
        v1.AgentOrders(release=[""]),
        v1.AgentOrders(begin=[v1.AgentOrder(operation_id="A", remove=v1.RemoveCheckpointRequest(checkpoint_id="c"))]),
    ],
)
def test_orders_that_are_none(message):
    """An id that none can have is refused."""
    with pytest.raises(InvalidArgument):
        wire.read_orders(message)


@pytest.mark.parametrize(
    "message",
    [
        v1.AgentReport(operations=[v1.OperationView(operation_id="/")]),
        v1.AgentReport(orders=[v1.OrderEnd(operation_id="ck-1")]),
        v1.AgentReport(operations_gone=["x"] * 33),
        v1.AgentReport(operations_gone=["/"]),
        v1.AgentReport(checkpoints_gone=[v1.CheckpointPlace(checkpoint_id="../x", tier="ram")]),
        labelled({str(number): "" for number in range(65)}),
        labelled({"n" * 257: ""}),
        labelled({"n": "v" * 257}),
    ],
)
def test_reports_that_are_none(message):
    """So is a report of what cannot be."""
    with pytest.raises(InvalidArgument):
        wire.read_report(message)
