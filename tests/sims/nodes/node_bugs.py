"""Planted bugs of the agent, of freezing and of thawing: exact source text and what to put in its place.

A text that is not found exactly once is an error, not a pass: when the source changes, so does this list.
"""

import attrs


@attrs.frozen
class Mutant:
    """One bug: replacements as (module below iriscw, old text, new text), and how many seeds may miss it."""

    name: str
    edits: tuple
    seeds: int = 400
    first: int = 0
    """The seed with which the search begins: for what is seldom seen, so that it is found in a minute."""


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
        (FREEZING, 'Row("gives every byte a digest", _P.PUBLISHING,', 'Row("gives every byte a digest", _P.ENDING,'),
        (FREEZING, 'Row("kills the tree", _P.OVER,', 'Row("kills the tree", _P.PUBLISHING,'),
    ),
    _bug(
        "a-crash-in-the-seal-is-the-end",
        (
            FREEZING,
            "_P.PUBLISHING, _P.PUBLISHING, _U, _U, _A),\n    _P.PUBLISHING",
            "_P.PUBLISHING, _P.PUBLISHING, _U, _E, _A),\n    _P.PUBLISHING",
        ),
    ),
    _bug(
        "a-lock-of-unknown-outcome-is-repeated",
        (
            FREEZING,
            'Row("locks every CUDA process", _P.CHECKPOINTING, _P.CHECKPOINTING, _U, _U, _U)',
            'Row("locks every CUDA process", _P.CHECKPOINTING, _P.CHECKPOINTING, _U, _A, _A)',
        ),
    ),
    _bug(
        "a-failed-lock-is-tried-again-at-once",
        (
            FREEZING,
            'Row("locks every CUDA process", _P.CHECKPOINTING, _P.CHECKPOINTING, _U, _U, _U)',
            'Row("locks every CUDA process", _P.CHECKPOINTING, _P.CHECKPOINTING, _A, _U, _U)',
        ),
    ),
    _bug(
        "unlocked-before-all-are-restored",
        (
            SETTLING,
            "    if checkpointed:\n        return Restore",
            "    if checkpointed and not locked:\n        return Restore",
        ),
    ),
    _bug(
        "what-is-locked-stays-locked",
        (SETTLING, "    if locked:\n", "    if locked and reading > READINGS:\n"),
    ),
    _bug(
        "nothing-lets-the-tree-go",
        (FREEZING, "    if Phase.DUMPING in freeze.steps and freeze.room is not None:\n", "    if not freeze.id:\n"),
    ),
    _bug(
        "what-was-written-stays",
        (
            FREEZING,
            "    return Decision(records=before, commands=(Run(KEY, Discard(freeze.id)),))\n",
            "    return attrs.evolve(_unpin(freeze, Ending(Outcome.UNDONE)), records=before)\n",
        ),
    ),
    _bug(
        "a-tree-that-ran-on-is-killed",
        (FREEZING, "        if freeze.tasks[0] in states.living:\n", "        if not states:\n"),
        first=100,
    ),
    _bug(
        "the-artifact-stays-pinned",
        (
            FREEZING,
            "    return Decision(commands=(Run(KEY, Unpin(freeze.id, freeze.id, ending)),))\n",
            '    return Decision(commands=(Run(KEY, Unpin("ck-none", freeze.id, ending)),))\n',
        ),
    ),
    _bug(
        "a-process-that-left-is-forgotten",
        (FREEZING, "    if left is not None:\n", "    if left is not None and not known:\n"),
        (
            FREEZING,
            "            return (*found, *(task for task in self.cuda_identities if task not in found))\n",
            "            return found\n",
        ),
        first=415,
    ),
    _bug(
        "memory-of-another-boot-is-published-for-ever",
        (
            FREEZING,
            "        case Publish(tries=tries) if freeze.gone and tries < TRIES:",
            "        case Publish(tries=tries) if freeze.gone:",
        ),
        first=555,
    ),
    _bug(
        "the-application-is-never-told",
        (
            FREEZING,
            "    if not fate.gone and Phase.QUIESCING in freeze.steps and hook is not None:\n",
            "    if not freeze.id and hook:\n",
        ),
    ),
    _bug(
        "a-secret-is-written-down",
        (FREEZING, "    if trouble := hook_trouble(message.plan.hook):", "    if trouble := hook_trouble(None):"),
    ),
    _bug(
        "images-are-not-verified",
        (
            THAWING,
            "    verify = Run(KEY, Verify(thaw.asked.artifact, lazy=thaw.asked.lazy and lacking is None))\n",
            "    verify = Run(KEY, Proceed(()))\n",
        ),
        (
            THAWING,
            "        case Proceed():\n            return (_read(thaw, 1),)\n",
            (
                "        case Proceed():\n"
                "            return (_read(thaw, 1),) if thaw.tasks else _verified(thaw, lazy=False)\n"
            ),
        ),
    ),
    _bug(
        "a-restore-of-unknown-outcome-is-over",
        (
            THAWING,
            '"has CRIU bring the tree back, stopped", Phase.STARTING, Turn.KILL, Turn.KILL)',
            '"has CRIU bring the tree back, stopped", Phase.STARTING, Turn.OVER, Turn.OVER)',
        ),
        first=840,
    ),
    _bug(
        "a-thaw-that-was-let-run-is-killed",
        (
            THAWING,
            '"lets it run; restores and unlocks CUDA", Phase.LEAVING, Turn.KILL, Turn.FINISH)',
            '"lets it run; restores and unlocks CUDA", Phase.LEAVING, Turn.KILL, Turn.KILL)',
        ),
        first=100,
    ),
    _bug(
        "what-came-back-stays-stopped",
        (
            THAWING,
            "    runs = tuple(now for was, now in zip(frozen.tasks, thaw.tasks, strict=False) if not was.stopped)\n",
            "    runs = thaw.tasks[:1] if frozen.tasks else ()\n",
        ),
    ),
    _bug(
        "what-was-stopped-runs",
        (
            THAWING,
            "    runs = tuple(now for was, now in zip(frozen.tasks, thaw.tasks, strict=False) if not was.stopped)\n",
            "    runs = thaw.tasks if frozen.tasks else ()\n",
        ),
    ),
    _bug(
        "two-copies",
        (GATES, "    if opened.living:\n", "    if opened.living and not opened.kept:\n"),
        (GATES, "    if not opened.taken or plan", "    if opened.kept or plan"),
    ),
    _bug(
        "no-gate-for-memory",
        (
            GATES,
            "        if free is not None and needed and free < needed + MEMORY_MARGIN_BYTES:\n",
            "        if free is not None and not images:\n",
        ),
        first=155,
    ),
    _bug(
        "a-target-is-claimed-by-nobody",
        (
            OPERATIONS,
            "operation), Claim(entry.asked))\n",
            "operation), Claim(attrs.evolve(entry.asked, target=entry.asked.operation)))\n",
        ),
    ),
    _bug(
        "nothing-is-cleaned-up",
        (OPERATIONS, "        return (_clean_up(entry),)\n", "        return _gone(state, entry.asked.operation)\n"),
    ),
    _bug(
        "what-an-earlier-agent-owed-is-forgotten",
        (RECOVERY, "    return attrs.evolve(left, owed=(*left.owed, known))\n", "    return left\n"),
    ),
    _bug(
        "a-deadline-that-does-not-grow",
        (
            "freeze/deadlines.py",
            "    return grown(DUMP_BASE_NS, size_bytes, DUMP_BYTES_PER_S)\n",
            "    return SECOND\n",
        ),
    ),
    _bug(
        "no-gate-for-gpu-memory",
        (GATES, "        if free < needed:\n", "        if free < needed and not uuid:\n"),
    ),
    _bug(
        "no-gate-for-the-driver",
        (
            GATES,
            "    if opened.cuda.driver_version != was.cuda_driver:\n",
            "    if opened.cuda.driver_version != was.cuda_driver and not was.tasks:\n",
        ),
    ),
    _bug(
        "no-gate-for-the-model",
        (GATES, "        if gpu.model != models.get(uuid, gpu.model):\n", "        if not models:\n"),
        first=750,
    ),
    _bug(
        "a-hollow-tree-is-frozen",
        (GATES, "Obstacle.IO_URING, Obstacle.DEVICE, Obstacle.PAGES)", "Obstacle.IO_URING, Obstacle.DEVICE)"),
    ),
    _bug(
        "pages-are-not-waited-for",
        (
            THAWING,
            "        case Proceed() if thaw.lazy and thaw.phase is Phase.STARTING:\n",
            "        case Proceed() if thaw.lazy and not thaw.id:\n",
        ),
    ),
    _bug(
        "what-is-taken-up-runs-before-its-pages",
        (
            THAWING,
            "        case Turn.FINISH if thaw.lazy:\n",
            "        case Turn.FINISH if thaw.lazy and not thaw.id:\n",
        ),
    ),
    _bug(
        "lost-pages-are-lived-with",
        (
            THAWING,
            "        case AwaitPages():\n            return _kill(thaw, kind, text)\n",
            "        case AwaitPages():\n            return (_read(thaw, 1),)\n",
        ),
    ),
    _bug(
        "a-doubt-is-taken-for-a-loss",
        (
            THAWING,
            "            kind not in PAGES_LOST and tries < TRIES\n",
            "            kind not in PAGES_LOST and tries < 0\n",
        ),
        first=575,
    ),
    _bug(
        "pages-that-nobody-can-compare",
        (DESK, "self._pages if effect.request.lazy else None", "None if effect.request.lazy else self._pages"),
    ),
    _bug(
        "all-but-its-pages-is-enough",
        (
            THAWING,
            "            return _verified(thaw, lazy=lazy)\n",
            "            return _verified(thaw, lazy=False)\n",
        ),
    ),
    _bug(
        "pages-with-a-deadline-that-does-not-grow",
        (
            "freeze/deadlines.py",
            "    return grown(PAGING_BASE_NS, size_bytes, PAGING_BYTES_PER_S)\n",
            "    return SECOND\n",
        ),
    ),
    _bug(
        "its-supervisor-is-not-asked",
        (
            THAWING,
            "Proceed(runs, guard=frozen.guard, tree=thaw.tasks if frozen.guard else ())",
            "Proceed(runs)",
        ),
    ),
    _bug(
        "its-supervisor-is-not-written-down",
        (FREEZING, "        guard=plan.guard or seen.guard,\n", "        guard=plan.guard,\n"),
    ),
    _bug(
        "the-last-of-a-tree-is-removed",
        (
            FREEZING,
            "freeze.phase is Phase.UNDOING and freeze.sealed is not None and not _lost_too(freeze)",
            "freeze.phase is Phase.UNDOING and freeze.sealed is not None and not freeze.id",
        ),
    ),
    _bug(
        "a-thaw-that-left-is-killed",
        (
            THAWING,
            '"tells the application; unpins the artifact", Phase.OVER, Turn.FINISH, Turn.FINISH)',
            '"tells the application; unpins the artifact", Phase.OVER, Turn.FINISH, Turn.KILL)',
        ),
        first=300,
    ),
    _bug(
        "a-stop-is-not-heard-while-claiming",
        (
            OPERATIONS,
            "            return attrs.evolve(entry, stopped=text), ()\n",
            "            return entry, ()\n",
        ),
    ),
)
