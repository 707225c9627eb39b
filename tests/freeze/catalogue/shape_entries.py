"""Shapes: one row of what a process can have, each in a small program of its own."""

import contextlib
import json
import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "drivers" / "criu"))  # for number_taker

from catalogue_entry import TERMINALS, WHOLE, Entry, Live, Stage, Unavailable, Without, above, patience, refused, until
from number_taker import taken

from iriscw.processes.identity import ProcessGone, read_stat

PROGRAM = Path(__file__).with_name("shape_program.py")
RESTS_WITHIN_S = 2.0

SAID_75 = 75
"""Exit code of a shape that this machine does not have."""


def said(folder: Path) -> dict:
    """Return what a shape has written down last; nothing if it has not yet."""
    try:
        return json.loads((folder / "said").read_text())
    except FileNotFoundError:
        return {}


def runs(pid: int) -> bool:
    """Whether a process runs, be it with other threads than its first."""
    try:
        return not read_stat(pid).ended or len([*Path(f"/proc/{pid}/task").iterdir()]) > 1
    except (ProcessGone, FileNotFoundError):
        return False


def live(stage: Stage, process: subprocess.Popen, folder: Path | None = None) -> Live:
    """Return a shape that runs, when it has written something down."""
    at = folder or stage.folder

    def spoken() -> bool:
        code = process.poll()
        if code == SAID_75:
            raise Unavailable(stage.output().strip())
        assert code is None, f"it has ended: {stage.output()}"
        return said(at).get("count", 0) > 1

    until(spoken, "it says something")

    def goes_on() -> None:
        before = said(at)["count"]

        def counted() -> bool:
            assert runs(made.pid), f"it has ended: {stage.output()}"
            return said(at)["count"] > before + 2

        until(counted, "it counts on")

    @contextlib.contextmanager
    def at_rest() -> Iterator[None]:
        """Ask a shape to rest. One that is stopped, or cannot see the file, does not say that it does."""
        asked = at / "rest"
        asked.touch()
        try:
            with contextlib.suppress(AssertionError), patience(RESTS_WITHIN_S):
                until(lambda: said(at)["resting"], "it rests")
            yield
        finally:
            asked.unlink()

    can_rest = "resting" in said(at)
    made = Live(process.pid, lambda: said(at)["state"], goes_on, at_rest if can_rest else contextlib.nullcontext)
    return made


def arguments_of(stage: Stage, shape: str, *arguments: object) -> list[str]:
    """Return the command line of a shape."""
    return [sys.executable, "-I", "-S", str(PROGRAM), shape, str(stage.folder), *map(str, arguments)]


def shape(name: str, *arguments: object, called: str = "", before: tuple[str, ...] = (), **words) -> Entry:
    """Return the entry of a shape; ``before`` is a program, with its arguments, that starts it."""

    def begin(stage: Stage) -> Live:
        prefix = [stage.program(before[0]).path, *before[1:]] if before else []
        return live(stage, stage.start([*prefix, *arguments_of(stage, name, *arguments)]))

    begin = above(begin) if words.get("alone") == TERMINALS else begin
    return Entry(called or name.replace("_", " "), begin, **words)


def in_folder(name: str, below: str, **words) -> Entry:
    """Return the entry of a shape that writes into another folder."""

    def begin(stage: Stage) -> Live:
        return live(stage, stage.start(arguments_of(stage, name)), stage.folder / below)

    return Entry(name.replace("_", " "), begin, **words)


def for_all(name: str, **words) -> Entry:
    """Return the entry of a shape that becomes another user: its folder is for all."""

    def begin(stage: Stage) -> Live:
        stage.folder.chmod(0o777)
        return live(stage, stage.start(arguments_of(stage, name)))

    return Entry(name.replace("_", " "), begin, **words)


# -- with somebody outside


def draining(stage: Stage, read: int) -> None:
    """Read a pipe as long as the stage stands."""

    def drain() -> None:
        while os.read(read, 1 << 16):
            pass
        os.close(read)

    thread = threading.Thread(target=drain)
    thread.start()
    stage.held.callback(thread.join)


def pipe_outside(stage: Stage) -> Live:
    """Its standard output is a pipe that is read outside."""
    read, write = os.pipe()
    draining(stage, read)
    process = stage.start(arguments_of(stage, "speaking"), stdout=write)
    os.close(write)
    return live(stage, process)


def pipe_from_outside(stage: Stage) -> Live:
    """Its standard input is a pipe that somebody outside may write to."""
    read, write = os.pipe()
    stage.held.callback(os.close, write)
    process = stage.start(arguments_of(stage, "listening"), stdin=read)
    os.close(read)
    return live(stage, process)


def closed_pipe_from_outside(stage: Stage) -> Live:
    """Its standard input is a pipe that nobody writes to any more."""
    read, write = os.pipe()
    process = stage.start(arguments_of(stage, "listening"), stdin=read)
    os.close(read)
    os.close(write)
    return live(stage, process)


def fifo_outside(stage: Stage) -> Live:
    """It writes to a FIFO, which is read outside."""
    os.mkfifo(stage.folder / "fifo")
    process = stage.start(arguments_of(stage, "fifo_outside"))
    draining(stage, os.open(stage.folder / "fifo", os.O_RDONLY))
    return live(stage, process)


def position_outside(stage: Stage) -> Live:
    """Its standard output is a file without `O_APPEND`, which is open outside as well."""
    opened = stage.held.enter_context((stage.folder / "log").open("w"))
    return live(stage, stage.start(arguments_of(stage, "plain"), stdout=opened))


def listener_outside(stage: Stage) -> Live:
    """It was given a socket that listens, which is open outside as well."""
    server = stage.held.enter_context(socket.create_server(("127.0.0.1", 0)))
    return live(stage, stage.start(arguments_of(stage, "plain"), stdin=server))


def client_waits(stage: Stage) -> Live:
    """Somebody outside has connected to its Unix socket, and it has not accepted that."""
    found = live(stage, stage.start(arguments_of(stage, "unix_sockets")))
    stage.held.enter_context(socket.socket(socket.AF_UNIX)).connect(f"{stage.folder}/server")
    return found


def unix_peer(kind: str, called: str, **words) -> Entry:
    """Return the entry of a program that is connected to a Unix socket outside."""

    def begin(stage: Stage) -> Live:
        server = stage.held.enter_context(socket.socket(socket.AF_UNIX, getattr(socket, kind)))
        path = str(stage.folder / "server")
        server.bind(path)
        if kind == "SOCK_STREAM":
            server.listen()
        process = stage.start(arguments_of(stage, "unix_client", path, kind))
        read = server
        if kind == "SOCK_STREAM":
            read = stage.held.enter_context(server.accept()[0])

        def drain() -> None:
            with contextlib.suppress(ConnectionResetError, OSError):
                while read.recv(1 << 16):
                    pass

        thread = threading.Thread(target=drain)
        thread.start()

        def stop() -> None:
            with contextlib.suppress(OSError):
                read.shutdown(socket.SHUT_RDWR)
            thread.join()

        stage.held.callback(stop)
        return live(stage, process)

    return Entry(called, begin, **words)


def tcp_client(stage: Stage) -> Live:
    """It is connected to a server outside, which sends back what it hears."""
    server = stage.held.enter_context(socket.create_server(("127.0.0.1", 0)))
    process = stage.start(arguments_of(stage, "tcp_client", server.getsockname()[1]))
    channel = stage.held.enter_context(server.accept()[0])

    def echo() -> None:
        with contextlib.suppress(OSError):
            while heard := channel.recv(1 << 16):
                channel.sendall(heard)

    thread = threading.Thread(target=echo)
    thread.start()

    def stop() -> None:
        with contextlib.suppress(OSError):
            channel.shutdown(socket.SHUT_RDWR)
        thread.join()

    stage.held.callback(stop)
    return live(stage, process)


def pidfd_outside(stage: Stage) -> Live:
    """It holds a pidfd of a process outside."""
    other = stage.start(["sleep", "1000"])
    return live(stage, stage.start(arguments_of(stage, "pidfd_outside", other.pid)))


def control_group(stage: Stage) -> Live:
    """It is in a control group of its own, which is limited."""
    group = Path("/sys/fs/cgroup/pids") / stage.folder.name
    try:
        group.mkdir()
    except OSError as error:
        raise Unavailable(f"no control group can be made: {error}") from error
    stage.held.callback(remove_group, group)
    (group / "pids.max").write_text("77")
    return live(stage, stage.start(arguments_of(stage, "control_group", group)))


def remove_group(group: Path) -> None:
    """Remove a control group, when all that was in it has been reaped."""
    until(lambda: not (group / "cgroup.procs").read_text(), "nobody is in the group")
    group.rmdir()


def terminal_outside(stage: Stage) -> Live:
    """Its standard input is a terminal whose other side is outside."""
    above, below = pty.openpty()
    stage.held.callback(os.close, above)
    process = stage.start(arguments_of(stage, "plain"), stdin=below)
    os.close(below)
    return live(stage, process)


def slave_outside(stage: Stage) -> Live:
    """The other side of its terminal is outside."""
    above, below = pty.openpty()
    stage.held.callback(os.close, below)
    process = stage.start(arguments_of(stage, "plain"), stdin=above)
    os.close(above)
    return live(stage, process)


# -- what happens while it is frozen


def growing(mode: str) -> Entry:
    """Return the entry of a file that grows while its owner is frozen."""

    def grow(stage: Stage, _: Live) -> None:
        with (stage.folder / "log").open("a") as log:
            log.write("while it was frozen")

    return attrs.evolve(shape("growing", mode, called=f"open file ({mode}) that grew meanwhile"), settle=grow)


def tail(stage: Stage) -> Live:
    """`tail -f` of a log that grows."""
    log, lines = stage.folder / "log", 0
    log.write_text("first\n")
    process = stage.run("tail", "-n", "+1", "-f", str(log))
    stage.ready(process, lambda: "first" in stage.output(), "it has shown the first line")

    def goes_on() -> None:
        nonlocal lines
        lines += 1
        with log.open("a") as file:
            file.write(f"line {lines}\n")
        until(lambda: f"line {lines}\n" in stage.output(), "it shows what was added")

    return Live(process.pid, lambda: None, goes_on)


def tail_grew(stage: Stage, _: Live) -> None:
    """Add to the log that `tail` follows."""
    with (stage.folder / "log").open("a") as log:
        log.write("while it was frozen\n")


def thread_number_taken(stage: Stage, live: Live) -> None:
    """Have somebody else take the number of its last thread."""
    stage.held.enter_context(taken(stage.threads[-1]))


def may_read_limits_of_others() -> bool:
    """Whether root here has CAP_SYS_RESOURCE: CRIU cannot freeze another user's processes without it."""
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> 24 & 1)


OTHER_USER = WHOLE if may_read_limits_of_others() else refused("RightsMissing")
TCP = ("--tcp-established",)
NS = {"mnt": "20000", "cgroup": "2000000", "uts": "4000000", "ipc": "8000000", "user": "10000000", "net": "40000000"}

SHAPES = (
    shape("plain", quick=True),
    shape("plain", called="plain, by the command as a process", apart=True),
    shape("threads", 20, quick=True),
    shape("threads", 200, called="200 threads"),
    attrs.evolve(
        shape("threads", 20, called="number of a thread taken meanwhile", thaw=("--pids", "auto"), renumbered=True),
        settle=thread_number_taken,
    ),
    shape("children", 20),
    shape("children", 300, called="300 children", soak=True),
    shape("zombies"),
    shape("adopting", called="adopted child"),
    shape("adopting_a_daemon", verdict=refused("TargetUnfit"), called="adopted daemon"),
    shape("groups"),
    shape("job_control"),
    shape("stopped_child"),
    shape("vforking", verdict=refused("TargetUnfit"), soak=True),  # CRIU waits for a minute
    shape("death_signal", verdict=refused("TargetUnfit"), called="death signal of the first process"),
    shape("death_signal_of_child"),
    shape("dead_first_thread", verdict=refused("TargetUnfit")),
    shape("shared_memory", 20, 8),
    shape("memfd"),
    shape("unmapped_memfd"),
    shape("huge_memfd", verdict=refused("TargetUnfit")),
    shape("secret_memory", verdict=refused()),
    shape("huge_pages"),
    shape("transparent_huge_pages"),
    shape("advice"),
    shape("mapped_file"),
    shape("mapped_removed_file"),
    shape("memory_policy"),
    shape("system_v", verdict=refused("TargetUnfit")),
    shape("system_v", called="system v in an IPC namespace", before=("unshare", "--ipc")),
    shape("system_v_removed", called="system v, removed, in an IPC namespace", before=("unshare", "--ipc")),
    shape("removed_file"),
    shape("linked_removed_file", verdict=refused("target", "another name")),
    *(growing(mode) for mode in ("r", "w", "a", "r+", "a+")),
    Entry("tail -f of a growing log", tail, settle=tail_grew),
    shape("sleeping"),
    shape("positions"),
    shape("sparse_file"),
    shape("removed_sparse_file"),
    shape("removed_folder"),
    shape("folder_open"),
    shape("fifo"),
    Entry("FIFO to the outside", fifo_outside, refused("target", "not in its tree")),
    shape("locks"),
    *(
        shape("locks_on_mapped_file", kind, called=f"{kind} locks on a mapped file")
        for kind in ("fcntl", "flock", "OFD")
    ),
    shape("lock_of_child", called="lock of a child on a file its parent has mapped"),
    shape("lease"),
    shape("pipes"),
    shape("pipe_without_writer"),
    Entry("pipe to the outside", pipe_outside, refused("target", "not in its tree"), quick=True),
    Entry("pipe from the outside", pipe_from_outside, refused("target", "not in its tree")),
    Entry("file written to from outside as well", position_outside, refused("target", "the position in")),
    Entry("listening socket of a process outside", listener_outside, refused("target", "a socket")),
    Entry("pipe that nobody outside writes to", closed_pipe_from_outside),
    shape("unix_sockets", quick=True),
    shape("accepted_unix_socket", verdict=Without({"state"})),  # CRIU binds those alone that listen
    shape("passed_descriptor"),
    Entry("Unix client that waits", client_waits, refused("TargetUnfit", "was not accepted yet")),
    unix_peer("SOCK_STREAM", "Unix stream to the outside", verdict=refused("TargetUnfit")),
    unix_peer("SOCK_DGRAM", "Unix datagrams to the outside", verdict=refused("TargetUnfit")),
    Entry("TCP client", tcp_client, freeze=TCP),
    Entry("TCP client, without leave", tcp_client, refused("connections")),
    shape("tcp_inside", freeze=TCP),
    shape("udp"),
    shape("raw_socket"),
    shape("packet_socket"),
    shape("netlink"),
    shape("vsock", verdict=refused("TargetUnfit")),
    shape("events", changing={"descriptors", "pending_signals"}),
    shape("expired_timer"),
    shape("fanotify"),
    shape("pidfd_inside"),
    Entry("pidfd of a process outside", pidfd_outside, refused("TargetUnfit")),
    shape("message_queue", verdict=refused("TargetUnfit")),
    shape("userfaultfd", verdict=refused("TargetUnfit")),
    shape("perf", verdict=refused("TargetUnfit")),
    shape("bpf_map", verdict=refused("TargetUnfit")),
    shape("landlock", verdict=refused("TargetUnfit"), called="Landlock descriptor"),
    # The kernel tells nobody that a process has restricted itself, and CRIU does not know of it.
    shape("landlocked", verdict=Without({"state"})),
    shape("io_uring", verdict=refused("io_uring"), quick=True),
    shape("devices"),
    shape("proc_file"),
    shape("own_proc_folder"),
    shape("proc_file_of_ended_thread", verdict=refused("target", "has ended")),
    shape("unix_name_taken", verdict=refused("TargetUnfit", "another file by now")),
    shape("namespace_file"),
    shape("many_descriptors", 500),
    shape("terminal_inside", alone=TERMINALS),
    *(
        shape("unread_terminal", kind, called=f"unread in a terminal, {kind}", alone=TERMINALS)
        for kind in ("raw", "by lines")
    ),
    shape("closed_terminal", alone=TERMINALS),
    shape("full_terminal", alone=TERMINALS),
    shape("written_terminal", verdict=refused("target", "for writing alone"), called="terminal to write to"),
    Entry("terminal that is open outside", slave_outside, refused("target", "shares the terminal")),
    Entry("program with a terminal, without leave", terminal_outside, refused("terminal"), alone=TERMINALS),
    shape("affinity"),
    shape("io_priority"),
    shape("attributes_of_threads"),
    shape("timer_slack"),
    shape("core_filter"),
    shape("personality"),
    shape("many_attributes"),
    shape("scheduling"),
    shape("deadline", verdict=refused("target", "scheduling policy")),
    shape("thread_apart", verdict=refused("target", "of its own")),
    shape("rare_attributes"),
    shape("rare_memory"),
    shape("rare_descriptors"),
    shape("lost_descriptors", verdict=Without({"state"})),
    shape("semaphore", verdict=refused("target", "a semaphore")),
    shape("packet_pipe", verdict=refused("TargetUnfit", "packets apart")),
    shape("corked", verdict=refused("TargetUnfit", "UDP_CORK")),
    shape("alarm_timer", verdict=refused("TargetUnfit", "wakes the machine")),
    shape("lost_attributes", verdict=Without({"state"})),
    shape("lost_socket_options", verdict=Without({"state"})),
    shape("limits"),
    shape("capabilities_dropped"),
    for_all("other_user", verdict=OTHER_USER),
    for_all("effective_user", verdict=OTHER_USER),
    shape("seccomp"),
    in_folder("changed_root", "root"),
    shape("removed_program"),
    *(shape("unshared", NS[kind], called=f"{kind} namespace") for kind in ("cgroup", "uts", "ipc", "net")),
    *(shape("unshared", NS[kind], called=f"{kind} namespace", verdict=refused()) for kind in ("mnt", "user")),
    shape("unshared", "80", called="time namespace for children", verdict=refused()),
    shape("unshared", "20000000", called="PID namespace for children", verdict=refused()),
    shape("plain", called="time namespace", before=("unshare", "--time", "--fork", "--"), verdict=refused()),
    shape("plain", called="PID namespace", before=("unshare", "--pid", "--fork", "--"), verdict=refused("target")),
    shape("plain", called="mount namespace", before=("unshare", "--mount", "--"), verdict=refused()),
    shape(
        "plain",
        called="command in a mount namespace of its own",
        through=("unshare", "--mount", "--propagation", "private", "--"),
        apart=True,
        verdict=refused(),
    ),
    shape("named_host"),
    Entry("control group", control_group),
    shape("timers"),
    shape("pending_signals"),
    shape("signal_actions"),
    shape("counting_continue"),
    shape("alternate_stack"),
    shape("robust_lock"),
)
