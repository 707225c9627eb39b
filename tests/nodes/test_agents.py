"""Which agent may speak for a node, and which nodes are known."""

from iriscw.nodes import agents
from iriscw.nodes.agents import FORGET_AFTER, Agents, AgentsDecisions
from iriscw.nodes.errors import AgentFenced, NoSuchNode, TooManyNodes
from iriscw.nodes.messages import AGENTS, AgentDialled, AgentReplaced, Due, ForgetNode, ListNodes
from iriscw.nodes.model import AgentIdentity
from iriscw.runtime import Behavior, ChildSpec
from iriscw.runtime.vocabulary import (
    ActorPath,
    Decision,
    Refuse,
    Reply,
    Spawn,
    StopChild,
    StopReason,
    Tell,
    Terminated,
    Undelivered,
    Watch,
)
from iriscw.testing.contexts import FakeContext


class Registry:
    """The decisions with their state."""

    def __init__(self, max_nodes=3):
        self.decisions = AgentsDecisions(lambda node: ChildSpec(node, Behavior()), max_nodes)
        self.state, self.records, self.wall = Agents(), [], 0

    def __call__(self, message):
        """Decide, apply the records, and give the commands."""
        decided = self.decisions.rules()[type(message)](self.state, message, FakeContext(wall=self.wall))
        if isinstance(decided, Decision):
            for record in decided.records:
                agents.evolve(self.state, record)
                self.records.append(record)
            return decided.commands
        return decided or ()

    def dial(self, node="n1", agent="a1", starts=1):
        """Have an agent dial."""
        return self(AgentDialled(AgentIdentity(node, agent, starts, "boot")))


def kinds(commands):
    """Return the types of commands."""
    return [type(each) for each in commands]


def test_a_new_node_has_a_mirror_and_an_old_one_keeps_it():
    """Whoever dials is answered; the mirror is made once, and again after a restart."""
    registry = Registry()
    assert kinds(registry.dial()) == [Spawn, Reply]
    assert Spawn not in kinds(registry.dial())
    (listed,) = registry(ListNodes())
    assert listed.value == ("n1",)
    assert [each.spec.name for each in registry.decisions.resume(registry.state, FakeContext())] == ["n1"]


def test_an_earlier_start_is_refused():
    """Also by a controller that was started since: what it knows is in the records."""
    registry = Registry()
    registry.dial(starts=3)
    rebuilt = Registry()
    for record in agents.compact(registry.state):
        agents.evolve(rebuilt.state, record)
    assert rebuilt.state == registry.state
    (refused,) = rebuilt.dial(starts=2)
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, AgentFenced)
    assert kinds(rebuilt.dial(starts=4))[-1] is Reply
    assert rebuilt.state.known["n1"].identity.starts == 4


def test_another_agent_takes_the_node_over():
    """Orders hear of it, again if they had no room; whatever its starts are."""
    registry = Registry()
    registry.dial(starts=9)
    told = next(each for each in registry.dial(agent="a2", starts=1) if isinstance(each, Tell))
    assert told.message == AgentReplaced("n1", "a2")
    registry(Undelivered(told.to, told.message))
    assert registry(Due("again")) == (told,)
    assert registry(Due("again")) == ()


def test_nodes_have_a_limit():
    """Beyond it a node is refused by name, unless one has not dialled for a week: that makes room."""
    registry = Registry(max_nodes=2)
    registry.dial("n1")
    registry.wall += FORGET_AFTER // 2
    registry.dial("n2")
    (refused,) = registry.dial("n3")
    assert isinstance(refused.error, TooManyNodes)
    registry.wall += FORGET_AFTER // 2 + 1
    commands = registry.dial("n3")
    assert StopChild("n1") in commands
    assert list(registry.state.known) == ["n2", "n3"]
    (refused,) = registry.dial("n1")
    assert isinstance(refused.error, TooManyNodes)
    registry(Terminated(ActorPath("/nodes/agent/n1"), StopReason.NORMAL))
    assert registry.state.leaving == {}


def test_it_is_known_no_more():
    """Its mirror goes; what is on disk says the same."""
    registry = Registry()
    registry.dial("n1")
    registry.dial("n2")
    commands = registry(ForgetNode("n1"))
    assert kinds(commands) == [StopChild, Watch, Reply]
    assert registry(ListNodes())[0].value == ("n2",)
    rebuilt = Agents()
    for record in agents.compact(registry.state):
        agents.evolve(rebuilt, record)
    assert rebuilt == registry.state


def test_its_agent_may_come_back_as_a_new_nodes():
    """Once the mirror is gone, also with fewer starts than before: nothing of it is remembered."""
    registry = Registry()
    registry.dial("n1", starts=5)
    registry(ForgetNode("n1"))
    (refused,) = registry.dial("n1", starts=1)
    assert isinstance(refused.error, TooManyNodes)
    assert refused.error.retryable
    registry(Terminated(AGENTS / "n1", StopReason.NORMAL))
    assert kinds(registry.dial("n1", starts=1)) == [Spawn, Reply]


def test_a_node_that_is_not_known():
    """It is said so by name."""
    (refused,) = Registry()(ForgetNode("n1"))
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, NoSuchNode)
