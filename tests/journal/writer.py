"""A process that writes a journal until it is killed. Not a test: test_crash.py starts it.

Prints the watermark each time it moved. Its arguments: the folder, the first number to write, and the step of a
compaction at which it kills itself, or "never".
"""

import os
import signal
import sys

from iriscw.journal.conformance import REGISTRY, Fact
from iriscw.journal.sqlite import SqliteJournal


def main(folder: str, first: int, step: str) -> None:
    """Append facts with rising numbers; snapshot and forget now and then, so that there is something to compact."""

    def die_at(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    # A new journal's first file is not what is to be crashed here.
    SqliteJournal.open(folder, registry=REGISTRY).close()
    journal = SqliteJournal.open(folder, registry=REGISTRY, compact_after=50, step=die_at)
    journal.watch(lambda: os.write(1, f"{journal.durable}\n".encode("ascii")))
    number = first
    while True:
        number += 1
        journal.append("/log", [Fact("fact", number)])
        journal.append(f"/done/{number % 7}", [Fact("fact", number)])
        if number % 5 == 0:
            journal.forget("/done")
        if number % 20 == 0:
            journal.snapshot("/log", [Fact("upto", number)])
        if journal.appended - journal.durable > 200:
            while journal.durable < journal.appended:
                os.sched_yield()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
