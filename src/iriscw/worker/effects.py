"""What attempts ask of the world: requests as values, carried out by :mod:`iriscw.worker.drivers.desk`."""

from __future__ import annotations

from iriscw.jobs.traits import Fault, ResultFacts
from iriscw.processes.ends import ProcessEnd
from iriscw.runtime.vocabulary import message
from iriscw.worker.model import Order


@message
class Fetch:
    """Bring the specification and the bundle of an order here. Gives how many GPUs of this worker's it asks for."""

    order: Order


@message
class Start:
    """Start its process, with the GPUs that are its own, by UUID. Gives :class:`Started`."""

    order: Order
    gpus: tuple[str, ...] = ()


@message
class Started:
    """The process runs."""

    wall_ns: int
    timeout_ns: int
    ports: tuple[tuple[str, int], ...]
    gpus: tuple[str, ...] = ()
    """Those that others than its worker gave it, as far as that is known."""
    host: str = ""
    rendezvous_port: int = 0


@message
class Withdraw:
    """Give up its start, if that can still be. Gives None at once; how the start ended is said by the start."""

    uid: str


@message
class Adopt:
    """Find what an earlier process of this worker started. Gives whether it is there.

    With ``ended`` only its log and its result are wanted.
    """

    uid: str
    ended: bool


@message
class Permit:
    """Let a suspended attempt be brought back: it belongs to this worker then. Gives None. May be repeated."""

    uid: str
    grant: str
    folder: str
    gpus: tuple[str, ...] = ()
    """That it has from now on, by UUID."""
    host: str = ""
    """Where others reached it before; empty: not told, or it has come from another machine."""
    anew: bool = False
    """Whatever is in the place of its folder is of a life that is over, and goes, unless it has just come."""
    log_offset: int = 0
    """With that: where its log goes on."""


@message
class AwaitThaw:
    """Wait until the attempt runs again. Gives None."""

    uid: str
    grant: str


@message
class Revoke:
    """Take the grant back, if that can still be. Gives whether that was too late, so that it runs. May be repeated."""

    uid: str
    grant: str


@message
class LetGo:
    """Leave a suspended attempt to whoever takes it: its files stay. Gives None. May be repeated."""

    uid: str


@message
class AwaitEnd:
    """Wait until nothing of the attempt runs any more. Gives :class:`Finish`."""

    uid: str


@message
class Finish:
    """How the process ended, and what it left.

    ``fault`` is what the callable raised, or why there is no result of it. ``folder``: where its files are.
    """

    end: ProcessEnd
    wall_ns: int
    result: ResultFacts | None = None
    fault: Fault | None = None
    folder: str = ""


@message
class EndAttempt:
    """Ask the attempt to end, kill it after ``grace_ns``. Gives None when it has ended."""

    uid: str
    grace_ns: int


@message
class Remove:
    """Remove its files. Gives None."""

    uid: str


@message
class DropStrangers:
    """End and remove whatever runs here that is not among ``known``. Gives how many there were."""

    known: tuple[str, ...]


@message
class HoldLease:
    """Tell whatever watches over attempts that they may run until ``until_ns`` of the monotonic clock. Gives None."""

    until_ns: int
