"""Planted bugs that others have had: each repeats what a numbered lesson is about.

Lessons are those of two collections of failures of real systems: ``iris`` (a scheduler of jobs on Kubernetes, its 25
most instructive issues) and ``gpu`` (ten findings about state that is saved and restored). A lesson that a planted bug
of :mod:`planted` repeats already is only named here, in :data:`ALREADY`.

A bug is found by seeds of the simulated world, or by one test, its ``catcher``: where several parts keep each other
from showing it (a link forgets stale ends before a job hears them; clocks that come late find nothing to do), and where
the world needs a plan of its own. Those of the driver are found by both.
"""

import attrs
from planted import JOB, PODS, SCALING, SCHEDULER

from anchors import Mutant

OWNERSHIP, REFLECTOR = "cloud/kube/ownership.py", "cloud/kube/reflector.py"
PARSING, REFUSALS = "cloud/kube/parsing.py", "jobs/scheduling/refusals.py"
CLOCKS = "tests/sims/test_clocks.py::test_no_decision_rests_on_a_clock_of_the_platform"


@attrs.frozen
class Lesson(Mutant):
    """A planted bug with the lesson that it repeats."""

    lesson: str = ""
    what: str = ""
    catcher: str = ""
    """The one test that has to fail; empty: seeds find it."""
    found_by_seeds: bool = False
    """Whether seeds find it, too, beside its catcher."""


def _bug(name, lesson, what, *edits, **settings):
    return Lesson(name, edits, lesson=lesson, what=what, **settings)


ALREADY = {
    "iris 5": ("losses-count-as-failures", "end-of-a-slice-counts-as-a-failure"),
    "iris 8": ("retry-while-the-old-attempt-lives", "silent-worker-called-fenced"),
    "iris 13": ("no-reason-for-pending-tasks",),
    "iris 19": ("registering-again-wipes-what-is-taken", "liveness-by-plain-time"),
    "iris 22": ("quota-taken-for-capacity", "quota-closes-nothing"),
    "iris 23": ("declined-placement-keeps-its-room", "room-of-a-lost-worker-leaks"),
    "iris 25": ("end-shown-before-its-log",),
    "gpu 10": ("slice-created-before-its-id-is-durable",),
}
"""A retry beside a living pod is iris 8; what is registered again and forgets its losses, 19; quota taken for capacity,
22; room that leaks with a gang, 23; what is published before that on which it rests is stored, gpu 10."""

LESSONS = (
    _bug(
        "a-recycled-address-is-let-in",
        "iris 20",
        "whoever dials for a place holds it: an earlier incarnation is taken for the present one",
        (
            "fleet/registration.py",
            "judge_dial",
            "state not in HOLDING or dial.incarnation != incarnation",
            "state not in HOLDING",
        ),
        catcher="tests/fleet/test_pods.py::test_an_earlier_incarnation_never_holds_the_place",
    ),
    _bug(
        "incarnation-forgotten-in-the-scheduler",
        "iris 20",
        "what is said of an earlier incarnation is taken for the present one; in the world that one is gone by then",
        (
            "jobs/scheduling/state.py",
            "host_of",
            "host is not None and host.info.incarnation == place[1]",
            "host is not None",
        ),
        catcher="tests/jobs/test_scheduler.py::test_what_is_said_of_an_earlier_incarnation_is_not_the_present_ones",
    ),
    _bug(
        "a-retry-adopts-its-predecessor-by-name",
        "iris 7",
        "attempts are named after their task: the worker knows the name, and has the old end for it",
        (
            SCHEDULER,
            "SchedulerDecisions._commit",
            "ctx.new_id()",
            "'a' * 10 + 'abcdefgh'[index % 8] + 'ab'[len(job.job_id) % 2]",
        ),
    ),
    _bug(
        "liveness-by-counting",
        "iris 19",
        "a worker is given up after two breaks of its stream, however soon it is back",
        (
            PODS,
            "hung_up",
            'place.reason = "the worker\'s stream ended; it may dial again"',
            (
                "place.reason = 'no contact with the worker: it hung up too often'\n"
                "place.retries += 1\n"
                "if place.retries > 1:\n"
                "    return (*_give_up(place, ctx, fenced=False), _report(place, ctx))"
            ),
        ),
    ),
    _bug(
        "registering-wipes-the-record-of-failures",
        "iris 19",
        "a worker that registers and dies, again and again, is never seen to fail twice",
        (
            PODS,
            "dialled",
            "place.reason = place.refusal = place.finding = ''",
            "place.failures = 0\nplace.reason = place.refusal = place.finding = ''",
        ),
        catcher="tests/fleet/test_pods.py::test_registering_does_not_wipe_the_record_of_failures",
    ),
    _bug(
        "a-stale-end-ends-the-successor",
        "iris 20",
        "the end of an earlier attempt, told late, is taken for that of the present one",
        (
            JOB,
            "JobDecisions.observed",
            "index = here.get(seen.uid)",
            (
                "index = here.get(seen.uid, ledger.earlier.get(seen.uid))\n"
                "if index is not None and ledger.tasks[index].attempt.uid in ledger.live:\n"
                "    seen = attrs.evolve(seen, uid=ledger.tasks[index].attempt.uid)"
            ),
        ),
        catcher="tests/jobs/test_job.py::test_a_stale_end_changes_nothing",
    ),
    _bug(
        "a-cancelled-timer-is-delivered",
        "iris 19",
        "clocks of what is over go on: a deadline of a place's last pod condemns its next one",
        (
            "runtime/interpreter.py",
            "_cancel_timer",
            "cell.timers.pop(command.key, None) is not None",
            "not command.key",
        ),
        catcher="tests/runtime/test_dispatcher.py::test_a_cancelled_timer_does_not_fire",
    ),
    _bug(
        "timeouts-stop-working",
        "iris 4",
        "nobody looks at how long an attempt runs",
        (JOB, "JobDecisions._clocks", "yield SetTimer('timeout', _left(started, timeout, ctx), Due('timeout'))", ""),
        catcher="tests/sims/test_endless.py::test_attempts_that_never_end_are_stopped",
    ),
    _bug(
        "nothing-scales-to-zero",
        "iris 2",
        "something that is always there keeps slices from being idle",
        (SCALING, "_cordon_longest_idle", "not target.surplus", "True"),
    ),
    _bug(
        "a-call-of-unknown-outcome-is-repeated",
        "gpu 5",
        "a create that was not answered is repeated under its name: it lands when what the second one made is gone",
        (PODS, "failed", "place.unsure = not isinstance(message.error, HAD_NO_EFFECT)", ""),
        (
            "cloud/kube/pods.py",
            "create_pod",
            "ownership.create(settings, pods_of(settings.namespace), manifest, same, rng, once=True)",
            "ownership.create(settings, pods_of(settings.namespace), manifest, same, rng)",
        ),
        catcher="tests/fleet/test_pods.py::test_an_incarnation_is_asked_for_once",
    ),
    _bug(
        "a-teardown-is-asked-for-once",
        "iris 9",
        "a deletion that was acknowledged and did not happen is not repeated",
        (
            "fleet/slices/rules.py",
            "completed",
            "(delete_again(piece, ctx), report(piece, ctx))",
            "(report(piece, ctx),)",
        ),
        catcher="tests/fleet/test_slice_ending.py::test_a_teardown_is_asked_for_until_it_happens",
    ),
    _bug(
        "a-cloud-call-blocks-the-loop",
        "iris 16",
        "a decision asks the cloud itself and waits for the answer: nobody else decides meanwhile",
        (
            "fleet/slices/slice.py",
            "ask_for_pool",
            "piece.asking = True",
            ("import subprocess\nsubprocess.run(['cloud', 'create', piece.seed.slice_id], check=True)"),
        ),
        catcher="tests/sims/mutants/test_lessons.py::test_decisions_cannot_call_the_cloud",
    ),
    _bug(
        "a-conflict-is-deleted-and-made-anew",
        "iris 6",
        "the storm of 409s: what has the name already is deleted and created again, each time somebody looks",
        (
            OWNERSHIP,
            "create",
            (
                "holder = (yield from _holder(settings, f'{path}/{name}', rng))\n"
                "if holder is not None:\n"
                "    _compare(name, labels_of(manifest), holder, same)\n"
                "    return (holder, False)"
            ),
            "yield from ask(settings, ApiRequest('DELETE', f'{path}/{name}'), rng)",
        ),
        catcher="tests/sims/test_kube_lessons.py::test_a_create_that_is_repeated_deletes_nothing",
        found_by_seeds=True,
    ),
    _bug(
        "a-heartbeat-before-its-node-is-not-believed",
        "iris 19",
        "a node is taken for silent by the time in its heartbeat: that of its own clock, which is not the API server's",
        (
            PARSING,
            "node_of",
            "_condition(status, 'Ready').get('status') == 'True'",
            (
                "_condition(status, 'Ready').get('status') == 'True' and _text(_condition(status, "
                "'Ready'), 'lastHeartbeatTime') >= _text(_part(obj, 'metadata'), 'creationTimestamp')"
            ),
        ),
        catcher=f"{CLOCKS}[2]",
    ),
    _bug(
        "what-began-before-it-was-made-does-not-count",
        "iris 20",
        "a pod's status is taken for its predecessor's because its kubelet's clock is behind the API server's",
        (
            PARSING,
            "pod_of",
            "_phase(status)",
            (
                "_phase(status) if _text(status, 'startTime') >= _text(_part(obj, 'metadata'), "
                "'creationTimestamp') else PodPhase.PENDING"
            ),
        ),
        catcher=f"{CLOCKS}[2]",
    ),
    _bug(
        "an-expired-watch-goes-on-from-now",
        "iris 5",
        "a missed 410: what was deleted while nobody watched stays in the view for ever",
        (
            REFLECTOR,
            "Reflector._watch_refused",
            ("self._counts['expired'] += 1\nreturn self._relist(now, rng)"),
            ("self._version = ''\nreturn self._rest(Next.WATCH, self._setbacks.pause(rng), now, rng)"),
        ),
        catcher="tests/sims/test_kube_lessons.py::test_what_went_while_nobody_watched_is_told",
        found_by_seeds=True,
    ),
    _bug(
        "a-black-hole-takes-all-tasks",
        "iris 6",
        "a storm of retries that burns attempts: who refuses at once has room again, and is first to get the next task",
        (REFUSALS, "note_refusal", "pause = pause_of(count)", "return ()"),
        catcher="tests/jobs/test_refusals.py::test_who_refused_is_avoided",
    ),
)
"""Of the lessons about gangs across slices (23, second half), tiers and freezing (gpu 1 to 9, but 5) nothing can be
planted before these features are there."""
