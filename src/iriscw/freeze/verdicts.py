"""What becomes of everything that a process can have: one table, which the gates follow and the documentation shows.

Each row has one verdict, and names the entries of the catalogue (``tests/freeze/catalogue``) that show it with a real
CRIU: no row without one, and a test compares the two. What a gate refuses is refused before the tree is touched, and
again when it is held; what only the images tell is refused then, and the tree runs on.
"""

from __future__ import annotations

import enum

import attrs


class Verdict(enum.Enum):
    """What becomes of it; the value is the word for it."""

    BACK = "comes back"
    OPTION = "comes back with an option"
    AGAIN = "is set again"
    """CRIU loses it, and iriscw sets it again before the tree is let run."""
    WITHOUT = "comes back without it"
    """Nothing can bring that back, and what is lost is no reason to refuse all of it."""
    REFUSED = "is refused"


@attrs.frozen
class VerdictRow:
    """One thing that a process can have."""

    what: str
    verdict: Verdict
    how: str
    """The option, what is lost, or what to do instead; empty where there is nothing to say."""
    entries: tuple[str, ...]
    """Of the catalogue."""


_V = Verdict


def _row(what: str, verdict: Verdict, how: str, *entries: str) -> VerdictRow:
    return VerdictRow(what, verdict, how, entries)


VERDICTS: tuple[tuple[str, tuple[VerdictRow, ...]], ...] = (
    (
        "Processes and threads",
        (
            _row("threads, their names and numbers", _V.BACK, "", "threads", "200 threads"),
            _row("children, zombies, process groups and sessions", _V.BACK, "", "300 children", "zombies", "groups"),
            _row("a stopped process", _V.BACK, "It stays stopped.", "stopped child"),
            _row("an adopted child", _V.BACK, "", "adopted child"),
            _row(
                "an adopted daemon, whose session's first process has ended",
                _V.REFUSED,
                "CRIU gives it to nobody: end it before.",
                "adopted daemon",
            ),
            _row(
                "a number of a process or thread that is taken at the thaw",
                _V.OPTION,
                "`restore --pids auto`",
                "number of a thread taken meanwhile",
            ),
            _row(
                "a death signal (`PR_SET_PDEATHSIG`) of the first process",
                _V.REFUSED,
                "Its parent would be CRIU, which ends: freeze the process above it. In others it comes back.",
                "death signal of the first process",
                "death signal of child",
            ),
            _row("a process whose first thread has ended", _V.REFUSED, "", "dead first thread"),
            _row("a parent in `vfork`", _V.REFUSED, "Wait until the child has executed.", "vforking"),
            _row(
                "job control",
                _V.BACK,
                "A parent sees neither that its children were stopped nor that they go on.",
                "job control",
            ),
            _row(
                "a handler for SIGCONT",
                _V.BACK,
                "It runs once at each thaw: a thawed process is let run by that signal.",
                "counting continue",
            ),
            _row("a control group, with its limits", _V.BACK, "", "control group"),
        ),
    ),
    (
        "Attributes",
        (
            _row("processors (affinity)", _V.AGAIN, "Of each thread.", "affinity", "attributes of threads"),
            _row("I/O priority and timer slack", _V.AGAIN, "Of each thread.", "io priority", "timer slack"),
            _row("NUMA policy of a thread, and of memory", _V.AGAIN, "", "memory policy"),
            _row("personality, coredump filter", _V.AGAIN, "", "personality", "core filter"),
            _row(
                "what is done at broken memory (`PR_MCE_KILL`), what a processor may not guess "
                "(`PR_SET_SPECULATION_CTRL`), huge pages for nothing but advised memory",
                _V.AGAIN,
                "The first two of each thread.",
                "rare attributes",
            ),
            _row(
                "no new privileges, secure bits, strict seccomp, `membarrier`, reset on fork",
                _V.BACK,
                "",
                "rare attributes",
                "many attributes",
                "seccomp",
            ),
            _row("nice, scheduling class, OOM score, umask, dumpable", _V.BACK, "", "scheduling", "many attributes"),
            _row(
                "a deadline as scheduling policy (`SCHED_DEADLINE`), or one of a BPF program",
                _V.REFUSED,
                "Set another one before (`chrt`).",
                "deadline",
            ),
            _row(
                "a thread with descriptors, folders or a namespace of its own",
                _V.REFUSED,
                "It would come back with those of the other threads.",
                "thread apart",
            ),
            _row("limits", _V.BACK, "", "limits"),
            _row(
                "`mlockall` of what is still to come, write-xor-execute (`PR_SET_MDWE`), merging "
                "(`PR_SET_MEMORY_MERGE`), a trap at the processor's clock (`PR_SET_TSC`), segments (`modify_ldt`), a "
                "slice of the scheduler's",
                _V.WITHOUT,
                "The kernel tells nobody but the process: what has to have one of these sets it again, in a "
                "[hook](#applications-that-come-to-rest-first) for example. Memory that is locked stays so.",
                "lost attributes",
            ),
            _row(
                "the session keyring",
                _V.WITHOUT,
                "It is empty afterwards, and is not that of who thaws it. Keys of a user are found as before.",
                "lost attributes",
            ),
            _row(
                "the processor time that it has used",
                _V.WITHOUT,
                "`times`, `CLOCK_PROCESS_CPUTIME_ID` and `RLIMIT_CPU` begin at zero.",
                "lost attributes",
            ),
            _row("capabilities, also dropped ones; seccomp filters", _V.BACK, "", "capabilities dropped", "seccomp"),
            _row(
                "a Landlock domain",
                _V.WITHOUT,
                "The kernel tells nobody that a process has restricted itself: it comes back **unrestricted**.",
                "landlocked",
            ),
            _row(
                "another user",
                _V.BACK,
                "Needs `CAP_SYS_RESOURCE`, without which it is refused (`RightsMissing`).",
                "other user",
                "effective user",
            ),
            _row("root directory (`chroot`)", _V.BACK, "", "changed root"),
        ),
    ),
    (
        "Signals and timers",
        (
            _row(
                "signals: pending, blocked, ignored, caught; their stacks",
                _V.BACK,
                "",
                "pending signals",
                "signal actions",
                "alternate stack",
            ),
            _row(
                "interval timers and POSIX timers, also those for one thread and of processor time",
                _V.BACK,
                "",
                "timers",
                "rare descriptors",
            ),
            _row(
                "timer descriptors, also expired ones and those that end when the clock is set",
                _V.BACK,
                "",
                "events",
                "expired timer",
                "rare descriptors",
            ),
            _row(
                "a timer descriptor that wakes the machine (`CLOCK_BOOTTIME_ALARM`, `CLOCK_REALTIME_ALARM`)",
                _V.REFUSED,
                "Close it before.",
                "alarm timer",
            ),
            _row(
                "a thread that waits in `poll`",
                _V.AGAIN,
                "It waits on, with its whole time. After `--leave-running`, and after a freeze that was undone, the "
                "call ends with `EINTR`.",
                "tail -f of a growing log",
                "script",
            ),
            _row(
                "a thread that sleeps, or waits for a futex with a time",
                _V.AGAIN,
                "`sleep` goes on with what is left; `usleep`, and others that are not told what is left, begin anew; a "
                "point in time stays that. After `--leave-running`, after a freeze that was undone, and where it was "
                "stopped (`SIGSTOP`) in the same call before, the call ends with `EINTR`.",
                "sleeping",
            ),
        ),
    ),
    (
        "Memory",
        (
            _row(
                "private and shared memory, huge pages, advice",
                _V.BACK,
                "",
                "shared memory",
                "huge pages",
                "transparent huge pages",
                "advice",
            ),
            _row(
                "memory that is sealed (`mseal`), or locked when it is touched (`MLOCK_ONFAULT`)",
                _V.AGAIN,
                "",
                "rare memory",
            ),
            _row("guard pages, stacks that grow, memory that may be dropped", _V.BACK, "", "rare memory"),
            _row("memfd, mapped and not, sealed", _V.BACK, "", "memfd", "unmapped memfd"),
            _row("mapped files, also removed ones", _V.BACK, "", "mapped file", "mapped removed file"),
            _row("a program or library that was removed", _V.BACK, "", "removed program"),
            _row("a memfd of huge pages, secret memory", _V.REFUSED, "", "huge memfd", "secret memory"),
            _row("System V shared memory", _V.REFUSED, "Start it with `unshare --ipc`.", "system v"),
            _row(
                "the same in an IPC namespace of its own",
                _V.BACK,
                "While a process has it attached; else the freeze is refused (`NoRoom`): it is not counted.",
                "system v in an IPC namespace",
                "system v, removed, in an IPC namespace",
            ),
            _row("robust locks", _V.BACK, "", "robust lock"),
        ),
    ),
    (
        "Files",
        (
            _row(
                "open files and folders, with their positions", _V.BACK, "", "positions", "folder open", "sparse file"
            ),
            _row(
                "a file that grows, shrinks or is written to by others meanwhile",
                _V.BACK,
                "As if the program had been stopped; but for a program or library: that has to be the same.",
                "open file (r) that grew meanwhile",
                "open file (w) that grew meanwhile",
                "open file (a) that grew meanwhile",
                "open file (r+) that grew meanwhile",
                "open file (a+) that grew meanwhile",
                "tail -f of a growing log",
            ),
            _row(
                "a file whose only name was removed; a removed folder",
                _V.BACK,
                "Its content is in the checkpoint.",
                "removed file",
                "removed sparse file",
                "removed folder",
            ),
            _row(
                "a file that has no name yet (`O_TMPFILE`), a folder that is half read", _V.BACK, "", "rare descriptors"
            ),
            _row(
                "a file whose name was removed while it has another one",
                _V.REFUSED,
                "Close it, or remove the other name too.",
                "linked removed file",
            ),
            _row(
                "locks by `flock`, `fcntl`, of open files, leases",
                _V.BACK,
                "The gate `locks` refuses the thaw while somebody else holds such a lock.",
                "locks",
                "lease",
            ),
            _row(
                "`fcntl` locks on a file that is mapped as well (SQLite, LMDB)",
                _V.AGAIN,
                "CRIU loses them. Locks keep nobody out while a tree is frozen: the gate `files` refuses the thaw if "
                "somebody wrote meanwhile.",
                "fcntl locks on a mapped file",
                "flock locks on a mapped file",
                "OFD locks on a mapped file",
                "lock of a child on a file its parent has mapped",
                "SQLite, WAL, a second process",
                "SQLite, rollback journal, a second process",
                "LMDB",
            ),
            _row("files of `/proc` and `/dev`", _V.BACK, "", "devices", "proc file", "own proc folder"),
            _row(
                "a file or folder of `/proc` of a process or thread that has ended, or is outside of the tree",
                _V.REFUSED,
                "Close it before.",
                "proc file of ended thread",
            ),
        ),
    ),
    (
        "Descriptors",
        (
            _row(
                "pipes and FIFOs within the tree; one whose other end nobody has",
                _V.BACK,
                "",
                "pipes",
                "fifo",
                "pipe without writer",
                "pipe that nobody outside writes to",
            ),
            _row(
                "a pipe or FIFO that a process outside has open",
                _V.REFUSED,
                "Freeze a process above both, or start it with files instead.",
                "pipe to the outside",
                "pipe from the outside",
                "FIFO to the outside",
                "Popen child alone",
                "command | tee log, the command alone",
                "standard error to the outside",
            ),
            _row("a pipe that keeps packets apart (`O_DIRECT`)", _V.REFUSED, "Close it before.", "packet pipe"),
            _row("who is told of a descriptor (`F_SETOWN`, `F_SETSIG`)", _V.BACK, "", "rare descriptors"),
            _row(
                "a socket, shared memory, memfd, eventfd, epoll, timer or inotify that a process outside has as well",
                _V.REFUSED,
                "As a forked server has, or one to which systemd gave a socket. Freeze a process above both, or close "
                "it in one of them. Memory that nobody writes to is no obstacle.",
                "listening socket of a process outside",
            ),
            _row(
                "a file that a process outside writes to at the same position (`(a & b) >log`)",
                _V.REFUSED,
                "Each would write over the other: open it to append (`>>`), or twice. What is open to append, or only "
                "read, comes back.",
                "file written to from outside as well",
            ),
            _row("Unix sockets within the tree", _V.BACK, "", "unix sockets", "passed descriptor"),
            _row(
                "a Unix socket whose name is that of another file by now",
                _V.REFUSED,
                "A thaw would take it away: close the socket, or rename that file. What takes the name while the tree "
                "is frozen is found by the gate `names`.",
                "unix name taken",
            ),
            _row(
                "the name of a Unix socket that was accepted",
                _V.WITHOUT,
                "`getsockname` gives none afterwards.",
                "accepted unix socket",
            ),
            _row(
                "a Unix socket to the outside",
                _V.REFUSED,
                "Close it before.",
                "Unix stream to the outside",
                "Unix datagrams to the outside",
            ),
            _row(
                "a Unix socket to which somebody outside has connected, and was not accepted yet",
                _V.REFUSED,
                "Let that be accepted, or ended, before. Who connects just before the tree ends is reset.",
                "Unix client that waits",
            ),
            _row(
                "established TCP connections",
                _V.OPTION,
                "`--tcp-established` keeps them, `--tcp-close` gives them up.",
                "TCP client",
                "TCP client, without leave",
                "tcp inside",
            ),
            _row(
                "sockets of UDP, raw, packet and netlink kind",
                _V.BACK,
                "",
                "udp",
                "raw socket",
                "packet socket",
                "netlink",
            ),
            _row(
                "rarer options of sockets: those of multicast, its memberships, receive errors and time stamps "
                "(`IP_RECVERR`, `SO_TIMESTAMP`), `IP_MTU_DISCOVER`, `IP_MINTTL`, `IP_TRANSPARENT`, `TCP_USER_TIMEOUT`, "
                "`TCP_DEFER_ACCEPT`, `TCP_FASTOPEN`, congestion control, `SO_LOCK_FILTER`, those of netlink; the "
                "program that chooses among those of one port (`SO_ATTACH_REUSEPORT_CBPF`); datagrams that wait in a "
                "socket",
                _V.WITHOUT,
                "CRIU knows none of them: what needs one sets it again, in a "
                "[hook](#applications-that-come-to-rest-first) for example.",
                "lost socket options",
                "lost descriptors",
            ),
            _row(
                "a UDP socket that collects a datagram (`UDP_CORK`)",
                _V.REFUSED,
                "Let it be sent before.",
                "corked",
            ),
            _row(
                "whose the other end of a Unix socket is (`SO_PEERCRED`)",
                _V.WITHOUT,
                "Of what was connected before the freeze it says **root** afterwards, whoever it is: ask when it is "
                "accepted.",
                "lost descriptors",
            ),
            _row(
                "epoll, eventfd, signalfd, inotify, fanotify, pidfd within the tree",
                _V.BACK,
                "What inotify had not told yet, and what happens while it is frozen, is not told.",
                "events",
                "fanotify",
                "pidfd inside",
                "rare descriptors",
            ),
            _row(
                "an eventfd that counts as a semaphore (`EFD_SEMAPHORE`)",
                _V.REFUSED,
                "It would give all at once. Before Linux 6.5 nobody can tell, and it does.",
                "semaphore",
            ),
            _row(
                "what inotify watches just once (`IN_ONESHOT`), only while it has a name (`IN_EXCL_UNLINK`), or "
                "without one; `F_NOTIFY`; what epoll does not wait for until it is armed again (`EPOLLONESHOT`)",
                _V.WITHOUT,
                "It watches on, what was removed not at all; nobody is notified; epoll tells of an end even so.",
                "lost descriptors",
            ),
            _row("many descriptors", _V.BACK, "Of pipes CRIU takes 1,024.", "many descriptors"),
            _row("a descriptor of a namespace", _V.BACK, "", "namespace file"),
            _row(
                "io_uring",
                _V.REFUSED,
                "Start it without one: [below](#programs-on-io_uring).",
                "io uring",
            ),
            _row(
                "vsock, userfaultfd, perf, bpf, Landlock rules, POSIX message queues, a pidfd of a process outside",
                _V.REFUSED,
                "Close them before.",
                "vsock",
                "userfaultfd",
                "perf",
                "bpf map",
                "Landlock descriptor",
                "message queue",
                "pidfd of a process outside",
            ),
        ),
    ),
    (
        "Terminals",
        (
            _row(
                "a terminal whose other side is in the tree (tmux, script)",
                _V.BACK,
                "",
                "terminal inside",
                "tmux with top",
                "tmux with vim",
            ),
            _row(
                "what waits unread in such a terminal",
                _V.AGAIN,
                "",
                "unread in a terminal, raw",
                "unread in a terminal, by lines",
                "closed terminal",
                "pexpect",
            ),
            _row(
                "a terminal of the tree that a process outside has open as well",
                _V.REFUSED,
                "Freeze a process above both, or have the other one close it.",
                "terminal that is open outside",
            ),
            _row(
                "such a terminal whose first descriptor only writes; two with one number; more than 32 in no order",
                _V.REFUSED,
                "Open it for both (`<>`).",
                "terminal to write to",
            ),
            _row(
                "the controlling terminal of those below a session's leader",
                _V.WITHOUT,
                "Keys and signals reach them; `/dev/tty` cannot be opened.",
                "tmux with vim",
            ),
            _row(
                "a terminal of somebody else",
                _V.OPTION,
                "`--shell-job`: [below](#programs-with-a-terminal).",
                "program with a terminal, without leave",
            ),
        ),
    ),
    (
        "Namespaces",
        (
            _row(
                "UTS, IPC, network and cgroup namespaces of its own",
                _V.BACK,
                "",
                "uts namespace",
                "ipc namespace",
                "net namespace",
                "cgroup namespace",
                "named host",
            ),
            _row(
                "a mount namespace that is not that of the command or agent",
                _V.REFUSED,
                "Run the command in there (`nsenter --mount`), or freeze it as a container.",
                "mnt namespace",
                "mount namespace",
                "command in a mount namespace of its own",
            ),
            _row("a user or time namespace of its own", _V.REFUSED, "", "user namespace", "time namespace"),
            _row(
                "a PID namespace of its own",
                _V.REFUSED,
                "Freeze it as a [container](containers.md); one that a thaw made is no obstacle.",
                "PID namespace",
            ),
            _row(
                "a PID or time namespace that is set for its children alone",
                _V.REFUSED,
                "",
                "PID namespace for children",
                "time namespace for children",
            ),
        ),
    ),
)
"""By kind, in the order in which the page shows them."""
