"""What is known of an attempt that is a pod, and what follows from it. Pure.

Theory of operation. Two witnesses tell of such an attempt, and neither is enough. *The folder* says what the supervisor
wrote: that the program runs, or why not, and how it ended; but whoever is killed with all of its container writes no
more. *The API* says what became of the pod; but late, not always, and nothing of the program's own end.

So: what the folder says is believed at once. Where it says nothing, a pod that is over (or gone, which only a look can
tell: a list may be older than the pod) says that nothing will come any more. The folder is read after the pod's state
was taken, so what the supervisor wrote last is never missed. An attempt whose end is written has ended when its pod is
over, too, because its GPUs are free only then; but if the API does not say so for a while, it is not waited for.

An attempt that has not begun is given up when its pod stays ill for longer than such an illness may pass by itself, or
does not begin at all. Giving up needs the order to be withdrawn; if it was taken meanwhile, the attempt runs.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from iriscw.cloud.lifecycle import PodHealth, judge_pod
from iriscw.cloud.model import Pod, PodPhase
from iriscw.processes.contained import FoundStart
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.supervised import NotStarted
from iriscw.runtime.vocabulary import SECOND

NO_ORDER: Final = 66
"""The exit code of a supervisor that finds no order."""
SIGKILL: Final = 9
KILLED: Final = 137
TERMINATED: Final = 143
OUT_OF_MEMORY: Final = "OOMKilled"
"""How a kubelet says that the kernel killed a container for memory: all of it at once, its supervisor too."""

MAX_REASON_CHARS: Final = 1000


@attrs.frozen(kw_only=True)
class PodPatience:
    """For how long a pod that has not begun may be ill, or take, in ns."""

    image: int = 60 * SECOND
    """The kubelet tries again after 10, 20 and 40 s; registries hiccup for that long, and typing errors stay."""
    setup: int = 30 * SECOND
    volumes: int = 180 * SECOND
    """Every pod is in that state for a while; Iris's peer gave up failed mounts after 90 s."""
    crashes: int = 0
    begin: int = 1800 * SECOND
    """All in all: images of 20 GB come at 100 MB/s, and others' at the same time."""
    settle: int = 30 * SECOND
    """From the end that is written until the API says that the pod is over."""

    def of(self, health: PodHealth) -> int:
        """Return the patience with an illness."""
        spans = {
            PodHealth.IMAGE: self.image,
            PodHealth.SETUP: self.setup,
            PodHealth.VOLUMES: self.volumes,
            PodHealth.CRASHES: self.crashes,
        }
        return spans.get(health, self.begin)


@attrs.frozen(kw_only=True)
class PodSight:
    """What is known. ``pod`` is as it was last seen, None before that; ``gone``: it was looked for and is not there."""

    found: FoundStart
    pod: Pod | None = None
    gone: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing of the pod runs any more."""
        return self.gone or (self.pod is not None and self.pod.phase.over)


@attrs.frozen
class Course:
    """Since when a pod that has not begun is as it is, in ns."""

    since: int
    health: PodHealth = PodHealth.WELL

    def seen(self, seen: PodSight, now: int) -> Course:
        """Go on with what was seen. The words of one illness change all the time: ErrImagePull, ImagePullBackOff."""
        health = PodHealth.WELL if seen.pod is None else judge_pod(seen.pod)
        return self if health is self.health else Course(now, health)


# What follows


@attrs.frozen
class WaitMore:
    """Nothing yet. Look again after so many ns, if nothing happens before."""

    span: int


@attrs.frozen
class Runs:
    """The program was started; how it ended is another question. ``gpus``: those of its pod, if the pod says so."""

    gpus: tuple[str, ...] = ()


@attrs.frozen
class ProgramRefused:
    """The supervisor says that the program could not be started."""

    failure: NotStarted


@attrs.frozen
class Never:
    """It did not start, and never will. ``of_image``: for what it was to run in."""

    reason: str
    of_image: bool = False


@attrs.frozen
class GiveUp:
    """It should be withdrawn: then it has never started, for this reason."""

    reason: str
    of_image: bool = False


Start: TypeAlias = WaitMore | Runs | ProgramRefused | Never | GiveUp


def judge_start(seen: PodSight, waited: int, ill: int, patience: PodPatience) -> Start:
    """Say how the start of an attempt stands.

    Args:
        seen: What is known.
        waited: Since its pod was asked for, in ns.
        ill: Since its pod has had the health that it has now, in ns; see :class:`Course`.
        patience: For how long to wait.
    """
    found = seen.found
    if found.report is not None:
        failure = found.report.failure
        return Runs(found.report.gpus) if failure is None else ProgramRefused(failure)
    if found.ending is not None:
        return Runs()
    if seen.over:
        return Runs() if found.began else Never(f"its pod ended before it began: {words_of(seen)}", _is_no_image(seen))
    health = PodHealth.WELL if seen.pod is None else judge_pod(seen.pod)
    left = patience.begin - waited
    if health is not PodHealth.WELL:
        left = min(left, patience.of(health) - ill)
    if left > 0:
        return WaitMore(left)
    if health is PodHealth.WELL:
        return GiveUp(f"its pod did not begin within {waited // SECOND} s: {words_of(seen)}")
    return GiveUp(f"its pod does not begin, as {health.value}: {words_of(seen)}", health is PodHealth.IMAGE)


def _is_no_image(seen: PodSight) -> bool:
    """Whether a container ended by itself that never took its order: there is no interpreter, or none for this machine.

    A node that refuses a pod gives no code; a container that was ended from outside, or found no order, one of its own.
    """
    return seen.pod is not None and seen.pod.exit_code not in (None, 0, NO_ORDER, KILLED, TERMINATED)


def judge_end(seen: PodSight, settled: int, ordered: bool, patience: PodPatience) -> ProcessEnd | WaitMore | None:
    """Say how an attempt ended; None while only something that happens can tell.

    Args:
        seen: What is known.
        settled: Since its end is known from its folder, in ns.
        ordered: Whether somebody ordered its end.
        patience: For how long to wait.
    """
    ending = seen.found.ending
    if ending is not None:
        if not seen.over and settled < patience.settle:
            return WaitMore(patience.settle - settled)
        if ending.stopped and not ending.lease_over and not ordered:
            return ProcessEnd(text=f"its pod was ended by somebody else: {words_of(seen)}")
        if ending.signal == SIGKILL and not ending.stopped and _was_out_of_memory(seen):
            ending = attrs.evolve(ending, out_of_memory=True)  # the kernel took one process, and not the supervisor
        return ending
    if not seen.over:
        return None
    if ordered:
        return ProcessEnd(stopped=True, killed=True)
    if _was_out_of_memory(seen):
        return ProcessEnd(signal=9, out_of_memory=True, text="its container was killed by the kernel for memory")
    return ProcessEnd(text=f"its pod is gone, and nobody saw how it ended: {words_of(seen)}")


def _was_out_of_memory(seen: PodSight) -> bool:
    return seen.pod is not None and seen.pod.reason == OUT_OF_MEMORY


def words_of(seen: PodSight) -> str:
    """Return what the cloud says of a pod, in its own words."""
    pod = seen.pod
    if pod is None:
        return "it does not exist" if seen.gone else "nobody has told of it"
    said = ": ".join(text for text in (pod.reason, pod.message) if text)
    state = "deleted" if seen.gone else "being deleted" if pod.deleting else pod.phase.value
    if not said and pod.phase is PodPhase.PENDING and not seen.gone:
        said = "the node has not begun it" if pod.unset or not pod.address else ""
    code = "" if pod.exit_code is None else f"exit code {pod.exit_code}"
    return ", ".join(text for text in (state, said, code) if text)[:MAX_REASON_CHARS]
