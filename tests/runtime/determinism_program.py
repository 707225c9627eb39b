"""A busy little system; prints the hash of everything that happened. Run in other processes by test_determinism.py.

It uses all that could depend on the order of a hash table or on the interpreter: many actors, conflation, watches,
effects with random latencies, timers, restarts with jitter, group recovery, records, crashes, ids.
"""

import sys

from iriscw.journal.records import record
from iriscw.runtime import vocabulary as v
from iriscw.runtime.behavior import Backoff, Behavior, ChildSpec, Strategy, Supervision
from iriscw.testing.simulation import SimSystem, Simulation

NAMES = [f"worker-{number}" for number in range(8)]


@record("test.determinism_counted")
@v.message
class Counted:
    """A number was counted."""

    by: str
    number: int


@v.message
class Beat:
    """Go on."""

    number: int


@v.message
class Fetch:
    """An effect."""

    name: str


def _count(state, fact):
    state[fact.by] = state.get(fact.by, 0) + fact.number


def _beat(state, message, ctx):
    number = message.number
    if ctx.rng.random() < 0.04:
        raise ValueError(ctx.new_id("lost-"))
    commands = [
        v.Tell(v.ROOT / "ledger", Counted(ctx.path, ctx.rng.randrange(100)), conflate=("sum", number % 3)),
        v.SetTimer("beat", ctx.rng.randrange(1, 900) * v.MILLISECOND, Beat(number + 1), attentive=number % 2 == 0),
        v.Run(("fetch", number % 2), Fetch(ctx.new_id())),
    ]
    if number % 5 == 0:
        commands.append(v.Watch(ctx.path.parent / ctx.rng.choice(NAMES)))
    if number % 7 == 0:
        commands.append(v.Request(v.ROOT / "ledger", Beat(number), ("ask", number % 2), v.SECOND))
    return tuple(commands)


def _ignore(state, message, ctx):
    return None


def _record(state, message, ctx):
    return v.Decision(records=(message,), commands=(v.Emit(message),))


def _answer(state, message, ctx):
    return (v.Reply(tuple(sorted(state))),) if len(state) % 2 else (v.Refuse(ValueError("odd")),)


async def _fetch(effect):
    raise NotImplementedError


def _root():
    worker = Behavior(
        on={Beat: _beat},
        decide=_ignore,
        resume=lambda state, ctx: (v.SetTimer("beat", v.SECOND, Beat(1)),),
        effects={Fetch: _fetch},
    )
    ledger = Behavior(
        initial=dict,
        evolve=_count,
        on={Counted: _record, Beat: _answer},
        compact=lambda state: [Counted(by, number) for by, number in state.items()],
        snapshot_every=20,
    )
    group = Behavior(
        children=tuple(ChildSpec(name, worker) for name in NAMES),
        supervision=Supervision(Strategy.REST_FOR_ONE, restarts=3, backoff=Backoff(10 * v.MILLISECOND)),
    )
    return Behavior(
        children=(ChildSpec("ledger", ledger), ChildSpec("group", group)),
        supervision=Supervision(restarts=10_000),
    )


def run(seed):
    """Return the hash of a run with this seed."""
    simulation = Simulation(seed)

    def perform(operation):
        delay = simulation.rng.randrange(700) * v.MILLISECOND
        operation.deaf = simulation.rng.random() < 0.3
        error = OSError("no") if simulation.rng.random() < 0.2 else None
        finish = operation.complete if error is None else operation.fail
        simulation.call_after(delay, finish, *([] if error is None else [error]))

    systems = [SimSystem(_root(), simulation=simulation, name=name, perform=perform) for name in ("east", "west")]
    for _ in range(4):
        simulation.advance(6)
        systems[simulation.rng.randrange(2)].restart()
    simulation.advance(4)
    return f"{simulation.trace_hash} {simulation.steps}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(run(seed) for seed in (1, "two")) + "\n")
