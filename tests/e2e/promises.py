"""What must hold of a cluster whatever goes wrong, judged from the outside: by what the API server was asked, by what
tasks wrote down themselves, and by what is left.

========  ============================================================================================
INV-F1    each pool is made with the labels of its slice and of its installation, on itself and its nodes
INV-F2    what is not ours is never written to, nor is the controller's own pool; in the end nothing is left
INV-F3    what goes is named by uid and version; a slice with a task that runs is not what goes when all is well
INV-F4    a group never has more pools than ``max_slices``
INV-F6    no task begins on a slice before all of its pods run
INV-F8    only who holds the Lease writes, while the lease lasts and a request's deadline beyond; a new holder
          makes no pool before the requests of the last one can have landed
INV-F9    one controller's requests stay within their rate
INV-J1    each job that was acknowledged ends as it must
INV-J2    no two attempts of one task run side by side
========  ============================================================================================

INV-F5 and INV-F7 are states that the controller shows, not what it does to the world: simulation judges them, and
``test_troubles_coreweave.py`` one by one. Here quotas, stuck deletions and the like are among the moods, and all must
end well in spite of them.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

from iriscw.fleet.model import slice_of

ACCOUNT = "system:serviceaccount:iris:iris-controller"
CREDENTIAL = "authentication.kubernetes.io/credential-id"
WRITES = ("create", "update", "patch", "delete")
LEASED_S = 5.0
"""How long a lease lasts (``quick_controller.py``)."""

DEADLINE_S = 2.0
"""How long a request may be on its way (``api_timeout``)."""

LEEWAY_S = 1.0
"""What a busy machine may take between a request's leaving and its being written down."""

RATE_S, RATE = 1.0, 50
"""The driver's ``burst`` and ``qps``: so many requests in a second at most."""


@attrs.frozen
class Asked:
    """One request to the API server, with its answer."""

    at: float
    """When it came, seconds since 1970."""
    user: str
    process: str
    """Which process, by the id of its token; empty for those whose tokens have none."""
    verb: str
    kind: str
    part: str
    name: str
    code: int
    body: Mapping[str, Any] = attrs.field(factory=dict)

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Asked:
        """Read an event of an audit log."""
        about, user = event.get("objectRef") or {}, event["user"]
        body = event.get("requestObject") or {}
        name = about.get("name") or (body.get("metadata") or {}).get("name", "")
        return cls(
            datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp(),
            user["username"],
            ((user.get("extra") or {}).get(CREDENTIAL) or [""])[0],
            event["verb"],
            about.get("resource", ""),
            about.get("subresource", ""),
            name,
            (event.get("responseStatus") or {}).get("code", 0),
            body,
        )

    @property
    def ours(self) -> bool:
        """Whether a controller asked."""
        return self.user == ACCOUNT

    @property
    def done(self) -> bool:
        """Whether it was answered with yes."""
        return 200 <= self.code < 300

    @property
    def unread(self) -> bool:
        """Whether the server sent it away without reading it, so that nobody knows what it asked for.

        That is what a server does that knows no rights yet, or has too much to do.
        """
        return self.code in (401, 403, 429) and not self.body

    def labels(self) -> Mapping[str, str]:
        """Return the labels of what was to be made."""
        return (self.body.get("metadata") or {}).get("labels") or {}


@attrs.frozen
class Mark:
    """What a task wrote down: that it began, or ended."""

    what: str
    job_id: str
    index: str
    attempt: str
    worker_id: str
    at: float

    @classmethod
    def of(cls, line: str) -> Mark:
        """Read a line of theirs."""
        what, job_id, index, attempt, worker_id, at = line.split()
        return cls(what, job_id, index, attempt, worker_id, float(at))


@attrs.frozen
class Evidence:
    """What there is to judge by.

    Attributes:
        asked: Requests, oldest first.
        marks: What tasks wrote down.
        overlaps: Tasks that ran twice at a time, as they say.
        uid: Of this installation's namespace.
        most: Of each group: how many slices it may have, and how many workers each of them has.
        calm: Attempts that began when nothing went wrong any more.
    """

    asked: Sequence[Asked]
    marks: Sequence[Mark] = ()
    overlaps: Sequence[str] = ()
    uid: str = ""
    most: Mapping[str, tuple[int, int]] = attrs.field(factory=dict)
    calm: frozenset[str] = frozenset()


def judge(evidence: Evidence) -> list[str]:
    """Return all that is wrong."""
    checks = (pools_are_labelled, strangers_are_left_alone, deletions_are_exact, groups_are_bounded, slices_are_whole)
    checks += (one_acts, requests_are_rationed, attempts_are_alone, the_busy_stay)
    return [wrong for check in checks for wrong in check(evidence)]


def pools_are_labelled(evidence: Evidence) -> Iterable[str]:
    """INV-F1."""
    for each in evidence.asked:
        if not each.ours or each.unread or (each.verb, each.kind) != ("create", "nodepools"):
            continue
        wanted = {"iris-managed": "true", "iris-slice-id": each.name, "iris-cluster": evidence.uid}
        for place in (each.labels(), (each.body.get("spec") or {}).get("nodeLabels") or {}):
            if not wanted.items() <= place.items() or place.get("iris-scale-group") not in evidence.most:
                yield f"F1: the pool {each.name} is asked for with the labels {dict(place)}"


def strangers_are_left_alone(evidence: Evidence) -> Iterable[str]:
    """INV-F2: what a controller writes to was made by one."""
    made = {(each.kind, each.name) for each in evidence.asked if each.ours and each.verb == "create"}
    for each in evidence.asked:
        if each.ours and each.verb in WRITES and each.kind != "leases" and (each.kind, each.name) not in made:
            yield f"F2: {each.verb} of {each.kind} {each.name}, which no controller has made"


def deletions_are_exact(evidence: Evidence) -> Iterable[str]:
    """INV-F3: by uid and version."""
    for each in evidence.asked:
        if each.ours and each.verb == "delete" and each.kind in ("nodepools", "pods"):
            only = each.body.get("preconditions") or {}
            if not only.get("uid") or not only.get("resourceVersion"):
                yield f"F3: {each.kind} {each.name} is asked to go whatever it is by now: {only}"


def groups_are_bounded(evidence: Evidence) -> Iterable[str]:
    """INV-F4: pools that nobody has asked to go."""
    live: dict[str, dict[str, None]] = collections.defaultdict(dict)
    for each in evidence.asked:
        if each.kind != "nodepools" or each.part or not each.done:
            continue
        if each.verb == "create" and each.ours:
            group = each.labels().get("iris-scale-group", "")
            live[group][each.name] = None
            if len(live[group]) > evidence.most[group][0]:
                yield f"F4: {group} has {len(live[group])} pools: {', '.join(live[group])}"
        elif each.verb == "delete":
            for pools in live.values():
                pools.pop(each.name, None)


def slices_are_whole(evidence: Evidence) -> Iterable[str]:
    """INV-F6: of each worker of a slice some pod has run before a task begins there."""
    run: dict[str, dict[str, float]] = collections.defaultdict(dict)
    worker_of: dict[str, str] = {}
    group_of: dict[str, str] = {}
    for each in evidence.asked:
        if each.ours and (each.kind, each.verb) == ("nodepools", "create"):
            group_of[each.name] = each.labels().get("iris-scale-group", "")
        elif each.ours and (each.kind, each.verb) == ("pods", "create"):
            worker_of[each.name] = each.labels().get("iris-worker-id", "")
        elif each.part == "status" and (each.body.get("status") or {}).get("phase") == "Running":
            worker_id = worker_of.get(each.name)
            if worker_id:
                run[slice_of(worker_id)].setdefault(worker_id, each.at)
    for mark in evidence.marks:
        slice_id = slice_of(mark.worker_id)
        running = [worker_id for worker_id, at in run[slice_id].items() if at <= mark.at]
        wanted = evidence.most[group_of[slice_id]][1] if slice_id in group_of else 0
        if mark.what == "begin" and len(running) < wanted:
            yield f"F6: {mark.attempt} begins on {slice_id}, of which only {running} have run"


def one_acts(evidence: Evidence) -> Iterable[str]:
    """INV-F8: who writes holds the Lease, or held it until just now."""
    holder, since, renewed = "", 0.0, 0.0
    took: dict[str, float] = {}
    pooled: dict[str, None] = {}
    for each in evidence.asked:
        if not each.ours or each.verb not in WRITES:
            continue
        if each.kind == "leases":
            if not each.done:
                continue
            named = (each.body.get("spec") or {}).get("holderIdentity")
            if each.process != holder or not named:
                since = each.at
            holder, renewed = (each.process if named else ""), each.at
            took.setdefault(each.process, each.at)
            continue
        what = f"{each.verb} of {each.kind} {each.name}"
        if each.process != holder and each.at > since + DEADLINE_S + LEEWAY_S:
            yield f"F8: {what} by {each.process}, {each.at - since:.1f} s after {holder or 'nobody'} had the Lease"
        if each.process == holder and each.at > renewed + LEASED_S + DEADLINE_S + LEEWAY_S:
            yield f"F8: {what} {each.at - renewed:.1f} s after the Lease was renewed"
        if (each.verb, each.kind) == ("create", "nodepools") and each.process not in pooled:
            pooled[each.process] = None
            waited = each.at - took.get(each.process, each.at)
            if waited < 2 * DEADLINE_S - 0.1:
                yield f"F8: {what} {waited:.1f} s after its process had the Lease for the first time"


def requests_are_rationed(evidence: Evidence) -> Iterable[str]:
    """INV-F9: of each process; renewals and watches stand in no line."""
    times = collections.defaultdict(list)
    for each in evidence.asked:
        if each.ours and each.verb != "watch" and each.kind != "leases":
            times[each.process].append(each.at)
    for process, moments in times.items():
        for first, last in zip(sorted(moments), sorted(moments)[RATE:], strict=False):
            if last - first < RATE_S:
                yield f"F9: {process} has made more than {RATE} requests in {last - first:.2f} s"
                break


def attempts_are_alone(evidence: Evidence) -> Iterable[str]:
    """INV-J2, as the tasks say themselves."""
    for each in evidence.overlaps:
        yield f"J2: {each} ran beside another attempt of its task"


def the_busy_stay(evidence: Evidence) -> Iterable[str]:
    """INV-F3: when all is well no slice goes on which a task runs."""
    spans: dict[str, list[Mark]] = collections.defaultdict(list)
    for mark in evidence.marks:
        if mark.attempt in evidence.calm:
            spans[mark.attempt].append(mark)
    gone = {each.name: each.at for each in evidence.asked if (each.verb, each.kind) == ("delete", "nodepools")}
    for attempt, marks in spans.items():
        slice_id = slice_of(marks[0].worker_id)
        if len(marks) == 2 and marks[0].at < gone.get(slice_id, 0.0) < marks[1].at:
            yield f"F3: {slice_id} is asked to go while {attempt} runs there, and nothing is wrong"


def read_marks(text: str) -> list[Mark]:
    """Read what tasks wrote down; a line that was cut off by the end of its writer is left out."""
    return [Mark.of(line) for line in text.splitlines() if len(line.split()) == 6]


def read_audit(lines: Iterable[str]) -> list[Asked]:
    """Read an audit log: by the moments at which requests came."""
    return sorted((Asked.of(json.loads(line)) for line in lines), key=lambda each: each.at)
