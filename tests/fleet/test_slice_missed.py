"""What a slice answers when the scheduler misses its workers."""

from __future__ import annotations

import attrs
import pytest
from slice_desk import FIRST, NAME, OTHER, brief, registered, runs, send, timers, told

from iriscw.cloud.effects import ListPods
from iriscw.cloud.model import Attributes, PodPhase, Throttled, Unavailable
from iriscw.fleet.messages import Cordon, Uncordon, WorkerLost, WorkerReady, WorkersMissed
from iriscw.fleet.model import SliceState
from iriscw.fleet.signals import Dismiss, PodSeen, TryAgain
from iriscw.runtime.vocabulary import SECOND, Completed, Failed


def miss(it, ctx, *places):
    """Miss workers; give what the scheduler is told, and what is asked of the cloud."""
    commands = send(it, ctx, WorkersMissed(places))
    return told(commands, object), runs(commands)


@pytest.fixture
def adopted(piece, ctx, pool, pod):
    """A slice of two workers after a restart: the nodes are there, one pod lives, nobody has dialled."""
    it = piece(num_vms=2)
    send(it, ctx, brief(pool(nodes=2), uid="u1", pods=(pod(phase=PodPhase.RUNNING),)))
    assert it.state is SliceState.INITIALIZING
    return it


def test_a_pod_that_lives_is_waited_for(adopted, ctx):
    """Its worker may dial any moment: nothing is certain, and the API is spared."""
    assert miss(adopted, ctx, (FIRST, "i1")) == ([], [])


def test_a_registered_worker_is_announced(adopted, ctx):
    """Closed while its slice is incomplete: what runs goes on, and nothing new comes (J2, F6). Open when it is whole.
    Not once the slice goes: then its place tells its loss.
    """
    info = registered(adopted, 0).info
    send(adopted, ctx, registered(adopted, 0))
    assert miss(adopted, ctx, (FIRST, "i1")) == ([WorkerReady(info), Cordon(NAME, (FIRST,), ctx.now)], [])
    commands = send(adopted, ctx, registered(adopted, 1))
    assert [each.info.worker_id for each in told(commands, WorkerReady)] == [FIRST, OTHER]
    assert told(commands, Uncordon) == [Uncordon(NAME, ctx.now)]
    assert miss(adopted, ctx, (FIRST, "i1")) == ([WorkerReady(info)], [])
    send(adopted, ctx, Dismiss("idle"))
    assert miss(adopted, ctx, (FIRST, "i1")) == ([], [])


@pytest.mark.parametrize("runtime", ["pod", ""])
def test_a_pod_that_ended_is_certain(adopted, ctx, pod, runtime):
    """No process of it runs: its worker is fenced at once. Tasks with pods of their own end with their lease."""
    attributes = Attributes({"task-runtime": runtime} if runtime else {})
    config = attrs.evolve(adopted.seed.config, attributes=attributes)
    adopted.seed = attrs.evolve(adopted.seed, config=config)
    send(adopted, ctx, PodSeen(pod(worker=OTHER, phase=PodPhase.FAILED, reason="OOMKilled")))
    lost = WorkerLost(OTHER, "i1", "its pod ended: OOMKilled", fenced=not runtime)
    assert miss(adopted, ctx, (OTHER, "i1")) == ([lost], [])


def test_an_earlier_incarnation_is_fenced_when_the_api_lists_no_pod_of_it(adopted, ctx, pod):
    """The watch may be late, a list is not; whoever has another incarnation's place fences nobody by that (J2)."""
    send(adopted, ctx, registered(adopted, 0))
    asked = [ListPods(adopted.seed.labels)]
    assert miss(adopted, ctx, (FIRST, "i0"), (OTHER, "i0")) == ([], asked)
    assert miss(adopted, ctx, (FIRST, "i0"), (OTHER, "i0")) == ([], [])
    listed = (pod(), pod("i0", worker=OTHER))
    commands = send(adopted, ctx, Completed("missed", asked[0], listed))
    assert told(commands, object) == [WorkerLost(FIRST, "i0", "its pod is gone", fenced=True)]
    assert send(adopted, ctx, Completed("missed", asked[0], ())) == ()
    assert miss(adopted, ctx, (OTHER, "i0")) == ([], asked)


@pytest.mark.parametrize(("error", "least"), [(Unavailable("no answer"), 0), (Throttled(retry_after=7 * SECOND), 7)])
def test_an_api_that_does_not_answer_is_left_alone_for_a_while(adopted, ctx, error, least):
    """However often the scheduler asks, the API is asked again after a pause, and nobody is fenced meanwhile."""
    _, (effect,) = miss(adopted, ctx, (OTHER, "i0"))
    clocks = timers(send(adopted, ctx, Failed("missed", effect, error)))
    assert [*clocks] == ["missed"]
    assert clocks["missed"].delay >= least * SECOND
    assert miss(adopted, ctx, (OTHER, "i0")) == ([], [])
    assert send(adopted, ctx, TryAgain("missed")) == ()
    assert miss(adopted, ctx, (OTHER, "i0")) == ([], [effect])
