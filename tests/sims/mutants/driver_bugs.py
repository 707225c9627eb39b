"""Planted bugs of the driver for Kubernetes: it runs in the simulated world as it is, so seeds find them.

What each repeats has happened to others: clients that storm an API server, informers that miss a 410, controllers that
delete by name.
"""

from anchors import Mutant

CALLS, JOINING, OWNERSHIP = "cloud/kube/calls.py", "cloud/kube/joining.py", "cloud/kube/ownership.py"
PARSING, REFLECTOR, VIEW = "cloud/kube/parsing.py", "cloud/kube/reflector.py", "cloud/kube/view.py"


def _bug(name, *edits, fails_with=""):
    return Mutant(name, edits, seeds=200, fails_with=fails_with)


DRIVER_BUGS = (
    # Creating and deleting.
    _bug(
        "a-name-that-is-taken-is-asked-for-again",
        (
            OWNERSHIP,
            "create",
            (
                "holder = (yield from _holder(settings, f'{path}/{name}', rng))\n"
                "if holder is not None:\n"
                "    _compare(name, labels_of(manifest), holder, same)\n"
                "    return (holder, False)"
            ),
            "problem = Unavailable(f'{name!r} is taken')",
        ),
    ),
    _bug(
        "a-create-is-repeated-under-another-name",
        (
            OWNERSHIP,
            "create",
            (
                "holder = (yield from _holder(settings, f'{path}/{name}', rng))\n"
                "if holder is not None:\n"
                "    _compare(name, labels_of(manifest), holder, same)\n"
                "    return (holder, False)"
            ),
            (
                "renamed = {**manifest['metadata'], 'name': f'{name}-{turn}'}\n"
                "manifest = {**manifest, 'metadata': renamed}"
            ),
        ),
    ),
    _bug(
        "deleted-without-preconditions",
        (
            OWNERSHIP,
            "delete",
            "{'apiVersion': 'v1', 'kind': 'DeleteOptions', 'preconditions': preconditions, **options}",
            "{'apiVersion': 'v1', 'kind': 'DeleteOptions', **options}",
        ),
    ),
    _bug(
        "what-is-gone-cannot-be-deleted",
        (
            OWNERSHIP,
            "delete",
            "missing = Gone(f'there is no {name!r} with the uid {uid}')",
            "missing: CloudError = Unavailable(f'there is no {name!r} with the uid {uid}')",
        ),
    ),
    _bug(
        "pods-are-forgotten-before-they-end",
        ("cloud/kube/pods.py", "delete_pod", "max(1, -(-grace // SECOND))", "0"),
    ),
    # Requests.
    _bug(
        "the-rate-limit-is-ignored",
        ("cloud/kube/limits.py", "RateLimit.take", "max(0, due - self._slack - now)", "0"),
    ),
    _bug(
        "a-call-that-is-given-up-goes-on",
        (CALLS, "ask", "ApiUnreachable", "(ApiUnreachable, GeneratorExit)"),
        fails_with="generator ignored GeneratorExit",
    ),
    _bug(
        "lists-lose-their-last-page",
        (
            CALLS,
            "ListPages.add",
            (
                "for item in items or ():\n"
                "    key = key_of(item)\n"
                "    if key is None:\n"
                "        self.malformed += 1\n"
                "    else:\n"
                "        self.objects[key] = item"
            ),
            (
                "items = items if metadata.get('continue') or not before else []\n"
                "for item in items or ():\n"
                "    key = key_of(item)\n"
                "    if key is None:\n"
                "        self.malformed += 1\n"
                "    else:\n"
                "        self.objects[key] = item"
            ),
        ),
    ),
    # Watches.
    _bug(
        "an-expired-watch-is-asked-for-again",
        (
            REFLECTOR,
            "Reflector._watch_refused",
            "self._relist(now, rng)",
            "self._rest(Next.WATCH, self._setbacks.pause(rng), now, rng)",
        ),
    ),
    _bug(
        "a-relist-does-not-tell-what-vanished",
        (VIEW, "View.replace", "shown.append(Vanished(old))", "continue"),
    ),
    _bug(
        "a-relist-does-not-tell-what-changed",
        (
            VIEW,
            "View.replace",
            "known is None or uid_of(known) != uid_of(new) or version_of(known) != version_of(new)",
            "known is None or uid_of(known) != uid_of(new)",
        ),
    ),
    _bug(
        "bookmarks-are-ignored",
        (
            REFLECTOR,
            "Reflector._item",
            ("if kind == 'BOOKMARK':\n    self._move(_version_in(thing))\n    return []"),
            ("if kind == 'BOOKMARK':\n    return []"),
        ),
    ),
    _bug(
        "deletions-are-not-understood",
        (REFLECTOR, "Reflector._item", "('ADDED', 'MODIFIED', 'DELETED')", "('ADDED', 'MODIFIED')"),
    ),
    _bug(
        "a-watch-that-ends-in-peace-is-not-opened-again",
        (
            REFLECTOR,
            "Reflector._ended",
            (
                "if not self._moved and (not lasted):\n"
                "    self._setbacks.stumbled()\n"
                "    following = Next.LIST if self._setbacks.many else Next.WATCH\n"
                "    return self._rest(following, self._setbacks.pause(rng), now, rng)"
            ),
            (
                "if lasted:\n"
                "    self.phase = ReflectorPhase.RESTING\n"
                "    return []\n"
                "if not self._moved and (not lasted):\n"
                "    self._setbacks.stumbled()\n"
                "    following = Next.LIST if self._setbacks.many else Next.WATCH\n"
                "    return self._rest(following, self._setbacks.pause(rng), now, rng)"
            ),
        ),
    ),
    _bug(
        "a-watch-may-be-silent-for-ever",
        (
            REFLECTOR,
            "Reflector._watch",
            (
                "[OpenWatch(self._current, self._source.watch(self._version, timeout)), "
                "WakeAfter(self._guard, timeout + self._settings.watch_margin)]"
            ),
            "[OpenWatch(self._current, self._source.watch(self._version, timeout))]",
        ),
    ),
    _bug(
        "a-watch-begins-behind-what-it-has-not-seen",
        (REFLECTOR, "Reflector._move", "(version, True)", "(str(int(version) + 1), True)"),
    ),
    # What is read.
    _bug(
        "nodes-are-their-groups",
        (JOINING, "home_of", "label_of(node, LABEL_SLICE)", "label_of(node, 'iris-scale-group')"),
        (JOINING, "homes_of", "labels.get(LABEL_SLICE, '')", "labels.get('iris-scale-group', '')"),
    ),
    _bug(
        "nodes-that-left-are-counted",
        (JOINING, "Join.node_gone", "self._homed.pop(name, None)", "self._homed.get(name)"),
        (JOINING, "Join.node_gone", "not before.home", "before.home"),
    ),
    _bug(
        "nodes-are-taken-for-ready",
        (PARSING, "node_of", "_condition(status, 'Ready').get('status') == 'True'", "True"),
    ),
    _bug(
        "a-quota-is-read-as-a-lack-of-machines",
        (
            PARSING,
            "_conditions",
            (
                "if kind:\n"
                "    yield Condition(kind, _text(each, 'status'), _text(each, 'reason'), _text(each, "
                "'message'))"
            ),
            (
                "if kind == 'Quota' and _text(each, 'reason') in ('Over', 'NotSet'):\n"
                "    yield Condition('Capacity', 'False', 'QueuedAwaitingCapacity', _text(each, "
                "'message'))\n"
                "elif kind:\n"
                "    yield Condition(kind, _text(each, 'status'), _text(each, 'reason'), _text(each, "
                "'message'))"
            ),
        ),
    ),
)
