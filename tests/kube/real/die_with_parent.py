"""Become a program that the kernel kills when whoever started it dies: ``die_with_parent.py PARENT PROGRAM ARG...``.

A test run that is killed cannot end what it started. Linux can: the wish (``PR_SET_PDEATHSIG``) outlives the exec. It
is asked for here, in the new process, and not between fork and exec of the test run, which has threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, look whether it came too late, and become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit("prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
