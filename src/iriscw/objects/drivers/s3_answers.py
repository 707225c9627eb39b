"""Whether an answer is S3's: what each operation's has to hold. Pure.

A status of 200 alone says nothing: a proxy's page for logging in has it, the console of a storage service on a
neighbouring port, and whatever else listens where S3 was expected. botocore reads all of them as answers without
fields, and a listing without fields looks like an empty bucket. So absence is believed only of an answer that could not
be anybody else's (INV-C11), and a write is done only if the service says of what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iriscw.objects.drivers.failure import TEXT_LENGTH, TryFailure

BEGINNING = "iriscw-beginning"
"""Where the client puts the beginning of a body, in an answer's ``ResponseMetadata``."""

NO_CONTENT = frozenset({"delete_object", "abort_multipart_upload"})
"""Operations that S3 answers with status 204 and nothing else."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    "head_object": ("ETag", "ContentLength"),
    "get_object": ("ETag", "ContentLength", "Body"),
    "put_object": ("ETag",),
    "create_multipart_upload": ("UploadId",),
    "upload_part": ("ETag",),
    "complete_multipart_upload": ("ETag",),
    "list_objects_v2": ("Name", "IsTruncated"),
}
"""What answers hold; all but these are S3's to leave out."""

OF_AN_ENTRY = ("Key", "Size", "ETag")
"""Likewise, each object of a listing."""


def foreign(operation: str, answer: Mapping[str, Any], said: Mapping[str, Any]) -> TryFailure | None:
    """Say what is wrong with an answer of status 200 to 299; None: it is S3's.

    Args:
        operation: botocore's name of it.
        answer: botocore's.
        said: What was asked: of a listing its prefix, and behind which key.
    """
    about = answer.get("ResponseMetadata", {})
    status = int(about.get("HTTPStatusCode", 0))
    if operation in NO_CONTENT:
        wrong = "" if status == 204 else f"is no answer to {operation}"
    elif missing := [field for field in FIELDS.get(operation, ()) if answer.get(field) is None]:
        wrong = f"has no {' and no '.join(missing)}"
    elif operation == "list_objects_v2":
        wrong = _wrong_listing(answer, str(said.get("Prefix", "")), str(said.get("StartAfter", "")))
    else:
        wrong = ""
    if not wrong:
        return None
    beginning = str(about.get(BEGINNING, ""))
    kind = (about.get("HTTPHeaders") or {}).get("content-type", "")
    looks = f", and begins {beginning!r}" if beginning else f" ({kind})" if kind else ""
    # What it did is unknown: a proxy may have said it, or a service that leaves out fields.
    return TryFailure(f"the answer {status} is not S3's: it {wrong}{looks}"[:TEXT_LENGTH], status, passing=False)


def _wrong_listing(answer: Mapping[str, Any], prefix: str, after: str) -> str:
    entries = answer.get("Contents", [])
    for each in entries:
        if missing := [field for field in OF_AN_ENTRY if each.get(field) is None]:
            return f"lists an object without {' and without '.join(missing)}"
        if not each["Key"].startswith(prefix):
            return f"lists {each['Key']!r}, which does not begin with {prefix!r}"
        if after and each["Key"] <= after:
            return f"lists {each['Key']!r}, which does not come after {after!r}"
    return "promises more objects behind none" if answer["IsTruncated"] and not entries else ""


def tag(answer: Mapping[str, Any]) -> str:
    """Return an answer's entity tag as the service made it: a proxy that compresses marks it as weak."""
    return str(answer["ETag"]).removeprefix("W/").strip('"')


__all__ = ["BEGINNING", "FIELDS", "NO_CONTENT", "foreign", "tag"]
