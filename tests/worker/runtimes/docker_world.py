"""A worker whose tasks have containers, on a real Docker engine that the tests start, with data of its own.

The image is empty: tasks are shown this machine's programs, this interpreter and this checkout, not writable, so that
they find at its place what the tests name.
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import attrs
import pytest

from iriscw.cloud.docker.containers import ContainerOwner, TaskContainers
from iriscw.cloud.drivers.docker.engine import open_engine
from iriscw.cloud.drivers.docker.tasks import open_docker_tasks
from iriscw.cloud.model import Unavailable
from iriscw.processes.lease import NEVER_NS, LeaseFile
from iriscw.worker.runtimes.pod import open_pod_runtime

INSTALL = Path(__file__).parent / "docker" / "install-dockerd"
CHECKOUT = Path(__file__).parents[3]
IMAGE = "nothing:1"
PATH = f"ENV PATH={Path(sys.executable).parent}:/usr/bin:/bin"
PATIENCE_S = 300
FOLDERS = (
    "bin",
    "dev",
    "etc",
    "lib",
    "lib64",
    "proc",
    "root",
    "run",
    "sbin",
    "sys",
    "tmp",
    "usr",
    "var",
    "work",
    "home",
)


def find_engine():
    """Return the folder with an engine. Skips the test where there is none, or no right to start one."""
    if os.geteuid() != 0:
        pytest.skip("a Docker engine is started by root only")
    found = subprocess.run([INSTALL, "--only-find"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return Path(found.stdout.strip())


@contextmanager
def running_engine():
    """Start an engine, and give its socket, its process and its log; leaving the block ends it."""
    there = find_engine()
    # Not in a folder of pytest's: its sockets lie deep in it, and a socket's path has 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="iriscw-docker-"))
    socket, log = folder / "docker.sock", folder / "log"
    arguments = [
        *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec"), "--pidfile", str(folder / "pid")),
        *("-H", f"unix://{socket}", "--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"),
    ]
    environment = {
        **os.environ,
        "PATH": f"{there}/usr/sbin:{there}/usr/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{there}/usr/lib/x86_64-linux-gnu:{there}/lib/x86_64-linux-gnu",
    }
    # In a mount namespace of its own, what it mounts goes with it.
    ends_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [*ends_with_us, "unshare", "--mount", there / "usr/sbin/dockerd", *arguments]
    with log.open("wb") as output:
        engine = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        yield socket, engine, log
    finally:
        engine.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            engine.wait(PATIENCE_S)
        engine.kill()
        engine.wait()
        shutil.rmtree(folder, ignore_errors=True)


def empty_image():
    """Return an archive with nothing but folders, for others to be shown in."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in FOLDERS:
            about = tarfile.TarInfo(name)
            about.type, about.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(about)
    return data.getvalue()


async def answering(socket, engine, log):
    """Wait until an engine answers. Skips the test where it ends: this machine has not what it needs."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            if engine.poll() is not None:
                last = log.read_text(errors="replace").strip().splitlines()[-1:]
                pytest.skip(f"no Docker engine can run here: {last}")
            if socket.exists():
                try:
                    async with open_engine(str(socket)):
                        return
                except Unavailable:
                    pass
            await anyio.sleep(0.05)  # it says nothing when it is ready, but that its socket answers


def shown():
    """Return what of this machine tasks are shown."""
    wanted = [Path("/usr"), Path(sys.base_prefix), Path(sys.prefix), CHECKOUT, Path(sysconfig.get_paths()["purelib"])]
    wanted += [Path(name) for name in ("/bin", "/lib", "/lib64")]
    found = []
    for each in sorted({path.absolute() for path in wanted if path.exists()}):
        if not any(each.is_relative_to(other) for other in found):
            found.append(each)
    return tuple(str(each) for each in found)


class DockerWorld:
    """An engine, and what a worker on its machine would have at hand."""

    def __init__(self, socket, folder):
        self.socket, self.folder = socket, folder
        self.cache = folder / "cache"
        self.lives = 0
        self.owner = ContainerOwner("w-0", "i-0", str(self.cache), os.getuid(), os.getgid())
        self.containers = TaskContainers(image=IMAGE, socket=str(socket), shown=shown())

    @property
    def life(self):
        """The folder of the worker's present life."""
        return self.cache / self.owner.worker_id / self.owner.incarnation

    def next_life(self):
        """Begin a life of the worker that has nothing yet."""
        self.lives += 1
        self.owner = attrs.evolve(self.owner, incarnation=f"i-{self.lives}")
        return self

    @asynccontextmanager
    async def runtime(self, patience=None, containers=None):
        """Yield the runtime, as a process of the worker has it; the next one is that of its next process."""
        (self.life / "tasks").mkdir(mode=0o700, parents=True, exist_ok=True)
        lease = LeaseFile(self.life / "tasks" / "lease")
        if lease.over and not lease.until_ns:
            lease.hold(NEVER_NS)
        async with AsyncExitStack() as stack:
            stack.callback(lease.close)
            driver = await stack.enter_async_context(open_docker_tasks(containers or self.containers, self.owner))
            opened = open_pod_runtime(
                driver, lease, root=self.life / "attempts", cache_dir=self.cache, patience=patience
            )
            yield await stack.enter_async_context(opened)

    async def all(self):
        """Return all containers there are, by name."""
        async with open_engine(str(self.socket)) as engine:
            found = await engine.call("GET", "/containers/json", query={"all": "1"})
            return {each["Names"][0].removeprefix("/"): each for each in found}

    async def until(self, holds):
        """Wait until the containers, by name, are so; give them."""
        with anyio.fail_after(PATIENCE_S):
            while not holds(found := await self.all()):  # noqa: ASYNC110 - of another process
                await anyio.sleep(0.05)  # a list tells of nobody's change: only looking again does
            return found


@asynccontextmanager
async def docker_world(folder):
    """Start an engine with an empty image, on whose machine a worker runs."""
    with running_engine() as (socket, engine, log):
        await answering(socket, engine, log)
        command = [find_engine() / "usr/bin/docker", "-H", f"unix://{socket}", "import", "--change", PATH, "-", IMAGE]
        await anyio.run_process(command, input=empty_image())
        yield DockerWorld(socket, folder)
