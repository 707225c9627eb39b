"""From HTTP to a request of the store: targets, bodies, and what is refused before anybody looks at an object.

What a stranger sends is believed as little as the real server believes it: a target is decoded once and strictly, a
body is read up to a limit and within a time, JSON is JSON (no NaN, no half of a surrogate pair, not nested deeper than
a person would write), YAML has no aliases. All that is wrong is raised as a Status.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from iriscw.config.errors import ConfigError
from iriscw.config.yaml_lines import parse
from iriscw_sims.kube.refusals import Refused, bad_request, status_failure, unsupported_media_type
from iriscw_sims.serve.protobuf import MAGIC, Undecodable, decode
from iriscw_sims.serve.settings import Limits

DEPTH_LIMIT = 100
"""Levels of a body. A NodePool has 6, a pod 10, and the schemas of definitions some 30."""

QUERY_LIMIT = 200
"""Parameters in a query; a command that runs in a pod has one for each of its words."""

JSON_TYPES = (
    "",
    "application/json",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
YAML_TYPES = ("application/yaml", "application/apply-patch+yaml")
PROTOBUF = "application/vnd.kubernetes.protobuf"

_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_target(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Take the target of a request apart: its path, decoded once, and the pairs of its query.

    Raises:
        Refused: 400, it is none.
    """
    raw_path, _, raw_query = target.partition("?")
    try:
        path = unquote(raw_path, errors="strict")
        query = parse_qsl(raw_query, keep_blank_values=True, max_num_fields=QUERY_LIMIT, errors="strict")
    except ValueError as wrong:
        raise bad_request(f"the target of the request cannot be read: {type(wrong).__name__}") from wrong
    if not path.startswith("/") or not path.isprintable():
        raise bad_request("the target of the request is no path")
    return path, tuple(query)


async def read_body(chunks: AsyncIterator[bytes], length: int | None, limits: Limits) -> bytes:
    """Read a body.

    Raises:
        Refused: 400, it ends early; 408, it does not come; 413, it is too long.
    """
    limit = limits.body_bytes
    if length is not None and length > limit:
        raise _too_large(limit)
    data = bytearray()
    try:
        async with asyncio.timeout(limits.body_s):
            async for chunk in chunks:
                data += chunk
                if len(data) > limit:
                    raise _too_large(limit)
    except TimeoutError as late:
        raise Refused(status_failure(408, "Timeout", "the body of the request did not come in time")) from late
    except web.RequestPayloadError as wrong:
        raise bad_request("the body of the request cannot be read") from wrong
    return bytes(data)


def _too_large(limit: int) -> Refused:
    said = f"Request entity too large: limit is {limit}"
    return Refused(status_failure(413, "RequestEntityTooLarge", said))


async def parse_body(data: bytes, content_type: str, limits: Limits) -> tuple[Any, str]:
    """Read a body by its type; give it with the type that the store is told.

    Raises:
        Refused: 400, it is not what it says it is; 413, there is too much of it; 415, nobody reads its type.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if not data:
        return None, content_type
    if data.startswith(MAGIC) or kind == PROTOBUF:
        return _from_protobuf(data), "application/json"
    if kind in YAML_TYPES and data.lstrip()[:1] not in (b"{", b"["):
        if len(data) > limits.yaml_bytes:
            raise _too_large(limits.yaml_bytes)
        return await asyncio.to_thread(from_yaml, data), content_type
    if kind in JSON_TYPES or kind in YAML_TYPES:
        return from_json(data), content_type
    raise unsupported_media_type(f"the body of the request was in an unknown format: {kind[:100]}")


def _from_protobuf(data: bytes) -> Any:
    try:
        return decode(data)
    except Undecodable as wrong:
        raise unsupported_media_type(f"{wrong}; send application/json") from wrong


def from_json(data: bytes) -> Any:
    """Read JSON.

    Raises:
        Refused: 400, it is none.
    """
    try:
        value = json.loads(data, parse_constant=_no_constant)
        if _LONE_SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as wrong:
        raise bad_request(f"couldn't get version/kind; json parse error: {_said(wrong)}") from wrong
    _check_depth(value)
    return value


def _said(wrong: Exception) -> str:
    return str(wrong)[:200] if type(wrong) is json.JSONDecodeError else type(wrong).__name__


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def from_yaml(data: bytes) -> Any:
    """Read one document of YAML.

    Raises:
        Refused: 400, it is none.
    """
    try:
        marked, problems = parse(data.decode(), "body")
    except (UnicodeDecodeError, ConfigError, RecursionError) as wrong:
        raise bad_request(f"error converting YAML to JSON: {str(wrong)[:200]}") from wrong
    if problems:
        raise bad_request(f"error converting YAML to JSON: {str(problems[0])[:200]}")
    return marked.plain()


def _check_depth(value: Any) -> None:
    """Refuse what is nested so deep that whoever walks it might fall."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH_LIMIT):
        if not level:
            return
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
    if level:
        raise bad_request(f"the body is nested deeper than {DEPTH_LIMIT} levels")
