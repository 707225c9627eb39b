"""The runtime against its peers, as ratios of one run.

A machine that is shared has no absolute speed. So every figure comes from a fresh process, contenders take turns within
a round, the ratio is taken within the round, and the median of the rounds is what is judged. Names: ``queue`` is one
``asyncio.Queue`` and task per actor, ``pykka`` a thread per actor, ``xoscar`` actors with local references.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from iriscw._errors import OperationError

TESTS = ("tell", "tell_state", "tell_command", "ask", "ring", "spawn")
PEERS = ("queue", "pykka", "xoscar")
ROUNDS = 7
TIMEOUT_S = 300
"""One figure takes seconds; a minute or more means that a contender hangs."""

FLOORS: dict[str, dict[str, float]] = {
    "queue": {"tell": 1.0, "tell_state": 0.75, "tell_command": 0.45, "ask": 2.0, "ring": 2.5, "spawn": 4},
    "pykka": {"tell": 2, "ask": 6, "ring": 8, "spawn": 60},
    "xoscar": {"tell": 6, "ask": 1.1, "ring": 8, "spawn": 15},
}
"""Ratios below which ``make bench`` fails."""

GOALS: dict[str, dict[str, float]] = {
    "queue": {"tell": 1.4, "tell_state": 1.0, "tell_command": 0.6, "ask": 3.5, "ring": 6, "spawn": 10},
    "pykka": {"tell": 4, "ask": 9, "ring": 16, "spawn": 500},
    "xoscar": {"tell": 14, "ask": 1.9, "ring": 14, "spawn": 60},
}

BYTES_PER_IDLE_ACTOR_MAX = 800

Report: TypeAlias = dict[str, Any]


class BenchmarkFailed(OperationError):
    """A contender could not be measured."""


def peer_test(test: str) -> str:
    """Return what a peer runs for one of our tests: it has no decisions that could return more or less."""
    return "tell" if test.startswith("tell") else test


def measure(contender: str, test: str) -> dict[str, float]:
    """Run one figure in a fresh process.

    Raises:
        BenchmarkFailed: the contender hung or gave no figure.
    """
    command = [sys.executable, "-m", "iriscw.bench.contenders", contender, test]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise BenchmarkFailed(f"{contender} {test} took more than {TIMEOUT_S} s") from error
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise BenchmarkFailed(f"{contender} {test} gave no figure: {done.stderr.strip()[-500:]}")
    figures: dict[str, float] = json.loads(lines[-1])
    return figures


def available(peers: Iterable[str] = PEERS) -> list[str]:
    """Return the peers that are installed."""
    return [peer for peer in peers if peer == "queue" or importlib.util.find_spec(peer) is not None]


def run(
    rounds: int = ROUNDS,
    tests: Iterable[str] = TESTS,
    peers: Iterable[str] = PEERS,
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """Measure everything and give the report of ``iriscw bench runtime -o json``.

    Raises:
        BenchmarkFailed: a contender could not be measured.
    """
    peers = available(peers)
    tests = list(tests)
    ratios: dict[str, dict[str, list[float]]] = {peer: {test: [] for test in tests} for peer in peers}
    rates: dict[str, list[float]] = {}
    idle: list[float] = []
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        theirs: dict[tuple[str, str], float] = {}
        for test in tests:
            for peer in peers:
                key = (peer, peer_test(test))
                if key not in theirs:
                    theirs[key] = measure(*key)["rate"]
                    rates.setdefault(f"{peer} {key[1]}", []).append(theirs[key])
            ours = measure("iriscw", test)
            rates.setdefault(f"iriscw {test}", []).append(ours["rate"])
            if "bytes" in ours:
                idle.append(ours["bytes"])
            for peer in peers:
                ratios[peer][test].append(ours["rate"] / theirs[peer, peer_test(test)])
    return {
        "ratios": {
            peer: {test: round(statistics.median(found), 3) for test, found in of_peer.items()}
            for peer, of_peer in ratios.items()
        },
        "bytes_per_idle_actor": round(statistics.median(idle)) if idle else 0,
        "rounds": rounds,
        "rates_per_s": {name: round(statistics.median(found)) for name, found in rates.items()},
        "ratios_per_round": {
            peer: {test: [round(ratio, 3) for ratio in found] for test, found in of_peer.items()}
            for peer, of_peer in ratios.items()
        },
    }


def below(report: Report, share: float = 1.0) -> list[str]:
    """Return a sentence for each figure below ``share`` of its floor."""
    found = []
    for peer, floors in FLOORS.items():
        for test, floor in floors.items():
            ratio = report["ratios"].get(peer, {}).get(test)
            if ratio is not None and ratio < floor * share:
                found.append(f"{test} is {ratio}x of {peer}, below {floor * share:g}x")
    idle = report["bytes_per_idle_actor"]
    if idle > BYTES_PER_IDLE_ACTOR_MAX / share:
        found.append(f"an idle actor takes {idle} bytes, more than {BYTES_PER_IDLE_ACTOR_MAX / share:g}")
    return found
