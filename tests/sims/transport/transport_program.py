"""Prints the fingerprints of some runs: calls of all shapes under every kind of fault. Run by test_determinism."""

import random
import sys
from pathlib import Path

import anyio
import grpclib.client

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(TESTS / "rpc"), str(TESTS)]

from test_calls import Caller  # noqa: E402 - found there
from transport_world import Stage, perform  # noqa: E402

from iriscw_sims.transport.network import Fault, FaultKind  # noqa: E402

KINDS = ("plain", "safe", "keyed", "upload", "download", "chat")


def run(seed: int) -> str:
    """Return one run's fingerprint, its time, and how its calls ended."""
    rng = random.Random(seed)
    faults = [Fault(kind, rng.uniform(0, 30), rng.uniform(0, 20)) for kind in FaultKind]
    ended: dict[str, int] = {}

    async def play(stage: Stage) -> None:
        callers = [Caller(stage.channel()) for _ in range(3)]
        async with anyio.create_task_group() as tasks:
            for number in range(40):
                kind, timeout_s = rng.choice(KINDS), rng.choice([0.3, 5, 60])
                arguments = (f"{kind} {number}", kind, timeout_s, rng.choice([0, 50, 9000]), rng.choice([0, 90_000]))
                tasks.start_soon(callers[number % 3].call, *arguments)
                await anyio.sleep(rng.uniform(0, 1.5))
        for caller in callers:
            for name, count in sorted(caller.ended.items()):
                ended[name] = ended.get(name, 0) + count

    result = perform(play, seed=seed, faults=faults)
    return f"{result.fingerprint} {result.virtual_s:.9f} {sorted(ended.items())}"


def main() -> None:
    """Print a line for each seed."""
    grpclib.client.USER_AGENT = "grpc-python-grpclib"  # it names the version of Python, and so the bytes differ
    for seed in (1, 2):
        sys.stdout.write(run(seed) + "\n")


if __name__ == "__main__":
    main()
