"""Which GPUs of a worker an attempt gets. Pure.

A GPU belongs to one attempt at a time. Of the free ones an attempt gets those that are linked best to each other, and
among equals those that leave the best links to the others. So pairs and halves of a machine stay together, and a task
of one GPU takes what is left of a pair that is broken already. The same question always has the same answer.

How two GPUs are linked is a number, the higher the faster; :func:`parse_topology` makes it from the
machine's own words.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

MAX_CHOICES: Final = 200
"""Ways to choose that are all compared, in 2 ms: 8 GPUs have 70 at most. Beyond, neighbours are added one by one."""

LINKS: Final[Mapping[str, int]] = {"PIX": 400, "PXB": 300, "PHB": 200, "NODE": 100, "SYS": 50}
"""The ways between two GPUs, as ``nvidia-smi topo`` calls them: a PCI bridge, several, the host's, its node's, all."""

NVLINK: Final = 1000
NVLINK_MORE: Final = 10
"""For each of the links of a pair: some machines have two between some pairs and one between others."""

SAME_NUMA: Final = 5
"""Where all are linked alike, as by a switch, the halves of a machine are its NUMA nodes."""


@attrs.frozen
class Gpu:
    """One GPU of this machine, or an instance of one that is divided (MIG).

    ``index`` is its number, or that of the whole GPU, in the order of the PCI bus, as ``nvidia-smi`` counts.
    """

    name: str
    uuid: str
    memory_bytes: int
    index: int = 0
    part: str = ""
    """Of an instance its profile, ``3g.20gb``; empty: this is a whole GPU."""
    whole: str = ""
    """Of an instance the UUID of the GPU that is divided."""

    @property
    def kind(self) -> str:
        """The name without maker and memory: ``H100`` of ``NVIDIA H100 80GB HBM3``; empty if it has none.

        Of an instance with its profile, ``H100-3g.40gb``: one of another size is another kind.
        """
        words = [word for word in self.name.split() if word not in {"NVIDIA", "Tesla", "GeForce", "RTX"}]
        kind = words[0].partition("-")[0] if words else ""
        return f"{kind}-{self.part.replace('+', '-')}" if self.part else kind


Links = Mapping[tuple[str, str], int]
"""How fast the link between two GPUs is, by their UUIDs, in both orders; what is not there is 0."""


@attrs.frozen
class GpuOffer:
    """The GPUs that a worker hands out, in the order of their indexes, and the links between them."""

    gpus: tuple[Gpu, ...] = ()
    links: Links = attrs.field(factory=dict)

    def indices(self, uuids: Iterable[str]) -> tuple[int, ...]:
        """Return the machine's numbers of these GPUs; what is not offered has none, nor has an instance of one.

        CUDA takes the number of a GPU that is divided for its first instance, whosever that is.
        """
        known = {gpu.uuid: gpu.index for gpu in self.gpus if not gpu.part}
        return tuple(known[uuid] for uuid in uuids if uuid in known)

    def only(self, uuids: Sequence[str]) -> GpuOffer:
        """Return the same of these GPUs alone."""
        return GpuOffer(tuple(gpu for gpu in self.gpus if gpu.uuid in uuids), self.links)

    def free(self, taken: Iterable[Sequence[str]]) -> tuple[str, ...]:
        """Return the UUIDs that nobody has."""
        gone = dict.fromkeys(uuid for uuids in taken for uuid in uuids)
        return tuple(gpu.uuid for gpu in self.gpus if gpu.uuid not in gone)

    def choose(self, free: Sequence[str], count: int, before: Sequence[str] = ()) -> tuple[str, ...] | None:
        """Choose ``count`` of the free GPUs; None if there are too few.

        Args:
            free: UUIDs, in the order of the offer.
            count: how many.
            before: those that the attempt had when it was suspended. It gets the same again as far as they are free,
                and each in its old place: what was on the first one comes to the first one.
        """
        if count > len(free):
            return None
        same = [uuid for uuid in before if uuid in free][:count]
        others = [uuid for uuid in free if uuid not in same]
        chosen = max(self._ways(same, others, count), key=lambda way: self._worth(way, free), default=())
        return _in_old_places(chosen, before)

    def _ways(self, same: list[str], others: list[str], count: int) -> Iterator[tuple[str, ...]]:
        """Yield the ways to choose, the first of equals first: by the order of the offer."""
        more = count - len(same)
        if math.comb(len(others), more) <= MAX_CHOICES:
            for way in itertools.combinations(others, more):
                yield (*same, *way)
            return
        for first in others:
            yield self._grown([*same, first], [uuid for uuid in others if uuid != first], count)

    def _grown(self, way: list[str], others: list[str], count: int) -> tuple[str, ...]:
        while len(way) < count:
            best = max(others, key=lambda uuid: sum(self.links.get((uuid, each), 0) for each in way))
            way.append(best)
            others.remove(best)
        return tuple(way)

    def _worth(self, way: Sequence[str], free: Sequence[str]) -> tuple[int, int]:
        return self._linked(way), self._linked([uuid for uuid in free if uuid not in way])

    def _linked(self, uuids: Sequence[str]) -> int:
        return sum(self.links.get(pair, 0) for pair in itertools.combinations(uuids, 2))


def _in_old_places(chosen: Sequence[str], before: Sequence[str]) -> tuple[str, ...]:
    """Order what was chosen: what it had before where it was, and the others in the places that are left."""
    kept = [uuid if uuid in chosen else None for uuid in before[: len(chosen)]]
    others = iter([uuid for uuid in chosen if uuid not in kept])
    return (*(next(others) if uuid is None else uuid for uuid in kept), *others)


_NVLINK = re.compile(r"NV([0-9]{1,3})")
_GPU = re.compile(r"GPU([0-9]{1,4})")
_WHOLE = re.compile(r"GPU [0-9]{1,4}: .*\(UUID: (GPU-[0-9a-zA-Z-]{1,72})\)")
_PART = re.compile(r"\s+MIG ([0-9a-zA-Z.+_-]{1,32})\s+Device\s+[0-9]{1,4}: \(UUID: (MIG-[0-9a-zA-Z/-]{1,72})\)")
_PART_GB = re.compile(r"\.([0-9]{1,4})gb")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def parse_topology(text: str, gpus: Sequence[Gpu]) -> dict[tuple[str, str], int]:
    """Read the table of ``nvidia-smi topo -m``; what it does not say, or says in unknown words, is not a link."""
    known = {gpu.index: gpu.uuid for gpu in gpus if not gpu.part}
    columns: list[str] = []
    links: dict[tuple[str, str], int] = {}
    nodes: dict[str, str] = {}
    for line in _COLOURS.sub("", text).splitlines():
        words = [word.strip() for word in line.split("\t")]
        if not columns and _GPU.fullmatch(words[1] if len(words) > 1 else ""):
            columns = words
            continue
        row = _numbered(words[0], known)
        if row is None or not columns:
            continue
        for name, word in zip(columns[1:], words[1:], strict=False):
            column = _numbered(name, known)
            if column is not None and column != row and _speed(word):
                links[row, column] = _speed(word)
            if name == "NUMA Affinity":
                nodes[row] = word
    together = {
        pair: SAME_NUMA
        for pair in itertools.permutations(nodes, 2)
        if nodes[pair[0]] == nodes[pair[1]] and nodes[pair[0]][:1].isdigit()
    }
    return {pair: links.get(pair, 0) + together.get(pair, 0) for pair in (links | together)}


def divided(text: str, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Put in the place of each GPU that is divided its instances, as ``nvidia-smi -L`` lists them below it."""
    parts: dict[str, list[Gpu]] = {}
    known = {gpu.uuid: gpu for gpu in gpus}
    whole: Gpu | None = None
    for line in text.splitlines():
        head, part = _WHOLE.match(line), _PART.match(line)
        if head is not None:
            whole = known.get(head[1])
        elif part is not None and whole is not None:
            size = _PART_GB.search(part[1])
            memory = min(int(size[1]) << 30, whole.memory_bytes) if size is not None else 0
            parts.setdefault(whole.uuid, []).append(
                Gpu(f"{whole.name} MIG {part[1]}", part[2], memory, whole.index, part=part[1], whole=whole.uuid)
            )
    return tuple(each for gpu in gpus for each in parts.get(gpu.uuid, [gpu]))


def _numbered(name: str, known: Mapping[int, str]) -> str | None:
    found = _GPU.fullmatch(name)
    return None if found is None else known.get(int(found[1]))


def _speed(word: str) -> int:
    found = _NVLINK.fullmatch(word)
    return LINKS.get(word, 0) if found is None else NVLINK + NVLINK_MORE * int(found[1])
