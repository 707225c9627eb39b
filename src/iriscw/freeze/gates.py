"""What has to be true before anything is touched: two tables, cheapest first. The first gate that is shut names why.

A gate that is shut fails the operation once and for good (INV-C7): nothing is retried until somebody changes something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import attrs

from iriscw.freeze.effects import Looked, Opened
from iriscw.freeze.model import (
    CudaState,
    FreezePlan,
    FrozenTree,
    Hook,
    HookKind,
    Numbers,
    NvmlGpu,
    ProcessTree,
    ThawPlan,
)
from iriscw.freeze.traits import FolderStanding, Obstacle

VRAM_MARGIN_BYTES = 256 << 20
"""What a restore needs beside what was held: contexts, page tables. Running out once ruins the process for good."""

MEMORY_MARGIN_BYTES = 64 << 20

IMAGE_SLACK_BYTES = 64 << 20
"""What images take beside the memory in them: tables, descriptors, files that were removed but are open."""

Plan = TypeVar("Plan")
Sight = TypeVar("Sight")


@attrs.frozen
class Gate(Generic[Plan, Sight]):
    """One check: its name, what it asks for (for the page of documentation), and the check: empty, or why not."""

    name: str
    wants: str
    check: Callable[[Plan, Sight], str]


@attrs.frozen
class GateRefusal:
    """The gate that is shut, and why."""

    gate: str
    text: str


def first_shut(gates: tuple[Gate[Plan, Sight], ...], plan: Plan, sight: Sight) -> GateRefusal | None:
    """Return the first gate that is shut."""
    for gate in gates:
        text = gate.check(plan, sight)
        if text:
            return GateRefusal(gate.name, text)
    return None


# Before anything is written down


def hook_trouble(hook: Hook | None) -> str:
    """Say what keeps a hook from standing in a journal and a manifest; empty if nothing does. It is not repeated."""
    if hook is None:
        return ""
    if len(hook.target) < 1 or not all(hook.target) or (hook.kind is not HookKind.EXEC and len(hook.target) > 1):
        return "a hook is one program with its arguments, one address or one folder"
    if hook.kind is not HookKind.HTTP:
        return ""
    try:
        parts = urlsplit(hook.target[0])
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        return "the hook's address is none: it must be http://HOST[:PORT][/PATH], or https"
    if "@" in parts.netloc:
        return "the hook's address has a user or a password in it, which would stand in the manifest: leave them out"
    if parts.query or parts.fragment:
        return "the hook's address goes on after its path, and that may be a secret: leave it out"
    return ""


def plan_trouble(plan: FreezePlan) -> str:
    """Say why a freeze cannot be as it was asked for, whatever the tree is; empty if it can."""
    if plan.carries_folder and plan.container is not None:
        return "a container has no folder that could be carried: its files are its runtime's"
    return hook_trouble(plan.hook)


# Before a freeze

ALWAYS = (
    Obstacle.OURS,
    Obstacle.KERNEL,
    Obstacle.TRACED,
    Obstacle.IO_URING,
    Obstacle.DEVICE,
    Obstacle.PAGES,
    Obstacle.UNLINKED,
    Obstacle.NUMBERED,
    Obstacle.CHILDREN,
    Obstacle.DEATH_SIGNAL,
    Obstacle.MAPPED_LOCKS,
    Obstacle.THREAD,
    Obstacle.SCHEDULING,
    Obstacle.SEMAPHORE,
)
"""What no option helps against."""

NOT_IN_CONTAINERS = (Obstacle.NAMESPACE, Obstacle.ELSEWHERE, Obstacle.MOUNTS, Obstacle.PIPE, Obstacle.SHARED)
"""What a container's runtime brings back, and nobody else: its namespaces, and the pipes and files that it gave to it.
"""


def _nothing_in_the_way(plan: FreezePlan, tree: ProcessTree) -> str:
    for each in tree.hindrances:
        first = each.obstacle is Obstacle.NAMESPACE
        inside = each.obstacle in NOT_IN_CONTAINERS
        if each.obstacle in ALWAYS or (inside and plan.container is None) or (first and each.pid != plan.root.pid):
            return each.text
    return ""


def _terminal(plan: FreezePlan, tree: ProcessTree) -> str:
    def found(obstacle: Obstacle) -> list[str]:
        return [each.text for each in tree.hindrances if each.obstacle is obstacle]

    outside, leads, leads_none = found(Obstacle.TERMINAL), found(Obstacle.LEADER), found(Obstacle.NO_LEADER)
    if not plan.options.shell_job:
        if outside:
            return f"{outside[0]}: freeze it with --shell-job, start it without one, or (tmux, screen) detach first"
        alone = bool(leads_none) and plan.container is None
        return f"{leads_none[0]}: start it with setsid, or freeze it with --shell-job" if alone else ""
    if plan.container is not None:
        return ""
    if len(outside) > 1:
        return f"{outside[0]}, and it has another one: it can get but one back"
    return f"{leads[0]}: freeze the program below it, or the tree that holds the other side" if leads else ""


def _connections(plan: FreezePlan, tree: ProcessTree) -> str:
    if plan.options.tcp_established and plan.options.tcp_close:
        return "connections are either kept or given up: --tcp-established or --tcp-close, not both"
    found = next((each.text for each in tree.hindrances if each.obstacle is Obstacle.TCP), "")
    allowed = plan.options.tcp_established or plan.options.tcp_close
    return "" if allowed or not found else f"{found}: freeze it with --tcp-established, or with --tcp-close"


TREE_GATES: tuple[Gate[FreezePlan, ProcessTree], ...] = (
    Gate(
        "target",
        "nothing that cannot be brought back: io_uring, what is shared with the outside, a tracer, mounts of its own",
        _nothing_in_the_way,
    ),
    Gate("terminal", "no terminal of somebody else, or --shell-job", _terminal),
    Gate("connections", "no established TCP connection, or --tcp-established, or --tcp-close", _connections),
)
"""What the tree itself has to be. Asked before it is touched, and once more when it is held: it may have changed."""


def _cuda_can(plan: FreezePlan, seen: Looked) -> str:
    return seen.cuda.reason or "the driver cannot checkpoint" if seen.cuda_tasks and not seen.cuda.available else ""


def _cuda_is_free(plan: FreezePlan, seen: Looked) -> str:
    stopped = [task.identity for task in seen.tree.tasks if task.stopped]
    for task in seen.cuda_tasks:
        if task.identity in stopped:
            return (
                f"process {task.identity.pid} uses CUDA and is stopped: the driver needs a thread of it for each call, "
                "here and at the thaw; let it go on (kill -CONT)"
            )
        if task.state is CudaState.UNKNOWN:
            return (
                f"process {task.identity.pid} is for CUDA in a state that iriscw does not know: another program copies "
                "its memory, or the driver is newer than iriscw"
            )
        if task.state is not CudaState.RUNNING:
            return (
                f"process {task.identity.pid} is {task.state.value} for CUDA already: somebody else froze it, "
                "or an operation was interrupted"
            )
    return ""


def _one_gpu_map(plan: FreezePlan, seen: Looked) -> str:
    known = [gpu.uuid for gpu in seen.gpus]
    missing = [uuid for task in seen.cuda_tasks for uuid in task.by_gpu if uuid not in known]
    return f"GPU {missing[0]} is in use and not listed by NVML" if missing else ""


def image_bytes(seen: Looked) -> int:
    """Return the most that the images of a tree may take: its memory, what comes off the GPUs, and its folder."""
    folder_bytes = 0 if seen.folder is None else seen.folder.size_bytes
    return seen.tree.memory_bytes + device_bytes(seen) + folder_bytes + IMAGE_SLACK_BYTES


def device_bytes(seen: Looked) -> int:
    """Return what CUDA will copy into the memory of the processes: it is there twice until the tree has ended."""
    return sum(task.device_bytes for task in seen.cuda_tasks)


def _enough_memory(plan: FreezePlan, seen: Looked) -> str:
    """Compare what is taken with what is free, for us, for the tree, and for both on the machine."""
    images = 0 if seen.promised_bytes is None else image_bytes(seen)
    device, promised = device_bytes(seen), seen.promised_bytes or 0
    if not images + device:
        return ""
    memory = seen.memory
    both = images + device + promised
    tests = (
        ("", memory.machine_bytes, both),
        (" in the control group of both", memory.both_bytes, both),
        (" in the control group", memory.ours_bytes, images + promised),
        (" in the control group of the process", memory.its_bytes, device),
    )
    for where, free, needed in tests:
        if free is not None and needed and free < needed + MEMORY_MARGIN_BYTES:
            text = f"{free >> 20} MiB of memory are free{where}, and {(needed + MEMORY_MARGIN_BYTES) >> 20} are needed"
            return f"{text}: freeze it to disk" if images and (device + MEMORY_MARGIN_BYTES) <= free else text
    return ""


FREEZE_GATES: tuple[Gate[FreezePlan, Looked], ...] = (
    Gate("cuda", "a driver that can checkpoint, where the tree uses CUDA", _cuda_can),
    Gate(
        "cuda-state", "no process that uses CUDA is stopped, or locked or checkpointed by somebody else", _cuda_is_free
    ),
    Gate("gpus", "every GPU in use is known by its UUID", _one_gpu_map),
    Gate("memory", "enough free memory for images in RAM, and for what CUDA moves off the GPUs", _enough_memory),
)


# Before a thaw


def version_of(text: str) -> tuple[int, ...]:
    """Read ``4.2`` or ``580.105.08`` for comparing; what is not a number ends it."""
    numbers: list[int] = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _architecture(plan: ThawPlan, opened: Opened) -> str:
    was, here = opened.kept.frozen.host, opened.host
    if was.architecture != here.architecture:
        return f"it was frozen on {was.architecture}, and this is {here.architecture}"
    if was.page_size != here.page_size:
        return f"it was frozen with pages of {was.page_size} bytes, and here they have {here.page_size}"
    return ""


def _criu(plan: ThawPlan, opened: Opened) -> str:
    was, here = opened.kept.frozen.criu.version, opened.criu.version
    if version_of(here) < version_of(was):
        return f"it was frozen by CRIU {was}, and this is CRIU {here}: an older one does not read its images"
    return ""


def _processor(plan: ThawPlan, opened: Opened) -> str:
    here = opened.host.cpu_features
    lacking = [each for each in opened.kept.frozen.host.cpu_features if each not in here]
    if lacking and not plan.force:
        named = ", ".join(lacking[:8])
        return f"this processor lacks {named}, which the old one had: the program may use them (--force ignores it)"
    return ""


def _source(plan: ThawPlan, opened: Opened) -> str:
    if plan.clone:
        return ""
    if not opened.living:
        came = "came of what was thawed from it before, and runs"
        return f"process {opened.met.heirs[0].pid} {came}: {_TWO}" if opened.met.heirs else ""
    first = opened.living[0]
    came = "was thawed from it and runs" if first in opened.kept.returned else "was frozen and still runs"
    return f"process {first.pid} {came}: {_TWO}"


_TWO = "there would be two of it (--clone makes one more on purpose)"


NAMESPACE_NAMES = {"mnt": "mount", "net": "network", "ipc": "IPC", "uts": "UTS", "user": "user"}


def _place(plan: ThawPlan, opened: Opened) -> str:
    """A tree comes back in the namespaces of who thaws it, but for those of its own."""
    was = opened.kept.frozen
    if plan.container is not None or was.host.boot_id != opened.host.boot_id:
        return ""
    here = dict(opened.namespaces)
    for kind, number in was.namespaces:
        if here.get(kind, number) != number and not plan.force:
            name = NAMESPACE_NAMES.get(kind, kind)
            return f"it was frozen in another {name} namespace than this one: thaw it from there (nsenter), or --force"
    return ""


def _files(plan: ThawPlan, opened: Opened) -> str:
    """Compare the files that it has open with what is there now, as it could have been had it only been stopped."""
    if plan.container is not None or plan.force:
        return ""
    frozen, away = opened.kept.frozen, elsewhere(opened)
    comes = opened.folder is not None and (away or opened.folder.standing is not FolderStanding.SAME)
    for file, now in zip(frozen.files, opened.files, strict=False):
        if comes and frozen.carried is not None and frozen.carried.has(file.path):
            continue  # it comes with the folder
        if now is None:
            return f"{file.path}, which process {file.pid} has open, is not there any more: put it back"
        if away and (now.size_bytes, now.changed_ns) != (file.size_bytes, file.changed_ns):
            who = f"{file.path}, which process {file.pid} has open"
            return (
                f"{who}, has another size or time of change here than where it was frozen: copy it (cp -p), or --force"
            )
        same = away or (now.device, now.inode) == (file.device, file.inode)
        if not same and not file.appended:
            return f"{file.path}, which process {file.pid} has open, is another file now (--force takes that)"
        if file.guarded and (now.size_bytes, now.changed_ns) != (file.size_bytes, file.changed_ns):
            return (
                f"{file.path} was changed while the tree was frozen, and process {file.pid}, which writes to it, holds "
                "locks that kept nobody out meanwhile: what it does next may destroy what was written (--force)"
            )
    return ""


def elsewhere(opened: Opened) -> bool:
    """Whether a tree was frozen on another machine: after another start, and under another name.

    Where only one of the two is another, it is taken for the same machine, and more is compared.
    """
    was, here = opened.kept.frozen.host, opened.host
    return was.boot_id != here.boot_id and was.node != here.node


def _folder(plan: ThawPlan, opened: Opened) -> str:
    """Nothing of somebody's is ever put aside for the folder that comes with the checkpoint."""
    carried, sight = opened.kept.frozen.carried, opened.folder
    if carried is None:
        return ""
    if carried.path != opened.kept.frozen.guard:
        return f"the folder {carried.path} comes with it, and is not that of its supervisor"
    if sight is None or sight.standing is FolderStanding.SAME:
        return ""
    if sight.trouble:
        return f"its folder {carried.path} cannot be put in its place: {sight.trouble}"
    if sight.standing is FolderStanding.KEPT:
        return f"{carried.path}, where its folder has to be, is somebody's: it was not let go there, or runs"
    if sight.free_bytes < carried.size_bytes:
        free, needed = sight.free_bytes >> 20, carried.size_bytes >> 20
        return f"{free} MiB are free where its folder has to be, {carried.path}, and it takes {needed}"
    return ""


def _locks(plan: ThawPlan, opened: Opened) -> str:
    """CRIU would wait for the lock, with the whole tree."""
    if plan.container is not None or not opened.met.locks:
        return ""
    holder = opened.met.locks[0]
    return f"{holder.who} holds a lock on {holder.what} that the tree held: end it, or have it let go of that"


def _names(plan: ThawPlan, opened: Opened) -> str:
    """CRIU would remove the file: who has the socket would live on, and nobody could reach it."""
    if plan.container is not None or plan.force:
        return ""
    copies = [task.pid for task in opened.living] if plan.clone else []
    for holder in opened.met.names:
        if holder.pid not in copies:
            text = f"{holder.who} has the Unix socket {holder.what} by now, whose name the tree needs"
            return f"{text}: end it, or rename that file (--force takes the name away from it)"
    return ""


def _ports(plan: ThawPlan, opened: Opened) -> str:
    """A socket that CRIU brings back may come to share a port with one that it brought back before."""
    if plan.container is not None or plan.force or not opened.met.ports:
        return ""
    holder = opened.met.ports[0]
    text = f"{holder.who} has {holder.what} by now, which the tree listens on"
    return f"{text}: end it first (--force tries it all the same: clients would then reach one of the two)"


def _runtime(plan: ThawPlan, opened: Opened) -> str:
    was = opened.kept.frozen.container
    if was is not None and plan.container is None:
        return f"it is container {was.container_id}, and only its runtime brings it back: iriscw-runc restore"
    if was is None and plan.container is not None:
        return "it is not a container's: it was frozen without a runtime, and is thawed so"
    return ""


def _numbers(plan: ThawPlan, opened: Opened) -> str:
    if not opened.taken or plan.container is not None:  # a container has a namespace of numbers of its own
        return ""
    text = f"process number {opened.taken[0]} is taken here (by a process or a thread), and the tree needs it"
    if plan.numbers is Numbers.SAME:
        return text if _bound(opened) else f"{text}: thaw it with --pids auto, in a PID namespace of its own"
    return f"{text}; {_bound(opened)}" if _bound(opened) else ""


def fresh_numbers(plan: ThawPlan, opened: Opened) -> bool:
    """Say whether a tree comes back in a PID namespace of its own."""
    wanted = plan.numbers is Numbers.FRESH or (plan.numbers is Numbers.AUTO and bool(opened.taken))
    return wanted and plan.container is None


def _bound(opened: Opened) -> str:
    """Say why a tree cannot live in a PID namespace of its own; empty if it can."""
    was = opened.kept.frozen
    if was.cuda_tasks:
        return "a tree that uses CUDA is not thawed into a PID namespace of its own: nobody has seen a driver do that"
    if was.options.shell_job:
        return "a tree with a terminal cannot be in a PID namespace of its own: that is of a session outside"
    return ""


def _namespace(plan: ThawPlan, opened: Opened) -> str:
    return _bound(opened) if fresh_numbers(plan, opened) else ""


def _driver(plan: ThawPlan, opened: Opened) -> str:
    was = opened.kept.frozen
    if not was.cuda_tasks:
        return ""
    if not opened.cuda.available:
        return opened.cuda.reason or "the driver cannot checkpoint"
    if opened.cuda.driver_version != was.cuda_driver:
        return f"it was frozen under driver {was.cuda_driver}, and this is {opened.cuda.driver_version}"
    if whole_map(was, plan.gpus) and not opened.cuda.can_map_gpus:
        return "this driver cannot restore to other GPUs (580 and later can)"
    return ""


def whole_map(was: FrozenTree, asked: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the map of GPUs as the driver wants it: each GPU that was used, those that stay too; none if all stay.

    NVIDIA: if pairs are given, they must contain every checkpointed GPU (``cuCheckpointProcessRestore``).
    """
    wanted = dict(asked)
    pairs = tuple((uuid, wanted.get(uuid, uuid)) for uuid in was.used_gpus)
    return pairs if any(old != new for old, new in pairs) else ()


def _gpus(plan: ThawPlan, opened: Opened) -> str:
    was = opened.kept.frozen
    here = {gpu.uuid: gpu for gpu in opened.gpus}
    models = {gpu.uuid: gpu.model for gpu in was.gpus}
    wanted = dict(plan.gpus)
    used = was.used_gpus
    strange = [uuid for uuid in wanted if uuid not in used]
    if strange and not plan.unused_gpus:
        return f"the map names GPU {strange[0]}, and the tree used {', '.join(used) or 'none'}"
    targets = [wanted.get(uuid, uuid) for uuid in used]
    if len(dict.fromkeys(targets)) < len(targets):
        return "two GPUs would come to one: the map must keep them apart"
    for uuid, target in zip(used, targets, strict=True):
        gpu = here.get(target)
        if gpu is None:
            return f"GPU {target} is not here" + ("" if uuid in wanted else ": name another one with --gpu")
        if gpu.model != models.get(uuid, gpu.model):
            return f"it was frozen on a {models[uuid]}, and {target} is a {gpu.model}"
    return ""


def needed_vram(plan: ThawPlan, opened: Opened) -> dict[str, int]:
    """Return for each GPU here what has to be free on it.

    What is not known by GPU is asked of each one that is used.
    """
    wanted = dict(plan.gpus)
    needed: dict[str, int] = {}
    for task in opened.kept.frozen.cuda_tasks:
        for uuid, held in task.by_gpu.items():
            target = wanted.get(uuid, uuid)
            needed[target] = needed.get(target, VRAM_MARGIN_BYTES) + max(0, held)
    return needed


def _vram(plan: ThawPlan, opened: Opened) -> str:
    here: dict[str, NvmlGpu] = {gpu.uuid: gpu for gpu in opened.gpus}
    for uuid, needed in needed_vram(plan, opened).items():
        free = here[uuid].free_bytes
        if free < needed:
            return f"GPU {uuid} has {free >> 20} MiB free, and {needed >> 20} MiB are needed"
    return ""


def _memory(plan: ThawPlan, opened: Opened) -> str:
    needed = opened.kept.sealed.size_bytes + MEMORY_MARGIN_BYTES
    if opened.free_memory_bytes < needed:
        return f"{opened.free_memory_bytes >> 20} MiB of memory are free where it lands, and {needed >> 20} are needed"
    return ""


def _no_cuda(plan: ThawPlan, opened: Opened) -> str:
    return "it uses CUDA, whose restore reads all of it" if opened.kept.frozen.cuda_tasks else ""


def _no_container(plan: ThawPlan, opened: Opened) -> str:
    return "its container's runtime brings all of it back at once" if plan.container is not None else ""


def _no_namespace(plan: ThawPlan, opened: Opened) -> str:
    return "in a PID namespace of its own all of it comes back at once" if fresh_numbers(plan, opened) else ""


def _by_pieces(plan: ThawPlan, opened: Opened) -> str:
    return "" if opened.kept.by_pieces else "an older iriscw wrote the checkpoint, without a digest for each piece"


def _userfaultfd(plan: ThawPlan, opened: Opened) -> str:
    return "" if USERFAULTFD in opened.criu.features else "this kernel, or its CRIU, has no userfaultfd for that"


def _own_terminal(plan: ThawPlan, opened: Opened) -> str:
    if not opened.kept.frozen.options.shell_job or plan.container is not None:
        return ""
    if not plan.terminal:
        return (
            "it comes back in the terminal of `iriscw restore`, which stays there as its parent: run that in the "
            "foreground of a terminal, with it as standard input, and without --agent or --cluster"
        )
    if plan.lazy:
        return "with a terminal all of its memory is read before it runs: thaw it without --lazy"
    if plan.numbers is not Numbers.SAME:
        return "with a terminal it has the numbers that it had: thaw it without --pids"
    return ""


USERFAULTFD = "uffd-noncoop"
"""The feature, as CRIU names it."""

LAZY_GATES: tuple[Gate[ThawPlan, Opened], ...] = (
    Gate("container", "a tree that is not a container", _no_container),
    Gate("cuda", "a tree that does not use CUDA", _no_cuda),
    Gate("namespace", "a tree that gets no PID namespace of its own", _no_namespace),
    Gate("pieces", "a digest for each piece in the manifest", _by_pieces),
    Gate("userfaultfd", "a kernel and a CRIU with userfaultfd and its events", _userfaultfd),
)
"""What a lazy thaw needs beside. Where one is shut, nothing is refused: all of its memory is read before it runs."""

THAW_GATES: tuple[Gate[ThawPlan, Opened], ...] = (
    Gate("runtime", "a container's runtime for a container, and none for what is none", _runtime),
    Gate("architecture", "the same architecture and page size", _architecture),
    Gate("criu", "a CRIU that is not older than the one that wrote the images", _criu),
    Gate("processor", "every feature of the old processor, or --force", _processor),
    Gate(
        "source",
        "nothing of the frozen tree lives, nor of one thawed from the same checkpoint, nor what came of that; or "
        "--clone",
        _source,
    ),
    Gate("place", "the namespaces that it was frozen in, or --force", _place),
    Gate(
        "folder", "where it carries its folder: a place for that, with room, and nothing of somebody's there", _folder
    ),
    Gate(
        "files",
        "the files that it has open, and none that it holds locks for was changed; on another machine the same sizes "
        "and times; or --force",
        _files,
    ),
    Gate("locks", "nobody holds a lock that keeps out one that the tree held", _locks),
    Gate("names", "nobody has the names of its Unix sockets by now, or --force", _names),
    Gate("ports", "nobody listens on its ports by now, or --force", _ports),
    Gate(
        "numbers",
        "the numbers of its processes and threads are free, or it may have a PID namespace of its own",
        _numbers,
    ),
    Gate("namespace", "no CUDA or terminal in a tree that gets a PID namespace of its own", _namespace),
    Gate("terminal", "a terminal to come back in, for what was frozen with --shell-job", _own_terminal),
    Gate("driver", "the same NVIDIA driver, where the tree used CUDA", _driver),
    Gate("gpus", "each GPU again, or one of its model in its place; a map that names no other GPU", _gpus),
    Gate("vram", "enough free memory on each GPU", _vram),
    Gate("memory", "enough free memory where it lands: on the machine, and in its control group", _memory),
)
