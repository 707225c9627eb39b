"""The worker's tree: ``/attempts`` with one actor for each attempt, then ``/session``. Decisions meet effects here."""

from __future__ import annotations

import functools
from collections.abc import Callable

from iriscw.dialling.messages import Dial
from iriscw.runtime import Behavior, ChildSpec, Restart
from iriscw.worker import lifecycle, registry, session
from iriscw.worker.attempt import Attempt, evolve
from iriscw.worker.drivers.desk import AttemptDesk
from iriscw.worker.drivers.stream import ControllerStream
from iriscw.worker.effects import DropStrangers, HoldLease
from iriscw.worker.gpus import GpuOffer
from iriscw.worker.registry import AttemptRegistry, AttemptRegistryDecisions
from iriscw.worker.session import Session


def attempt(uid: str, desk: AttemptDesk) -> ChildSpec:
    """Return the actor of one attempt: durable, put aside when it fails again and again."""
    behavior = Behavior(
        initial=functools.partial(Attempt, uid),
        on=lifecycle.rules(),
        resume=lifecycle.resume,
        evolve=evolve,
        effects=desk.effects(),
        name="attempt",
    )
    return ChildSpec(uid, behavior, restart=Restart.TRANSIENT, entity=True)


def tree(desk: AttemptDesk, stream: ControllerStream, session_of: Callable[[], Session], offer: GpuOffer) -> Behavior:
    """Return the root. The session is started last and stopped first.

    Args:
        desk: carries out what attempts ask for.
        stream: dials.
        session_of: gives the state that each incarnation of the session begins with.
        offer: the GPUs that are divided among attempts.
    """
    decisions = AttemptRegistryDecisions(functools.partial(attempt, desk=desk), offer)
    attempts = Behavior(
        initial=AttemptRegistry,
        on=decisions.rules(),
        resume=decisions.resume,
        evolve=registry.evolve,
        compact=registry.compact,
        effects={DropStrangers: desk.drop_strangers},
        name="attempts",
    )
    to_controller = Behavior(
        initial=session_of,
        on=session.rules(),
        resume=session.resume,
        effects={HoldLease: desk.hold_lease},
        sessions={Dial: stream.serve},
        name="session",
    )
    children = (ChildSpec("attempts", attempts), ChildSpec("session", to_controller))
    return Behavior(children=children, name="worker")
