"""Numbers of pods: what a real server said of each of these (found by trying every integer field with odd numbers)."""

import pytest
from kube_caller import PODS, SECOND, pod

from iriscw_sims.kube.clock import parsed

MOST = 2**63 - 1
COMMAND = {"exec": {"command": ["true"]}}


def with_container(**more):
    """Return a pod whose container has more fields."""
    body = pod("a")
    body["spec"]["containers"][0] |= more
    return body


def with_spec(**more):
    """Return a pod with more fields."""
    body = pod("a")
    body["spec"] |= more
    return body


def volume(kind, **source):
    """Return a pod with a volume."""
    return with_spec(volumes=[{"name": "v", kind: source}])


C, V = "spec.containers[0]", "spec.volumes[0]"
TOKEN = {"path": "p", "expirationSeconds": 599}
ITEM = {"key": "k", "path": "p", "mode": 512}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (
            with_container(livenessProbe={**COMMAND, "initialDelaySeconds": -1}),
            [f"{C}.livenessProbe.initialDelaySeconds"],
        ),
        (with_container(livenessProbe={**COMMAND, "successThreshold": 2}), [f"{C}.livenessProbe.successThreshold"]),
        (
            with_container(livenessProbe={**COMMAND, "successThreshold": -1}),
            [f"{C}.livenessProbe.successThreshold"] * 2,
        ),
        (with_container(readinessProbe={**COMMAND, "successThreshold": 2}), []),
        (
            with_container(readinessProbe={**COMMAND, "terminationGracePeriodSeconds": -1}),
            [f"{C}.readinessProbe.terminationGracePeriodSeconds"] * 2,
        ),
        (
            with_container(startupProbe={**COMMAND, "terminationGracePeriodSeconds": 0}),
            [f"{C}.startupProbe.terminationGracePeriodSeconds"],
        ),
        (with_container(startupProbe={**COMMAND, "terminationGracePeriodSeconds": MOST}), []),
        (with_container(livenessProbe={"grpc": {"port": 0}}), [f"{C}.livenessProbe.grpc.port"]),
        (with_container(livenessProbe={"grpc": {"port": 65535}}), []),
        (with_container(ports=[{"containerPort": 1, "hostPort": 65536}]), [f"{C}.ports[0].hostPort"]),
        (with_container(lifecycle={"preStop": {"sleep": {"seconds": 30}}}), []),
        (with_container(lifecycle={"preStop": {"sleep": {"seconds": 31}}}), [f"{C}.lifecycle.preStop.sleep"]),
        (with_container(securityContext={"runAsUser": 2**31}), [f"{C}.securityContext.runAsUser"]),
        (
            with_spec(securityContext={"runAsGroup": -1, "fsGroup": 2**31}),
            ["spec.securityContext.runAsGroup", "spec.securityContext.fsGroup"],
        ),
        (with_spec(securityContext={"supplementalGroups": [0, -1]}), ["spec.securityContext.supplementalGroups[1]"]),
        (
            volume("secret", secretName="s", defaultMode=-1, items=[ITEM]),
            [f"{V}.secret.defaultMode", f"{V}.secret.items[0].mode"],
        ),
        (volume("configMap", name="s", defaultMode=0o777), []),
        (
            volume("downwardAPI", items=[{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 999}]),
            [f"{V}.downwardAPI.mode"],
        ),
        (
            volume("projected", sources=[{"serviceAccountToken": TOKEN}, {"secret": {"name": "s", "items": [ITEM]}}]),
            [
                f"{V}.projected.sources[0].serviceAccountToken.expirationSeconds",
                f"{V}.projected.sources[1].secret.items[0].mode",
            ],
        ),
        (
            volume("projected", sources=[{"serviceAccountToken": {**TOKEN, "expirationSeconds": 2**32 + 1}}]),
            [f"{V}.projected.sources[0].serviceAccountToken.expirationSeconds"],
        ),
    ],
)
def test_numbers_have_bounds(caller, body, fields):
    """422 with the fields, or none is told."""
    answer = caller.ask("POST", PODS, body)
    assert [cause["field"] for cause in answer.body.get("details", {}).get("causes", ())] == fields
    assert answer.code == (422 if fields else 201)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (with_spec(terminationGracePeriodSeconds=MOST), 201),
        (with_spec(terminationGracePeriodSeconds=MOST + 1), 400),
        (with_spec(terminationGracePeriodSeconds=-MOST - 2), 400),
        (with_spec(terminationGracePeriodSeconds=10**30), 400),
        (with_spec(terminationGracePeriodSeconds=1.5), 400),
        (with_spec(terminationGracePeriodSeconds=float("inf")), 400),
        (with_container(livenessProbe={**COMMAND, "periodSeconds": 2**31 - 1}), 201),
        (with_container(livenessProbe={**COMMAND, "periodSeconds": 2**31}), 400),
    ],
)
def test_integers_are_of_32_or_64_bits(caller, body, code):
    """What does not fit cannot be read."""
    assert caller.ask("POST", PODS, body).code == code


def test_a_pod_cannot_name_its_own_priority(caller):
    """Only a class may; 0 is what it gets anyway."""
    code, _, said = caller.refused("POST", PODS, with_spec(priority=5))
    assert (code, "the integer value of priority (5) must not be provided" in said) == (403, True)
    assert caller.done("POST", PODS, with_spec(priority=0))["spec"]["priority"] == 0


def test_less_than_no_grace_is_a_second(caller):
    """However it came to be less, and in every write."""
    assert (
        caller.done("POST", PODS, with_spec(terminationGracePeriodSeconds=-5))["spec"]["terminationGracePeriodSeconds"]
        == 1
    )
    changed = caller.patch(f"{PODS}/a", {"spec": {"terminationGracePeriodSeconds": -7}})
    assert changed["spec"]["terminationGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("grace", "later"),
    [
        (10**9, 10**9),
        (9_223_372_036, 9_223_372_036),
        (9_223_372_037, -9_223_372_037),
        (10**10, -8_446_744_074),
        (10**11, 7_766_279_631),
        (10**12, 3_875_820_019),
        (2**62, 0),
        (2**63 - 1, -1),
    ],
)
def test_a_long_grace_wraps_around(caller, grace, later):
    """The time of an end is a Go duration later, which has 64 bits; what the object says is what was asked for."""
    caller.done("POST", PODS, with_spec(nodeName="n", terminationGracePeriodSeconds=grace))
    metadata = caller.done("DELETE", f"{PODS}/a")["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == grace
    assert abs(seconds(metadata) - caller.now // SECOND - later) <= 1
    hurried = caller.done("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 5})["metadata"]
    assert hurried["deletionGracePeriodSeconds"] == 5
    assert abs(seconds(hurried) - caller.now // SECOND - 5) <= 1


def seconds(metadata):
    """Return when an object is to go, s since 1970."""
    return parsed(metadata["deletionTimestamp"]) // SECOND


@pytest.mark.parametrize("grace", ["1", 2**63, -(2**63) - 1, 1.5, True])
def test_options_are_read_as_strictly(caller, grace):
    """In a body a number is a number, of 64 bits; in a query it is text."""
    caller.done("POST", PODS, with_spec(nodeName="n"))
    assert caller.ask("DELETE", f"{PODS}/a", {"gracePeriodSeconds": grace}).code == 400
    assert caller.ask("DELETE", f"{PODS}/a", gracePeriodSeconds=grace).code == (200 if grace == "1" else 400)
