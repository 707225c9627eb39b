"""Planted bugs of fleet and jobs: exact source text and what to put in its place.

A text that is not found exactly once is an error, not a pass: when the source changes, so does this list.
"""

import attrs


@attrs.frozen
class Mutant:
    """One bug: replacements as (module below iriscw, old text, new text), and how many seeds may miss it."""

    name: str
    edits: tuple
    seeds: int = 300
    first: int = 0
    """The seed with which the search begins: for what is seldom seen, so that it is found in a minute."""
    fails_with: str = ""
    """What a run fails with instead of breaking an invariant: for what the language itself does not allow."""


def _bug(name, *edits, seeds=300, first=0):
    return Mutant(name, edits, seeds, first)


PODS, SLICES, SCALING = "fleet/pods.py", "fleet/slices.py", "fleet/scaling.py"
SCHEDULER, JOB, SUSPENDING = "jobs/scheduler.py", "jobs/job.py", "jobs/suspension/decisions.py"
LIVENESS_BY_PLAIN_TIME = (
    (PODS, "        place.last_contact = ctx.attentive\n", "        place.last_contact = ctx.now\n"),
    (PODS, "\n    place.last_contact = ctx.attentive\n", "\n    place.last_contact = ctx.now\n"),
    (PODS, "timeout, CheckLiveness(), attentive=True)", "timeout, CheckLiveness())"),
    (PODS, "    silent = ctx.attentive - place", "    silent = ctx.now - place"),
    (PODS, "timeout - silent, CheckLiveness(), attentive=True)", "timeout - silent, CheckLiveness())"),
)
DROPS_AT_ONCE = """        drop = Run(("drop", freeze_key(uid, then)), drop_of(uid, then))
        commands = (*ends.commands, tell, drop, self._limit(index, uid, then, ctx))
        return"""

MUTANTS = (
    _bug(
        "declined-placement-keeps-its-room",
        (JOB, "        if declined:\n", "        if declined and not declined:\n"),
        seeds=450,
        first=450,
    ),
    _bug(
        "room-of-a-lost-worker-leaks",
        (
            SCHEDULER,
            "for uid in uids:\n            job.live.pop(uid, None)\n",
            "for uid in [uid for uid in uids if uid not in state.absent_of]:\n            job.live.pop(uid, None)\n",
        ),
    ),
    _bug(
        "retry-while-the-old-attempt-lives",
        (
            JOB,
            "        if message.fenced:\n            return self._give_up",
            "        if message.reason:\n            return self._give_up",
        ),
    ),
    _bug(
        "slice-created-before-its-id-is-durable",
        (
            "runtime/interpreter.py",
            "rests_on = cell.rests_on if cell.rests_on > tree.durable else 0\n    if command.conflate is None:\n",
            "rests_on = 0\n    if command.conflate is None:\n",
        ),
    ),
    _bug(
        "shortest-idle-is-removed",
        (SCALING, "    idle_since, slice_id = census.idle[0]\n", "    idle_since, slice_id = census.idle[-1]\n"),
        (
            SCALING,
            "census.idle[0] == (message.idle_since, message.slice_id)\n",
            "census.idle[-1] == (message.idle_since, message.slice_id)\n",
        ),
    ),
    _bug(
        "running-slice-is-removed",
        (
            SLICES,
            "    if piece.state is not SliceState.READY or piece.live_total:\n",
            "    if piece.state is not SliceState.READY:\n",
        ),
        (
            SLICES,
            "        assert self.idle_since is None or (self.state is SliceState.READY and self.live_total == 0)\n",
            "",
        ),
        (SCALING, "    if message.live_attempts == 0 and surplus and", "    if surplus and"),
    ),
    _bug(
        "quota-taken-for-capacity",
        (
            "cloud/lifecycle.py",
            "        return PoolJudgement(PoolHealth.NO_QUOTA,",
            "        return PoolJudgement(PoolHealth.NO_CAPACITY,",
        ),
    ),
    _bug(
        "quota-closes-nothing",
        (SCALING, "    if kind is Trouble.QUOTA:\n", "    if kind is Trouble.NONE:\n"),
    ),
    _bug(
        "silent-worker-called-fenced",
        (
            PODS,
            'worker for {silent // SECOND} s"\n    return (*_give_up(place, ctx, fenced=False),',
            'worker for {silent // SECOND} s"\n    return (*_give_up(place, ctx, fenced=True),',
        ),
    ),
    _bug(
        "one-retry-too-many",
        (
            "jobs/lifecycle.py",
            "        then = TaskState.PENDING if failures < spec.max_retries_failure",
            "        then = TaskState.PENDING if failures <= spec.max_retries_failure",
        ),
    ),
    _bug(
        "losses-count-as-failures",
        (
            "jobs/lifecycle.py",
            "    Ending.WORKER_LOST: Consequence(Budget.PREEMPTION,",
            "    Ending.WORKER_LOST: Consequence(Budget.FAILURE,",
        ),
    ),
    _bug(
        "end-of-a-slice-ignored",
        (SCHEDULER, "            if slice_of(place[0]) == message.slice_id:\n", "            if not place:\n"),
    ),
    _bug(
        "missed-workers-never-asked-for",
        (
            SCHEDULER,
            "        if state.absent:\n            yield",
            "        if state.absent and not state.jobs:\n            yield",
        ),
    ),
    _bug(
        "missed-workers-asked-for-once",
        (SCHEDULER, '            yield SetTimer("missed", MISSED_REPEAT, Due("missed"))\n', ""),
    ),
    _bug(
        "missed-slices-never-told",
        ("fleet/groups.py", "        if slice_id not in group.promises and not left:\n", "        if not slice_id:\n"),
    ),
    _bug(
        "missed-workers-never-looked-for",
        ("fleet/slice_missed.py", "    if unseen and not piece.missed:\n", "    if unseen and piece.missed:\n"),
    ),
    _bug(
        "end-of-a-slice-counts-as-a-failure",
        (
            JOB,
            "            seen = Observation(uid, attempt.state, Ending.WORKER_LOST, reason=reason)\n",
            "            seen = Observation(uid, attempt.state, Ending.FAILED, reason=reason)\n",
        ),
    ),
    _bug(
        "registering-again-wipes-what-is-taken",
        (SCHEDULER, "        if host is not None and host.info != info:\n", "        if host is not None:\n"),
        (
            SCHEDULER,
            "            moved = self._retire(state, host) if same else {}\n",
            "            moved = {}\n            if same:\n                self._retire(state, host)\n",
        ),
    ),
    _bug("liveness-by-plain-time", *LIVENESS_BY_PLAIN_TIME),
    _bug(
        "the-controllers-own-pool-is-an-orphan",
        (
            "fleet/root.py",
            "            and labels.get(LABEL_ROLE) != ROLE_CONTROLLER\n",
            "",
        ),
        (
            "fleet/orphans.py",
            "        assert thing.labels.get(LABEL_ROLE) != ROLE_CONTROLLER,",
            "        assert LABEL_ROLE != ROLE_CONTROLLER,",
        ),
    ),
    _bug(
        "one-slice-too-many",
        (
            "fleet/sizing.py",
            "max(0, config.max_slices - census.counted)))",
            "max(0, config.max_slices + 1 - census.counted)))",
        ),
        (SCALING, "    if census.counted >= config.max_slices:\n", "    if census.counted > config.max_slices:\n"),
        (SCALING, '    assert census.counted + count <= group.config.max_slices, "INV-F4"\n', ""),
    ),
    _bug(
        "no-reason-for-pending-tasks",
        ("jobs/explaining.py", '    return f"{reason}; {routed}" if routed else reason\n', '    return ""\n'),
    ),
    _bug(
        "end-shown-before-its-log",
        (
            "jobs/ends.py",
            "    logs_due = final and ending not in LOST and seen.log_offset > seen.logs_stored\n",
            "    logs_due = False\n",
        ),
    ),
    _bug(
        "half-a-slice-is-ready",
        (SLICES, "    if count == total:\n", "    if count:\n"),
        (
            SLICES,
            "            assert self.registered == self.seed.config.num_vms",
            "            assert self.registered",
        ),
    ),
    _bug(
        "worker-with-less-is-accepted",
        ("fleet/registration.py", "    if short:\n", "    if short and not briefed:\n"),
    ),
    _bug(
        "orphans-are-left-alone",
        (
            "fleet/orphans.py",
            '        return Run(("orphan", name), effect)\n',
            '        return SetTimer(("orphan", name), 10**9, TryAgain(f"orphan {name}"))\n',
        ),
    ),
    _bug(
        "group-decides-while-the-journal-takes-nothing",
        ("fleet/actor.py", "            awaits_journal=True,\n", ""),
        seeds=600,
    ),
    _bug(
        "suspended-before-its-freeze-is-known",
        (SUSPENDING, "        if then.stage is Stage.FROZEN:\n", "        if then.stage is not Stage.RUNS:\n"),
        first=80,
    ),
    _bug(
        "room-of-a-suspended-attempt-leaks",
        (
            SUSPENDING,
            "        ends.uids.append(uid)\n        if not move.away:\n",
            "        if not move.away:\n",
        ),
    ),
    _bug(
        "no-room-for-what-comes-back",
        (
            "jobs/returns.py",
            "        state.inventory.commit(host, uid, Commitment(job.job_id, known.attempt.index, job.spec.demand))\n",
            "",
        ),
    ),
    _bug(
        "wish-to-go-on-is-forgotten",
        (
            SUSPENDING,
            "        ends.waiting += _place(ledger, index, uid, then, ctx)\n",
            "",
        ),
        first=28,
    ),
    _bug(
        "suspended-attempt-outlives-its-job",
        (JOB, "            commands += (Continue(EndAway()),) if ledger.away else ()\n", ""),
        first=28,
    ),
    _bug(
        "checkpoint-of-a-stopped-attempt-stays",
        ("jobs/ends.py", "    if drop is not None:\n", "    if drop is not None and not move.away:\n"),
        first=28,
    ),
    _bug(
        "checkpoint-removed-before-its-attempt-is-back",
        (
            SUSPENDING,
            "        commands = (*ends.commands, tell, self._limit(index, uid, then, ctx))\n        return",
            DROPS_AT_ONCE,
        ),
    ),
    _bug(
        "what-it-was-suspended-counts-as-running",
        (
            "jobs/suspension/moves.py",
            "    return move.paused_ns + max(0, wall_ns - move.suspended_wall_ns)\n",
            "    return move.paused_ns\n",
        ),
        first=18,
    ),
    _bug(
        "what-waits-for-a-worker-is-not-reported",
        (
            "jobs/reports.py",
            "        elif uid in ledger.away and ledger.open and",
            "        elif uid in ledger.away and not ledger.open and",
        ),
    ),
)
