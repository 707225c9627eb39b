"""The agents' door: who is let in, and that one stream of a node counts."""

import time
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from iriscw._errors import InvalidArgument
from iriscw.controller.doors import agents as door
from iriscw.controller.doors.freezing import NodesDoor
from iriscw.controller.tokens import AgentPrincipal
from iriscw.nodes.errors import CheckpointUnknown, NodeConnected, NodeSaysTooMuch, NoSuchNode, OrderKeyReused
from iriscw.nodes.messages import ORDERS, AbandonOrders, CountOrders
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import PermissionDenied, Unauthenticated, VersionMismatch
from iriscw.rpc.tokens import Role, Secret
from raised import that
from waiting import until

CONNECT = "/iriscw.v1.AgentService/Connect"
PATIENCE_S = 60


def hello(node="n1", agent="agent-1", starts=1, version=1, repository=""):
    """Return a hello."""
    return v1.AgentHello(
        protocol_version=version,
        node=node,
        agent_id=agent,
        starts=starts,
        boot_id="boot",
        capabilities=v1.CapabilitiesResponse(criu_version="4.2", repository=repository),
    )


@asynccontextmanager
async def dialled(world, said, token=None):
    """Dial; give the call and the first answer."""
    with anyio.fail_after(PATIENCE_S):
        async with (
            world.channel(token or world.tokens.agent_token("n1")) as channel,
            channel.bidi(CONNECT, v1.AgentMessage, v1.NodeMessage, timeout_s=PATIENCE_S) as call,
        ):
            await call.send(v1.AgentMessage(hello=said))
            yield call, await call.receive()


async def nodes(world):
    """Return the nodes by name."""
    found = await world.call("ListNodes", v1.ListNodesRequest(), v1.ListNodesResponse)
    return {each.node: each for each in found.nodes}


async def until_state(world, state, node="n1"):
    """Wait until a node is so."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            found = (await nodes(world)).get(node)
            if found is not None and found.state is state:
                return found
            await anyio.sleep(0.01)


def report(sequence=1, *, complete=True, **more):
    """Return a report as a message."""
    return v1.AgentMessage(report=v1.AgentReport(sequence=sequence, complete=complete, **more))


async def test_it_says_what_there_is(world):
    """A report is acknowledged and shown; a stream that ends leaves what was said, as unknown since then."""
    row = v1.CheckpointView(checkpoint_id="ck-1", tier="disk", size_bytes=7, labels={"a": "b"})
    async with dialled(world, hello()) as (call, first):
        assert first.welcome.cluster == "test"
        assert (await call.receive()).orders == v1.AgentOrders(complete=True)
        await call.send(report(checkpoints=[row], tiers=[v1.TierView(name="disk", budget_bytes=9)]))
        assert (await call.receive()).report_ack.sequence == 1
        await call.send(v1.AgentMessage(heartbeat=v1.Heartbeat(sequence=5)))
        assert (await call.receive()).heartbeat_ack.sequence == 5
        shown = await until_state(world, v1.NodeState.CONNECTED)
        assert (shown.checkpoints, shown.agent_id, shown.capabilities.tiers[0].budget_bytes) == (1, "agent-1", 9)
        assert world.controller.statistics().agents_connected == 1
    shown = await until_state(world, v1.NodeState.UNKNOWN)
    assert shown.checkpoints == 1
    (found,) = await world.stream("ListNodeCheckpoints", v1.ListNodeCheckpointsRequest(), v1.NodeCheckpoint)
    assert (found.checkpoint, found.node, found.unknown_since_ms) == (row, "n1", shown.since_ms)
    assert found.copies == [v1.CheckpointCopy(node="n1", tier="disk", size_bytes=7, unknown_since_ms=shown.since_ms)]
    await world.restart()
    assert (await nodes(world))["n1"].state is v1.NodeState.UNKNOWN


async def test_a_stream_ends_with_what_proved_its_agent(world, monkeypatch):
    """So that an agent whose pod is gone is not believed for ever; one without an end goes on."""
    monkeypatch.setattr(door, "LEAST_STREAM_S", 0.0)
    found = AgentPrincipal(Role.AGENT, node="n1", expires_s=int(time.time()))
    monkeypatch.setattr(world.controller._server._calls, "_authenticate", lambda _token: found)
    async with dialled(world, hello()) as (call, first):
        assert first.welcome is not None
        while await call.receive() is not None:
            pass
    with anyio.fail_after(PATIENCE_S):
        while world.controller.statistics().agents_connected:  # noqa: ASYNC110 - the board rings for nobody
            await anyio.sleep(0.01)


@pytest.mark.parametrize("token", [Secret("nonsense"), None])
async def test_a_token_that_is_none(world, token):
    """It is refused before a byte is read; an admin's is no agent's."""
    wrong = token or world.controller.admin_token
    with pytest.raises(Unauthenticated if token else PermissionDenied):
        async with dialled(world, hello(), wrong):
            pass
    assert await nodes(world) == {}


async def test_another_node(world):
    """An agent says things about the node of its token only."""
    with pytest.raises(PermissionDenied, check=that(names="n1")):
        async with dialled(world, hello(node="n2")):
            pass
    assert await nodes(world) == {}


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (hello(version=2), VersionMismatch),
        (hello(agent="../x"), InvalidArgument),
        (hello(starts=0), InvalidArgument),
    ],
)
async def test_a_hello_that_is_none(world, said, error):
    """It is refused by name."""
    with pytest.raises(error):
        async with dialled(world, said):
            pass


async def test_two_agents_of_a_node(world):
    """The second one is refused while the first has a stream, and takes the node over after it."""
    async with dialled(world, hello()) as (_, first):
        assert first.welcome is not None
        async with dialled(world, hello(agent="agent-2")) as (_, second):
            assert second.refused.reason is v1.AgentRefusal.OTHER_AGENT
            assert second.refused.retry_after_ms > 0
    await until_state(world, v1.NodeState.UNKNOWN)
    async with dialled(world, hello(agent="agent-2")) as (_, second):
        assert second.welcome is not None
        assert (await until_state(world, v1.NodeState.SYNCING)).agent_id == "agent-2"
    assert world.controller.statistics().agents_refused == 1


async def test_starts_of_one_agent(world):
    """A later stream ends the earlier one; an earlier start is refused for good, by a new controller too."""
    async with dialled(world, hello(starts=2)) as (older, _), dialled(world, hello(starts=3)) as (_, first):
        assert first.welcome is not None
        while (message := await older.receive()).refused is None:
            pass
        assert message.refused.reason is v1.AgentRefusal.SUPERSEDED
    await world.restart()
    async with dialled(world, hello(starts=2)) as (_, first):
        assert (first.refused.reason, first.refused.retry_after_ms) == (v1.AgentRefusal.FENCED, 0)
    async with dialled(world, hello(starts=3)) as (_, first):
        assert first.welcome is not None


async def test_the_registry(world):
    """A checkpoint with copies on two nodes is one entry; selectors choose, and one that is none is refused."""
    disk = v1.CheckpointView(checkpoint_id="ck-1", tier="disk", size_bytes=7, labels={"model": "a"}, sealed_at_ms=5)
    ram = v1.CheckpointView(checkpoint_id="ck-1", tier="ram", size_bytes=7, trouble="torn")
    other = v1.CheckpointView(checkpoint_id="ck-2", tier="ram", size_bytes=1, trouble="torn")
    async with (
        dialled(world, hello()) as (one, _),
        dialled(world, hello("n2"), world.tokens.agent_token("n2")) as (two, _),
    ):
        for node, call, rows in (("n1", one, [ram, other]), ("n2", two, [disk])):
            await call.receive()
            await call.send(report(checkpoints=rows))
            await call.receive()
            await until_state(world, v1.NodeState.CONNECTED, node)
        for selector, wanted in (("", ["ck-1", "ck-2"]), ("model=a", ["ck-1"]), ("!model", []), ("model!=a", [])):
            request = v1.ListNodeCheckpointsRequest(selector=selector)
            found = await world.stream("ListNodeCheckpoints", request, v1.NodeCheckpoint)
            assert [each.checkpoint.checkpoint_id for each in found] == wanted
        found = await world.stream("ListNodeCheckpoints", v1.ListNodeCheckpointsRequest(), v1.NodeCheckpoint)
        assert (found[0].checkpoint, found[0].node) == (disk, "n2")
        assert [(copy.node, copy.tier, copy.trouble) for copy in found[0].copies] == [
            ("n2", "disk", ""),
            ("n1", "ram", "torn"),
        ]
    wrong = v1.ListNodeCheckpointsRequest(selector="=x")
    with pytest.raises(InvalidArgument, check=that(names="=x")):
        await world.stream("ListNodeCheckpoints", wrong, v1.NodeCheckpoint)


async def test_orders_pass_and_are_let_go(world):
    """An order is sent once it is promised; its end is written down and released; what is said late is released too."""
    row = v1.CheckpointView(checkpoint_id="ck-1", tier="disk")
    request = v1.DeleteCheckpointRequest(idempotency_key="k", checkpoint_id="ck-1")
    async with dialled(world, hello()) as (call, _):
        await call.receive()
        await call.send(report(checkpoints=[row]))
        await call.receive()
        await until_state(world, v1.NodeState.CONNECTED)
        placed = await world.call("DeleteCheckpoint", request, v1.OrderStatus)
        again = await world.call("DeleteCheckpoint", request, v1.OrderStatus)
        assert placed.operation_id == again.operation_id
        (order,) = (await call.receive()).orders.begin
        assert (order.operation_id, order.remove.checkpoint_id) == (placed.operation_id, "ck-1")
    await world.restart()
    async with dialled(world, hello()) as (call, _):
        orders = (await call.receive()).orders
        assert (orders.complete, [each.operation_id for each in orders.begin]) == (True, [placed.operation_id])
        end = v1.OrderEnd(operation_id=placed.operation_id, end=v1.OperationEnd(outcome="removed"))
        for sequence in (1, 2):
            await call.send(report(sequence, orders=[end]))
            answers = [await call.receive(), await call.receive()]
            (released,) = [each.orders.release for each in answers if each.orders is not None]
            assert released == [placed.operation_id]
    statuses = await world.stream("WatchOrder", v1.WatchOrderRequest(operation_id=placed.operation_id), v1.OrderStatus)
    assert [each.view.end.outcome for each in statuses] == ["removed"]


async def test_a_move_is_ordered(world):
    """Of the node that has the checkpoint, to any name that a tier may have: what tiers there are its agent knows."""
    row = v1.CheckpointView(checkpoint_id="ck-1", tier="ram")
    request = v1.MoveCheckpointRequest(idempotency_key="k", checkpoint_id="ck-1", tier="shelf", keep=True)
    async with dialled(world, hello()) as (call, _):
        await call.receive()
        await call.send(report(checkpoints=[row]))
        await call.receive()
        await until_state(world, v1.NodeState.CONNECTED)
        placed = await world.call("MoveCheckpoint", request, v1.OrderStatus)
        (order,) = (await call.receive()).orders.begin
        move = order.move
        assert (order.operation_id, move.checkpoint_id, move.tier, move.keep) == (
            placed.operation_id,
            *("ck-1", "shelf", True),
        )
        for wrong in ({"tier": "../shelf"}, {"tier": "", "keep": False}):
            request = v1.MoveCheckpointRequest(idempotency_key="k2", checkpoint_id="ck-1", **wrong)
            with pytest.raises(InvalidArgument, check=that(names=repr(wrong["tier"]))):
                await world.call("MoveCheckpoint", request, v1.OrderStatus)


async def test_what_a_repository_has_is_listed_by_an_order(world, monkeypatch):
    """The agent tells of it; it is shown for a node that is named, counts as no copy of that, and is removed there,
    unless the job that its labels name needs it.
    """
    asked = []

    async def refuse_needed(self, checkpoint, row):
        asked.append((row.tier, dict(row.labels)))

    monkeypatch.setattr(NodesDoor, "_refuse_needed", refuse_needed)
    stored = v1.CheckpointView(checkpoint_id="ck-1", tier="repository", size_bytes=4, labels={"model": "a"})
    request = v1.ListRepositoryRequest(idempotency_key="k", node="n1")
    async with dialled(world, hello()) as (call, _):
        await call.receive()
        await call.send(report())
        await call.receive()
        await until_state(world, v1.NodeState.CONNECTED)
        placed = await world.call("ListRepository", request, v1.OrderStatus)
        assert await world.call("ListRepository", request, v1.OrderStatus) == placed
        for other in ({"node": "n2"}, {"node": ""}):
            with pytest.raises(OrderKeyReused):
                await world.call(
                    "ListRepository", v1.ListRepositoryRequest(idempotency_key="k", **other), v1.OrderStatus
                )
        (order,) = (await call.receive()).orders.begin
        assert (order.operation_id, order.listing) == (placed.operation_id, v1.OrderedListing())
        end = v1.OrderEnd(operation_id=placed.operation_id, end=v1.OperationEnd(outcome="listed"))
        await call.send(report(2, checkpoints=[stored], orders=[end]))
        watched = v1.WatchOrderRequest(operation_id=placed.operation_id)
        statuses = await world.stream("WatchOrder", watched, v1.OrderStatus)
        assert statuses[-1].view.end.outcome == "listed"

        async def listed(**words):
            request = v1.ListNodeCheckpointsRequest(**words)
            found = await world.stream("ListNodeCheckpoints", request, v1.NodeCheckpoint)
            return [(each.node, each.checkpoint.checkpoint_id, each.checkpoint.tier) for each in found]

        assert await listed() == await listed(stored_by=["n2"]) == []
        assert await listed(stored_by=["n1"]) == [("n1", "ck-1", "repository")]
        assert (await until_state(world, v1.NodeState.CONNECTED)).checkpoints == 0
        with pytest.raises(CheckpointUnknown):
            await world.call(
                "DeleteCheckpoint",
                v1.DeleteCheckpointRequest(idempotency_key="d", checkpoint_id="ck-1"),
                v1.OrderStatus,
            )
        for number, here_only in enumerate((True, False)):
            about = {"idempotency_key": f"d{number}", "checkpoint_id": "ck-1", "node": "n1", "here_only": here_only}
            await world.call("DeleteCheckpoint", v1.DeleteCheckpointRequest(**about), v1.OrderStatus)
            while not (answer := await call.receive()).orders or not answer.orders.begin:
                pass
            assert answer.orders.begin[0].remove.here_only is here_only
        assert asked == [("repository", {"model": "a"})] * 2


@pytest.mark.parametrize(
    ("method", "request_of"),
    [
        ("DeleteCheckpoint", v1.DeleteCheckpointRequest),
        ("RestoreCheckpoint", v1.RestoreCheckpointRequest),
        ("MoveCheckpoint", partial(v1.MoveCheckpointRequest, tier="disk")),
        ("VerifyCheckpoint", v1.VerifyCheckpointRequest),
    ],
)
async def test_an_order_is_found_by_its_key_first(world, method, request_of):
    """Whoever asks again gets it, though its agent is away and its checkpoint gone; another order is refused."""
    request = request_of(idempotency_key="k", checkpoint_id="ck-1")
    place = v1.CheckpointPlace(checkpoint_id="ck-1", tier="disk")
    async with dialled(world, hello()) as (call, _):
        await call.receive()
        await call.send(report(checkpoints=[v1.CheckpointView(checkpoint_id="ck-1", tier="disk")]))
        await call.receive()
        placed = await world.call(method, request, v1.OrderStatus)
        await call.receive()
        await call.send(report(2, checkpoints_gone=[place]))
        assert (await call.receive()).report_ack.sequence == 2
        again = await world.call(method, request, v1.OrderStatus)
        assert again.operation_id == placed.operation_id
    await until_state(world, v1.NodeState.UNKNOWN)
    for named in ("", "n1"):
        again = await world.call(
            method, request_of(idempotency_key="k", checkpoint_id="ck-1", node=named), v1.OrderStatus
        )
        assert again.operation_id == placed.operation_id
    for other in (
        request_of(idempotency_key="k", checkpoint_id="ck-2"),
        request_of(idempotency_key="k", checkpoint_id="ck-1", node="n2"),
    ):
        with pytest.raises(OrderKeyReused):
            await world.call(method, other, v1.OrderStatus)


async def test_an_agent_that_says_too_much(world, monkeypatch):
    """Its stream ends by name; what it takes back, or says once more, does not count."""
    monkeypatch.setattr(door, "MAX_SAID_BYTES", 4096)
    labels = {"name": "v" * 200}

    def rows(first):
        return [v1.CheckpointView(checkpoint_id=f"ck-{first + i}", tier="ram", labels=labels) for i in range(3)]

    gone = [v1.CheckpointPlace(checkpoint_id=f"ck-{i}", tier="ram") for i in range(3)]
    within = [report(1, checkpoints=rows(0)), report(2, checkpoints=rows(0))]
    within.append(report(3, checkpoints=rows(3), checkpoints_gone=gone))
    with pytest.raises(NodeSaysTooMuch):
        await told_to_the_end(world, *within, report(4, checkpoints=rows(6)))
    assert (await until_state(world, v1.NodeState.UNKNOWN)).checkpoints == 3


async def told_to_the_end(world, *said):
    """Report something, each after the one before was taken; read until the stream ends."""
    async with dialled(world, hello()) as (call, _):
        await call.receive()
        for each in said[:-1]:
            await call.send(each)
            assert (await call.receive()).report_ack is not None
        await call.send(said[-1])
        while await call.receive() is not None:
            pass


async def test_reports_that_are_none(world):
    """One that says too much, or what cannot be, ends its stream."""
    rows = [v1.CheckpointView(checkpoint_id=f"ck-{number}", tier="ram") for number in range(33)]
    for said in (report(checkpoints=rows), report(checkpoints=[v1.CheckpointView(checkpoint_id="../x")])):
        with pytest.raises(InvalidArgument):
            await told_to_the_end(world, said)
        await until_state(world, v1.NodeState.UNKNOWN)
    assert (await nodes(world))["n1"].checkpoints == 0


async def forget(world, node="n1"):
    """Have it forgotten; give how many orders had not ended."""
    reply = await world.call("ForgetNode", v1.ForgetNodeRequest(node=node), v1.ForgetNodeResponse)
    return reply.orders_lost


async def ordered(world, call):
    """Have the agent of ``n1`` told to bring a checkpoint back; give the order's id."""
    await call.receive()
    await call.send(report(checkpoints=[v1.CheckpointView(checkpoint_id="ck-1", tier="disk")]))
    await call.receive()
    request = v1.RestoreCheckpointRequest(idempotency_key="k", checkpoint_id="ck-1")
    return (await world.call("RestoreCheckpoint", request, v1.OrderStatus)).operation_id


async def test_a_node_whose_agent_does_not_come_back(world):
    """Its open orders end as a loss that has a name, its checkpoints are listed no more, also after a restart."""
    async with dialled(world, hello()) as (call, _):
        operation = await ordered(world, call)
        with pytest.raises(NodeConnected, check=that(names="n1")):
            await forget(world)
    await until_state(world, v1.NodeState.UNKNOWN)
    await until(lambda: world.controller.statistics().orders_open == 1)
    assert await forget(world) == 1
    statuses = await world.stream("WatchOrder", v1.WatchOrderRequest(operation_id=operation), v1.OrderStatus)
    assert [(each.view.end.outcome, each.view.end.kind) for each in statuses] == [("unknown", "NodeForgotten")]
    for _ in range(2):
        assert await nodes(world) == {}
        assert await world.controller.system.ask(ORDERS, CountOrders()) == 0
        with pytest.raises(NoSuchNode):
            await forget(world)
        await world.restart()


async def test_it_may_come_back(world):
    """With an earlier start, too: it is a new node's agent, and its old orders are not its any more."""
    async with dialled(world, hello(starts=5)) as (call, _):
        await ordered(world, call)
    await until_state(world, v1.NodeState.UNKNOWN)
    assert await forget(world) == 1
    with anyio.fail_after(PATIENCE_S):
        while True:
            async with dialled(world, hello(starts=1)) as (call, first):
                if first.refused is not None:  # the mirror was just going
                    assert first.refused.retry_after_ms > 0
                    continue
                assert (await call.receive()).orders == v1.AgentOrders(complete=True)
                await call.send(report())
                assert (await call.receive()).report_ack.sequence == 1
                shown = await until_state(world, v1.NodeState.CONNECTED)
                break
    assert (shown.starts, shown.checkpoints) == (1, 0)


async def test_an_agent_that_shakes_hands_is_not_forgotten(world):
    """Nor is one let in while its node is being forgotten."""
    async with dialled(world, hello()):
        pass
    await until_state(world, v1.NodeState.UNKNOWN)
    with world.controller.features.parts["nodes"].agents.board.handshake("n1"):
        with pytest.raises(NodeConnected):
            await forget(world)
        async with dialled(world, hello()) as (_, first):
            assert first.refused.reason is v1.AgentRefusal.BUSY
    assert await forget(world) == 0


async def test_what_was_forgotten_by_half_is_forgotten_whole(world):
    """A controller that died after it had ended the orders knows the node still: it is asked again."""
    async with dialled(world, hello()) as (call, _):
        await ordered(world, call)
    await until_state(world, v1.NodeState.UNKNOWN)
    assert await world.controller.system.ask(ORDERS, AbandonOrders("n1")) == 1
    await world.restart()
    assert list(await nodes(world)) == ["n1"]
    assert await forget(world) == 0
    assert await nodes(world) == {}


async def test_whose_node_is_forgotten_by_whom(world):
    """A name that no node has is no question, and only an admin may ask."""
    with pytest.raises(InvalidArgument):
        await forget(world, "../n1")
    with pytest.raises(NoSuchNode, check=that(names="n9")):
        await forget(world, "n9")
    async with RpcChannel(world.controller.address, world.tokens.job_token("job-a", "u")) as channel:
        with pytest.raises(PermissionDenied):
            await channel.unary(
                "/iriscw.v1.ControllerService/ForgetNode", v1.ForgetNodeRequest(node="n1"), v1.ForgetNodeResponse
            )
