"""Where a ``gs://`` store is, and how much it may cost: what a URL and the environment say, as values.

``gs://bucket/prefix`` is a bucket of Google Cloud Storage, and what all keys in it begin with.
``STORAGE_EMULATOR_HOST`` names an emulator instead (``http://host:port``, or ``host:port``), which nobody shows
credentials to, as in Google's own libraries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import attrs

from iriscw.objects.drivers.errors import InvalidStoreUrl
from iriscw.objects.drivers.limits import ServiceLimits
from iriscw.objects.ports import InvalidObjectKey, check_key

EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"
GOOGLE = "https://storage.googleapis.com"

CHUNK_MULTIPLE_BYTES = 256 << 10
"""Of what every chunk of a resumable upload but the last has a multiple."""

MAX_OBJECT_BYTES = 5 << 40
"""Google's limit."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


@attrs.frozen
class GsLimits(ServiceLimits):
    """How long, how often and how much at once. Google asks for pauses that reach seconds: an object's content may
    change once in a second in the long run, and more is answered with 429.
    """

    attempts: int = 6
    first_pause_s: float = 0.25
    most_parts: int = MAX_OBJECT_BYTES // ServiceLimits().part_bytes
    part_bytes: int = attrs.field(default=ServiceLimits().part_bytes)

    @part_bytes.validator
    def _check(self, _: object, value: int) -> None:
        assert value > 0
        assert value % CHUNK_MULTIPLE_BYTES == 0, f"parts of {value} bytes are not a multiple of {CHUNK_MULTIPLE_BYTES}"


@attrs.frozen
class GsPlace:
    """A bucket, and what all keys in it begin with."""

    bucket: str
    prefix: str
    """Empty, or with a slash at its end."""
    endpoint: str = GOOGLE
    """Without a slash at its end."""
    anonymous: bool = False
    """Whether requests name nobody: an emulator's do not."""

    def __str__(self) -> str:
        """Say where it is, for people."""
        return f"gs://{self.bucket}/{self.prefix}" + (f" at {self.endpoint}" if self.endpoint != GOOGLE else "")


def gs_place(url: str, environment: Mapping[str, str]) -> GsPlace:
    """Say where the store of a URL is.

    Raises:
        InvalidStoreUrl: the URL, or the emulator that the environment names, is none.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:  # not shown: other tools take secrets there
        raise InvalidStoreUrl("a gs:// address holds no keys; GOOGLE_APPLICATION_CREDENTIALS names a file with them")
    if parts.scheme != "gs" or parts.query or parts.fragment:
        raise InvalidStoreUrl(f"{url!r} is not gs://bucket/prefix")
    if not _BUCKET.fullmatch(parts.netloc) or ".." in parts.netloc:
        raise InvalidStoreUrl(f"{url!r} names no bucket: 3 to 222 small letters, digits, '-', '_' and '.'")
    prefix = parts.path.strip("/")
    if prefix:
        try:
            check_key(prefix)
        except InvalidObjectKey as error:
            raise InvalidStoreUrl(f"{url!r}: {error}") from error
    prefix = prefix + "/" if prefix else ""
    emulator = environment.get(EMULATOR_VARIABLE, "")
    if not emulator:
        return GsPlace(parts.netloc, prefix)
    return GsPlace(parts.netloc, prefix, _emulator(emulator), anonymous=True)


def _emulator(said: str) -> str:
    parts = urlsplit(said if "://" in said else f"http://{said}")
    bare = parts.path in {"", "/"} and not parts.query and not parts.fragment
    try:
        port = parts.port
    except ValueError:
        port, bare = None, False
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or not bare:
        shown = said if "@" not in said else "the address"
        raise InvalidStoreUrl(f"{shown} in {EMULATOR_VARIABLE} is not http(s)://host[:port]")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")
