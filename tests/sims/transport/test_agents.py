"""The stream of a node's agent to the controller, both as in production, under faults of the network between them."""

from pathlib import Path
from unittest import mock

import anyio
from hypothesis import given, strategies as st
from transport_world import FOUND_AND_SHRUNK, LIMITS, NOTICE_S, faults_of_any_kind, seeds

from iriscw.agent.uplink import ledger, session
from iriscw.agent.uplink.ledger import OrderLedger
from iriscw.agent.uplink.messages import SESSION, BeginOrder, Now, StopOrder
from iriscw.agent.uplink.session import LONGEST_PAUSE_NS, Session
from iriscw.agent.uplink.stream import ControllerStream, Uplink
from iriscw.controller.doors.agents import AgentDoor
from iriscw.controller.tokens import ControllerTokens
from iriscw.dialling.messages import Dial
from iriscw.dialling.stream import WELCOME_TIMEOUT_S
from iriscw.journal.memory import MemoryDisk, MemoryJournal
from iriscw.nodes.actor import nodes_child
from iriscw.nodes.errors import NoSuchOrder
from iriscw.nodes.messages import AGENTS, AgentDialled, DescribeNode, DescribeOrder, PlaceOrder
from iriscw.nodes.model import (
    CHECKPOINT,
    Abilities,
    AgentIdentity,
    CheckpointRow,
    NodeState,
    Order,
    OrderEnd,
    RemoveOrder,
    key_of,
)
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Secret, write_token_file
from iriscw.runtime import ActorSystem, Behavior, ChildSpec
from iriscw.runtime.edge.driver import SystemClock
from iriscw_sims.transport.loop import Threads
from iriscw_sims.transport.network import Network
from iriscw_sims.transport.run import simulate
from profiles import examples

NODE = "n1"
IDENTITY = AgentIdentity(NODE, "agent-1", 1, "boot-1")
TOKENS = ControllerTokens(Secret("cluster"), [])
SYNCED_S = 2 * NOTICE_S + WELCOME_TIMEOUT_S + LIMITS.connect_timeout_s + 3 * LONGEST_PAUSE_NS / 1e9 + 60
"""After the last fault: what is left of it is noticed, or a silence is, and a few dials fail."""


class Agent:
    """The agent's half: its ledger and its session, and a machine that carries orders out at once."""

    def __init__(self, uplink: Uplink) -> None:
        self.begun: list[str] = []
        stream = ControllerStream(uplink, IDENTITY, self._abilities)
        orders = Behavior(
            initial=OrderLedger,
            on=ledger.rules(),
            resume=ledger.resume,
            evolve=ledger.evolve,
            effects={BeginOrder: self._begin, StopOrder: self._begin},
            name="orders",
        )
        dialling = Behavior(
            initial=Session,
            on=session.rules(),
            resume=session.resume,
            sessions={Dial: stream.serve},
            name="session",
        )
        below = Behavior(children=(ChildSpec("orders", orders), ChildSpec("session", dialling)), name="controller")
        self.root = Behavior(children=(ChildSpec("controller", below),), name="agent")

    async def _abilities(self) -> Abilities:
        return Abilities("1", "4.2")

    async def _begin(self, effect: BeginOrder) -> OrderEnd:
        self.begun.append(effect.order.operation)
        return OrderEnd(effect.order.operation, "removed")


def play_agent(seed: int, faults, play, folder: Path):
    """Run a play with the controller's door and mirror, an agent, and the network between them."""
    token = folder / "token"
    write_token_file(token, TOKENS.agent_token(NODE))

    async def main(network: Network):
        door = AgentDoor("test", lambda: system)
        tree = Behavior(children=(nodes_child(door),), name="controller")
        with mock.patch.object(SystemClock, "now", staticmethod(lambda: network.loop.now_ns)):
            journal = MemoryJournal(MemoryDisk(), auto=True)
            async with (
                ActorSystem(tree, seed=f"c{seed}", journal=journal) as system,
                RpcServer([door], authenticate=TOKENS.authenticate) as server,
            ):
                await server.listen_tcp("127.0.0.1", 0)
                agent = Agent(Uplink(server.address, NODE, token))
                journal = MemoryJournal(MemoryDisk(), auto=True)
                async with ActorSystem(agent.root, seed=f"a{seed}", journal=journal) as ours:
                    network.schedule(faults)
                    return await play(system, ours, agent)

    return simulate(main, seed=seed, threads=Threads.INLINE)


async def view(system):
    """Return the node as its mirror has it."""
    return await system.ask(AGENTS / NODE, DescribeNode((CHECKPOINT,)))


async def end_of(system, operation):
    """Return the end of an order, if it has one."""
    try:
        return (await system.ask("/nodes/orders", DescribeOrder(operation))).end
    except NoSuchOrder:
        return None


@examples(8, FOUND_AND_SHRUNK)
@given(seeds, faults_of_any_kind, st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_a_broken_stream_is_opened_again_and_syncs(tmp_path_factory, seed, faults, moments) -> None:
    """Whatever breaks, soon after the last fault the controller knows all that the agent does, and each order was begun
    once and has its end.
    """

    async def play(system, ours, agent) -> None:
        await system.ask(AGENTS, AgentDialled(IDENTITY))
        facts, placed = {}, []
        for number, moment in enumerate(sorted(moments)):
            await anyio.sleep_until(moment)
            row = CheckpointRow(f"ck-{number}", "ram", moment)
            facts[key_of(row)] = row
            ours.tell(SESSION, Now(row))
            order = PlaceOrder(f"k{number}", NODE, IDENTITY.agent_id, Order("", remove=RemoveOrder("ck-x")))
            placed.append((await system.ask("/nodes/orders", order)).order.operation)
        last_fault_s = max((fault.at_s + fault.duration_s for fault in faults), default=0)
        with anyio.fail_after(max(0, last_fault_s - anyio.current_time()) + SYNCED_S):
            while True:
                found = await view(system)
                ends = [await end_of(system, operation) for operation in placed]
                known = {key_of(fact): fact for fact in found.facts}
                if found.state is NodeState.CONNECTED and known == facts and all(ends):
                    break
                await anyio.sleep(0.5)
        assert sorted(agent.begun) == sorted(placed)
        assert {end.outcome for end in ends} == {"removed"}

    play_agent(seed, faults, play, tmp_path_factory.mktemp("agent"))
