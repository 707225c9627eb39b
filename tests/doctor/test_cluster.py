"""The API, its clock, node pools, and the namespace."""

from datetime import UTC, datetime, timedelta

import pytest
from deploy_world import installed, put
from doctor_world import objects_of, of

from iriscw.cloud.drivers.kube.credentials import InvalidAccess
from iriscw.cloud.kube.messages import ApiResponse, ApiUnreachable
from iriscw.cloud.model import Unavailable
from iriscw.doctor import cluster
from iriscw.doctor.findings import Health
from iriscw_sims.coreweave.crd import DEFINITIONS
from iriscw_sims.kube.messages import Request
from raised import that

NOW = datetime(2026, 11, 1, 12, 0, 0, 400_000, tzinfo=UTC)
POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"
INSTALLATION = installed()


async def test_the_version_is_told(objects):
    """Of the server that answers."""
    found = await cluster.reach(objects)
    assert (found.verdict, found.found) == (Health.OK, "Kubernetes v1.36.3")


@pytest.mark.parametrize(
    ("answer", "says", "advises"),
    [
        (ApiUnreachable("refused"), "no answer: refused", "address"),
        (InvalidAccess("the token's file is gone"), "no answer: the token's file is gone", "address"),
        (ApiResponse(401, {"message": "Unauthorized"}), "it refuses: Unauthorized", "renew"),
        (ApiResponse(403, {"message": "no"}), "it refuses: no", "renew"),
        (ApiResponse(200, "<html>"), "it answers 200, and no version", "no Kubernetes API"),
        (ApiResponse(302, None), "it answers 302, and no version", "no Kubernetes API"),
    ],
)
async def test_what_does_not_answer_is_wrong_at_once(server, answer, says, advises):
    """It is asked once, and what to look at is said."""
    objects = objects_of(server, refusals={("GET", "/version"): answer})
    found = await cluster.reach(objects)
    assert (found.verdict, found.found) == (Health.WRONG, says)
    assert advises in found.advice
    assert objects.caller.api.seen == [("GET", "/version")]


async def test_the_clock_of_a_server_that_agrees(objects):
    """It is told by its answer to a review."""
    (found,) = await cluster.look_at_clock(objects)
    assert found.verdict is Health.OK


@pytest.mark.parametrize(
    ("apart_s", "verdict", "says"),
    [
        (0, Health.OK, "agree"),
        (-4, Health.OK, "agree"),
        (60, Health.WARNING, "60 s ahead of"),
        (-60, Health.WARNING, "59 s behind"),
    ],
)
def test_clocks_that_are_apart_are_a_warning(apart_s, verdict, says):
    """The server's time is cut to whole seconds, which is no difference."""
    told = (NOW + timedelta(seconds=apart_s)).replace(microsecond=0)
    found = cluster.judge_clock(NOW, told, NOW)
    assert (found.verdict, says in found.found) == (verdict, True)


@pytest.mark.parametrize("fields", [None, [], "x", [{}], [{"time": None}], [{"time": "soon"}], [None]])
def test_a_server_that_does_not_say_its_time(fields):
    """It is not compared."""
    assert cluster.time_of({"metadata": {"managedFields": fields}}) is None


def test_a_servers_time_is_read():
    """From the entry of whoever asked."""
    review = {"metadata": {"managedFields": [{"time": "2026-11-01T12:00:00Z"}]}}
    assert cluster.time_of(review) == NOW.replace(microsecond=0)


async def test_pools_that_are_served(objects, server):
    """Their conditions are told as soon as one has any; those that pools are judged by are looked for."""
    assert [each.verdict for each in await cluster.look_at_pools(objects)] == [Health.OK, Health.OK]
    body = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}}
    put(server, "POST", POOLS, {**body, "spec": {"instanceType": "turin-gp", "targetNodes": 0}})
    conditions = [{"type": kind, "status": "True"} for kind in ("Valid", "Quota", "Capacity")]
    patch = Request(
        "PATCH", f"{POOLS}/p/status", (), {"status": {"conditions": conditions}}, "application/merge-patch+json"
    )
    assert server.store.handle(patch, server.timeline.now).code == 200
    found = of(await cluster.look_at_pools(objects), "conditions")
    assert (found.verdict, found.found) == (Health.OK, "Capacity, Quota, Valid")


def test_conditions_that_were_renamed_are_a_warning():
    """Nothing would be judged by them, and slices would wait for ever."""
    found = cluster.judge_conditions([{"status": {"conditions": [{"type": "Validated"}, {"type": "Allowance"}]}}])
    assert found.verdict is Health.WARNING
    assert found.found == "Allowance, Validated; not among them: Quota, Capacity"


@pytest.mark.parametrize("pools", [[], [{}], [{"status": None}], [{"status": {"conditions": [None]}}]])
def test_pools_without_conditions_say_nothing(pools):
    """There is nothing to compare then."""
    assert cluster.judge_conditions(pools).verdict is Health.OK


async def test_a_cluster_without_pools_is_none_of_coreweaves(objects, server):
    """That is told, and not that a right is missing."""
    definition = Request("DELETE", f"{DEFINITIONS}/nodepools.compute.coreweave.com")
    assert server.store.handle(definition, server.timeline.now).code == 200
    (found,) = await cluster.look_at_pools(objects)
    assert (found.verdict, "is not served" in found.found) == (Health.WRONG, True)


async def test_pools_that_may_not_be_listed_are_served_all_the_same(server):
    """Discovery is everybody's."""
    found = await cluster.look_at_pools(objects_of(server, "eve"))
    assert [each.verdict for each in found] == [Health.OK, Health.WARNING]


@pytest.mark.parametrize("body", ["<html>", [], {"metadata": {}}])
async def test_a_list_that_is_none_says_nothing_of_pools(server, body):
    """It is told as such: that no pool has conditions would be well."""
    objects = objects_of(server, refusals={("GET", POOLS): ApiResponse(200, body)})
    found = of(await cluster.look_at_pools(objects), "conditions")
    assert (found.verdict, "with something else" in found.found) == (Health.WRONG, True)


async def test_a_discovery_that_fails_is_an_error(server):
    """It says nothing of whether pools are served."""
    path = ("GET", "/apis/compute.coreweave.com/v1alpha1")
    objects = objects_of(server, refusals={path: ApiResponse(500, {"message": "broken"})})
    with pytest.raises(Unavailable, check=that(names="broken")):
        await cluster.look_at_pools(objects)


async def test_a_namespace_that_is_not_there(objects):
    """It is what is told; there is nothing inside to look at."""
    found, uid = await cluster.look_at_namespace(objects, INSTALLATION)
    assert ([each.verdict for each in found], uid) == ([Health.WRONG], "")
    assert "--apply" in found[0].advice


async def test_a_namespace_is_told_by_its_uid(objects, server):
    """By that this installation is told from others."""
    made = put(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "iris"}})
    found, uid = await cluster.look_at_namespace(objects, INSTALLATION)
    assert uid == made["metadata"]["uid"]
    assert uid in of(found, "namespace").found
    assert of(found, "pod security").verdict is Health.OK


async def test_a_namespace_that_goes_takes_nothing(objects, server):
    """It is too late to install anything there."""
    body = {"metadata": {"name": "iris", "finalizers": ["x.dev/a"]}}
    put(server, "POST", "/api/v1/namespaces", body)
    server.store.handle(Request("DELETE", "/api/v1/namespaces/iris"), server.timeline.now)
    found, _ = await cluster.look_at_namespace(objects, INSTALLATION)
    assert (of(found, "namespace").verdict, len(found)) == (Health.WRONG, 1)


@pytest.mark.parametrize(
    ("level", "verdict"),
    [("privileged", Health.OK), ("", Health.OK), ("baseline", Health.WRONG), ("restricted", Health.WRONG)],
)
def test_levels_that_refuse_worker_pods(level, verdict):
    """They use their node's network; the command that lets them is told."""
    labels = {cluster.ENFORCE: level} if level else None
    found = cluster.judge_security({"metadata": {"name": "iris", "labels": labels}})
    assert found.verdict is verdict
    assert ("kubectl label namespace iris" in found.advice) == (verdict is Health.WRONG)


async def test_who_asks_is_told_where_the_server_knows_the_question(server):
    """Older servers do not."""
    assert await cluster.known_as(objects_of(server, "eve")) == ""
    answer = ApiResponse(201, {"metadata": {}, "status": {"userInfo": {"username": "eve"}}})
    objects = objects_of(server, refusals={("POST", "/selfsubjectreviews"): answer})
    assert await cluster.known_as(objects) == "eve"
