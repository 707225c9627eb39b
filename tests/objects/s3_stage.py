"""A simulated S3 behind a port, and drivers that talk to it."""

import socket
from contextlib import asynccontextmanager

import attrs
from aiohttp.abc import AbstractResolver

from iriscw.objects.drivers.s3 import S3ObjectStore
from iriscw.objects.drivers.s3_place import S3Limits, S3Place
from iriscw_sims.objects.messages import CreateBucket, Request
from iriscw_sims.objects.rules import AWS, COREWEAVE, KIB
from iriscw_sims.objects.serve.server import HASTY, S3Server
from iriscw_sims.objects.serve.surroundings import HostSurroundings
from iriscw_sims.objects.storage import ObjectStorage

BUCKET = "checkpoints"
KEY = "CWKEY"
SECRET = "not-a-secret"
COREWEAVE_SMALL = attrs.evolve(COREWEAVE, least_part_bytes=4 * KIB)
AWS_SMALL = attrs.evolve(AWS, least_part_bytes=4 * KIB)
"""With parts that tests can hold."""

QUICK = S3Limits(
    connect_s=10.0,
    silence_s=10.0,
    first_pause_s=0.01,
    most_pause_s=0.1,
    part_bytes=64 * KIB,
    place_s=10.0,
    abort_s=10.0,
)


class Loopback(AbstractResolver):
    """Finds every host on this machine."""

    async def resolve(self, host, port=0, family=socket.AF_INET):
        """Return loopback's address."""
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}]

    async def close(self):
        """Do nothing."""


@attrs.define
class Stage:
    """A server and the stores on it."""

    server: S3Server
    virtual: bool = True
    scheme: str = "http"
    opened: list = attrs.Factory(list)
    long_bytes: int = 100_000
    """Long enough to go in parts."""

    @property
    def storage(self):
        """What the server serves."""
        return self.server.storage

    @property
    def surroundings(self):
        """Chances."""
        return self.server.surroundings

    def place(self, prefix="", **said):
        """Say where the bucket is."""
        host = "cwobject.com" if self.virtual else "127.0.0.1"
        endpoint = f"{self.scheme}://{host}:{self.server.port}"
        addressing = "virtual" if self.virtual else "path"
        return attrs.evolve(S3Place(BUCKET, prefix, endpoint, "eu-test-1", addressing), **said)

    def new_store(self, limits=QUICK, prefix="", **said):
        """Return a driver, for somebody else to close."""
        return S3ObjectStore(self.place(prefix, **said), limits, connector={"resolver": Loopback()})

    def store(self, limits=QUICK, prefix="", **said):
        """Return a driver, which is closed in the end."""
        store = self.new_store(limits, prefix, **said)
        self.opened.append(store)
        return store

    def bodies(self, bucket=BUCKET):
        """Return what there is, by key."""
        return {key: body.rendered() for key, body in self.storage.buckets[bucket].contents().items()}

    def asked(self):
        """Return the methods that were served."""
        return [each.method for each in self.server.served]


@asynccontextmanager
async def staged(rules=COREWEAVE_SMALL, rates=None, seed=0, settings=HASTY, **options):
    """Serve a storage with a bucket and a key that works."""
    storage = ObjectStorage(rules)
    storage.add_key(KEY)
    assert storage.handle(Request(BUCKET, CreateBucket(), KEY), 0).ok
    async with S3Server(storage, HostSurroundings(seed, rates), settings, **options) as server:
        stage = Stage(server, not rules.path_style, "https" if options.get("tls") else "http")
        try:
            yield stage
        finally:
            for store in stage.opened:
                await store.aclose()
