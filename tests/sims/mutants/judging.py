"""Judge mutations: does a test of the decisions, or a seed of the simulated world, notice the bug?

Theory of operation. This process imports what no mutation can change (the runtime, the journal, pytest) and then forks
a child for each mutation. In the child a finder stands in front of the path and compiles the one module from the
changed tree; everything above it is imported fresh, so the bug is in every copy of a name. The child then tries, until
somebody notices, what is cheap first: a few seeds of the simulation, which find what breaks everything; the tests of
the module (``tests/fleet/test_pods.py``, ``test_pod_starts.py``); those of its feature; more seeds. A child that needs
more than its share of CPU is taken for one that noticed: a bug that makes decisions run in circles does.

    python judging.py fleet/slices/slice.py:move:command:2 ...
    python judging.py --module fleet/slices/slice.py --every 17 --first 3
"""

import argparse
import contextlib
import importlib.abc
import importlib.util
import io
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
for folder in (ROOT / "sims", ROOT / "src", HERE):
    sys.path.insert(0, str(folder))

from mutating import CONTROLS, Mutation, all_mutations, by_name, mutate  # noqa: E402

FEW_SEEDS = 2
SEEDS = 12
"""Seeds per mutation. More find next to nothing: of 160 bugs that seeds noticed the first two noticed all but a few."""

CPU_S = 240
"""What a child may need. All tests of jobs and the seeds need about 70 where they notice nothing."""

EXAMPLES = 40
"""Of Hypothesis, per test, at most: it is repeated for each of two thousand bugs."""

TOO_LONG = ("test_step_limits.py",)
"""Tests that are not asked: they look at jobs of a thousand tasks, what others say in less."""

PRELOADED = (
    "_pytest.assertion.rewrite",
    "anyio.pytest_plugin",
    "hypothesis.strategies",
    "iriscw.cloud.effects",
    "iriscw.cloud.lifecycle",
    "iriscw.testing.checks",
    "iriscw.testing.simulation",
    "pytest",
    "xdist",
)


class _Planter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, and loads it with the bug."""

    def __init__(self, mutation: Mutation) -> None:
        self.mutation = mutation
        self.name = "iriscw." + mutation.module.removesuffix(".py").replace("/", ".")

    def find_spec(self, fullname, path, target=None):
        """Answer for the one module."""
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module) -> None:
        """Run the changed module."""
        code = compile(mutate(self.mutation), f"mutated {self.mutation.module}", "exec")
        exec(code, module.__dict__)


def judge(mutation: Mutation, seeds: int = SEEDS) -> str:
    """Say who notices a mutation: ``seed N: ...``, ``test ...``, ``import ...``; empty if nobody does.

    It changes what this process has imported, for good: call it in a child.
    """
    sys.meta_path.insert(0, _Planter(mutation))
    try:
        from iriscw_sims.world import World
    except Exception as error:
        return f"import {type(error).__name__}: {error}"
    few = min(FEW_SEEDS, seeds)
    return _seeds(World, range(few)) or _tests(mutation) or _seeds(World, range(few, seeds))


def _seeds(world, seeds: range) -> str:
    for seed in seeds:
        try:
            run = world(seed).run()
        except Exception as error:
            return f"seed {seed}: {type(error).__name__}: {error}"
        if run.violations:
            return f"seed {seed}: {run.violations[0]}"
    return ""


def _tests(mutation: Mutation) -> str:
    """Run the tests of the feature; give the first that fails."""
    import hypothesis
    import pytest

    feature, *rooms, name = mutation.module.removesuffix(".py").split("/")
    within = [f"{room.removesuffix('s')}_" for room in rooms]
    nearest = tuple(f"test_{each}" for each in (name, name.removesuffix("s") + "_", *within))

    class First:
        failed = ""

        def pytest_collection_modifyitems(self, items) -> None:
            items[:] = [item for item in items if item.path.name not in TOO_LONG]
            items.sort(key=lambda item: not item.path.name.startswith(nearest))

        def pytest_runtest_logreport(self, report) -> None:
            if report.failed and not self.failed:
                self.failed = report.nodeid

        def pytest_collectreport(self, report) -> None:
            if report.failed and not self.failed:
                self.failed = report.nodeid

    first = First()
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not soak"]
    # The smallest example that fails is of no use here.
    found_is_enough = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    ci = hypothesis.settings(derandomize=True, database=None, deadline=None)
    hypothesis.settings.register_profile("judge", ci, max_examples=EXAMPLES, phases=found_is_enough)
    arguments += ["--hypothesis-profile=judge", "-o", "faulthandler_timeout=0", str(ROOT / "tests" / feature)]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are imported already: that is the point
    _fewer_examples(hypothesis.settings)
    os.chdir(ROOT)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main(arguments, plugins=[first])
    return f"test {first.failed or f'exit {int(code)}'}" if code else ""


def _fewer_examples(settings: type) -> None:
    """Bound what tests ask for themselves, too."""
    plain = settings.__init__

    def bounded(self, *args, max_examples=EXAMPLES, **named) -> None:
        plain(self, *args, max_examples=min(max_examples, EXAMPLES), **named)

    settings.__init__ = bounded


def verdicts(chosen: list[Mutation], seeds: int = SEEDS) -> Iterator[dict]:
    """Judge mutations, one child at a time."""
    for name in PRELOADED:
        importlib.import_module(name)
    for mutation in chosen:
        began = time.monotonic()
        noticed = _in_a_child(mutation, seeds)
        yield {
            "name": mutation.name,
            "line": mutation.line,
            "text": mutation.text,
            "noticed": noticed,
            "took_s": round(time.monotonic() - began, 2),
        }


def _in_a_child(mutation: Mutation, seeds: int) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
        try:
            answer = judge(mutation, seeds)
        except BaseException as error:
            answer = f"import {type(error).__name__}: {error}"
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            pipe.write(answer + "\n")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if text:
        return text.strip()
    return f"never ends: signal {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else f"{status}"


def main() -> int:
    """Judge what the arguments name, one line of JSON for each; exit with 1 if one of them was not noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutations by name")
    parser.add_argument("--module", default="", help="all of one module")
    parser.add_argument("--every", type=int, default=0, help="each N-th of all")
    parser.add_argument("--offset", type=int, default=0, help="begin with this one of all")
    parser.add_argument("--first", type=int, default=0, help="begin with this one of those")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="0: the tests alone")
    parser.add_argument("--limit-s", type=float, default=0.0, help="begin none after this time")
    parser.add_argument("--control", action="store_true", help="judge sources without a bug first, of each feature")
    parser.add_argument("--list", action="store_true", help="name them only")
    asked = parser.parse_args()
    chosen = list(by_name(asked.names))
    if asked.module or asked.every:
        chosen += [each for each in all_mutations() if each.module.startswith(asked.module)][
            asked.offset :: asked.every or 1
        ]
    chosen = [*CONTROLS] * asked.control + chosen[asked.first :]
    if asked.list:
        sys.stdout.write("".join(f"{each.name}  {each.line}  {each.text}\n" for each in chosen))
        return 0
    missed = 0
    began = time.monotonic()
    for verdict in verdicts(chosen, asked.seeds):
        sys.stdout.write(json.dumps(verdict) + "\n")
        sys.stdout.flush()
        missed += not verdict["noticed"]
        if asked.limit_s and time.monotonic() - began > asked.limit_s:
            break
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
