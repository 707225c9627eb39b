"""A third party's emulator of Google's object storage, as a process of its own, if it was built."""

import subprocess
from contextlib import contextmanager
from pathlib import Path

from iriscw._errors import OperationError

HERE = Path(__file__).parent
BUCKET = "emulated"


class NoEmulatorError(OperationError):
    """It was not built."""


def find_emulator():
    """Return the program."""
    found = subprocess.run(
        [HERE / "build-emulator", "--only-find"], capture_output=True, text=True, check=False, timeout=60
    )
    if found.returncode:
        raise NoEmulatorError(found.stderr.strip())
    return Path(found.stdout.strip())


@contextmanager
def running_emulator(program):
    """Run it, and give its address. It ends with its input, so with this process at the latest."""
    with subprocess.Popen([program, BUCKET], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()  # nothing, if it could not begin
            assert address.startswith("http://127.0.0.1:"), f"the emulator ended with {process.wait(60)}"
            yield address
        finally:
            process.stdin.close()
            process.wait(60)
