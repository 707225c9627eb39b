"""Manifests as YAML that people can read and every parser reads alike.

Parsers of YAML 1.1 (``kubectl``'s is one) and 1.2 differ in what an unquoted word means: ``no``, ``010``, ``12:30``.
So only words that mean themselves in both are written plain; texts of several lines are written as they are, and all
else is quoted as in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from iriscw._version import __version__
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import (
    AUTHORITY_KEY,
    AUTHORITY_SECRET,
    CONTROLLER_SECRET_KEYS,
    CONTROLLER_SECRETS,
    METRICS_KEY,
    METRICS_SECRET,
)
from iriscw.deploy.rendering import RenderedObject

_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(?:[ :][A-Za-z0-9_./-]+)*")
_WORDS: Final = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
"""Words that are not text to every parser."""


def stream(installation: Installation, manifests: Iterable[RenderedObject]) -> str:
    """Write an installation as one stream of documents, for ``kubectl apply -f -``."""
    documents = [f"# {each.why}\n{document(each.body)}" for each in manifests]
    return "\n---\n".join([_head(installation).rstrip("\n"), *(each.rstrip("\n") for each in documents)]) + "\n"


def _head(installation: Installation) -> str:
    platform = installation.platform
    lines = [
        f"# The cluster {installation.cluster!r} of iriscw {__version__} in the namespace {installation.namespace!r}.",
        "# Made by `iriscw manifests`; change the configuration, not this. Objects come after what they name.",
        "#",
        "# It refers to Secrets, and holds none. `iriscw manifests CONFIG --secrets-to DIR` makes the first three, and",
        "# `--apply --secrets-from DIR` sends them; the others are yours to make. A Secret that is not there is told",
        "# of by the pods that want it.",
        f"#   {CONTROLLER_SECRETS}: {', '.join(CONTROLLER_SECRET_KEYS)}",
        f"#   {AUTHORITY_SECRET}: {AUTHORITY_KEY}",
        f"#   {METRICS_SECRET}: {METRICS_KEY}",
    ]
    if platform.image_pull_secret:
        lines.append(f"#   {platform.image_pull_secret}: .dockerconfigjson (of type kubernetes.io/dockerconfigjson)")
    if platform.storage_secret:
        lines.append(f"#   {platform.storage_secret}: credentials (S3), credentials.json (Google)")
    if installation.repository_secret not in ("", platform.storage_secret):
        lines.append(f"#   {installation.repository_secret}: likewise, of the agents' repository")
    if keys := installation.repository_keys:
        lines.append(
            f"#   {installation.config.agent.repository_keys.secret}: {', '.join(dict.fromkeys(keys.values()))}"
        )
    return "\n".join(lines)


def document(value: Any) -> str:
    """Write one value in block style, with a line feed at its end."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _nested(f"{_scalar(str(name))}:", item, "  ")
    elif isinstance(value, list | tuple) and value:
        for item in value:
            first, *rest = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" if line else line for line in rest)
    elif isinstance(value, Mapping | list | tuple):
        yield "{}" if isinstance(value, Mapping) else "[]"
    else:
        yield _scalar(value)


def _nested(head: str, item: Any, indent: str) -> Iterator[str]:
    if isinstance(item, str) and _is_block(item):
        yield f"{head} |"
        yield from (f"{indent}{line}" if line else "" for line in item.removesuffix("\n").split("\n"))
    elif isinstance(item, Mapping | list | tuple) and item:
        yield head
        yield from (f"{indent}{line}" if line else line for line in _lines(item))
    else:
        (only,) = _lines(item)
        yield f"{head} {only}"


def _is_block(text: str) -> bool:
    """Whether a text is lines that a block shows as they are."""
    lines = text.removesuffix("\n").split("\n")
    plain = text.endswith("\n") and all(line.isprintable() for line in lines)
    return plain and lines[0][:1] not in ("", " ") and bool(lines[-1])


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08X}" for each in quoted)
