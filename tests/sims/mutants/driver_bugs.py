"""Planted bugs of the driver for Kubernetes: it runs in the simulated world as it is, so seeds find them.

What each repeats has happened to others: clients that storm an API server, informers that miss a 410, controllers that
delete by name.
"""

from planted import Mutant

CALLS, JOINING, OWNERSHIP = "cloud/kube/calls.py", "cloud/kube/joining.py", "cloud/kube/ownership.py"
PARSING, REFLECTOR, VIEW = "cloud/kube/parsing.py", "cloud/kube/reflector.py", "cloud/kube/view.py"

LOOK_AT_THE_HOLDER = (
    '            holder = yield from _holder(settings, f"{path}/{name}", rng)\n'
    "            if holder is not None:\n"
    "                _compare(name, labels_of(manifest), holder, same)\n"
    "                return holder, False\n"
)
EXPIRED = '            self._counts["expired"] += 1\n            return self._relist(now, rng)\n'


def _bug(name, *edits, fails_with=""):
    return Mutant(name, edits, seeds=200, fails_with=fails_with)


DRIVER_BUGS = (
    # Creating and deleting.
    _bug(
        "a-name-that-is-taken-is-asked-for-again",
        (OWNERSHIP, LOOK_AT_THE_HOLDER, '            problem = Unavailable(f"{name!r} is taken")\n'),
    ),
    _bug(
        "a-create-is-repeated-under-another-name",
        (
            OWNERSHIP,
            LOOK_AT_THE_HOLDER,
            (
                '            renamed = {**manifest["metadata"], "name": f"{name}-{turn}"}\n'
                '            manifest = {**manifest, "metadata": renamed}\n'
            ),
        ),
    ),
    _bug(
        "deleted-without-preconditions",
        (OWNERSHIP, '"preconditions": preconditions, **options}', "**options}"),
    ),
    _bug(
        "what-is-gone-cannot-be-deleted",
        (OWNERSHIP, "    missing = Gone(f", "    missing: CloudError = Unavailable(f"),
    ),
    _bug(
        "pods-are-forgotten-before-they-end",
        (
            "cloud/kube/pods.py",
            '{"gracePeriodSeconds": max(1, -(-grace // SECOND))}',
            '{"gracePeriodSeconds": 0}',
        ),
    ),
    # Requests.
    _bug(
        "the-rate-limit-is-ignored",
        ("cloud/kube/limits.py", "        return max(0, due - self._slack - now)\n", "        return 0\n"),
    ),
    _bug(
        "a-call-that-is-given-up-goes-on",
        (
            CALLS,
            "        except ApiUnreachable as silence:\n",
            "        except (ApiUnreachable, GeneratorExit) as silence:\n",
        ),
        fails_with="generator ignored GeneratorExit",
    ),
    _bug(
        "lists-lose-their-last-page",
        (
            CALLS,
            "        before = len(self.objects)\n",
            (
                "        before = len(self.objects)\n"
                '        items = items if metadata.get("continue") or not before else []\n'
            ),
        ),
    ),
    # Watches.
    _bug(
        "an-expired-watch-is-asked-for-again",
        (
            REFLECTOR,
            EXPIRED,
            (
                '            self._counts["expired"] += 1\n'
                "            return self._rest(Next.WATCH, self._setbacks.pause(rng), now, rng)\n"
            ),
        ),
    ),
    _bug(
        "a-relist-does-not-tell-what-vanished",
        (VIEW, "                shown.append(Vanished(old))\n", "                continue\n"),
    ),
    _bug(
        "a-relist-does-not-tell-what-changed",
        (
            VIEW,
            "            if known is None or uid_of(known) != uid_of(new) or version_of(known) != version_of(new):\n",
            "            if known is None or uid_of(known) != uid_of(new):\n",
        ),
    ),
    _bug(
        "bookmarks-are-ignored",
        (REFLECTOR, "            self._move(_version_in(thing))\n            return []\n", "            return []\n"),
    ),
    _bug(
        "deletions-are-not-understood",
        (
            REFLECTOR,
            '        if kind not in ("ADDED", "MODIFIED", "DELETED"):\n',
            '        if kind not in ("ADDED", "MODIFIED"):\n',
        ),
    ),
    _bug(
        "a-watch-that-ends-in-peace-is-not-opened-again",
        (
            REFLECTOR,
            "        lasted = self._settle(now)\n",
            (
                "        lasted = self._settle(now)\n"
                "        if lasted:\n"
                "            self.phase = Phase.RESTING\n"
                "            return []\n"
            ),
        ),
    ),
    _bug(
        "a-watch-may-be-silent-for-ever",
        (REFLECTOR, "            Wake(self._guard, timeout + self._settings.watch_margin),\n", ""),
    ),
    _bug(
        "a-watch-begins-behind-what-it-has-not-seen",
        (
            REFLECTOR,
            "            self._version, self._moved = version, True\n",
            "            self._version, self._moved = str(int(version) + 1), True\n",
        ),
    ),
    # What is read.
    _bug(
        "nodes-are-their-groups",
        (
            JOINING,
            "    slice_id = label_of(node, LABEL_SLICE)\n",
            '    slice_id = label_of(node, "iris-scale-group")\n',
        ),
        (
            JOINING,
            '    slice_id = labels.get(LABEL_SLICE, "")\n',
            '    slice_id = labels.get("iris-scale-group", "")\n',
        ),
    ),
    _bug(
        "nodes-that-left-are-counted",
        (
            JOINING,
            "        before = self._homed.pop(name, None)\n        if before is None or not before.home:\n",
            "        before = self._homed.get(name)\n        if before is None or before.home:\n",
        ),
    ),
    _bug(
        "nodes-are-taken-for-ready",
        (PARSING, '        ready=_condition(status, "Ready").get("status") == "True",\n', "        ready=True,\n"),
    ),
    _bug(
        "a-quota-is-read-as-a-lack-of-machines",
        (
            PARSING,
            '        if kind:\n            yield Condition(kind, _text(each, "status"), _text(each, "reason"),',
            (
                '        if kind == "Quota" and _text(each, "reason") in ("Over", "NotSet"):\n'
                '            yield Condition("Capacity", "False", "QueuedAwaitingCapacity", _text(each, "message"))\n'
                "        elif kind:\n"
                '            yield Condition(kind, _text(each, "status"), _text(each, "reason"),'
            ),
        ),
    ),
)
