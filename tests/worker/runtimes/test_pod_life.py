"""What follows from what is known of an attempt that is a pod: laws, and every case by name."""

import itertools

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.lifecycle import PodHealth
from iriscw.cloud.model import Pod, PodPhase
from iriscw.processes.contained import FoundStart, StartReport
from iriscw.processes.ends import EndKind, ProcessEnd
from iriscw.processes.supervised import MissingBinary
from iriscw.runtime.vocabulary import SECOND
from iriscw.worker.runtimes.pod_life import (
    Course,
    GiveUp,
    Never,
    PodPatience,
    PodSight,
    ProgramRefused,
    Runs,
    WaitMore,
    judge_end,
    judge_start,
    words_of,
)

PATIENCE = PodPatience()
POD = Pod("p", "u", "1", {}, PodPhase.PENDING, False, node="n")
REPORTS = [None, StartReport(), StartReport(MissingBinary("no program"))]
ENDINGS = [
    None,
    ProcessEnd(0, None),
    ProcessEnd(3, None),
    ProcessEnd(None, 15, stopped=True),
    ProcessEnd(None, 9, stopped=True, killed=True),
    ProcessEnd(None, 9, stopped=True, killed=True, lease_over=True),
    ProcessEnd(None, 9, out_of_memory=True),
]
PODS = [
    None,
    *(attrs.evolve(POD, phase=phase) for phase in PodPhase),
    attrs.evolve(POD, reason="ImagePullBackOff", message="no such image"),
    attrs.evolve(POD, reason="CreateContainerConfigError"),
    attrs.evolve(POD, unset=True),
    attrs.evolve(POD, phase=PodPhase.FAILED, reason="OOMKilled", exit_code=137),
    attrs.evolve(POD, phase=PodPhase.FAILED, reason="OutOfnvidia.com/gpu", message="Node didn't have enough resource"),
    attrs.evolve(POD, deleting=True),
]
FOUND = [
    FoundStart(report, began or (report is not None and report.failure is None), ending, stopping)
    for report, began, ending, stopping in itertools.product(REPORTS, (False, True), ENDINGS, (False, True))
]
SEEN = [PodSight(found=found, pod=pod, gone=gone) for found in FOUND for pod in PODS for gone in (False, True)]
SPANS = st.integers(0, 4000 * SECOND)


def test_a_start_is_judged_whatever_is_known():
    """Every case has a verdict; only what the supervisor or the end of the pod says is final, and waits end."""
    for seen, waited in itertools.product(SEEN, (0, 10 * SECOND, 10_000 * SECOND)):
        verdict = judge_start(seen, waited, waited, PATIENCE)
        found = seen.found
        if isinstance(verdict, Runs):
            assert found.began or found.ending is not None or found.report == StartReport()
        if isinstance(verdict, Never):
            assert seen.over
            assert not found.began
            assert found.report is None
        if isinstance(verdict, ProgramRefused):
            assert found.report.failure is verdict.failure
        if isinstance(verdict, WaitMore):
            assert 0 < verdict.span <= PATIENCE.begin
        if isinstance(verdict, GiveUp):
            assert waited > 0
            assert not seen.over


def test_the_gpus_of_a_pod_are_those_that_its_report_names():
    """Its node gave them; nobody here did."""
    runs = judge_start(PodSight(found=FoundStart(StartReport(gpus=("GPU-1",)))), 0, 0, PATIENCE)
    assert runs == Runs(("GPU-1",))


def test_an_end_is_judged_whatever_is_known():
    """Nothing has ended for which neither its folder nor its pod says so; and a success is one by the program's own."""
    for seen, settled, ordered in itertools.product(SEEN, (0, 3600 * SECOND), (False, True)):
        verdict = judge_end(seen, settled, ordered, PATIENCE)
        ending = seen.found.ending
        if not isinstance(verdict, ProcessEnd):
            assert not seen.over
            assert (verdict is None) == (ending is None)
            continue
        assert seen.over or (ending is not None and settled > 0)
        assert verdict.succeeded == (ending is not None and ending.code == 0 and not ending.stopped)
        if verdict.kind is EndKind.STOPPED:
            assert ordered
        if ending is not None and ending.lease_over:
            assert verdict.kind is EndKind.LEASE_OVER


@given(seen=st.sampled_from(SEEN), first=SPANS, more=SPANS)
def test_patience_only_runs_out(seen, first, more):
    """What was given up is not hoped for again when more time has passed."""
    early = judge_start(seen, first, first, PATIENCE)
    late = judge_start(seen, first + more, first + more, PATIENCE)
    if not isinstance(early, WaitMore):
        assert type(early) is type(late)


@given(history=st.lists(st.sampled_from(PODS[1:]), min_size=1, max_size=6), ending=st.sampled_from(ENDINGS[1:]))
def test_late_and_repeated_news_of_a_pod_change_no_end(history, ending):
    """Whatever was heard of it last, in whatever order: what its folder says of its end is what is told of it."""
    told = set()
    for pod in history:
        verdict = judge_end(
            PodSight(found=FoundStart(StartReport(), True, ending), pod=pod), PATIENCE.settle, True, PATIENCE
        )
        told.add(verdict)
    assert len(told) == 1


def test_the_ends_from_outside_have_the_clouds_words():
    """Evicted, killed for memory, refused by the node."""
    began = FoundStart(StartReport(), began=True)
    oom = judge_end(PodSight(found=began, pod=PODS[-3]), 0, False, PATIENCE)
    assert oom.kind is EndKind.OUT_OF_MEMORY
    evicted = attrs.evolve(POD, phase=PodPhase.FAILED, reason="Evicted", message="The node was low on memory")
    stopped = attrs.evolve(began, ending=ProcessEnd(None, 15, stopped=True))
    for found in (began, stopped):
        end = judge_end(PodSight(found=found, pod=evicted), 0, False, PATIENCE)
        assert end.kind is EndKind.LOST
        assert "Evicted: The node was low on memory" in end.reason
    assert judge_end(PodSight(found=stopped, pod=evicted), 0, True, PATIENCE).kind is EndKind.STOPPED
    never = judge_start(PodSight(found=FoundStart(), pod=PODS[-2]), 0, 0, PATIENCE)
    assert "OutOfnvidia.com/gpu: Node didn't have enough resource" in never.reason


@pytest.mark.parametrize(
    ("pod", "health", "of_image"),
    [
        (attrs.evolve(POD, reason="ErrImagePull", message="manifest unknown"), PodHealth.IMAGE, True),
        (attrs.evolve(POD, reason="CreateContainerError", message="no such file"), PodHealth.SETUP, False),
        (attrs.evolve(POD, unset=True), PodHealth.VOLUMES, False),
    ],
)
def test_an_ill_pod_is_given_up_with_its_reason(pod, health, of_image):
    """Not before its patience is over, and long before that of a pod that only takes long."""
    patience = PATIENCE.of(health)
    assert 0 < patience < PATIENCE.begin
    assert judge_start(PodSight(found=FoundStart(), pod=pod), patience, patience - 1, PATIENCE) == WaitMore(1)
    verdict = judge_start(PodSight(found=FoundStart(), pod=pod), patience, patience, PATIENCE)
    assert isinstance(verdict, GiveUp)
    assert verdict.of_image is of_image
    assert health.value in verdict.reason
    assert pod.message in verdict.reason


def test_a_pod_that_nobody_begins_is_given_up():
    """Its node is gone, or its image takes for ever; and one of which nobody has told."""
    for pod in (None, POD):
        assert judge_start(PodSight(found=FoundStart(), pod=pod), PATIENCE.begin - 1, 0, PATIENCE) == WaitMore(1)
        assert isinstance(judge_start(PodSight(found=FoundStart(), pod=pod), PATIENCE.begin, 0, PATIENCE), GiveUp)


def test_other_words_for_the_same_illness_do_not_make_it_younger():
    """A kubelet goes back and forth between them for ever; patience with each of them anew would never end."""
    words = itertools.cycle(("ErrImagePull", "ImagePullBackOff", "ErrImagePull: again", "InvalidImageName"))
    course, verdict = Course(0), None
    for now in range(0, PATIENCE.image + 2 * SECOND, SECOND):
        seen = PodSight(
            found=FoundStart(), pod=attrs.evolve(POD, reason=next(words).split(":")[0], message=f"at {now}")
        )
        course = course.seen(seen, now)
        verdict = judge_start(seen, now, now - course.since, PATIENCE)
        assert isinstance(verdict, GiveUp) is (now >= PATIENCE.image)
    assert verdict.of_image


def test_another_illness_has_a_patience_of_its_own():
    """And so has one that was gone for a while."""
    ill, well = (
        PodSight(found=FoundStart(), pod=attrs.evolve(POD, reason="ErrImagePull")),
        PodSight(found=FoundStart(), pod=POD),
    )
    other = PodSight(found=FoundStart(), pod=attrs.evolve(POD, unset=True))
    course = Course(0)
    assert course.seen(well, 5) == course
    course = course.seen(ill, 5)
    assert course == Course(5, PodHealth.IMAGE)
    assert course.seen(other, 9) == Course(9, PodHealth.VOLUMES)
    assert course.seen(well, 7).seen(ill, 9) == Course(9, PodHealth.IMAGE)


def test_words_are_bounded_and_never_empty():
    """Whatever a kubelet writes."""
    for seen in SEEN:
        assert words_of(seen)
    assert len(words_of(PodSight(found=FoundStart(), pod=attrs.evolve(POD, message="x" * 9999)))) <= 1000


@pytest.mark.parametrize(
    ("exit_code", "of_image"),
    [(128, True), (127, True), (1, True), (None, False), (0, False), (66, False), (137, False)],
)
def test_a_container_that_ends_by_itself_before_it_took_its_order_has_no_good_image(exit_code, of_image):
    """It is the job's, not the worker's: an image without an interpreter would close worker after worker otherwise."""
    pod = attrs.evolve(POD, phase=PodPhase.FAILED, reason="StartError", exit_code=exit_code)
    verdict = judge_start(PodSight(found=FoundStart(), pod=pod), 0, 0, PATIENCE)
    assert isinstance(verdict, Never)
    assert verdict.of_image is of_image


def test_memory_that_ran_out_is_told_as_that():
    """Also where the kernel took one process only, and the supervisor wrote what it saw; not of what was stopped."""
    pod = attrs.evolve(POD, phase=PodPhase.FAILED, reason="OOMKilled", exit_code=137)
    for ending, kind in (
        (None, EndKind.OUT_OF_MEMORY),
        (ProcessEnd(None, 9), EndKind.OUT_OF_MEMORY),
        (ProcessEnd(None, 9, stopped=True, killed=True), EndKind.STOPPED),
        (ProcessEnd(None, 11), EndKind.SIGNALLED),
        (ProcessEnd(1, None), EndKind.EXITED),
    ):
        found = FoundStart(began=True, ending=ending)
        assert (
            judge_end(PodSight(found=found, pod=pod), 0, ending is not None and ending.stopped, PATIENCE).kind is kind
        )
