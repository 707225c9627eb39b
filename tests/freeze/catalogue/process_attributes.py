"""What the kernel says of a process beside its memory: read before a freeze and after a thaw, and compared."""

import contextlib
import ctypes
import platform
import re
from pathlib import Path

IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(platform.machine())

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "user", "uts")
"""Without time: whatever CRIU brings back has clocks of its own."""

OF_STATUS = {
    "Uid": "users",
    "Gid": "groups",
    "Groups": "groups",
    "CapInh": "capabilities",
    "CapPrm": "capabilities",
    "CapEff": "capabilities",
    "CapBnd": "capabilities",
    "CapAmb": "capabilities",
    "NoNewPrivs": "no_new_privileges",
    "Seccomp": "seccomp",
    "Seccomp_filters": "seccomp",
    "SigBlk": "blocked_signals",
    "SigIgn": "signal_actions",
    "SigCgt": "signal_actions",
    "SigPnd": "pending_signals",
    "ShdPnd": "pending_signals",
    "Umask": "umask",
    "THP_enabled": "huge_pages",
    "Cpus_allowed_list": "affinity",
}

_libc = ctypes.CDLL(None, use_errno=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def _status(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in _text(folder / "status").splitlines():
        name, _, value = line.partition(":")
        if name in OF_STATUS:
            found.setdefault(OF_STATUS[name], []).append(" ".join(value.split()))
    return found


def of_thread(pid: int, thread: int) -> dict[str, object]:
    """Return what each thread has for itself."""
    folder = Path(f"/proc/{pid}/task/{thread}")
    stat = _text(folder / "stat").rpartition(")")[2].split()
    return {
        **_status(folder),
        "name": _text(folder / "comm"),
        "nice": stat[16] if stat else "",
        "scheduling": stat[37:39],
        "io_priority": _libc.syscall(IOPRIO_GET, 1, thread) if IOPRIO_GET else None,
        "timer_slack": _text(Path(f"/proc/{thread}/timerslack_ns")),
        "personality": _text(folder / "personality"),
    }


class Numbers:
    """Names for what the kernel numbers anew: the same object of the tree has the same name before and after."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, link: str) -> str:
        """Return the name of a descriptor's link."""
        kind = re.match(r"(socket|pipe):\[\d+\]$", link)
        return self._names.setdefault(link, f"{kind[1]} {len(self._names)}") if kind else link


def _descriptors(folder: Path, numbers: Numbers, leave_out: str) -> dict[int, str]:
    found = {}
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for each in sorted((link.name for link in (folder / "fd").iterdir()), key=int):
            link = _link(folder / "fd" / each)
            if link and not link.startswith(leave_out):
                found[int(each)] = numbers.name(link)
    return found


def _locks(pids: list[int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {pid: [] for pid in pids}
    for line in _text(Path("/proc/locks")).splitlines():
        words = line.split()
        if "->" not in words and int(words[4]) in found:
            found[int(words[4])].append(" ".join([*words[1:4], *words[6:]]))
    return {pid: sorted(locks) for pid, locks in found.items()}


def of_tree(pids: list[int], leave_out: str = " ") -> dict[int, dict[str, object]]:
    """Return the attributes of each process.

    Files whose name begins with ``leave_out`` are not among its descriptors.
    """
    numbers, locks, found = Numbers(), _locks(pids), {}
    for pid in pids:
        folder = Path(f"/proc/{pid}")
        if not _link(folder / "exe"):  # it has ended meanwhile
            continue
        stat = _text(folder / "stat").rpartition(")")[2].split()
        threads = sorted(int(each.name) for each in (folder / "task").iterdir())
        found[pid] = {
            "threads": [{"number": each, **of_thread(pid, each)} for each in threads],
            "parent": int(stat[1]) if int(stat[1]) in pids else 0,
            "session": stat[2:4],
            "terminal": stat[4],
            "stopped": stat[0] == "T",
            "program": _link(folder / "exe"),
            "folder": _link(folder / "cwd"),
            "root": _link(folder / "root"),
            "command_line": _text(folder / "cmdline"),
            "environment": _text(folder / "environ"),
            "limits": _text(folder / "limits"),
            "oom_score": _text(folder / "oom_score_adj"),
            "core_filter": _text(folder / "coredump_filter"),
            "control_groups": _text(folder / "cgroup"),
            "namespaces": {
                each: _link(folder / "ns" / each) == _link(Path("/proc/self/ns") / each) for each in NAMESPACES
            },
            "descriptors": _descriptors(folder, numbers, leave_out),
            "locks": locks[pid],
        }
    return found


def differences(before: dict, after: dict) -> dict[str, str]:
    """Return the attributes that are others than they were, each with the first place where that is seen."""
    found: dict[str, str] = {}
    if before.keys() != after.keys():
        found["processes"] = f"{sorted(before)} were there, {sorted(after)} are"
    for pid in before.keys() & after.keys():
        was, now = before[pid], after[pid]
        for name in was.keys() - {"threads"}:
            if was[name] != now[name]:
                found.setdefault(name, f"process {pid}: {was[name]} became {now[name]}")
        if [each["number"] for each in was["threads"]] != [each["number"] for each in now["threads"]]:
            found.setdefault("threads", f"process {pid}: {len(was['threads'])} became {len(now['threads'])}")
            continue
        for one, other in zip(was["threads"], now["threads"], strict=True):
            for name in one:
                if one[name] != other.get(name):
                    found.setdefault(name, f"thread {one['number']}: {one[name]} became {other.get(name)}")
    return found
