"""Planted bugs of the agent, of freezing and of thawing."""

from anchors import Mutant


def _bug(name, *edits, seeds=400, first=0):
    return Mutant(name, edits, seeds, first)


FREEZING, THAWING, SETTLING = "freeze/freezing.py", "freeze/thawing.py", "freeze/settling.py"
GATES, OPERATIONS, RECOVERY, DESK = (
    "freeze/gates.py",
    "agent/operations.py",
    "agent/recovery.py",
    "freeze/drivers/desk.py",
)

MUTANTS = (
    _bug(
        "killed-before-it-is-published",
        (
            FREEZING,
            "",
            "FreezeRow('gives every byte a digest', _P.PUBLISHING, _P.PUBLISHING, _U, _U, _A)",
            "FreezeRow('gives every byte a digest', _P.ENDING, _P.PUBLISHING, _U, _U, _A)",
        ),
        (
            FREEZING,
            "",
            "FreezeRow('kills the tree', _P.OVER, _P.OVER, _A, _L, _L)",
            "FreezeRow('kills the tree', _P.PUBLISHING, _P.OVER, _A, _L, _L)",
        ),
    ),
    _bug(
        "a-crash-in-the-seal-is-the-end",
        (
            FREEZING,
            "",
            "FreezeRow('gives every byte a digest', _P.PUBLISHING, _P.PUBLISHING, _U, _U, _A)",
            "FreezeRow('gives every byte a digest', _P.PUBLISHING, _P.PUBLISHING, _U, _E, _A)",
        ),
    ),
    _bug(
        "a-lock-of-unknown-outcome-is-repeated",
        (
            FREEZING,
            "",
            "FreezeRow('locks every CUDA process', _P.CHECKPOINTING, _P.CHECKPOINTING, _U, _U, _U)",
            "FreezeRow('locks every CUDA process', _P.CHECKPOINTING, _P.CHECKPOINTING, _U, _A, _A)",
        ),
    ),
    _bug(
        "a-failed-lock-is-tried-again-at-once",
        (
            FREEZING,
            "",
            "FreezeRow('locks every CUDA process', _P.CHECKPOINTING, _P.CHECKPOINTING, _U, _U, _U)",
            "FreezeRow('locks every CUDA process', _P.CHECKPOINTING, _P.CHECKPOINTING, _A, _U, _U)",
        ),
    ),
    _bug(
        "unlocked-before-all-are-restored",
        (
            SETTLING,
            "settle",
            ("if checkpointed:\n    return RestoreCuda(checkpointed, copy_ns, gpus, reading)"),
            ("if checkpointed and (not locked):\n    return RestoreCuda(checkpointed, copy_ns, gpus, reading)"),
        ),
    ),
    _bug(
        "undone-in-order-and-not-in-reverse",
        (SETTLING, "_in_state", "reversed(states.cuda)", "states.cuda"),
    ),
    _bug(
        "what-is-locked-stays-locked",
        (
            SETTLING,
            "settle",
            ("if locked:\n    return UnlockCuda(locked, unlock_ns, reading)"),
            ("if locked and reading > READINGS:\n    return UnlockCuda(locked, unlock_ns, reading)"),
        ),
    ),
    _bug(
        "nothing-lets-the-tree-go",
        (FREEZING, "_let_go", "Phase.DUMPING in freeze.steps and freeze.room is not None", "not freeze.id"),
    ),
    _bug(
        "what-was-written-stays",
        (
            FREEZING,
            "_woken",
            "Decision(records=before, commands=(Run(KEY, Discard(freeze.id)),))",
            "attrs.evolve(_unpin(freeze, OperationEnding(Outcome.UNDONE)), records=before)",
        ),
    ),
    _bug(
        "a-tree-that-ran-on-is-killed",
        (FREEZING, "_settled", "freeze.tasks[0] in states.living", "not states"),
        first=100,
    ),
    _bug(
        "the-artifact-stays-pinned",
        (FREEZING, "_unpin", "Unpin(freeze.id, freeze.id, ending)", "Unpin('ck-none', freeze.id, ending)"),
    ),
    _bug(
        "memory-of-another-boot-is-published-for-ever",
        (FREEZING, "failed", "freeze.gone and tries < TRIES", "freeze.gone"),
        first=555,
    ),
    _bug(
        "the-application-is-never-told",
        (
            FREEZING,
            "_rest",
            "not fate.gone and Phase.QUIESCING in freeze.steps and (hook is not None)",
            "not freeze.id and hook",
        ),
    ),
    _bug(
        "a-secret-is-written-down",
        (FREEZING, "accept", "plan_trouble(message.plan)", "''"),
    ),
    _bug(
        "images-are-not-verified",
        (THAWING, "_opened", "Verify(thaw.asked.artifact, lazy=thaw.asked.lazy and lacking is None)", "Proceed(())"),
        (THAWING, "completed", "(_read(thaw, 1),)", "(_read(thaw, 1),) if thaw.tasks else _verified(thaw, lazy=False)"),
    ),
    _bug(
        "a-restore-of-unknown-outcome-is-over",
        (
            THAWING,
            "",
            "ThawRow('has CRIU bring the tree back, stopped', (Phase.PROVING,), ThawTurn.KILL, ThawTurn.KILL)",
            "ThawRow('has CRIU bring the tree back, stopped', (Phase.PROVING,), ThawTurn.OVER, ThawTurn.OVER)",
        ),
        (
            THAWING,
            "",
            (
                "ThawRow('sets again what CRIU lost, compares it with what was frozen', (Phase.STARTING,), "
                "ThawTurn.KILL, ThawTurn.KILL)"
            ),
            (
                "ThawRow('sets again what CRIU lost, compares it with what was frozen', (Phase.STARTING,), "
                "ThawTurn.OVER, ThawTurn.OVER)"
            ),
        ),
    ),
    _bug(
        "a-thaw-that-was-let-run-is-killed",
        (
            THAWING,
            "",
            (
                "ThawRow('lets it run, its first process last (until then, a crash is as one before); "
                "restores and unlocks CUDA', (Phase.PAGING, Phase.CONFIRMING, Phase.LEAVING), ThawTurn.KILL, "
                "ThawTurn.FINISH)"
            ),
            (
                "ThawRow('lets it run, its first process last (until then, a crash is as one before); "
                "restores and unlocks CUDA', (Phase.PAGING, Phase.CONFIRMING, Phase.LEAVING), ThawTurn.KILL, "
                "ThawTurn.KILL)"
            ),
        ),
        first=100,
    ),
    _bug(
        "what-came-back-stays-stopped",
        (
            THAWING,
            "_proceed",
            "tuple((now for was, now in zip(frozen.tasks, thaw.tasks, strict=False) if not was.stopped))",
            "thaw.tasks[:1] if frozen.tasks else ()",
        ),
    ),
    _bug(
        "what-was-stopped-runs",
        (
            THAWING,
            "_proceed",
            "tuple((now for was, now in zip(frozen.tasks, thaw.tasks, strict=False) if not was.stopped))",
            "thaw.tasks if frozen.tasks else ()",
        ),
    ),
    _bug(
        "two-copies",
        (GATES, "_source", "plan.clone", "plan.clone or opened.kept"),
        (GATES, "_numbers", "not opened.taken", "opened.kept"),
    ),
    _bug(
        "who-came-back-is-written-nowhere",
        (
            DESK,
            "Desk.prove",
            "await self.artifacts.came_back(effect.artifact, (*before, *effect.tasks))",
            "assert before is not None",
        ),
    ),
    _bug(
        "a-tree-is-compared-after-it-was-let-run",
        (
            THAWING,
            "_restored",
            "return Decision(records=(ThawMade(report.tasks),), commands=(Run(KEY, prove), changed))",
            (
                "after = attrs.evolve(thaw, tasks=report.tasks)\n"
                "proceed = _proceed(after, below=True)\n"
                "return Decision(records=(ThawRestored(report.tasks),), commands=(proceed, changed))"
            ),
        ),
    ),
    _bug(
        "no-gate-for-memory",
        (
            GATES,
            "_enough_memory",
            "free is not None and needed and (free < needed + MEMORY_MARGIN_BYTES)",
            "free is not None and (not images)",
        ),
        (DESK, "Desk._promise", "left < needed", "False"),
        first=155,
    ),
    _bug(
        "a-target-is-claimed-by-nobody",
        (OPERATIONS, "_claim", "Claim(entry.asked)", "Claim(attrs.evolve(entry.asked, target=entry.asked.operation))"),
    ),
    _bug(
        "nothing-is-cleaned-up",
        (OPERATIONS, "OperationsDecisions.terminated", "(_clean_up(entry),)", "_gone(state, entry.asked.operation)"),
    ),
    _bug(
        "what-an-earlier-agent-owed-is-forgotten",
        (RECOVERY, "_with", "attrs.evolve(left, owed=(*left.owed, known))", "left"),
    ),
    _bug(
        "a-deadline-that-does-not-grow",
        ("freeze/deadlines.py", "dump_ns", "grown(DUMP_BASE_NS, size_bytes, DUMP_BYTES_PER_S)", "SECOND"),
    ),
    _bug(
        "no-gate-for-gpu-memory",
        (GATES, "_vram", "free < needed", "free < needed and (not uuid)"),
    ),
    _bug(
        "no-gate-for-the-driver",
        (
            GATES,
            "_driver",
            "opened.cuda.driver_version != was.cuda_driver",
            "opened.cuda.driver_version != was.cuda_driver and (not was.tasks)",
        ),
        first=600,
    ),
    _bug(
        "no-gate-for-the-model",
        (GATES, "_gpus", "gpu.model != models.get(uuid, gpu.model)", "not models"),
        first=750,
    ),
    _bug(
        "a-hollow-tree-is-frozen",
        (GATES, "", "Obstacle.PAGES", "Obstacle.OURS"),
    ),
    _bug(
        "pages-are-not-waited-for",
        (THAWING, "completed", "thaw.lazy and thaw.phase is Phase.STARTING", "thaw.lazy and (not thaw.id)"),
    ),
    _bug(
        "what-is-taken-up-runs-before-its-pages",
        (THAWING, "_turn", "thaw.lazy", "thaw.lazy and (not thaw.id)"),
    ),
    _bug(
        "lost-pages-are-lived-with",
        (
            THAWING,
            "failed",
            ("    case AwaitPages():\n        return _kill(thaw, kind, text)"),
            ("    case AwaitPages():\n        return (_read(thaw, 1),)"),
        ),
    ),
    _bug(
        "a-doubt-is-taken-for-a-loss",
        (THAWING, "failed", "kind not in PAGES_LOST and tries < TRIES", "kind not in PAGES_LOST and tries < 0"),
        first=575,
    ),
    _bug(
        "pages-that-nobody-can-compare",
        (DESK, "Desk.restore", "self._pages if request.lazy else None", "None if request.lazy else self._pages"),
    ),
    _bug(
        "all-but-its-pages-is-enough",
        (THAWING, "completed", "_verified(thaw, lazy=lazy)", "_verified(thaw, lazy=False)"),
    ),
    _bug(
        "pages-with-a-deadline-that-does-not-grow",
        ("freeze/deadlines.py", "paging_ns", "grown(PAGING_BASE_NS, size_bytes, PAGING_BYTES_PER_S)", "SECOND"),
    ),
    _bug(
        "its-supervisor-is-not-asked",
        (
            THAWING,
            "_proceed",
            "Proceed(runs, guard=frozen.guard, tree=tree, below=True, carried=frozen.carried is not None)",
            "Proceed(runs, below=True)",
        ),
    ),
    _bug(
        "its-supervisor-is-not-written-down",
        (FREEZING, "_seen", "plan.guard or seen.guard", "plan.guard"),
    ),
    _bug(
        "the-last-of-a-tree-is-removed",
        (FREEZING, "_settled", "_lost_too(freeze)", "freeze.id"),
    ),
    _bug(
        "a-thaw-that-left-is-killed",
        (
            THAWING,
            "",
            "ThawRow('tells the application; unpins the artifact', (Phase.OVER,), ThawTurn.FINISH, ThawTurn.FINISH)",
            "ThawRow('tells the application; unpins the artifact', (Phase.OVER,), ThawTurn.FINISH, ThawTurn.KILL)",
        ),
        first=300,
    ),
    _bug(
        "a-stop-is-not-heard-while-claiming",
        (OPERATIONS, "_stop", "(attrs.evolve(entry, stopped=text), ())", "(entry, ())"),
    ),
)
