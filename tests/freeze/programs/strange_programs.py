"""Programs that nobody here wrote: found, started, asked, and ended with all that is of them."""

import contextlib
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "agent"))  # for real_trees

from real_trees import PATIENCE_S, session_of

from iriscw.freeze.drivers.processes.reading import descendants
from iriscw.processes.identity import ProcessGone, ProcessIdentity, identify, is_alive, pidfd_of
from waiting import block_until

INSTALLER = Path(__file__).with_name("install-programs")

PORTS = range(10_000, 32_000)
"""Below those that the kernel gives to whoever asks for any."""

MAX_TRIES = 20
"""To find a port of them that is free."""


class Missing(Exception):
    """A program is not on this machine; the text says how to get it."""


def fetched() -> Path | None:
    """Return the folder of the programs that were fetched for these tests; None if there is none."""
    done = subprocess.run([INSTALLER, "--only-find"], capture_output=True, text=True, check=False)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def libraries(folder: Path) -> str:
    """Return the folders of what was fetched that have libraries, as the loader takes them.

    An installed system has links to the linear algebra that was chosen; what is only unpacked has none.
    """
    system = f"{os.uname().machine}-linux-gnu"
    below = (f"usr/lib/{system}", f"lib/{system}", "usr/lib", f"usr/lib/{system}/blas", f"usr/lib/{system}/lapack")
    return ":".join(str(folder / each) for each in below)


class Program:
    """Where a program is, and what it needs to run."""

    def __init__(self, name: str, *places: Path) -> None:
        folder = fetched()
        if folder is not None:
            places = (*(folder / each for each in ("usr/bin", "usr/sbin", "bin", "sbin")), *places)
        on_path = shutil.which(name)
        paths = [*(place / name for place in places), *([Path(on_path)] if on_path else [])]
        found = [path for path in paths if os.access(path, os.X_OK)]
        if not found:
            raise Missing(f"there is no {name}: tests/freeze/programs/install-programs fetches what it can")
        self.path = str(found[0])
        self.environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        if folder is not None and found[0].is_relative_to(folder):
            self.environment["LD_LIBRARY_PATH"] = str(folder / "usr/lib" / f"{os.uname().machine}-linux-gnu")


def version_of(program: Program) -> tuple[int, ...]:
    """Return the first version that a program says of itself with ``-v``; nothing if it says none."""
    done = subprocess.run([program.path, "-v"], env=program.environment, capture_output=True, text=True, check=False)
    return version_in(f"{done.stdout}{done.stderr}")


def version_in(text: str) -> tuple[int, ...]:
    """Return the first version in a text; nothing if there is none."""
    found = re.search(r"\d+(\.\d+)+", text)
    return tuple(map(int, found[0].split("."))) if found else ()


class Running:
    """A program that runs, in a session of its own, with all that it started."""

    def __init__(self, folder: Path, program: Program, *arguments: str, environment=None, **words) -> None:
        self.said = folder / "said"
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                [program.path, *arguments],
                env={**program.environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=folder,
                start_new_session=True,
                **words,
            )
        self.pid = self.process.pid

    def ready(self, holds, what: str) -> None:
        """Wait until it holds; a program that has ended shows what it said."""

        def so() -> bool:
            assert self.process.poll() is None, f"it has ended: {self.said.read_text(errors='replace')}"
            return holds()

        block_until(so, what)

    def processes(self) -> list[ProcessIdentity]:
        """Return all that is of it and runs; a zombie of ours is reaped."""
        self.process.poll()
        found = []
        for pid in {self.pid, *session_of(self.pid), *(each.pid for each in descendants(self.pid))}:
            with contextlib.suppress(ProcessGone):
                found.append(identify(pid))
        return found

    def kill(self) -> None:
        """End it, frozen, thawed or neither."""
        while left := self.processes():  # one may have started another meanwhile
            for each in left:
                with contextlib.suppress(ProcessLookupError), pidfd_of(each) as descriptor:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    assert select.select([descriptor], [], [], PATIENCE_S)[0], f"{each} does not end"
        self.process.wait(PATIENCE_S)


def all_ended(processes: list[ProcessIdentity]) -> bool:
    """Whether none of them runs any more."""
    return not any(is_alive(each) for each in processes)


def connects(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
    except ConnectionRefusedError:
        return False
    return True


def on_free_port(start) -> tuple[Running, int]:
    """Call ``start(port)`` until its program listens there, and not somebody else."""
    for _ in range(MAX_TRIES):
        port = random.choice(PORTS)
        if connects(port):
            continue
        running = start(port)
        block_until(lambda: running.process.poll() is not None or connects(port), "it listens")  # noqa: B023
        if running.process.poll() is None:
            return running, port
    raise AssertionError(f"it does not start: {running.said.read_text(errors='replace')}")


def ask(path: Path) -> str | None:
    """Ask a server over a Unix socket by HTTP; None if nobody listens there yet.

    Servers must close a connection themselves, and its descriptor with it: whoever has read to the end knows that the
    server has none any more.
    """
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(PATIENCE_S)
        try:
            channel.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        channel.sendall(b"GET / HTTP/1.0\r\n\r\n")
        head, _, content = b"".join(iter(lambda: channel.recv(1 << 16), b"")).partition(b"\r\n\r\n")
        assert head.split()[1] == b"200", head
        return content.decode()
