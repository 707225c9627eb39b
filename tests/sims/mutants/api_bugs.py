"""Planted bugs that show only when the API is away, refuses, or gives names to others; and bugs of not listening.

The first are what outages, refusals and strangers are for; the others what asks whether the fleet has understood what
it was told (``told_checks``): a driver that never reads a condition, an end or a mark says nothing that is wrong.
"""

from anchors import Mutant

JOINING, LIFECYCLE, OWNERSHIP = "cloud/kube/joining.py", "cloud/lifecycle.py", "cloud/kube/ownership.py"
PARSING, ROOT, RULES, WATCHING = (
    "cloud/kube/parsing.py",
    "fleet/root.py",
    "fleet/slices/rules.py",
    "cloud/kube/watching.py",
)


def _bug(name, *edits, seeds=200, first=0):
    return Mutant(name, edits, seeds, first)


API_BUGS = (
    # While the API is away.
    _bug(
        "a-watch-that-gave-up-is-not-opened-again",
        (ROOT, "closed", "(SetTimer(('watch', message.key), delay, TryAgain(str(message.key))),)", "()"),
    ),
    _bug(
        "an-outage-is-taken-for-the-loss-of-everything",
        (
            ROOT,
            "closed",
            "return (SetTimer(('watch', message.key), delay, TryAgain(str(message.key))),)",
            (
                "lost = _listed(fleet, str(message.key), (), ctx)\n"
                "return (*lost, SetTimer(('watch', message.key), delay, TryAgain(str(message.key))))"
            ),
        ),
    ),
    _bug(
        "users-are-not-told-that-a-watch-has-ended",
        (ROOT, "closed", "judge_error(message.error).text", "''"),
    ),
    # When it refuses.
    _bug(
        "refused-credentials-are-told-as-an-outage",
        (LIFECYCLE, "", "(Forbidden, CallRefusal.FORBIDDEN)", "(Forbidden, CallRefusal.LATER)"),
    ),
    _bug(
        "refused-credentials-fail-a-slice",
        (LIFECYCLE, "", "(Forbidden, CallRefusal.FORBIDDEN)", "(Forbidden, CallRefusal.INVALID)"),
    ),
    _bug(
        "refused-credentials-are-tried-again-at-once",
        (
            RULES,
            "_later",
            "return SetTimer('pool', max(delay, judgement.retry_after), TryAgain('pool'))",
            (
                "if judgement.refusal is CallRefusal.FORBIDDEN:\n"
                "    delay = 1\n"
                "return SetTimer('pool', max(delay, judgement.retry_after), TryAgain('pool'))"
            ),
        ),
    ),
    # When somebody else has the name.
    _bug(
        "whoever-has-the-name-is-taken-for-ours",
        (OWNERSHIP, "_compare", "has.get(label) != wanted.get(label)", "has is wanted"),
    ),
    _bug(
        "a-name-that-is-taken-closes-the-group",
        (RULES, "_create_failed", "Trouble.NAME_TAKEN", "Trouble.INVALID"),
    ),
    # When it is not listened to.
    _bug(
        "a-quota-is-never-seen",
        (LIFECYCLE, "", "QUOTA_REFUSALS = ('NotSet', 'Over')", "QUOTA_REFUSALS: tuple[str, ...] = ()"),
    ),
    _bug(
        "a-quota-of-zero-is-never-seen",
        (LIFECYCLE, "", "('NotSet', 'Over')", "('Over',)"),
    ),
    _bug(
        "a-lack-of-machines-is-never-seen",
        (LIFECYCLE, "", "CAPACITY_WAITS = ('QueuedAwaitingCapacity',)", "CAPACITY_WAITS: tuple[str, ...] = ()"),
    ),
    _bug(
        "an-invalid-specification-is-never-seen",
        (LIFECYCLE, "judge_pool", "validated.status == 'False'", "validated.status == 'false'"),
    ),
    _bug(
        "conditions-are-read-once",
        (
            JOINING,
            "Join.pool_seen",
            "self._leave(alone.name)",
            (
                "if alone.name in self._pools and self._pools[alone.name][0].conditions:\n"
                "    alone = attrs.evolve(alone, conditions=self._pools[alone.name][0].conditions)\n"
                "self._leave(alone.name)"
            ),
        ),
    ),
    _bug(
        "an-older-answer-wins",
        (RULES, "_learn", ("if piece.pool is not None and piece.pool.uid == pool.uid:\n    return []"), ""),
        seeds=300,
        first=150,
    ),
    _bug(
        "the-end-of-a-pod-is-not-read",
        (PARSING, "pod_of", "_phase(status)", "PodPhase.RUNNING if _phase(status).over else _phase(status)"),
    ),
    _bug(
        "the-deletion-of-a-pod-is-not-read",
        (PARSING, "pod_of", "is_deleting(obj)", "False"),
    ),
    _bug(
        "the-deletion-of-a-pool-is-not-read",
        (PARSING, "pool_of", "is_deleting(obj)", "False"),
    ),
    _bug(
        "pools-that-vanish-are-not-told",
        (WATCHING, "PoolWatch._read", "read += self._gone(thing)", "self._gone(thing)"),
        first=150,
    ),
)
