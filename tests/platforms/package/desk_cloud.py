"""A platform as a package of one's own has it: machines are processes below a folder, as many as ``desks`` says."""

import os
import sys
from contextlib import asynccontextmanager

import attrs

from iriscw.cloud.drivers.loading import InvalidSettings, Platform
from iriscw.cloud.drivers.local.drivers import local
from iriscw.cloud.drivers.local.platform import LocalOptions
from iriscw.cloud.model import LABEL_GROUP, Capacity

LIMIT = 100


def desks_of(settings):
    """Return how many machines there are.

    Raises:
        InvalidSettings: the setting is not a number, or too large.
    """
    unknown = settings.keys() - {"desks"}
    if unknown:
        raise InvalidSettings(f"platform.plugin.settings: {', '.join(sorted(unknown))} is no setting of desk-cloud")
    text = settings.get("desks", "1")
    if not text.isdecimal() or not 1 <= int(text) <= LIMIT:
        raise InvalidSettings(f"platform.plugin.settings.desks: {text!r} is not a number from 1 to {LIMIT}")
    return int(text)


def check(settings, groups):
    """See ``Platform.check``."""
    desks_of(settings)
    for name, group in groups.items():
        if group.instance_type not in {"", "desk"}:
            raise InvalidSettings(f"scale_groups.{name}: {group.instance_type!r} is none of this platform's machines")


@attrs.frozen
class Desks:
    """The drivers: those of the local platform, whose pods get their token here."""

    drivers: object
    context: object

    @property
    def node_pools(self):
        """The driver of node pools."""
        return self.drivers.node_pools

    @property
    def pods(self):
        """The driver of worker pods."""
        return self

    def connection(self, pod, uid):
        """Return the connection to a pod."""
        return self.drivers.connection(pod, uid)

    async def create(self, spec):
        """Make a pod that finds its token in a file of its own, and note how its group wants it painted."""
        path = self.context.folder / f"{spec.name}.token"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(self.context.worker_token(spec).reveal())
        paint = self.context.groups[spec.labels[LABEL_GROUP]].settings.get("paint", "")
        (self.context.folder / "paint").write_text(paint)
        environment = {**spec.environment, "IRISCW_TOKEN_FILE": str(path)}
        return await self.drivers.pods.create(attrs.evolve(spec, environment=environment))

    async def delete(self, name, uid, grace_s=30.0):
        """Delete a pod."""
        await self.drivers.pods.delete(name, uid, grace_s)

    async def list(self, labels):
        """List pods."""
        return await self.drivers.pods.list(labels)

    def watch(self, labels):
        """Watch pods."""
        return self.drivers.pods.watch(labels)


@asynccontextmanager
async def open_desks(context):
    """See ``Platform.open``."""
    desks, cache = desks_of(context.settings), context.folder / "cache"
    options = LocalOptions(
        root=context.folder / "desks",
        budget=Capacity(cpu_milli=1000 * desks, memory_bytes=desks << 30),
        cluster=context.cluster,
        argv=(sys.executable, "-m", "iriscw.controller.platforms.local_pod", context.controller_address, str(cache)),
        environment=context.worker_environment,
        boot_delay_s=0.0,
        cache=cache,
    )
    async with local(options) as drivers:
        yield Desks(drivers, context)


platform = Platform(open=open_desks, check=check)
