"""In what services differ: limits, names and dialect, as frozen values with three presets.

:data:`COREWEAVE` is CoreWeave AI Object Storage as its documentation has it: virtual-hosted requests only, bucket names
without dots, parts of 15 MiB, keys that work only some seconds after they were made. :data:`AWS` is Amazon S3.
:data:`GOOGLE` is Google Cloud Storage.
"""

from __future__ import annotations

import enum
import re

import attrs

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

MAX_KEY_BYTES = 1024
"""Of an object's key, in UTF-8."""

MAX_METADATA_BYTES = 2 * KIB
"""Of an object's own metadata, names and values together."""

MAX_KEYS = 1000
"""What one page of a listing has; who asks for more gets so many."""


class Etags(enum.Enum):
    """What an entity tag is made from."""

    CONTENT = "content"
    """The MD5 of the content, or of its parts' MD5s: what S3 does without encryption by customers' keys. An object that
    is written again with the same content has the same tag, so ``If-Match`` cannot tell the two writes apart."""

    WRITE = "write"
    """Each write has a new tag: what S3 does with SSE-KMS and SSE-C, where a tag is no digest of the content."""

    GENERATION = "generation"
    """Each write has a new number, above those before: Google's generations."""


@attrs.frozen
class Rules:
    """What one service allows. Sizes in bytes."""

    path_style: bool = True
    """Whether the bucket may stand in the path; otherwise only in the host's name."""

    etags: Etags = Etags.CONTENT
    least_part_bytes: int = 5 * MIB
    """Of a part that is not the last."""

    most_part_bytes: int = 5 * GIB
    """Of a part, and of an object that is written or copied in one go."""

    most_parts: int = 10_000
    most_object_bytes: int = 50_000 * GIB
    most_buckets: int = 1000
    capacity_bytes: int = 0
    """Of all buckets and unfinished uploads together; 0: no limit."""

    renames: bool = False
    """Whether there is RenameObject."""

    deletes_nothing: bool = True
    """Whether the deletion of what is not there is done; else it is refused."""

    dots_in_names: bool = True
    banned_prefixes: tuple[str, ...] = ("xn--", "sthree-", "amzn-s3-demo-")
    banned_suffixes: tuple[str, ...] = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")

    def allows_bucket(self, name: str) -> bool:
        """Tell whether a bucket may have a name."""
        letters = r"[a-z0-9.-]" if self.dots_in_names else r"[a-z0-9-]"
        if not re.fullmatch(rf"[a-z0-9]{letters}{{1,61}}[a-z0-9]", name) or ".." in name:
            return False
        if re.fullmatch(r"\d+\.\d+\.\d+\.\d+", name):
            return False
        return not name.startswith(self.banned_prefixes) and not name.endswith(self.banned_suffixes)


AWS = Rules(most_buckets=10_000)
"""Amazon S3, general purpose buckets."""

COREWEAVE = Rules(
    path_style=False,
    least_part_bytes=15 * MIB,  # documented, with 5 MiB in a footnote: what works with this works with both
    capacity_bytes=100 * TIB,
    renames=True,
    dots_in_names=False,
    banned_prefixes=("cw-", "vip-", "log-stitcher-ch-", "xn--"),
    banned_suffixes=(),
)
"""CoreWeave AI Object Storage."""

GOOGLE = Rules(
    etags=Etags.GENERATION,
    most_part_bytes=5 * TIB,
    most_object_bytes=5 * TIB,
    deletes_nothing=False,
    banned_prefixes=("goog",),
    banned_suffixes=(),
)
"""Google Cloud Storage."""
