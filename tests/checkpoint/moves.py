"""One move over real folders and a repository in memory: its decisions, its effects, and its records as a list."""

from collections import deque
from pathlib import Path

import attrs
from artifacts import FROZEN

from iriscw.checkpoint import moving
from iriscw.checkpoint.drivers.carrier import Carrier
from iriscw.checkpoint.drivers.digests import Reading
from iriscw.checkpoint.drivers.store import Folders, default_reading
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.checkpoint.manifest import open_manifest
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import MovePlan, StoredCheckpoint
from iriscw.freeze.messages import OperationEnded
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown, Progress
from iriscw.runtime.vocabulary import Completed, Continue, Decision, Emit, Failed, Run, SetTimer
from iriscw.testing.contexts import FakeContext

BOOT = "boot-1"
FILES = {"inventory.img": b"i" * 100, "pstree.img": b"p" * 100, "core-100.img": b"", "pages-1.img": b"m" * 70_000}


@attrs.define(eq=False)
class MemoryRepository:
    """A repository in memory. ``failing``: the error of each call of these methods; ``asked``: all calls."""

    name: str = "repository"
    place: str = "memory://shelf"
    kept: dict[str, tuple[bytes, dict[str, bytes]]] = attrs.field(factory=dict)
    failing: dict[str, Exception] = attrs.field(factory=dict)
    asked: list[str] = attrs.field(factory=list)

    def _called(self, method):
        self.asked.append(method)
        if method in self.failing:
            raise self.failing[method]

    async def store(self, artifact, images, manifest, report):
        """Keep the files that the manifest names."""
        self._called("store")
        found = open_manifest(manifest, artifact)
        if artifact in self.kept and self.kept[artifact][0] != manifest:
            raise ArtifactRefused(f"another checkpoint is stored as {artifact}")
        files = {each.name: (Path(images) / each.name).read_bytes() for each in found.files}
        report(Progress("storing", found.sealed.size_bytes, found.sealed.size_bytes))
        self.kept[artifact] = manifest, files
        return self._stored(artifact)

    def _stored(self, artifact):
        manifest = open_manifest(self.kept[artifact][0], artifact)
        size = manifest.sealed.size_bytes
        return StoredCheckpoint(artifact, size, size // 2, size // 2, manifest)

    async def manifest(self, artifact):
        """Return the text."""
        self._called("manifest")
        if artifact not in self.kept:
            raise ArtifactUnknown(f"the repository has no {artifact}")
        return self.kept[artifact][0]

    async def fetch(self, artifact, images, report, *, compare=True):
        """Write the files."""
        self._called("fetch")
        for name, data in self.kept[artifact][1].items():
            (Path(images) / name).write_bytes(data)

    async def verify(self, artifact, report):
        """Read nothing."""
        self._called("verify")

    async def listing(self):
        """Return all of them."""
        self._called("listing")
        return [self._stored(artifact) for artifact in self.kept]

    async def used_bytes(self):
        """Return what all take."""
        return sum(self._stored(artifact).size_bytes for artifact in self.kept)

    async def remove(self, artifact):
        """Forget it."""
        self._called("remove")
        if artifact not in self.kept:
            raise ArtifactUnknown(f"the repository has no {artifact}")
        del self.kept[artifact]

    async def aclose(self):
        """Hold nothing."""


@attrs.define
class Places:
    """A machine with two tiers, one of them memory, and a repository."""

    folder: Path
    repository: MemoryRepository | None = attrs.field(factory=MemoryRepository)
    boot: str = BOOT
    told: list[Path] = attrs.field(factory=list)
    """Images whose rules somebody was told to forget."""

    def tiers(self, **budgets):
        """Return the tiers as another process opens them."""
        ram, disk = (self.folder / name for name in ("ram", "disk"))
        room = {"ram": 1 << 30, "disk": 1 << 30, **budgets}

        def forget(images, work):
            self.told.append(images)

        return Tiers(
            {
                "ram": Folders("ram", ram, room["ram"], volatile=True, boot_id=self.boot, forget=forget),
                "disk": Folders("disk", disk, room["disk"], boot_id=self.boot, forget=forget),
            },
            self.repository,
        )

    def put(self, tier, artifact="ck-1", files=None):
        """Put a checkpoint there whose freeze is over."""
        place = self.tiers().folders[tier]
        room = place.reserve(artifact, 1 << 20)
        for name, data in (files or FILES).items():
            (Path(room.images) / name).write_bytes(data)
        place.seal(artifact, FROZEN, (), default_reading(lambda count: None), lambda size: None)
        place.publish(artifact)
        place.unpin(artifact, artifact)

    def whole(self, artifact="ck-1"):
        """Return where a whole copy of it is."""
        found = []
        for name, tier in self.tiers().folders.items():
            if tier.has(artifact):
                tier.verify(artifact, lambda algorithm, total: Reading(algorithm, 1, lambda count: None))
                found.append(name)
        if self.repository is not None and artifact in self.repository.kept:
            found.append("repository")
        return found

    def debris(self):
        """Return all that is neither a checkpoint nor the folders that a tier has."""
        found = []
        for name, tier in self.tiers().folders.items():
            for kind in ("reserved", "staging", "pins", "work", "trash", "dropped"):
                found += [f"{name}/{kind}/{each.name}" for each in (tier.root / kind).glob("*")]
        return found


@attrs.define(eq=False)
class Moving:
    """One move. ``lives`` of it share the records, as those of a journal do."""

    places: Places
    plan: MovePlan
    budgets: dict[str, int] = attrs.field(factory=dict)
    records: list[object] = attrs.field(factory=list)
    ended: OperationEnded | None = None
    before: object = None
    """An asynchronous function that is called before each effect, with it."""
    progress: list[Progress] = attrs.field(factory=list)

    @property
    def state(self):
        """Return what the records say."""
        made = moving.CheckpointMove()
        for record in self.records:
            moving.evolve(made, record)
        return made

    async def life(self):
        """Begin it or take it up, and go on until it has ended. What ends this early is raised."""
        state, ctx = self.state, FakeContext()
        carrier = Carrier(self.places.tiers(**self.budgets), self.progress.append)
        effects, rules = carrier.effects(), moving.rules()
        todo = deque(
            self._taken(state, rules[MoveCheckpoint](state, MoveCheckpoint(self.plan), ctx))
            if not self.records
            else moving.resume(state, ctx)
        )
        while todo:
            command = todo.popleft()
            match command:
                case Continue(message=message) | SetTimer(message=message):
                    todo.extend(self._taken(state, rules[type(message)](state, message, ctx)))
                case Run(effect=effect):
                    if self.before is not None:
                        await self.before(effect)
                    try:
                        value = await effects[type(effect)](effect)
                    except Exception as error:
                        message = Failed(command.key, effect, error)
                    else:
                        message = Completed(command.key, effect, value)
                    todo.extend(self._taken(state, rules[type(message)](state, message, ctx)))
                case Emit(event=OperationEnded() as event):
                    self.ended = event

    def _taken(self, state, decision):
        """Write down what was decided, and give what is to be done."""
        if not isinstance(decision, Decision):
            return decision or ()
        for record in decision.records:
            self.records.append(record)
            moving.evolve(state, record)
        return decision.commands
