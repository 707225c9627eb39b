"""Planted bugs that show only when the API is away, refuses, or gives names to others; and bugs of not listening.

The first are what outages, refusals and strangers are for; the others what asks whether the fleet has understood what
it was told (``told_checks``): a driver that never reads a condition, an end or a mark says nothing that is wrong.
"""

from planted import Mutant

JOINING, LIFECYCLE, OWNERSHIP = "cloud/kube/joining.py", "cloud/lifecycle.py", "cloud/kube/ownership.py"
PARSING, ROOT, RULES, WATCHING = (
    "cloud/kube/parsing.py",
    "fleet/root.py",
    "fleet/slice_rules.py",
    "cloud/kube/watching.py",
)

OPENS_AGAIN = '    return (SetTimer(("watch", message.key), delay, TryAgain(str(message.key))),)\n'
FORBIDDEN = "    (Forbidden, Refusal.FORBIDDEN),\n"
POOL_SEEN = "        self._leave(alone.name)\n        homes ="


def _bug(name, *edits, seeds=200, first=0):
    return Mutant(name, edits, seeds, first)


API_BUGS = (
    # While the API is away.
    _bug("a-watch-that-gave-up-is-not-opened-again", (ROOT, OPENS_AGAIN, "    return ()\n")),
    _bug(
        "an-outage-is-taken-for-the-loss-of-everything",
        (
            ROOT,
            OPENS_AGAIN,
            "    lost = _listed(fleet, str(message.key), (), ctx)\n" + OPENS_AGAIN.replace("(Set", "(*lost, Set"),
        ),
    ),
    _bug(
        "users-are-not-told-that-a-watch-has-ended",
        (ROOT, "    watching.error = judge_error(message.error).text if", '    watching.error = "" if'),
    ),
    # When it refuses.
    _bug("refused-credentials-are-told-as-an-outage", (LIFECYCLE, FORBIDDEN, "    (Forbidden, Refusal.LATER),\n")),
    _bug("refused-credentials-fail-a-slice", (LIFECYCLE, FORBIDDEN, "    (Forbidden, Refusal.INVALID),\n")),
    _bug(
        "refused-credentials-are-tried-again-at-once",
        (
            RULES,
            '    return SetTimer("pool", max(delay, judgement.retry_after), TryAgain("pool"))\n',
            (
                "    if judgement.refusal is Refusal.FORBIDDEN:\n        delay = 1\n"
                '    return SetTimer("pool", max(delay, judgement.retry_after), TryAgain("pool"))\n'
            ),
        ),
    ),
    # When somebody else has the name.
    _bug(
        "whoever-has-the-name-is-taken-for-ours",
        (OWNERSHIP, "        if has.get(label) != wanted.get(label):\n", "        if has is wanted:\n"),
    ),
    _bug(
        "a-name-that-is-taken-closes-the-group",
        (RULES, "give_up(piece, ctx, Trouble.NAME_TAKEN,", "give_up(piece, ctx, Trouble.INVALID,"),
    ),
    # When it is not listened to.
    _bug(
        "a-quota-is-never-seen",
        (LIFECYCLE, 'QUOTA_REFUSALS = ("NotSet", "Over")', "QUOTA_REFUSALS: tuple[str, ...] = ()"),
    ),
    _bug(
        "a-quota-of-zero-is-never-seen",
        (LIFECYCLE, 'QUOTA_REFUSALS = ("NotSet", "Over")', 'QUOTA_REFUSALS = ("Over",)'),
    ),
    _bug(
        "a-lack-of-machines-is-never-seen",
        (LIFECYCLE, 'CAPACITY_WAITS = ("QueuedAwaitingCapacity",)', "CAPACITY_WAITS: tuple[str, ...] = ()"),
    ),
    _bug(
        "an-invalid-specification-is-never-seen",
        (
            LIFECYCLE,
            '    if validated is not None and validated.status == "False":\n',
            '    if validated is not None and validated.status == "false":\n',
        ),
    ),
    _bug(
        "conditions-are-read-once",
        (
            JOINING,
            POOL_SEEN,
            (
                "        if alone.name in self._pools and self._pools[alone.name][0].conditions:\n"
                "            alone = attrs.evolve(alone, conditions=self._pools[alone.name][0].conditions)\n"
                + POOL_SEEN
            ),
        ),
    ),
    _bug(
        "an-older-answer-wins",
        (
            RULES,
            "    if piece.pool is not None and piece.pool.uid == pool.uid:\n        return []\n    return _obs",
            "    return _obs",
        ),
        seeds=300,
        first=150,
    ),
    _bug(
        "the-end-of-a-pod-is-not-read",
        (
            PARSING,
            "        phase=_phase(status),\n",
            "        phase=PodPhase.RUNNING if _phase(status).over else _phase(status),\n",
        ),
    ),
    _bug(
        "the-deletion-of-a-pod-is-not-read",
        (
            PARSING,
            "        phase=_phase(status),\n        deleting=is_deleting(obj),\n",
            "        phase=_phase(status),\n        deleting=False,\n",
        ),
    ),
    _bug(
        "the-deletion-of-a-pool-is-not-read",
        (
            PARSING,
            "        deleting=is_deleting(obj),\n        conditions",
            "        deleting=False,\n        conditions",
        ),
    ),
    _bug(
        "pools-that-vanish-are-not-told",
        (WATCHING, "                    read += self._gone(thing)\n", "                    self._gone(thing)\n"),
    ),
)
