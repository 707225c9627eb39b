"""Numbers in a pod's specification: which are too small or too large, as upstream's validation says it.

Each field of 32 or 64 bits is bounded before, where the body is read (:mod:`iriscw_sims.kube.schema`).
"""

from __future__ import annotations

from collections.abc import Iterator

from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.refusals import Cause, invalid_value

MOST_ID = 2**31 - 1
MOST_MODE = 0o777
MOST_PORT = 65_535
LEAST_TOKEN_S, MOST_TOKEN_S = 600, 2**32

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_WITH_MODES = ("secret", "configMap", "downwardAPI", "projected")


def judge_container_numbers(each: Json, at: str, grace_s: int) -> Iterator[Cause]:
    """Judge the numbers of a container in a pod with this grace."""
    for index, port in enumerate(each.get("ports") or ()):
        yield from _within(port.get("hostPort") or None, 1, MOST_PORT, f"{at}.ports[{index}].hostPort")
    for name in _PROBES:
        if each.get(name):
            yield from _judge_probe(name, each[name], f"{at}.{name}")
    for hook in ("preStop", "postStart"):
        pause = nested(each, "lifecycle", hook, "sleep", "seconds")
        if pause is not None and not 0 <= pause <= grace_s:
            said = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})"
            yield invalid_value(f"{at}.lifecycle.{hook}.sleep", pause, said)
    yield from _judge_ids(each.get("securityContext") or EMPTY, f"{at}.securityContext")


def _judge_probe(name: str, probe: Json, at: str) -> Iterator[Cause]:
    if probe.get("grpc"):
        yield from _within(probe["grpc"].get("port", 0), 1, MOST_PORT, f"{at}.grpc.port")
    for field in _COUNTS:
        if (probe.get(field) or 0) < 0:
            yield invalid_value(f"{at}.{field}", probe[field], "must be greater than or equal to 0")
    grace_s, here = probe.get("terminationGracePeriodSeconds"), f"{at}.terminationGracePeriodSeconds"
    if grace_s is not None and grace_s <= 0:
        yield invalid_value(here, grace_s, "must be greater than 0")
    if name == "readinessProbe":
        if grace_s is not None:
            yield invalid_value(here, grace_s, "must not be set for readinessProbes")
    elif probe.get("successThreshold", 1) != 1:
        yield invalid_value(f"{at}.successThreshold", probe["successThreshold"], "must be 1")


def judge_pod_numbers(spec: Json, at: str) -> Iterator[Cause]:
    """Judge the numbers of a pod's specification that are no container's."""
    context = spec.get("securityContext") or EMPTY
    yield from _judge_ids(context, f"{at}.securityContext")
    yield from _within(context.get("fsGroup"), 0, MOST_ID, f"{at}.securityContext.fsGroup")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from _within(group, 0, MOST_ID, f"{at}.securityContext.supplementalGroups[{index}]")
    for index, volume in enumerate(spec.get("volumes") or ()):
        for kind in _WITH_MODES:
            if volume.get(kind):
                yield from _judge_volume(kind, volume[kind], f"{at}.volumes[{index}].{kind}")


def _judge_ids(context: Json, at: str) -> Iterator[Cause]:
    for field in ("runAsUser", "runAsGroup"):
        yield from _within(context.get(field), 0, MOST_ID, f"{at}.{field}")


def _judge_volume(kind: str, source: Json, at: str) -> Iterator[Cause]:
    yield from _judge_mode(source.get("defaultMode"), f"{at}.defaultMode")
    yield from _judge_items(kind, source, at)
    for index, part in enumerate(source.get("sources") or ()):
        here = f"{at}.sources[{index}]"
        for inner in _WITH_MODES:
            if part.get(inner):
                yield from _judge_items(inner, part[inner], f"{here}.{inner}")
        seconds = nested(part, "serviceAccountToken", "expirationSeconds")
        if seconds is not None and not LEAST_TOKEN_S <= seconds <= MOST_TOKEN_S:
            short = seconds < LEAST_TOKEN_S
            said = f"may not specify a duration {'less than 10 minutes' if short else 'larger than 2^32 seconds'}"
            yield invalid_value(f"{here}.serviceAccountToken.expirationSeconds", seconds, said)


def _judge_items(kind: str, source: Json, at: str) -> Iterator[Cause]:
    for index, item in enumerate(source.get("items") or ()):
        # Upstream forgets which one it is for a downward API.
        yield from _judge_mode(item.get("mode"), f"{at}.mode" if kind == "downwardAPI" else f"{at}.items[{index}].mode")


def _judge_mode(mode: int | None, at: str) -> Iterator[Cause]:
    if mode is not None and not 0 <= mode <= MOST_MODE:
        yield invalid_value(at, mode, "must be a number between 0 and 0777 (octal), both inclusive")


def _within(value: int | None, least: int, most: int, at: str) -> Iterator[Cause]:
    if value is not None and not least <= value <= most:
        yield invalid_value(at, value, f"must be between {least} and {most}, inclusive")
