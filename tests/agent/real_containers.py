"""Real containers of the real runc, and the wrapper as a container runtime's shim calls it."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from real_trees import COUNTING, PATIENCE_S

from iriscw.processes.identity import ProcessGone, read_stat
from waiting import block_until

TALKING = """
import os, select, sys
master, slave = os.openpty()
os.write(master, b"one" + bytes([4]) + b"two" + os.linesep.encode())
os.write(slave, b"out")
"""
"""Has something wait on both sides of a terminal."""

COUNTING_AND_TALKING = TALKING + COUNTING.replace(
    "    number += 1\n",
    """    number += 1
    if os.path.exists("/data/tell"):
        os.remove("/data/tell")
        flags = [os.get_blocking(each) for each in (master, slave)]
        said = os.read(slave, 100), os.read(slave, 100), b"out" in os.read(master, 100), flags
        with open("/data/said", "w") as talked:
            talked.write(repr(said) + os.linesep)
""",
)

BUILD_RUNC = Path(__file__).parent / "runc" / "build-runc"


def find_runc() -> tuple[str, str]:
    """Return the real runc, or why there is none."""
    found = subprocess.run([BUILD_RUNC, "--only-find"], capture_output=True, text=True, check=False)
    return found.stdout.strip(), found.stderr.strip()


def write_bundle(folder: Path, name: str, *, children: int = 0, hostname: str = "box", program: str = COUNTING) -> Path:
    """Write a bundle whose program counts into files of the folder ``data`` and has namespaces of its own."""
    bundle, data = folder / f"bundle-{name}", folder / f"data-{name}"
    rootfs = bundle / "rootfs"
    rootfs.mkdir(parents=True)
    data.mkdir(exist_ok=True)
    python = Path(sys.base_prefix).resolve()
    for link in ("bin", "lib", "lib64"):
        if Path("/", link).is_symlink():
            (rootfs / link).symlink_to(Path("/", link).readlink())
    for each in ("tmp", "data", "proc", "dev", "sys", "usr"):
        (rootfs / each).mkdir()
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "mode=1777"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"]},
        {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
        {"destination": "/data", "type": "bind", "source": str(data), "options": ["bind", "rw"]},
    ]
    more = (python, *(Path("/", name) for name in ("lib", "lib64") if not Path("/", name).is_symlink()))
    mounts += [
        {"destination": str(path), "type": "bind", "source": str(path), "options": ["rbind", "ro"]}
        for path in more
        if path.is_dir() and not path.is_relative_to("/usr")
    ]
    interpreter = str((python / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}").resolve())
    config = {
        "ociVersion": "1.2.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [interpreter, "-u", "-c", program, "/data/count", str(children), "1"],
            "env": ["PATH=/usr/bin:/bin", "LC_ALL=C"],
            "cwd": "/",
        },
        "root": {"path": "rootfs"},
        "hostname": hostname,
        "mounts": mounts,
        "linux": {
            "cgroupsPath": f"/iriscw-test-{os.getpid()}-{folder.name}-{name}",
            "namespaces": [{"type": each} for each in ("pid", "ipc", "uts", "mount", "network")],
        },
    }
    (bundle / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return bundle


class Runc:
    """The real runc, and the wrapper, with a state of their own."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.root = folder / "runc"
        self.root.mkdir(mode=0o700, exist_ok=True)
        self.wrapper = folder / "iriscw-runc"
        self._write_wrapper()
        socket = str(folder / "s" / "agent.sock")
        self.environment = {**os.environ, "IRISCW_RUNC_REAL": program, "IRISCW_SHIM_SOCKET": socket}
        self.log = folder / "log.json"

    def look_for(self, seconds: float) -> None:
        """Have the wrapper wait no longer than that for an agent to say what runs."""
        self._write_wrapper(f"from iriscw.shim import agent_queries\nagent_queries.LOOK_S = {seconds}\n")

    def _write_wrapper(self, first: str = "") -> None:
        text = f"#!{sys.executable}\nimport sys\nfrom iriscw.shim import main\n{first}sys.exit(main())\n"
        self.wrapper.write_text(text, encoding="utf-8")
        self.wrapper.chmod(0o700)

    def __call__(self, *words, **options):
        """Call the real runc."""
        return self._call(self.program, "--root", str(self.root), *words, **options)

    def wrapped(self, *words, **options):
        """Call the wrapper with the words that containerd's shim (go-runc) puts before each command."""
        return self._call(str(self.wrapper), *self.before(), *words, **options)

    def before(self):
        """Return those words."""
        return ("--root", str(self.root), "--log", str(self.log), "--log-format", "json")

    def start(self, *words):
        """Start the wrapper."""
        return subprocess.Popen(
            [str(self.wrapper), *self.before(), *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _call(self, *words, stdout=subprocess.PIPE):
        # What a container inherits must not keep the caller waiting: only files and pipes of its own.
        return subprocess.run(
            words,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE if stdout == subprocess.PIPE else subprocess.DEVNULL,
            text=True,
            timeout=3 * PATIENCE_S,
            check=False,
        )

    def logged(self):
        """Return what the wrapper, or runc, wrote into the log."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]


class Box:
    """One container that counts, created and started through the wrapper as containerd's shim does it."""

    def __init__(self, runc: Runc, name: str, *, children: int = 0, program: str = COUNTING) -> None:
        self.runc, self.name = runc, name
        self.bundle = write_bundle(runc.folder, name, children=children, program=program)
        self.data = runc.folder / f"data-{name}"
        self.files = [self.data / "count", *(self.data / f"count.{each}" for each in range(children))]
        self.pid_file = self.bundle / "init.pid"
        done = runc.wrapped(
            "create", "--bundle", str(self.bundle), "--pid-file", str(self.pid_file), name, stdout=subprocess.DEVNULL
        )
        assert done.returncode == 0, runc.logged()
        done = runc.wrapped("start", name)
        assert done.returncode == 0, done.stderr
        self.counts_on()

    @property
    def pid(self) -> int:
        """Its first process."""
        return int(self.pid_file.read_text(encoding="utf-8"))

    def status(self) -> str:
        """What runc says of it; empty if it knows no such container."""
        done = self.runc("state", self.name)
        return json.loads(done.stdout)["status"] if done.returncode == 0 else ""

    def checkpoint_words(self, place: Path, *more: str) -> tuple[str, ...]:
        """Return what containerd's shim says: go-runc's Checkpoint, with the options of its default."""
        work = str(self.runc.folder / "work")
        return ("checkpoint", "--image-path", str(place), "--work-path", work, *more, self.name)

    def restore_words(self, place: Path, *more: str) -> tuple[str, ...]:
        """Likewise: go-runc's Restore."""
        return (
            *("restore", "--image-path", str(place), "--work-path", str(self.runc.folder / "work")),
            *("--detach", "--pid-file", str(self.pid_file), "--no-subreaper", *more),
            *("--bundle", str(self.bundle), self.name),
        )

    def counts(self) -> list[int]:
        """Return how far its processes are."""
        lines = [file.read_bytes().split(b"\n") if file.exists() else [] for file in self.files]
        return [int(each[-2]) if len(each) > 1 else 0 for each in lines]

    def counts_on(self) -> None:
        """Wait until each of them has counted further than it is now."""
        before = self.counts()
        block_until(lambda: all(now > was for now, was in zip(self.counts(), before, strict=True)), "they count on")

    def unbroken(self) -> bool:
        """Whether no number was left out or written twice."""
        for file in self.files:
            numbers = [int(line) for line in file.read_bytes().split(b"\n")[:-1]]
            if numbers != [*range(1, len(numbers) + 1)]:
                return False
        return True

    def start_anew(self) -> None:
        """Remove it, with what it counted, so that it can be run in another way."""
        self.remove()
        for file in self.files:
            file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove it, whatever state it is in; no wrapper and no agent is needed for that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.runc("delete", "--force", self.name)


def runs(pid):
    """Whether there is such a process; one that nobody has reaped yet is none."""
    try:
        return not read_stat(pid).ended
    except ProcessGone:
        return False
