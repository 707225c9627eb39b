"""Crashes of a freeze or a thaw with the real CRIU, drawn from a number: of which program, when, and who is killed.

The first ten plans have each operation and each victim. The instants are such as happen (a record is on the disk, so
many bytes are written, a call of the driver hangs), never a time; but threads and processes run as they please between
them, so two runs of one plan differ in detail. What is drawn does not.
"""

from random import Random

import attrs

END, STAY, THAW = "freeze", "freeze --leave-running", "thaw"
OPERATIONS = (END, STAY, THAW)

OPERATOR, CRIU, HELPER, CALLER, DURING_HELPER = (
    "who does it",
    "CRIU",
    "the driver's caller",
    "who asked the agent for it",
    "who does it, while the driver's caller hangs",
)
VICTIMS = (OPERATOR, CRIU, HELPER, CALLER, DURING_HELPER)

PHASES = {
    END: ("looking", "reserving", "locking", "checkpointing", "dumping", "sealing", "publishing", "ending"),
    STAY: ("looking", "reserving", "locking", "checkpointing", "dumping", "resuming", "sealing", "publishing"),
    THAW: ("opening", "verifying", "restoring", "starting", "leaving"),
}
WITH_CRIU = {END: ("dumping", "sealing", "publishing", "ending"), STAY: ("dumping",), THAW: ("restoring",)}
"""Phases in which a CRIU lives."""

VERBS = {END: ("lock", "checkpoint"), STAY: ("lock", "checkpoint", "restore", "unlock"), THAW: ("restore", "unlock")}
IN_BYTES = ("dumping", "sealing", "verifying", "restoring")
ONLY_WITH_CUDA = ("locking", "checkpointing")
PARTS = ("threads", "files", "unix", "locks", "epoll", "memfd")
"""What a program may hold beside its memory."""

AGAIN_SHARE = 0.5
MOST_MEBIBYTES = 256
TESTS = "tests/agent/test_crashes.py"
PYTEST = ".venv/bin/python -m pytest -n 0 -o faulthandler_timeout=900 -m 'slow or soak'"


@attrs.frozen
class Instant:
    """When it happens: in which phase, counted by what, how many, or which share of the bytes."""

    phase: str
    by: str = "now"
    count: int = 1
    share: float = 0.0

    @property
    def text(self) -> str:
        """For people."""
        how = {"now": "at once", "share": f"at {self.share:.0%} of its bytes"}
        return f"{self.phase}, {how.get(self.by, f'{self.by} {self.count}')}"


@attrs.frozen
class CrashPlan:
    """One crash, or two.

    Attributes:
        seed: What all of it follows from.
        parts: What the program holds.
        mebibytes: Its memory.
        processes: How many are below its first one.
        cuda: Whether the first one has a context of the driver that stands in.
        operation: What is cut off.
        tier: Where its checkpoint lies.
        by_agent: Whether an agent does it; else a command.
        victim: Who is killed.
        at: When, unless it is during a call of the driver.
        call: Which call of the driver hangs, and whether ``before`` its effect or ``after`` it.
        again: When who takes it up is killed as well.
    """

    seed: int
    parts: tuple[str, ...]
    mebibytes: int
    processes: int
    cuda: bool
    operation: str
    tier: str
    by_agent: bool
    victim: str
    at: Instant
    call: tuple[str, str] | None
    again: Instant | None

    @property
    def features(self) -> tuple[str, ...]:
        """What the program is told to hold."""
        family = (f"family:{self.processes}",) if self.processes else ()
        return ("memory", f"ballast:{self.mebibytes}", *self.parts, *family)

    @property
    def text(self) -> str:
        """For people: what it is, and how to run it again."""
        when = f"{self.call[1]} the effect of {self.call[0]}" if self.call else self.at.text
        holds = ", ".join((f"{self.mebibytes} MiB", f"{self.processes} children", *self.parts))
        return "\n".join(
            (
                f"plan {self.seed}: {self.operation}, {self.tier}, by {'an agent' if self.by_agent else 'a command'}",
                f"  a program with {holds}{', CUDA' if self.cuda else ''}",
                f"  killed: {self.victim} ({when})",
                f"  then who takes it up: {self.again.text if self.again else 'not killed'}",
                f"  again: {PYTEST} -k plan{self.seed}_ {TESTS}",
            )
        )


def draw_plan(seed: int) -> CrashPlan:
    """Draw everything from the seed."""
    rng = Random(f"{seed}:crashes")
    operation, victim = OPERATIONS[seed % len(OPERATIONS)], VICTIMS[seed % len(VICTIMS)]
    cuda = victim in (HELPER, DURING_HELPER) or rng.random() < 0.3
    parts = [part for part in PARTS if rng.random() < 0.4 and (part, operation) != ("files", STAY)]
    processes = rng.choice((0, 0, 5, 12, 25, 49))
    most = MOST_MEBIBYTES // (1 + processes)  # a fork shares its memory, and the images hold it once for each
    return CrashPlan(
        seed,
        parts=tuple(parts),
        mebibytes=rng.choice([each for each in (1, 4, 8, 32, 64, 128, 256) if each <= most]),
        processes=processes,
        cuda=cuda,
        operation=operation,
        tier=rng.choice(("ram", "disk")),
        by_agent=victim == CALLER or rng.random() < 0.4,
        victim=victim,
        at=_instant(rng, operation, victim, cuda),
        call=_call(rng, seed, operation) if victim in (HELPER, DURING_HELPER) else None,
        again=_taken_up(rng) if rng.random() < AGAIN_SHARE else None,
    )


def _instant(rng: Random, operation: str, victim: str, cuda: bool) -> Instant:
    phases = WITH_CRIU[operation] if victim == CRIU else PHASES[operation]
    phase = rng.choice([each for each in phases if cuda or each not in ONLY_WITH_CUDA])
    if victim == CRIU and phase in ("dumping", "restoring"):
        by = "share"
    else:
        by = rng.choice(("now", "turn", "turn", "change", "signal", *(("share",) * 3 if phase in IN_BYTES else ())))
    most = {"turn": 30, "change": 12, "signal": 4}.get(by, 1)
    return Instant(phase, by, rng.randint(1, most), round(rng.uniform(0.0, 0.9), 2) if by == "share" else 0.0)


def _call(rng: Random, seed: int, operation: str) -> tuple[str, str]:
    verbs = VERBS[operation]
    turn = seed // (len(OPERATIONS) * len(VICTIMS))  # each in its turn: there are few plans of one operation and victim
    return verbs[turn % len(verbs)], rng.choice(("before", "after"))


def _taken_up(rng: Random) -> Instant:
    by = rng.choice(("record", "turn", "turn", "change", "signal"))
    return Instant("taken up", by, rng.randint(1, {"record": 3, "turn": 40, "change": 10, "signal": 3}[by]))
