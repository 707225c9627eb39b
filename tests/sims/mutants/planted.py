"""Planted bugs of fleet and jobs."""

from anchors import Mutant


def _bug(name, *edits, seeds=300, first=0):
    return Mutant(name, edits, seeds, first)


PODS, SLICES, SCALING = "fleet/pods.py", "fleet/slices/slice.py", "fleet/groups/scaling.py"
PREEMPTING = "jobs/scheduling/preempting.py"
SCHEDULER, JOB, SUSPENDING = "jobs/scheduling/scheduler.py", "jobs/job/decisions.py", "jobs/suspension/decisions.py"

MUTANTS = (
    _bug(
        "declined-placement-keeps-its-room",
        (
            JOB,
            "JobDecisions.placed",
            (
                "if declined:\n"
                "    commands.append(Tell(scheduler_of(ctx), AttemptsOver(ledger.job_id, "
                "tuple(declined))))"
            ),
            (
                "if declined and (not declined):\n"
                "    commands.append(Tell(scheduler_of(ctx), AttemptsOver(ledger.job_id, "
                "tuple(declined))))"
            ),
        ),
        seeds=450,
        first=450,
    ),
    _bug(
        "gang-never-hears-of-its-leader",
        ("jobs/meeting/decisions.py", "heard", "tuple(ledger.live)", "()"),
    ),
    _bug(
        "room-of-a-lost-worker-leaks",
        (SCHEDULER, "SchedulerDecisions._release", "uids", "[uid for uid in uids if uid not in state.absent_of]"),
    ),
    _bug(
        "retry-while-the-old-attempt-lives",
        (JOB, "JobDecisions.lost", "message.fenced", "message.reason"),
    ),
    _bug(
        "slice-created-before-its-id-is-durable",
        ("runtime/interpreter.py", "_marked", "cell.rests_on if cell.rests_on > tree.durable else 0", "0"),
    ),
    _bug(
        "shortest-idle-is-removed",
        (SCALING, "_cordon_longest_idle", "census.idle[0]", "census.idle[-1]"),
        (SCALING, "cordoned", "census.idle[0]", "census.idle[-1]"),
    ),
    _bug(
        "running-slice-is-removed",
        (
            SLICES,
            "set_idle",
            "piece.state is not SliceState.READY or piece.live_total",
            "piece.state is not SliceState.READY",
        ),
        (
            SLICES,
            "Slice.check",
            "assert self.idle_since is None or (self.state is SliceState.READY and self.live_total == 0)",
            "",
        ),
        (SCALING, "cordoned", "message.live_attempts == 0 and surplus and longest", "surplus and longest"),
    ),
    _bug(
        "quota-taken-for-capacity",
        ("cloud/lifecycle.py", "_judge_missing", "PoolHealth.NO_QUOTA", "PoolHealth.NO_CAPACITY"),
    ),
    _bug(
        "quota-closes-nothing",
        (SCALING, "close", "Trouble.QUOTA", "Trouble.NONE"),
    ),
    _bug(
        "silent-worker-called-fenced",
        (PODS, "check_liveness", "_give_up(place, ctx, fenced=False)", "_give_up(place, ctx, fenced=True)"),
    ),
    _bug(
        "one-retry-too-many",
        ("jobs/lifecycle.py", "judge", "failures < spec.max_retries_failure", "failures <= spec.max_retries_failure"),
    ),
    _bug(
        "losses-count-as-failures",
        (
            "jobs/lifecycle.py",
            "",
            "{Ending.WORKER_LOST: Consequence(Budget.PREEMPTION, TaskState.WORKER_FAILED)}",
            "{Ending.WORKER_LOST: Consequence(Budget.FAILURE, TaskState.WORKER_FAILED)}",
        ),
    ),
    _bug(
        "end-of-a-slice-ignored",
        (SCHEDULER, "SchedulerDecisions.slice_gone", "slice_of(place[0]) == message.slice_id", "not place"),
    ),
    _bug(
        "missed-workers-never-asked-for",
        (
            SCHEDULER,
            "SchedulerDecisions._ask_missed",
            (
                "if state.absent:\n"
                "    yield Tell(self.fleet, WorkersMissed(tuple(state.absent)), conflate='missed')\n"
                "    yield SetTimer('missed', MISSED_REPEAT, Due('missed'))"
            ),
            (
                "if state.absent and (not state.jobs):\n"
                "    yield Tell(self.fleet, WorkersMissed(tuple(state.absent)), conflate='missed')\n"
                "    yield SetTimer('missed', MISSED_REPEAT, Due('missed'))"
            ),
        ),
    ),
    _bug(
        "missed-workers-asked-for-once",
        (SCHEDULER, "SchedulerDecisions._ask_missed", "yield SetTimer('missed', MISSED_REPEAT, Due('missed'))", ""),
    ),
    _bug(
        "missed-slices-never-told",
        ("fleet/groups/group.py", "workers_missed", "slice_id not in group.promises and (not left)", "not slice_id"),
    ),
    _bug(
        "missed-workers-never-looked-for",
        ("fleet/slices/missed.py", "workers_missed", "not piece.missed", "piece.missed"),
    ),
    _bug(
        "end-of-a-slice-counts-as-a-failure",
        (JOB, "JobDecisions._give_up", "Ending.WORKER_LOST", "Ending.FAILED"),
    ),
    _bug(
        "registering-again-wipes-what-is-taken",
        (SCHEDULER, "SchedulerDecisions.worker_ready", "host is not None and host.info != info", "host is not None"),
        (
            SCHEDULER,
            "SchedulerDecisions.worker_ready",
            "moved = self._retire(state, host) if same else {}",
            ("moved = {}\nif same:\n    self._retire(state, host)"),
        ),
    ),
    _bug(
        "liveness-by-plain-time",
        ("fleet/pods.py", "contact", "ctx.attentive", "ctx.now"),
        ("fleet/pods.py", "dialled", "ctx.attentive", "ctx.now"),
        (
            "fleet/pods.py",
            "dialled",
            "SetTimer('liveness', timeout, CheckLiveness(), attentive=True)",
            "SetTimer('liveness', timeout, CheckLiveness())",
        ),
        ("fleet/pods.py", "check_liveness", "ctx.attentive", "ctx.now"),
        (
            "fleet/pods.py",
            "check_liveness",
            "SetTimer('liveness', timeout - silent, CheckLiveness(), attentive=True)",
            "SetTimer('liveness', timeout - silent, CheckLiveness())",
        ),
    ),
    _bug(
        "the-controllers-own-pool-is-an-orphan",
        (
            "fleet/root.py",
            "Fleet.ours",
            (
                "labels.get(LABEL_MANAGED) == 'true' and labels.get(LABEL_CLUSTER) == "
                "self.config.cluster and (labels.get(LABEL_ROLE) != ROLE_CONTROLLER)"
            ),
            "labels.get(LABEL_MANAGED) == 'true' and labels.get(LABEL_CLUSTER) == self.config.cluster",
        ),
        ("fleet/orphans.py", "Orphans.found", "thing.labels.get(LABEL_ROLE)", "LABEL_ROLE"),
    ),
    _bug(
        "one-slice-too-many",
        ("fleet/groups/sizing.py", "plan", "config.max_slices", "config.max_slices + 1"),
        (SCALING, "availability", "census.counted >= config.max_slices", "census.counted > config.max_slices"),
        (SCALING, "_request", "assert census.counted + count <= group.config.max_slices, 'INV-F4'", ""),
    ),
    _bug(
        "no-reason-for-pending-tasks",
        ("jobs/scheduling/explaining.py", "_explain", "'; '.join((each for each in said if each))", "''"),
    ),
    _bug(
        "end-shown-before-its-log",
        (
            "jobs/job/ends.py",
            "_record_end",
            "final and ending not in LOST and (seen.log_offset > seen.logs_stored)",
            "False",
        ),
    ),
    _bug(
        "half-a-slice-is-ready",
        (SLICES, "check_workers", "count == total", "count"),
        (SLICES, "Slice.check", "self.registered == self.seed.config.num_vms", "self.registered"),
    ),
    _bug(
        "worker-with-less-is-accepted",
        (
            "fleet/registration.py",
            "judge_dial",
            (
                "if short:\n"
                "    details = ', '.join((f'{name} {getattr(dial.capacity, _FIELDS[name])} < "
                "{getattr(promised, _FIELDS[name])}' if name != 'gpu_class' else f'gpu_class "
                "{dial.capacity.gpu_class!r} is not {promised.gpu_class!r}' for name in short))\n"
                "    return WorkerRefused(f'worker {dial.worker_id} has less than scale group "
                "{config.name!r} promises: {details}')"
            ),
            (
                "if short and (not briefed):\n"
                "    details = ', '.join((f'{name} {getattr(dial.capacity, _FIELDS[name])} < "
                "{getattr(promised, _FIELDS[name])}' if name != 'gpu_class' else f'gpu_class "
                "{dial.capacity.gpu_class!r} is not {promised.gpu_class!r}' for name in short))\n"
                "    return WorkerRefused(f'worker {dial.worker_id} has less than scale group "
                "{config.name!r} promises: {details}')"
            ),
        ),
    ),
    _bug(
        "orphans-are-left-alone",
        (
            "fleet/orphans.py",
            "Orphans._delete",
            "Run(('orphan', name), effect)",
            "SetTimer(('orphan', name), 10 ** 9, TryAgain(f'orphan {name}'))",
        ),
    ),
    _bug(
        "group-decides-while-the-journal-takes-nothing",
        (
            "fleet/actor.py",
            "fleet_behavior.group_spec",
            (
                "Behavior(initial=lambda: groups.Group(seed), on=group_rules.RULES, "
                "resume=groups.resume, evolve=groups.apply, compact=groups.snapshot, "
                "awaits_journal=True, effects=effects, supervision=CARE, name='scale group')"
            ),
            (
                "Behavior(initial=lambda: groups.Group(seed), on=group_rules.RULES, "
                "resume=groups.resume, evolve=groups.apply, compact=groups.snapshot, effects=effects, "
                "supervision=CARE, name='scale group')"
            ),
        ),
        seeds=600,
    ),
    _bug(
        "suspended-before-its-freeze-is-known",
        (SUSPENDING, "SuspendDecisions._vacated", "then.stage is Stage.FROZEN", "then.stage is not Stage.RUNS"),
        first=610,
    ),
    _bug(
        "room-of-a-suspended-attempt-leaks",
        (SUSPENDING, "SuspendDecisions._suspended", "ends.uids.append(uid)", ""),
    ),
    _bug(
        "no-room-for-what-comes-back",
        (
            "jobs/scheduling/resuming.py",
            "place_some",
            (
                "state.inventory.commit(host, uid, Commitment(job.job_id, known.attempt.index, job.spec.demand, "
                "placed_wall_ns=wall_ns))"
            ),
            "",
        ),
    ),
    _bug(
        "wish-to-go-on-is-forgotten",
        (SUSPENDING, "SuspendDecisions._suspended", "ends.waiting += placed(ledger, index, uid, then, ctx)", ""),
        first=28,
    ),
    _bug(
        "suspended-attempt-outlives-its-job",
        (JOB, "JobDecisions._reach", "commands += (Continue(EndAway()),) if ledger.away else ()", ""),
        first=28,
    ),
    _bug(
        "checkpoint-of-a-stopped-attempt-stays",
        ("jobs/job/ends.py", "_end_move", "drop is not None", "drop is not None and (not move.away)"),
        first=28,
    ),
    _bug(
        "checkpoint-removed-before-its-attempt-is-back",
        (
            SUSPENDING,
            "SuspendDecisions.placed",
            "commands = (*ends.commands, tell, limit_of(self.settings, index, uid, then, ctx))",
            (
                "drop = Run(('drop', freeze_key(uid, then)), drop_of(uid, then))\n"
                "commands = (*ends.commands, tell, drop, limit_of(self.settings, index, uid, then, ctx))"
            ),
        ),
    ),
    _bug(
        "what-it-was-suspended-counts-as-running",
        (
            "jobs/suspension/moves.py",
            "_paused_until",
            "move.paused_ns + max(0, wall_ns - move.suspended_wall_ns)",
            "move.paused_ns",
        ),
        first=18,
    ),
    _bug(
        "what-waits-for-a-worker-is-not-reported",
        (
            "jobs/job/reports.py",
            "report_part",
            "uid in ledger.away and ledger.open and waits_for_worker(ledger.moves[uid])",
            "uid in ledger.away and (not ledger.open) and waits_for_worker(ledger.moves[uid])",
        ),
    ),
    _bug(
        "its-own-band-gives-way",
        (PREEMPTING, "_room", "spec.band <= shape.band", "False"),
    ),
    _bug(
        "who-never-gives-way-does",
        (PREEMPTING, "_room", "spec.preemption is Preemption.NEVER", "False"),
    ),
    _bug(
        "room-is-kept-for-nobody",
        (PREEMPTING, "drop", "host.unclaim(claim.number, claim.demand)", ""),
    ),
    _bug(
        "who-has-left-is-waited-for",
        (SCHEDULER, "SchedulerDecisions._release", "state.claims.left(uid)", ""),
    ),
    _bug(
        "one-checkpoint-too-many-is-kept",
        ("jobs/keeping/copies.py", "outdated", "len(copies.kept) + 1 - keep", "len(copies.kept) - keep"),
    ),
    _bug(
        "what-may-not-go-back-does",
        (
            "jobs/keeping/going_back.py",
            "may_go_back",
            "ledger.spec.retry_from_checkpoint",
            "ledger.spec.checkpoint_every_ns",
        ),
    ),
    _bug(
        "checkpoints-outlive-their-attempt",
        ("jobs/job/ends.py", "_drop_copies", "left_of(uid, copies, gone)", "()"),
    ),
    _bug(
        "who-overran-its-timeout-goes-back",
        ("jobs/job/ends.py", "end_attempt", "not attempt.overran", "True"),
    ),
    _bug(
        "it-is-frozen-while-it-is-copied",
        (SUSPENDING, "SuspendDecisions._may_freeze", "copies and copies.under_way", "False"),
    ),
)
