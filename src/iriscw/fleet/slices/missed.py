"""Workers that the scheduler misses: attempts are recorded on them, and it was not told of them.

Theory of operation. The scheduler is new, or the whole controller is, and jobs have attempts on workers of this slice.
Most of these dial again, the slice is whole, and all are announced together. The others would be waited for until
nobody could believe in them any more; so the scheduler asks, again and again, and the slice says what is certain.

* A worker that is registered while its slice is incomplete is announced, closed to new work, as it would be had the
  slice lost another worker only now: what runs there goes on, and is not taken for lost.
* A worker whose pod is over or gone is fenced. A pod that ended was shown by the watch, and stays ended. That one does
  not exist is another matter: the watch may be late. So the API is asked, and what it does not list is gone for good,
  because its attempts were placed when it existed.

One list answers for the whole slice, and only if something is missing in what the watch has shown: after a restart
nothing is, as long as the pods live.
"""

from __future__ import annotations

from collections.abc import Iterable

from iriscw.cloud.effects import ListPods
from iriscw.cloud.lifecycle import RefusalJudgement
from iriscw.cloud.model import Pod
from iriscw.fleet.lifecycle import GOING
from iriscw.fleet.messages import WorkerLost, WorkerReady, WorkersMissed
from iriscw.fleet.model import SliceState, WorkerInfo, pod_name
from iriscw.fleet.pacing import backoff
from iriscw.fleet.signals import TryAgain
from iriscw.fleet.slices.slice import Slice, close
from iriscw.runtime.vocabulary import Command, Context, Outcome, Run, SetTimer, Tell


def workers_missed(piece: Slice, message: WorkersMissed, ctx: Context) -> Outcome:
    """Say what became of workers of this slice."""
    if not piece.briefed:
        return None
    commands: list[Command] = []
    unseen = []
    for place in message.places:
        worker_id, incarnation = place
        told = piece.places.get(worker_id)
        pod = piece.pods.get(worker_id, {}).get(pod_name(worker_id, incarnation))
        if told is not None and told.info is not None and told.info.incarnation == incarnation:
            # The places of a slice that goes tell their losses themselves.
            commands += _announce(piece, told.info, ctx) if piece.state not in GOING else []
        elif pod is None:
            unseen.append(place)
        elif pod.phase.over:
            commands.append(_lost(piece, place, f"its pod ended: {pod.reason or pod.phase.value}"))
    if unseen and not piece.missed:
        piece.missed = tuple(unseen)
        commands.append(Run("missed", ListPods(piece.seed.labels)))
    return tuple(commands)


def _announce(piece: Slice, info: WorkerInfo, ctx: Context) -> list[Command]:
    ready = Tell(piece.seed.scheduler, WorkerReady(info), conflate=("ready", info.worker_id))
    closed = close(piece, (info.worker_id,), ctx) if piece.state is not SliceState.READY else []
    return [ready, *closed]


def _lost(piece: Slice, place: tuple[str, str], reason: str) -> Command:
    fenced = not piece.seed.config.tasks_outlive_workers
    return Tell(piece.seed.scheduler, WorkerLost(*place, reason, fenced=fenced))


def pods_listed(piece: Slice, pods: Iterable[Pod]) -> list[Command]:
    """Fence the missed workers that have no pod."""
    missed, piece.missed = piece.missed, ()
    left = dict.fromkeys(pod.name for pod in pods)
    return [_lost(piece, place, "its pod is gone") for place in missed if pod_name(*place) not in left]


def list_failed(piece: Slice, judgement: RefusalJudgement, ctx: Context) -> Command:
    """Ask the API nothing more for a while; the scheduler asks again."""
    timing = piece.seed.config.timing
    delay = backoff(1, timing.retry_backoff, timing.retry_backoff_max, ctx.rng)
    return SetTimer("missed", max(delay, judgement.retry_after), TryAgain("missed"))
