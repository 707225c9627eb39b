"""Hunt for a bug in whatever kernel is on the path; prints what found it, after how many examples and seconds.

Run as ``python hunt.py <folder of the tests> <examples> [<hunter>...]`` by test_mutants.py; all of them where none is
named. Nothing is shrunk: to find is enough.
"""

import json
import sys
import time
from pathlib import Path

FOLDER, EXAMPLES = sys.argv[1], int(sys.argv[2])
sys.path[:0] = [FOLDER, str(Path(FOLDER).parent)]  # for profiles

import hypothesis  # noqa: E402
from hypothesis import HealthCheck, Phase  # noqa: E402
from hypothesis.stateful import run_state_machine_as_test  # noqa: E402

import iriscw.testing.simulation.world as world  # noqa: E402

world.STEPS_WITHOUT_TIME = 20_000
SETTINGS = hypothesis.settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def laws(count):
    """Run the directed tests."""
    import test_kernel_laws

    for name in sorted(vars(test_kernel_laws)):
        if name.startswith("test_"):
            count[0] += 1
            getattr(test_kernel_laws, name)()


def model(count):
    """Run the stateful model."""
    import test_model

    class Counted(test_model.Kernel):
        def __init__(self):
            super().__init__()
            count[0] += 1

    run_state_machine_as_test(Counted, settings=SETTINGS)


def crash_law(count):
    """Run random runs of the shop with every crash point."""
    import test_crash_law

    def play(seed, script):
        count[0] += 1
        test_crash_law.play(seed, script)

    strategies = {"seed": test_crash_law.st.integers(0, 99), "script": test_crash_law.scripts}
    SETTINGS(hypothesis.given(**strategies)(play))()


def table(count):
    """Run the supervision tables."""
    import test_supervision_table

    for strategy in test_supervision_table.Strategy:
        for phase in test_supervision_table.PHASES:
            count[0] += 1
            test_supervision_table.test_every_case(strategy, phase)


def main():
    """Try each in turn until one fails."""
    report = {}
    named = sys.argv[3:]
    for hunter in (each for each in (model, crash_law, table, laws) if not named or each.__name__ in named):
        count = [0]
        began = time.monotonic()
        try:
            hunter(count)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            found = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
            report = {"found_by": hunter.__name__, "what": f"{type(found).__name__}: {found}"[:200]}
            report |= {"examples": count[0], "seconds": round(time.monotonic() - began, 2)}
            break
    sys.stdout.write(json.dumps(report))


main()
