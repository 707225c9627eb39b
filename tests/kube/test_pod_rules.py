"""How pods are judged, and what of one may change."""

import pytest
from kube_caller import MERGE, PODS, pod

A = f"{PODS}/a"


def with_container(**more):
    """Return a pod whose container has more fields."""
    body = pod("a")
    body["spec"]["containers"][0] |= more
    return body


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"name": ""}, "spec.containers[0].name"),
        ({"name": "A_"}, "spec.containers[0].name"),
        ({"image": ""}, "spec.containers[0].image"),
        ({"image": " a"}, "spec.containers[0].image"),
        ({"imagePullPolicy": "Often"}, "spec.containers[0].imagePullPolicy"),
        ({"ports": [{"containerPort": 70000}]}, "spec.containers[0].ports[0].containerPort"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "spec.containers[0].volumeMounts[0].name"),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}, "spec.containers[0].resources.requests"),
        ({"resources": {"requests": {"nvidia.com/gpu": 1}}}, "spec.containers[0].resources.limits[nvidia.com/gpu]"),
    ],
)
def test_containers_that_are_refused(caller, more, field):
    """422 with the field."""
    assert field in [where for _, where in caller.causes("POST", PODS, with_container(**more))]


def test_pods_that_are_refused(caller):
    """No container, a container's name twice, an unknown policy."""
    assert caller.causes("POST", PODS, {"metadata": {"name": "a"}, "spec": {}}) == [
        ("FieldValueRequired", "spec.containers")
    ]
    twice = pod("a")
    twice["spec"]["containers"] *= 2
    twice["spec"]["restartPolicy"] = "Sometimes"
    assert caller.causes("POST", PODS, twice) == [
        ("FieldValueDuplicate", "spec.containers[1].name"),
        ("FieldValueNotSupported", "spec.restartPolicy"),
    ]


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"activeDeadlineSeconds": 5}, True),
        ({"containers": [{"name": "main", "image": "other:2"}]}, True),
        ({"containers": [{"name": "main", "image": "other:2", "command": ["x"]}]}, False),
        ({"nodeName": "n"}, False),
        ({"restartPolicy": "Never"}, False),
        ({"containers": []}, False),
        ({"tolerations": []}, True),  # admission gives it back the two that it had
    ],
)
def test_what_of_a_pod_may_change(caller, change, allowed):
    """Next to nothing."""
    caller.done("POST", PODS, pod("a"))
    response = caller.ask("PATCH", A, {"spec": change}, content_type=MERGE)
    assert (response.code == 200) == allowed, response
    if not allowed:
        assert response.code == 422


def test_an_image_may_change(caller):
    """Whole containers replaced by ones that differ in nothing else."""
    made = caller.done("POST", PODS, pod("a"))
    (container,) = made["spec"]["containers"]
    item = caller.patch(A, {"spec": {"containers": [{**container, "image": "registry.test/image:2"}]}})
    assert item["spec"]["containers"][0]["image"] == "registry.test/image:2"


@pytest.mark.parametrize(
    ("toleration", "field"),
    [
        ({"key": "a b", "operator": "Exists"}, "key"),
        ({"operator": "Equal"}, "operator"),
        ({"key": "a", "operator": "Maybe"}, "operator"),
        ({"key": "a", "operator": "Exists", "value": "x"}, "operator"),
        ({"key": "a", "value": "-"}, "operator"),
        ({"key": "a", "operator": "Exists", "tolerationSeconds": 5}, "effect"),
        ({"key": "a", "operator": "Exists", "effect": "Sometimes"}, "effect"),
    ],
)
def test_tolerations_that_are_refused(caller, toleration, field):
    """Each with the field that is wrong."""
    body = pod("a")
    body["spec"]["tolerations"] = [toleration]
    assert {path for _, path in caller.causes("POST", PODS, body)} == {f"spec.tolerations[0].{field}"}


@pytest.mark.parametrize(
    ("was", "deadline", "fields"),
    [
        (None, 60, []),
        (60, 30, []),
        (60, 90, ["spec.activeDeadlineSeconds"]),
        (60, None, ["spec.activeDeadlineSeconds"]),
        (None, -1, ["spec.activeDeadlineSeconds", "spec.activeDeadlineSeconds"]),
    ],
)
def test_a_deadline_only_comes_nearer(caller, was, deadline, fields):
    """It may be set once, and shortened."""
    body = pod("a")
    if was is not None:
        body["spec"]["activeDeadlineSeconds"] = was
    caller.done("POST", PODS, body)
    response = caller.ask("PATCH", A, {"spec": {"activeDeadlineSeconds": deadline}}, content_type=MERGE)
    causes = response.body.get("details", {}).get("causes", [])
    assert [cause["field"] for cause in causes] == fields


def test_what_ended_for_good_runs_never_again(caller):
    """A status that says so is refused, unless the pod restarts its containers."""

    def status(**state):
        return {"status": {"containerStatuses": [{"name": "main", "image": "i", "imageID": "", "state": state}]}}

    for name, policy, code in (("a", "Never", 422), ("b", "Always", 200), ("c", "OnFailure", 200)):
        body = pod(name)
        body["spec"]["restartPolicy"] = policy
        caller.done("POST", PODS, body)
        path = f"{PODS}/{name}/status"
        caller.patch(path, status(terminated={"exitCode": 1}))
        assert caller.ask("PATCH", path, status(running={}), content_type=MERGE).code == code
