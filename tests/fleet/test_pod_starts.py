"""A pod that never comes to run is replaced, with its reason, its pauses and its bound."""

import attrs
import pytest
from pod_desk import WORKER, losses, reports, runs, send, start, stopped, timers

from iriscw.cloud.effects import CreatePod, DeletePod
from iriscw.cloud.lifecycle import PodHealth
from iriscw.cloud.model import LABEL_INCARNATION, Attributes, PodPhase, Upserted
from iriscw.fleet import pods
from iriscw.fleet.messages import WorkerDialled
from iriscw.fleet.model import PodState, Trouble
from iriscw.fleet.signals import CheckStart, PodSeen, PodVanished, TryAgain
from iriscw.fleet.slices.slice import MAX_POD_FAILURES
from iriscw.runtime.vocabulary import Completed

IMAGE = {"reason": "ErrImagePull", "message": "not found"}


def clock(commands):
    """Return how long the clock was set for; None if it was stopped, empty if nothing was said of it."""
    set_to = [each.delay for key, each in timers(commands).items() if key == "start"]
    return set_to + [None for key in stopped(commands) if key == "start"]


@pytest.fixture
def starting(place, ctx, pod):
    """A place whose pod exists and whose worker has not dialled."""
    return start(place, ctx, pod)


def test_a_pod_in_trouble_has_so_much_time(starting, ctx, pod):
    """The clock starts once for each kind of trouble, and stops when it is over."""
    patience = starting.seed.config.timing.start_patience
    pull = PodSeen(pod(starting.incarnation, **IMAGE))
    assert clock(send(starting, ctx, pull)) == [patience]
    later = PodSeen(pod(starting.incarnation, reason="ImagePullBackOff", message="Back-off"))
    assert clock(send(starting, ctx, later)) == []
    other = PodSeen(pod(starting.incarnation, reason="CreateContainerConfigError"))
    assert clock(send(starting, ctx, other)) == [patience]
    assert clock(send(starting, ctx, PodSeen(pod(starting.incarnation, phase=PodPhase.RUNNING)))) == [None]


def test_a_pod_that_is_being_set_up_has_more(starting, ctx, pod):
    """It may be on its way: volumes, network, and images on some servers."""
    (span,) = clock(send(starting, ctx, PodSeen(pod(starting.incarnation, node="n", unset=True))))
    assert span == pods.SETTING_UP * starting.seed.config.timing.start_patience


def test_its_time_over_it_is_replaced_and_says_why(starting, ctx, pod):
    """The reason has the cloud's own words; the next pod is asked for when the last one is known to be gone."""
    first = starting.incarnation
    send(starting, ctx, PodSeen(pod(first, **IMAGE)))
    commands = send(starting, ctx, CheckStart())
    assert runs(commands) == [DeletePod(f"{WORKER}-{first}", "u1")]
    (lost,) = losses(commands)
    assert (lost.incarnation, lost.fenced) == (first, False)  # until it is gone it may still come to run
    (told,) = reports(commands)
    assert told.failures == 1
    assert told.reason == "the worker pod did not start, because its image cannot be had: ErrImagePull: not found"
    send(starting, ctx, PodVanished(pod(first)))
    (create,) = runs(send(starting, ctx, TryAgain("fill")))
    assert isinstance(create, CreatePod)
    assert create.spec.labels[LABEL_INCARNATION] != first
    assert starting.health is PodHealth.WELL


def test_the_time_of_a_pod_that_is_gone_ends_with_it(starting, ctx, pod):
    """It is none of the next one's, which has as much of its own: it is not given up for how long another one took."""
    patience = starting.seed.config.timing.start_patience
    first = starting.incarnation
    assert clock(send(starting, ctx, PodSeen(pod(first, **IMAGE)))) == [patience]
    assert clock(send(starting, ctx, PodVanished(pod(first)))) == [None]
    (create,) = runs(send(starting, ctx, TryAgain("fill")))
    send(starting, ctx, Completed("pod", create, pod(starting.incarnation)))
    assert clock(send(starting, ctx, PodSeen(pod(starting.incarnation, **IMAGE)))) == [patience]


def test_who_runs_or_is_known_is_left_alone(starting, ctx, pod, big):
    """A clock that rings late means nothing."""
    send(starting, ctx, PodSeen(pod(starting.incarnation, **IMAGE)))
    dial = WorkerDialled(WORKER, starting.incarnation, big, Attributes({}), "10.0.0.9")
    assert clock(send(starting, ctx, dial)) == [None]
    assert send(starting, ctx, CheckStart()) == ()
    assert starting.state is PodState.REGISTERED


@pytest.mark.parametrize("trouble", [IMAGE, {"reason": "Unschedulable", "message": "0/1 nodes are available"}])
def test_a_slice_whose_pods_never_start_is_given_up_with_the_reason(world, timing, trouble):
    """Each pod is replaced until there were too many: then the slice is, and users read what the cloud said."""
    fleet = world(min_slices=1, timing=timing(start_patience=2, init_timeout=600, startup_grace=900))

    def waits(name):
        pod = fleet.cloud.pods.get(name)
        if pod is not None and not pod.deleting:
            fleet.cloud.pods[name] = attrs.evolve(pod, **trouble)
            fleet.cloud.show("pods", Upserted(fleet.cloud.pods[name]))

    fleet.cloud.run_pod = waits
    seen = {}

    def given_up():
        for row in fleet.describe().slices:
            seen[row.slice_id] = row
        return len(seen) == 2

    fleet.until(given_up, 600)
    first = min(seen.values(), key=lambda row: row.requested_at)
    assert first.trouble is Trouble.WORKERS
    assert f"failed {MAX_POD_FAILURES} times" in first.reason
    assert trouble["message"] in first.reason
    asked = [each for each in fleet.cloud.calls if isinstance(each, CreatePod) and each.spec.pool == first.slice_id]
    assert len(asked) == MAX_POD_FAILURES
