"""Between the values of nodes and the protocol (``iriscw/v1/nodes.proto``). Both sides of the stream use it."""

from __future__ import annotations

from collections.abc import Mapping

from iriscw._errors import InvalidArgument
from iriscw.nodes.model import (
    CHECKPOINT,
    MAX_FACTS,
    MAX_LABEL_CHARS,
    MAX_LABELS,
    MAX_STEPS,
    NODE_NAME,
    OPERATION,
    OPERATION_ID,
    Abilities,
    AgentIdentity,
    AgentReport,
    CheckpointRow,
    Fact,
    FactKey,
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

PROTOCOL_VERSION = 1

ASIDE = "aside"
"""The outcome, on the wire, of an operation that was put aside."""

MAX_ID_CHARS = 64
MAX_TEXT_CHARS = 4096
"""Of a text that an agent says: it is cut there."""


MAX_FEATURES = 256
"""Of CRIU, and as many GPUs: what has more is no machine."""


def _pairs(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(given.items()))


# Who dials


def hello(identity: AgentIdentity, abilities: Abilities) -> v1.AgentHello:
    """Write who dials."""
    return v1.AgentHello(
        protocol_version=PROTOCOL_VERSION,
        node=identity.node,
        agent_id=identity.agent_id,
        starts=identity.starts,
        boot_id=identity.boot_id,
        capabilities=capabilities(abilities, identity.node),
    )


def read_hello(message: v1.AgentHello) -> tuple[AgentIdentity, Abilities]:
    """Read who dials.

    Raises:
        InvalidArgument: it is nobody.
    """
    if not NODE_NAME.fullmatch(message.node):
        raise InvalidArgument(f"{message.node[:80]!a} is not a valid node name")
    if not OPERATION_ID.fullmatch(message.agent_id) or message.starts < 1:
        raise InvalidArgument(f"{message.agent_id[:80]!a} is not the id of an agent that was started")
    identity = AgentIdentity(message.node, message.agent_id, message.starts, message.boot_id[:MAX_ID_CHARS])
    return identity, read_capabilities(message.capabilities or v1.CapabilitiesResponse())


def capabilities(abilities: Abilities, node: str) -> v1.CapabilitiesResponse:
    """Write what a machine can freeze."""
    return v1.CapabilitiesResponse(
        node=node,
        software=abilities.software,
        criu_version=abilities.criu_version,
        criu_trouble=abilities.criu_trouble,
        criu_features=[*abilities.criu_features],
        cuda_available=abilities.cuda_available,
        cuda_driver_version=abilities.cuda_driver_version,
        cuda_trouble=abilities.cuda_trouble,
        gpus=[
            v1.GpuView(uuid=gpu.uuid, model=gpu.model, index=gpu.index, total_bytes=gpu.total_bytes)
            for gpu in abilities.gpus
        ],
        max_operations=abilities.max_operations,
        repository=abilities.repository,
    )


def read_capabilities(message: v1.CapabilitiesResponse) -> Abilities:
    """Read what a machine can freeze.

    Raises:
        InvalidArgument: it has more features or GPUs than a machine has.
    """
    if max(len(message.criu_features), len(message.gpus)) > MAX_FEATURES:
        raise InvalidArgument(f"a machine has at most {MAX_FEATURES} features of CRIU, and GPUs")
    return Abilities(
        software=message.software[:MAX_TEXT_CHARS],
        criu_version=message.criu_version[:MAX_TEXT_CHARS],
        criu_trouble=message.criu_trouble[:MAX_TEXT_CHARS],
        criu_features=tuple(each[:MAX_ID_CHARS] for each in message.criu_features),
        cuda_available=message.cuda_available,
        cuda_driver_version=message.cuda_driver_version[:MAX_TEXT_CHARS],
        cuda_trouble=message.cuda_trouble[:MAX_TEXT_CHARS],
        gpus=tuple(
            GpuRow(gpu.uuid[:MAX_ID_CHARS], gpu.model[:MAX_TEXT_CHARS], gpu.index, gpu.total_bytes)
            for gpu in message.gpus
        ),
        max_operations=message.max_operations,
        repository=message.repository[:MAX_TEXT_CHARS],
    )


# Reports


def report(said: AgentReport) -> v1.AgentReport:
    """Write a report."""
    message = v1.AgentReport(sequence=said.sequence, complete=said.complete, checkpoints_omitted=said.omitted)
    for fact in said.facts:
        match fact:
            case CheckpointRow():
                message.checkpoints.append(checkpoint_view(fact))
            case OperationRow():
                message.operations.append(operation_view(fact))
            case TierRow():
                message.tiers.append(tier_view(fact))
            case OrderEnd():
                message.orders.append(order_end(fact))
    for key in said.gone:
        if key[0] == CHECKPOINT:
            message.checkpoints_gone.append(v1.CheckpointPlace(checkpoint_id=key[1], tier=key[2]))
        elif key[0] == OPERATION:
            message.operations_gone.append(key[1])
    return message


def read_report(message: v1.AgentReport) -> AgentReport:
    """Read a report.

    Raises:
        InvalidArgument: it is none.
    """
    facts: list[Fact] = [read_checkpoint(each) for each in message.checkpoints]
    facts += [read_operation(each) for each in message.operations]
    facts += [_read_tier(each) for each in message.tiers]
    facts += [read_order_end(each) for each in message.orders]
    gone: list[FactKey] = [
        (CHECKPOINT, _id(each.checkpoint_id, "a checkpoint"), each.tier[:MAX_TEXT_CHARS])
        for each in message.checkpoints_gone
    ]
    gone += [(OPERATION, _id(each, "an operation")) for each in message.operations_gone]
    if len(facts) + len(gone) > MAX_FACTS:
        raise InvalidArgument(f"a report says {len(facts) + len(gone)} things: at most {MAX_FACTS}")
    omitted = max(0, message.checkpoints_omitted)
    return AgentReport(message.sequence, message.complete, tuple(facts), tuple(gone), omitted)


def _id(given: str, of: str) -> str:
    if not OPERATION_ID.fullmatch(given):
        raise InvalidArgument(f"{given[:80]!a} is not an id of {of}")
    return given


def checkpoint_view(row: CheckpointRow) -> v1.CheckpointView:
    """Write a copy of a checkpoint."""
    return v1.CheckpointView(
        checkpoint_id=row.checkpoint,
        tier=row.tier,
        size_bytes=row.size_bytes,
        trouble=row.trouble,
        pid=row.pid,
        processes=row.processes,
        program=row.program,
        sealed_at_ms=row.sealed_at_ms,
        labels=dict(row.labels),
    )


def read_checkpoint(message: v1.CheckpointView) -> CheckpointRow:
    """Read a copy of a checkpoint.

    Raises:
        InvalidArgument: it is none.
    """
    checkpoint = _id(message.checkpoint_id, "a checkpoint")
    if len(message.labels) > MAX_LABELS:  # no manifest has more, so no agent that reads manifests says more
        raise InvalidArgument(f"{checkpoint} has {len(message.labels)} labels: at most {MAX_LABELS}")
    for name, value in message.labels.items():
        if max(len(name), len(value)) > MAX_LABEL_CHARS:
            raise InvalidArgument(f"label {name[:80]!a} of {checkpoint}: at most {MAX_LABEL_CHARS} characters")
    return CheckpointRow(
        checkpoint=checkpoint,
        tier=message.tier[:MAX_TEXT_CHARS],
        size_bytes=message.size_bytes,
        trouble=message.trouble[:MAX_TEXT_CHARS],
        pid=message.pid,
        processes=message.processes,
        program=message.program[:MAX_TEXT_CHARS],
        sealed_at_ms=message.sealed_at_ms,
        labels=_pairs(message.labels),
    )


def operation_view(row: OperationRow) -> v1.OperationView:
    """Write an operation that runs."""
    return v1.OperationView(
        operation_id=row.operation,
        kind=row.kind,
        checkpoint_id=row.checkpoint,
        tier=row.tier,
        owed=row.owed,
        steps=[v1.OperationStep(phase=phase, at_ms=at_ms) for phase, at_ms in row.steps],
        done_bytes=row.done_bytes,
        total_bytes=row.total_bytes,
        end=v1.OperationEnd(outcome=ASIDE, kind="OperationPutAside", text=row.aside) if row.aside else None,
    )


def read_operation(message: v1.OperationView) -> OperationRow:
    """Read an operation that runs.

    Raises:
        InvalidArgument: it is none.
    """
    return OperationRow(
        operation=_id(message.operation_id, "an operation"),
        kind=message.kind[:MAX_ID_CHARS],
        checkpoint=message.checkpoint_id[:MAX_ID_CHARS],
        tier=message.tier[:MAX_TEXT_CHARS],
        owed=message.owed,
        steps=tuple((step.phase[:MAX_ID_CHARS], step.at_ms) for step in message.steps[-MAX_STEPS:]),
        done_bytes=message.done_bytes,
        total_bytes=message.total_bytes,
        aside=message.end.text[:MAX_TEXT_CHARS] if message.end is not None else "",
    )


def tier_view(row: TierRow) -> v1.TierView:
    """Write how full a tier is."""
    return v1.TierView(
        name=row.tier,
        folder=row.folder,
        budget_bytes=row.budget_bytes,
        used_bytes=row.used_bytes,
        reserved_bytes=row.reserved_bytes,
        free_bytes=row.free_bytes,
    )


def _read_tier(message: v1.TierView) -> TierRow:
    return TierRow(
        tier=message.name[:MAX_ID_CHARS],
        folder=message.folder[:MAX_TEXT_CHARS],
        budget_bytes=message.budget_bytes,
        used_bytes=message.used_bytes,
        reserved_bytes=message.reserved_bytes,
        free_bytes=message.free_bytes,
    )


def order_end(end: OrderEnd) -> v1.OrderEnd:
    """Write what became of an order."""
    return v1.OrderEnd(operation_id=end.operation, end=operation_end(end), tier=end.tier)


def operation_end(end: OrderEnd) -> v1.OperationEnd:
    """Write it as the end of an operation."""
    return v1.OperationEnd(
        outcome=end.outcome,
        kind=end.kind,
        text=end.text,
        lasted_ms=end.lasted_ms,
        size_bytes=end.size_bytes,
        pid=end.pid,
        processes=end.processes,
    )


def read_order_end(message: v1.OrderEnd) -> OrderEnd:
    """Read what became of an order.

    Raises:
        InvalidArgument: it is no end.
    """
    end = message.end
    if end is None or not end.outcome or not OPERATION_ID.fullmatch(message.operation_id):
        raise InvalidArgument(f"{message.operation_id[:80]!a}: not an end of an order")
    return OrderEnd(
        operation=message.operation_id,
        outcome=end.outcome[:MAX_ID_CHARS],
        kind=end.kind[:MAX_ID_CHARS],
        text=end.text[:MAX_TEXT_CHARS],
        lasted_ms=end.lasted_ms,
        size_bytes=end.size_bytes,
        pid=end.pid,
        processes=end.processes,
        tier=message.tier[:MAX_TEXT_CHARS],
    )


# Orders


def orders(given: Orders) -> v1.AgentOrders:
    """Write what an agent is to do."""
    return v1.AgentOrders(
        complete=given.complete,
        begin=[_order(each) for each in given.begin],
        cancel=[*given.cancel],
        release=[*given.release],
    )


def _order(order: Order) -> v1.AgentOrder:
    message = v1.AgentOrder(operation_id=order.operation)
    if order.freeze is not None:
        freeze = order.freeze
        message.freeze = v1.OrderedFreeze(
            request=v1.FreezeRequest(
                pid=freeze.pid,
                start_ticks=freeze.start_ticks,
                tier=freeze.tier,
                leave_running=freeze.leave_running,
                force=freeze.force,
                tcp_established=freeze.tcp_established,
                tcp_close=freeze.tcp_close,
                guard=freeze.guard,
                carries_folder=freeze.carries_folder,
                labels=dict(freeze.labels),
            ),
            boot_id=freeze.boot_id,
            attempt_uid=freeze.attempt_uid,
            pid_namespace=freeze.pid_namespace,
        )
    elif order.thaw is not None:
        thaw = order.thaw
        numbers = v1.ProcessNumbers.AUTO if thaw.new_numbers else v1.ProcessNumbers.SAME
        message.thaw = v1.ThawRequest(
            checkpoint_id=thaw.checkpoint,
            force=thaw.force,
            numbers=numbers,
            gpus=dict(thaw.gpus),
            repository=thaw.repository,
        )
    elif order.remove is not None:
        message.remove = v1.RemoveCheckpointRequest(
            checkpoint_id=order.remove.checkpoint, here_only=order.remove.here_only
        )
    elif order.move is not None:
        move = order.move
        message.move = v1.MoveRequest(
            checkpoint_id=move.checkpoint, tier=move.target, keep=move.keep, repository=move.repository
        )
    elif order.verify is not None:
        message.verify = v1.OrderedVerify(checkpoint_id=order.verify.checkpoint)
    elif order.listing is not None:
        message.listing = v1.OrderedListing()
    return message


def read_orders(message: v1.AgentOrders) -> Orders:
    """Read what an agent is to do. An order of a kind that this version does not know is left out of ``begin``.

    Raises:
        InvalidArgument: an operation has no id that one can have.
    """
    begin = tuple(order for each in message.begin if (order := _read_order(each)) is not None)
    for operation in (*(order.operation for order in begin), *message.cancel, *message.release):
        if not OPERATION_ID.fullmatch(operation):
            raise InvalidArgument(f"{operation[:80]!a} is not an operation id")
    return Orders(message.complete, begin, tuple(message.cancel), tuple(message.release))


def _read_order(message: v1.AgentOrder) -> Order | None:
    if message.freeze is not None:
        given = message.freeze
        asked = given.request or v1.FreezeRequest()
        freeze = FreezeOrder(
            pid=asked.pid,
            start_ticks=asked.start_ticks,
            boot_id=given.boot_id,
            attempt_uid=given.attempt_uid,
            tier=asked.tier,
            leave_running=asked.leave_running,
            force=asked.force,
            tcp_established=asked.tcp_established,
            labels=_pairs(asked.labels),
            pid_namespace=given.pid_namespace,
            tcp_close=asked.tcp_close,
            guard=asked.guard,
            carries_folder=asked.carries_folder,
        )
        return Order(message.operation_id, freeze=freeze)
    if message.thaw is not None:
        thaw = message.thaw
        new_numbers = thaw.numbers is v1.ProcessNumbers.AUTO
        asks = ThawOrder(thaw.checkpoint_id, thaw.force, new_numbers, _pairs(thaw.gpus), thaw.repository)
        return Order(message.operation_id, thaw=asks)
    if message.remove is not None:
        return Order(message.operation_id, remove=RemoveOrder(message.remove.checkpoint_id, message.remove.here_only))
    if message.move is not None:
        move = message.move
        wanted = MoveOrder(move.checkpoint_id, move.tier, move.keep, move.repository)
        return Order(message.operation_id, move=wanted)
    if message.verify is not None:
        return Order(message.operation_id, verify=VerifyOrder(message.verify.checkpoint_id))
    if message.listing is not None:
        return Order(message.operation_id, listing=ListOrder())
    return None
