"""Where the simulated store answers otherwise than the real server on purpose: each with its reason.

A difference that is not named here fails a test. Each entry evens out one difference in both answers to a step, and
only where it applies, so that everything else in the same answers is still compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from kube_program import Ask, Step

Json = dict[str, Any]


@attrs.frozen
class Known:
    """One difference: ``even`` changes one world's normal answer to what both have in common."""

    name: str
    reason: str
    applies: Callable[[Step, Json, Json], bool]
    even: Callable[[Json], Json]


def _is_text(step: Step, real: Json, store: Json) -> bool:
    return "text" in (real.get("body") or {})


def _asks(path: str) -> Callable[[Step, Json, Json], bool]:
    return lambda step, real, store: isinstance(step, Ask) and step.path == path


def _only_code(answer: Json) -> Json:
    return {"code": answer["code"]}


def _has_bookmark(step: Step, real: Json, store: Json) -> bool:
    return any(event["type"] == "BOOKMARK" for event in real.get("events", ()))


def _bare(event: Json) -> Json:
    if event["type"] != "BOOKMARK":
        return event
    shown = {key: event["object"].get(key) for key in ("kind", "apiVersion", "metadata")}
    return {**event, "object": {**shown, "metadata": {**shown["metadata"], "resourceVersion": "<some version>"}}}


def _bare_bookmarks(answer: Json) -> Json:
    return {**answer, "events": [_bare(event) for event in answer["events"]]}


def _version(answer: Json) -> Json:
    """Who built it, and when, differs; all of it is said by both."""
    built = ("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")
    return {
        **answer,
        "body": {**answer["body"], **{key: "<as it was built>" for key in built if key in answer["body"]}},
    }


KNOWN = (
    Known(
        "plain text",
        "What is no API object (/readyz, a path that nothing serves) is text from the real server; bodies of the "
        "store are JSON.",
        _is_text,
        _only_code,
    ),
    Known(
        "bookmarks",
        "The object of a bookmark has a kind and metadata. The real server adds the empty fields of the kind's Go type "
        '(`"spec": {"containers": null}`), which no client reads, and its version is as late as its cache happens to '
        "know: anything from the last write of the kind to the last write of all.",
        _has_bookmark,
        _bare_bookmarks,
    ),
    Known(
        "build",
        "Of /version, only the version is ours to say: not who built it, when and where.",
        _asks("/version"),
        _version,
    ),
)


def even_out(step: Step, real: Json, store: Json) -> tuple[Json, Json, list[str]]:
    """Return both answers without the known differences, and the names of those that made a difference."""
    used = []
    for known in KNOWN:
        if real != store and known.applies(step, real, store):
            real, store = known.even(real), known.even(store)
            used.append(known.name)
    return real, store, used
