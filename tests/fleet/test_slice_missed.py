"""What a slice answers when the scheduler misses its workers."""

import attrs
import pytest

from iriscw.cloud.effects import ListPods
from iriscw.cloud.model import Attributes, Node, NodePool, Pod, PodPhase, Throttled, Unavailable
from iriscw.fleet.messages import Cordon, Uncordon, WorkerLost, WorkerReady, WorkersMissed
from iriscw.fleet.model import PodState, SliceState, WorkerInfo, pod_name, worker_name
from iriscw.fleet.signals import Dismiss, PodReported, PodSeen, SliceBriefed, TryAgain
from iriscw.fleet.slices import rules as slice_rules
from iriscw.runtime.vocabulary import SECOND, Completed, Failed, Run, SetTimer, Tell

NAME = "iris-gpu-a"
FIRST, SECOND_WORKER = worker_name(NAME, 0), worker_name(NAME, 1)


def send(it, ctx, message):
    """Decide on a message; give what it comes to."""
    return slice_rules.RULES[type(message)](it, message, ctx) or ()


def miss(it, ctx, *places):
    """Miss workers; give what the scheduler is told, and what is asked of the cloud."""
    commands = send(it, ctx, WorkersMissed(places))
    told = [each.message for each in commands if isinstance(each, Tell)]
    return told, [each.effect for each in commands if isinstance(each, Run)]


@pytest.fixture
def pod(labels):
    """Return the pod of a worker's incarnation."""

    def make(worker_id, incarnation="i1", **changes):
        return Pod(pod_name(worker_id, incarnation), "u", "1", labels(NAME, worker_id, incarnation), **changes)

    return make


@pytest.fixture
def adopted(piece, ctx, labels, pod):
    """A slice of two workers after a restart: the nodes are there, one pod lives, nobody has dialled."""
    it = piece(num_vms=2)
    nodes = tuple(Node(f"n{index}", f"nu{index}", ready=True) for index in range(2))
    pool = NodePool(NAME, "u1", "1", labels(NAME), 2, nodes=nodes)
    send(it, ctx, SliceBriefed(0, "u1", "", pool, (pod(FIRST, phase=PodPhase.RUNNING),), SECOND, SECOND))
    assert it.state is SliceState.INITIALIZING
    return it


def dials(it, ctx, worker_id, incarnation="i1"):
    """Have a worker registered."""
    config = it.seed.config
    info = WorkerInfo(worker_id, incarnation, NAME, config.name, config.per_worker, config.attributes, "")
    return info, send(it, ctx, PodReported(worker_id, PodState.REGISTERED, info, "", 0))


def test_nothing_is_said_before_the_briefing(piece, ctx):
    """A slice that knows nothing asks nothing and answers nothing."""
    assert miss(piece(num_vms=2), ctx, (FIRST, "i1")) == ([], [])


def test_a_pod_that_lives_is_waited_for(adopted, ctx):
    """Its worker may dial any moment: nothing is certain, and the API is spared."""
    assert miss(adopted, ctx, (FIRST, "i1")) == ([], [])


def test_a_registered_worker_of_an_incomplete_slice_is_announced_closed(adopted, ctx):
    """What runs on it goes on, and nothing new comes: it must not be taken for lost (J2, F6)."""
    info, _ = dials(adopted, ctx, FIRST)
    told, asked = miss(adopted, ctx, (FIRST, "i1"))
    assert told == [WorkerReady(info), Cordon(NAME, (FIRST,), ctx.now)]
    assert asked == []
    _, whole = dials(adopted, ctx, SECOND_WORKER)
    told = [each.message for each in whole if isinstance(each, Tell)]
    assert [each.info.worker_id for each in told if isinstance(each, WorkerReady)] == [FIRST, SECOND_WORKER]
    assert Uncordon(NAME, ctx.now) in told


def test_a_registered_worker_of_a_whole_slice_is_announced_open(adopted, ctx):
    """It is told again, and not closed."""
    dials(adopted, ctx, SECOND_WORKER)
    info, _ = dials(adopted, ctx, FIRST)
    assert miss(adopted, ctx, (FIRST, "i1")) == ([WorkerReady(info)], [])


def test_a_worker_of_a_slice_that_goes_is_left_to_its_place(adopted, ctx):
    """Its loss is told there; it is not announced once more."""
    dials(adopted, ctx, FIRST)
    send(adopted, ctx, Dismiss("idle"))
    assert miss(adopted, ctx, (FIRST, "i1")) == ([], [])


def test_a_pod_that_ended_is_certain(adopted, ctx, pod):
    """No process of it runs: its worker is fenced at once."""
    send(adopted, ctx, PodSeen(pod(SECOND_WORKER, phase=PodPhase.FAILED, reason="OOMKilled")))
    told, asked = miss(adopted, ctx, (SECOND_WORKER, "i1"))
    assert told == [WorkerLost(SECOND_WORKER, "i1", "its pod ended: OOMKilled", True)]
    assert asked == []


def test_a_pod_that_ended_says_nothing_of_tasks_with_pods_of_their_own(adopted, ctx, pod):
    """Those end with their lease."""
    config = attrs.evolve(adopted.seed.config, attributes=Attributes({"task-runtime": "pod"}))
    adopted.seed = attrs.evolve(adopted.seed, config=config)
    send(adopted, ctx, PodSeen(pod(SECOND_WORKER, phase=PodPhase.FAILED, reason="OOMKilled")))
    assert miss(adopted, ctx, (SECOND_WORKER, "i1"))[0] == [
        WorkerLost(SECOND_WORKER, "i1", "its pod ended: OOMKilled", False)
    ]


def test_an_earlier_incarnation_is_fenced_when_the_api_lists_no_pod_of_it(adopted, ctx, pod):
    """The watch may be late, a list is not; whoever has another incarnation's place fences nobody by that (J2)."""
    dials(adopted, ctx, FIRST, "i1")
    told, asked = miss(adopted, ctx, (FIRST, "i0"), (SECOND_WORKER, "i0"))
    assert (told, asked) == ([], [ListPods(adopted.seed.labels)])
    assert miss(adopted, ctx, (FIRST, "i0"), (SECOND_WORKER, "i0")) == ([], [])
    listed = (pod(FIRST), pod(SECOND_WORKER, "i0"))
    commands = send(adopted, ctx, Completed("missed", asked[0], listed))
    assert [each.message for each in commands] == [WorkerLost(FIRST, "i0", "its pod is gone", True)]
    assert miss(adopted, ctx, (SECOND_WORKER, "i0"))[1] == asked


@pytest.mark.parametrize(("error", "least"), [(Unavailable("no answer"), 0), (Throttled(retry_after=7 * SECOND), 7)])
def test_an_api_that_does_not_answer_is_left_alone_for_a_while(adopted, ctx, error, least):
    """However often the scheduler asks, the API is asked again after a pause, and nobody is fenced meanwhile."""
    _, (effect,) = miss(adopted, ctx, (SECOND_WORKER, "i0"))
    (timer, *_) = send(adopted, ctx, Failed("missed", effect, error))
    assert isinstance(timer, SetTimer)
    assert timer.delay >= least * SECOND
    assert miss(adopted, ctx, (SECOND_WORKER, "i0")) == ([], [])
    send(adopted, ctx, TryAgain("missed"))
    assert miss(adopted, ctx, (SECOND_WORKER, "i0")) == ([], [effect])
