"""Where an ``s3://`` store is, and how much it may cost: what a URL and the environment say, as values.

``s3://bucket/prefix`` is a bucket, and what all keys in it begin with. The service is Amazon's unless
``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL`` names another one. A configuration names one by the same variables
(:func:`place_variables`), below those that are there already (:func:`with_own`). ``?addressing=path`` or
``?addressing=virtual`` says where the bucket's name stands in a request; without it:

* CoreWeave's object storage takes the name in the host only (path style is an error there), so *virtual*;
* another endpoint has the name in the *path*, which every server takes and which needs no wildcard in the DNS;
* Amazon, or an endpoint that only a shared configuration file names: whatever that file and botocore say.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import attrs

from iriscw.objects.drivers.errors import InvalidStoreUrl
from iriscw.objects.drivers.limits import ServiceLimits
from iriscw.objects.ports import InvalidObjectKey, check_key

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""In this order; botocore itself knows only the second."""

VIRTUAL_ONLY = ("cwobject.com", "cwlota.com")
"""CoreWeave AI Object Storage, from outside and through the cache on its nodes."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@attrs.frozen
class S3Limits(ServiceLimits):
    """How long, how often and how much at once: five attempts (botocore's modes have 3 and 5), and parts of 16 MiB
    (CoreWeave documents 15 MiB as the least), which make 578 GiB with S3's limit for their number.
    """

    growth_parts: int = 1000
    """Parts after which they have ``growth`` times that size: what is long may cost memory, what is short need not."""
    growth: int = 4

    def size_of_part(self, number: int) -> int:
        """Return the size of a part, in bytes; the first has number 1."""
        return self.part_bytes * (1 if number <= self.growth_parts else self.growth)


@attrs.frozen
class S3Place:
    """A bucket of a service, and what all keys in it begin with."""

    bucket: str
    prefix: str
    """Empty, or with a slash at its end."""
    endpoint: str = ""
    """Empty: whatever botocore finds, in the end Amazon's."""
    region: str = ""
    """Empty: whatever botocore finds."""
    addressing: str = ""
    """``virtual``, ``path``, or empty: whatever botocore finds."""

    def __str__(self) -> str:
        """Say where it is, for people."""
        return f"s3://{self.bucket}/{self.prefix}" + (f" at {self.endpoint}" if self.endpoint else "")


def s3_place(url: str, environment: Mapping[str, str]) -> S3Place:
    """Say where the store of a URL is.

    Raises:
        InvalidStoreUrl: the URL, or the endpoint that the environment names, is none; or they do not go together.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:  # not shown: other tools take secrets there
        raise InvalidStoreUrl(
            "an s3:// address holds no keys; credentials come from AWS_* or a shared credentials file"
        )
    said = parse_qs(parts.query, keep_blank_values=True)
    addressing = "".join(said.pop("addressing", []))
    if parts.scheme != "s3" or said or parts.fragment or addressing not in {"", "path", "virtual"}:
        raise InvalidStoreUrl(f"{url!r} is not s3://bucket/prefix, with or without ?addressing=path or =virtual")
    if not _BUCKET.fullmatch(parts.netloc) or ".." in parts.netloc:
        raise InvalidStoreUrl(f"{url!r} names no bucket: 3 to 63 small letters, digits, '-' and '.'")
    prefix = parts.path.strip("/")
    if prefix:
        try:
            check_key(prefix)
        except InvalidObjectKey as error:
            raise InvalidStoreUrl(f"{url!r}: {error}") from error
    endpoint = next((found for name in ENDPOINT_VARIABLES if (found := environment.get(name))), "")
    region = next((found for name in REGION_VARIABLES if (found := environment.get(name))), "")
    if endpoint:
        addressing = _addressing(url, endpoint, addressing)
    if addressing == "virtual" and "." in parts.netloc and wants_virtual(endpoint):
        raise InvalidStoreUrl(f"{url!r}: CoreWeave takes no bucket with a dot in its name")
    return S3Place(parts.netloc, prefix + "/" if prefix else "", endpoint, region, addressing)


def place_variables(endpoint: str, region: str) -> dict[str, str]:
    """Return the variables that say where ``s3://`` is, for this and for all other clients; none for what is empty.

    The endpoint is said for S3 alone: a program may use other services of Amazon's. The region has two names, since
    Python's library reads one of them and Go's and Rust's the other.
    """
    named = {ENDPOINT_VARIABLES[0]: endpoint, **dict.fromkeys(REGION_VARIABLES, region)}
    return {name: value for name, value in named.items() if value}


def with_own(below: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Put ``own`` variables over those ``below``. An endpoint, or a region, of one's own counts whatever its name is:
    one below would else win by being ``AWS_ENDPOINT_URL_S3``.
    """
    said = [names for names in (ENDPOINT_VARIABLES, REGION_VARIABLES) if any(own.get(name) for name in names)]
    hidden = {name for names in said for name in names}
    return {**{name: value for name, value in below.items() if name not in hidden}, **own}


def wants_virtual(endpoint: str) -> bool:
    """Tell whether a service takes the bucket's name in the host only."""
    host = urlsplit(endpoint).hostname or ""
    return any(host == each or host.endswith("." + each) for each in VIRTUAL_ONLY)


def _addressing(url: str, endpoint: str, said: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        shown = endpoint if "@" not in endpoint else "the endpoint"
        raise InvalidStoreUrl(f"{shown} in {' or '.join(ENDPOINT_VARIABLES)} is not http(s)://host[:port]")
    if wants_virtual(endpoint):
        if said == "path":
            raise InvalidStoreUrl(f"{url!r}: {parts.hostname} takes no requests with the bucket in the path")
        return "virtual"
    if said == "virtual" and _is_address(parts.hostname):
        raise InvalidStoreUrl(f"{url!r}: an address ({parts.hostname}) has no hosts below it; use ?addressing=path")
    return said or "path"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
