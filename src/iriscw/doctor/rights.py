"""What the controller and the workers may do, verb by verb, compared with the lists of what they need.

Theory of operation. Nothing is tried: the server is asked (a SubjectAccessReview for each verb). Who may ask about
others asks about the controller's ServiceAccount; who may not can only ask about themselves, which says as much where
it is the controller's own pod that asks, and little elsewhere: so each answer says about whom it is.

More than is needed is told only where it would be dangerous, and only of the controller: that an administrator may read
Secrets is no news.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from iriscw.cloud.drivers.kube.objects import Objects
from iriscw.cloud.model import Forbidden, Gone
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import CONTROLLER, WORKER
from iriscw.deploy.rights import RIGHTS, WORKER_RIGHTS, Right, controller_rights
from iriscw.doctor.cluster import MAY_I, known_as
from iriscw.doctor.findings import Finding, ok, warning, wrong

MAY_THEY: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

DANGEROUS: Final = (
    Right("", "secrets", ("get", "list", "watch"), "it could read every Secret of the namespace"),
    Right("", "secrets", ("list",), "it could read every Secret of the cluster", cluster=True),
    Right("", "pods", ("create",), "it could run anything in any namespace, with its Secrets", cluster=True),
    Right("", "serviceaccounts/token", ("create",), "it could become any account of the namespace"),
    Right("rbac.authorization.k8s.io", "rolebindings", ("create",), "it could give itself what a role allows"),
)
"""What the controller must not be able to do, and what it could do with it."""


@attrs.frozen
class Question:
    """One verb on one resource.

    Attributes:
        right: Which line of the table it is of.
        verb: As Kubernetes names it.
        namespace: Where; empty for the whole cluster.
        name: The only object that it is about; empty for all.
    """

    right: Right
    verb: str
    namespace: str
    name: str

    @property
    def object(self) -> str:
        """What it is about, as people say it."""
        group = f" ({self.right.group})" if self.right.group else ""
        where = f"in namespace {self.namespace}" if self.namespace else "in the whole cluster"
        return f"{self.right.resource}{group}{f' {self.name}' if self.name else ''} {where}"

    @property
    def attributes(self) -> dict[str, str]:
        """The question as the API asks it."""
        resource, _, subresource = self.right.resource.partition("/")
        asked = {"verb": self.verb, "group": self.right.group, "resource": resource, "subresource": subresource}
        return {
            name: value for name, value in {**asked, "namespace": self.namespace, "name": self.name}.items() if value
        }


def questions(rights: Iterable[Right], namespace: str) -> tuple[Question, ...]:
    """Return a table of rights verb by verb."""
    return tuple(
        Question(right, verb, "" if right.cluster else right.namespace or namespace, name)
        for right in rights
        for name in right.names or ("",)
        for verb in right.verbs
    )


@attrs.frozen
class Subject:
    """About whom is asked.

    Attributes:
        text: Who that is, for people.
        is_controller: Whether it is the very ServiceAccount that is meant: the controller's, or the workers'.
        spec: What says so in a question; empty for whoever asks.
    """

    text: str
    is_controller: bool
    spec: dict[str, Any] = attrs.field(factory=dict)


def controller_subject(namespace: str) -> Subject:
    """Return the controller's ServiceAccount, with the groups that the server would know it to be in."""
    spec = _known_as(namespace, CONTROLLER)
    return Subject(f"the ServiceAccount {CONTROLLER}", is_controller=True, spec=spec)


def _known_as(namespace: str, name: str) -> dict[str, Any]:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {"user": account(namespace, name), "groups": groups}


def account(namespace: str, name: str = CONTROLLER) -> str:
    """Return the name of a ServiceAccount, the controller's by default, as a user."""
    return f"system:serviceaccount:{namespace}:{name}"


async def subject(objects: Objects, namespace: str) -> Subject:
    """Return about whom may be asked: the controller, or whoever asks.

    Raises:
        Throttled: too many calls.
        Unavailable: no answer.
    """
    controller = controller_subject(namespace)
    try:
        await may(objects, controller, questions(RIGHTS, namespace)[0])
    except (Forbidden, Gone):
        name = await known_as(objects)
        return Subject(name or "whoever asks here", is_controller=name == account(namespace))
    return controller


async def may(objects: Objects, who: Subject, question: Question) -> bool:
    """Ask whether somebody may do something.

    Raises:
        Forbidden: the credentials do not allow to ask about others.
        Gone: the server knows no such question.
        InvalidSpec: the server does not understand it.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    kind, path = ("SubjectAccessReview", MAY_THEY) if who.spec else ("SelfSubjectAccessReview", MAY_I)
    spec = {**who.spec, "resourceAttributes": question.attributes}
    answer = await objects.create(path, {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
    status = answer.get("status")
    return isinstance(status, dict) and status.get("allowed") is True


async def look_at_rights(objects: Objects, installation: Installation) -> list[Finding]:
    """Compare what may be done with what is needed, and with what would be dangerous.

    Raises:
        Forbidden: the credentials do not allow to ask anything.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    who = await subject(objects, installation.namespace)
    needed = questions(controller_rights(agents=installation.config.agent.enabled), installation.namespace)
    missing = [question for question in needed if not await may(objects, who, question)]
    found = judge_missing(who, missing)
    if not missing:
        found.append(ok("rights", f"{who.text} may do all {len(needed)} things that the controller does"))
    if not who.is_controller:
        text = f"asked about {who.text}: to ask about the controller takes the right to create subjectaccessreviews"
        found.append(warning("rights", text, "let somebody ask who has it, or ask from inside the controller's pod"))
        return found
    found += await _look_for_danger(objects, who, installation.namespace)
    if who.spec and installation.has_task_pods:
        found += await _look_at_workers(objects, installation.namespace)
    return found


async def _look_at_workers(objects: Objects, namespace: str) -> list[Finding]:
    """Compare what workers may do with what those need whose tasks have pods of their own."""
    who = Subject(f"the ServiceAccount {WORKER}", is_controller=True, spec=_known_as(namespace, WORKER))
    needed = questions(WORKER_RIGHTS, namespace)
    missing = [question for question in needed if not await may(objects, who, question)]
    if missing:
        return judge_missing(who, missing)
    return [ok("rights", f"{who.text} may do all {len(needed)} things that workers do for their tasks' pods")]


async def _look_for_danger(objects: Objects, who: Subject, namespace: str) -> list[Finding]:
    may_too = [each for each in questions(DANGEROUS, namespace) if await may(objects, who, each)]
    advice = "it does not need that: take it away from whichever role gives it"
    return [
        warning("rights", f"{who.text} may {text}: {right.why}", advice) for right, text in _together(may_too).items()
    ]


def judge_missing(who: Subject, missing: Iterable[Question]) -> list[Finding]:
    """Say which verbs are missing, and what for; one finding for each line of the table."""
    advice = "`iriscw manifests CONFIG --apply` writes the roles"
    judge = wrong if who.is_controller else warning
    return [
        judge("rights", f"{who.text} may not {text}: {right.why}", advice) for right, text in _together(missing).items()
    ]


def _together(asked: Iterable[Question]) -> dict[Right, str]:
    """Write questions as people say them, the verbs of one line of the table together."""
    lines: dict[Right, list[Question]] = {}
    for question in asked:
        lines.setdefault(question.right, []).append(question)
    return {right: f"{', '.join(each.verb for each in those)} {those[0].object}" for right, those in lines.items()}
