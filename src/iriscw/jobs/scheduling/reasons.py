"""Why a task waits, in one sentence with counts (INV-J7).

Made when somebody asks, from the workers as they are at that moment: so it is always current, and costs
nothing while nobody asks. Each worker is counted once under what keeps it from taking the task, the most
lasting cause first: attributes, Python, size, state; a worker that is only full counts once for each resource
that is short.
"""

from __future__ import annotations

import difflib

from iriscw.fleet.model import FREEZABLE, PACKAGES
from iriscw.jobs.scheduling.placement import (
    MAX_ATTEMPTS_PER_WORKER,
    PYTHON,
    UNIQUE,
    Host,
    Inventory,
    PlacementWish,
    WorkerPool,
)
from iriscw.jobs.scheduling.refusals import explain_pause

NAMES = {"cpu": "CPU", "gpu": "GPUs", "gpu_class": "the GPU class"}


def explain(inventory: Inventory, wish: PlacementWish, *, gang: tuple[str, int] | None = None, now: int = 0) -> str:
    """Say why no worker takes the wish; for a gang, ``(group_by, size)``, why no group of workers does.

    ``now`` is the time, ns: of the workers that refuse, the one is named that is tried again first.
    """
    if not inventory.hosts:
        return "no worker is connected"
    counts: dict[str, int] = {}
    ready = 0
    first: Host | None = None
    for pool in inventory.pools.values():
        cause = _pool_cause(pool, wish)
        if cause:
            counts[cause] = counts.get(cause, 0) + len(pool.hosts)
            continue
        for host in pool.hosts.values():
            causes = _host_causes(host, wish)
            ready += not causes
            if causes == [_REFUSES] and (first is None or _until(host) < _until(first)):
                first = host
            for each in causes:
                counts[each] = counts.get(each, 0) + 1
    number = len(inventory.hosts)
    said = ", ".join(f"{count} {_verb(cause, count)}" for cause, count in counts.items())
    named = "" if first is None else f"; {explain_pause(first, now)}"
    if gang is not None and ready:
        group_by, size = gang
        said = f"{said}, " if said else ""
        said += f"{ready} with room, but {_gang_cause(inventory, group_by, size)}"
    return f"of {_workers(number)}: {said}{named}" if said else "about to be placed"


def _gang_cause(inventory: Inventory, group_by: str, size: int) -> str:
    known = dict.fromkeys(name for host in inventory.hosts.values() for name, _ in host.info.attributes.pairs)
    if group_by in known:
        return f"no {size} tasks fit where {group_by} is the same"
    near = difflib.get_close_matches(group_by, known, n=1)
    return f"no worker has the attribute '{group_by}'" + (f" (did you mean '{near[0]}'?)" if near else "")


def lacks_only_software(inventory: Inventory, wish: PlacementWish) -> bool:
    """Tell whether there are workers that would do but for what is installed on them, their Python or a version of
    iriscw that cannot start tasks as ``freezable``: then more of them would not help.
    """
    plain = PlacementWish(
        wish.demand, tuple(each for each in wish.constraints if each.key not in (FREEZABLE, PACKAGES))
    )
    if plain == wish:
        return False
    return any(_pool_cause(pool, wish) and not _pool_cause(pool, plain) for pool in inventory.pools.values())


def could_run(inventory: Inventory, wish: PlacementWish) -> bool:
    """Tell whether a worker that is there would do, once it has room."""
    return any(not _pool_cause(pool, wish) for pool in inventory.pools.values())


_NO_PACKAGES = "install|installs no packages"
_REFUSES = "refuse|refuses attempts"


def _until(host: Host) -> int:
    return host.refusing.until if host.refusing is not None else 0


def _pool_cause(pool: WorkerPool, wish: PlacementWish) -> str:
    for each in wish.required():
        if each.key not in UNIQUE and not each.satisfied(pool.attributes):
            return _NO_PACKAGES if each.key == PACKAGES else f"fail|fails the constraint {each}"
    short = pool.capacity.shortage(wish.demand)
    if short:
        return f"are|is too small ({short})"
    python = pool.attributes.get(PYTHON)
    if wish.python and python != wish.python:
        return f"run|runs Python {python if python is not None else 'of an unknown version'}, not {wish.python}"
    return ""


def _host_causes(host: Host, wish: PlacementWish) -> list[str]:
    for each in wish.required():
        if each.key in UNIQUE and not each.satisfied(host.info.attributes):
            return [f"fail|fails the constraint {each}"]
    if host.lost:
        return ["are|is out of reach"]
    if host.cordon is not None:
        return ["are|is being drained"]
    if not host.linked:
        return ["are|is connecting"]
    if host.paused:
        return [_REFUSES]
    if len(host.commitments) >= MAX_ATTEMPTS_PER_WORKER:
        return [f"run|runs {MAX_ATTEMPTS_PER_WORKER} attempts, the most there may be"]
    return [f"lack|lacks {NAMES.get(name, name)}" for name in host.free.lacking(wish.demand)]


def _verb(cause: str, count: int) -> str:
    """Choose between the plural and the singular at the head of a cause."""
    verbs, _, rest = cause.partition(" ")
    plural, singular = verbs.split("|")
    return f"{singular if count == 1 else plural} {rest}"


def _workers(number: int) -> str:
    return "1 worker" if number == 1 else f"{number} workers"
