"""A simulated Google Cloud Storage behind a port, and drivers that talk to it."""

import json
from contextlib import asynccontextmanager
from functools import cache

import attrs
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from iriscw.objects.drivers.gs import GsObjectStore
from iriscw.objects.drivers.gs_place import GsLimits, GsPlace
from iriscw_sims.objects.messages import CreateBucket, Request
from iriscw_sims.objects.rules import GOOGLE, KIB
from iriscw_sims.objects.serve.google import GoogleServer
from iriscw_sims.objects.serve.http import HASTY
from iriscw_sims.objects.serve.surroundings import HostSurroundings
from iriscw_sims.objects.storage import ObjectStorage

BUCKET = "checkpoints"
KEY = "GSKEY"
ACCOUNT = "iris@project.iam.gserviceaccount.com"

QUICK = GsLimits(
    connect_s=10.0,
    silence_s=10.0,
    attempts=5,
    first_pause_s=0.01,
    most_pause_s=0.1,
    part_bytes=256 * KIB,
    place_s=10.0,
    abort_s=10.0,
)


@cache
def private_key():
    """Make a key for a service account: of a length that takes no time."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def service_account(port, account=ACCOUNT):
    """Return the content of a service account's file."""
    return {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "1",
        "private_key": private_key(),
        "client_email": account,
        "client_id": "1",
        "token_uri": f"http://127.0.0.1:{port}/token",
    }


@attrs.define
class Stage:
    """A server and the stores on it."""

    server: GoogleServer
    environment: dict = attrs.Factory(dict)
    opened: list = attrs.Factory(list)
    long_bytes: int = 600_000
    """Long enough to go in chunks."""

    @property
    def storage(self):
        """What the server serves."""
        return self.server.storage

    @property
    def surroundings(self):
        """Chances."""
        return self.server.surroundings

    @property
    def office(self):
        """Who gives out tokens."""
        return self.server.office

    def place(self, prefix="", **said):
        """Say where the bucket is."""
        return attrs.evolve(GsPlace(BUCKET, prefix, f"http://127.0.0.1:{self.server.port}", anonymous=True), **said)

    def new_store(self, limits=QUICK, prefix="", **said):
        """Return a driver, for somebody else to close."""
        return GsObjectStore(self.place(prefix, **said), limits, environment=self.environment)

    def store(self, limits=QUICK, prefix="", **said):
        """Return a driver, which is closed in the end."""
        store = self.new_store(limits, prefix, **said)
        self.opened.append(store)
        return store

    def signed(self, path, content=None, **said):
        """Return a driver that shows tokens, for the credentials in a file."""
        path.write_text(json.dumps(service_account(self.server.port) if content is None else content))
        self.environment["GOOGLE_APPLICATION_CREDENTIALS"] = str(path)
        return self.store(anonymous=False, **said)

    def bodies(self, bucket=BUCKET):
        """Return what there is, by key."""
        return {key: body.rendered() for key, body in self.storage.buckets[bucket].contents().items()}

    def asked(self):
        """Return the methods that were served, but for tokens."""
        return [each.method for each in self.server.served if each.path != "/token"]


@asynccontextmanager
async def staged(rules=GOOGLE, rates=None, seed=0, settings=HASTY, **options):
    """Serve a storage with a bucket, and a key that works, for those who show no token and for an account."""
    storage = ObjectStorage(rules)
    storage.add_key(KEY)
    assert storage.handle(Request(BUCKET, CreateBucket(), KEY), 0).ok
    server = GoogleServer(storage, HostSurroundings(seed, rates), settings, **{"anonymous": KEY, **options})
    server.office.identities[ACCOUNT] = KEY
    async with server:
        stage = Stage(server)
        try:
            yield stage
        finally:
            for store in stage.opened:
                await store.aclose()
