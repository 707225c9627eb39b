"""Prints what some runs did: histories, races and the driver's laws under faults. Run by test_determinism."""

import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from driver_laws import check_log, check_readers
from laws import ALL_RATES, check_history, check_race


def fingerprint(trace):
    """Return the hash of a trace."""
    return hashlib.blake2b("\n".join(map(repr, trace)).encode(), digest_size=12).hexdigest()


def main():
    """Print a line for each run."""
    for seed in range(2):
        lines = [
            fingerprint(check_history(seed, ALL_RATES).trace),
            fingerprint(check_race(seed, ALL_RATES, in_parts=True).trace),
        ]
        for check in (check_log, check_readers):
            run = check(seed, ALL_RATES)
            lines.append(f"{fingerprint(run.result)} {run.virtual_s:.9f}")
        sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
