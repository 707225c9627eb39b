"""Empty node pools: made, heard, and deleted whatever happens."""

import asyncio

import anyio
import anyio.lowlevel
import attrs
import pytest
from deploy_world import HURRY, installed, put, simulated
from doctor_world import StoreApi, caller_of, configured, objects_of

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.objects import Objects, open_objects
from iriscw.cloud.kube.messages import ApiResponse, ApiUnreachable
from iriscw.cloud.kube.paths import NODE_POOLS, POOL_API
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_MANAGED,
    Forbidden,
    InvalidSpec,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from iriscw.doctor import pools
from iriscw.doctor.findings import Health
from iriscw.doctor.instance_types import Type
from iriscw.doctor.pools import Probes
from iriscw_sims.kube.messages import Request
from iriscw_sims.serve.settings import PoolToBegin

KIND = Type("turin-gp", "default", "group cpu")
ONE = installed({"instance_type": ""})
"""An installation with one instance type."""
REFUSED = ApiResponse(403, {"reason": "Forbidden", "message": "not you"})


def there(server):
    """Return the pools that are there and are not being deleted, by name."""
    items = server.store.handle(Request("GET", NODE_POOLS), server.timeline.now).body["items"]
    return {each["metadata"]["name"]: each for each in items if not each["metadata"].get("deletionTimestamp")}


def foreign(server, name="somebodys", **labels):
    """Put somebody else's pool there."""
    body = {"apiVersion": POOL_API, "kind": "NodePool", "metadata": {"name": name, "labels": labels}}
    return put(server, "POST", NODE_POOLS, {**body, "spec": {"instanceType": "turin-gp", "targetNodes": 0}})


async def test_each_type_is_probed_and_nothing_is_left(tmp_path):
    """In a cluster with CoreWeave's own behaviour; pools that were there stay as they are."""
    installation = configured("turin-gp", "gd-8xh100ib-i128", "no-such-type", "gb200-4x")
    serving = simulated(
        tmp_path / "kubeconfig",
        controllers=True,
        speed=100,
        quotas={"gd-8xh100ib-i128": 0},
        pools=(PoolToBegin("mine", "turin-gp", 1),),
    )
    async with serving as server, open_objects(await find_access(tmp_path / "kubeconfig"), settings=HURRY) as objects:
        probes = Probes(objects, installation, "the-uid")
        before = there(server)["mine"]["metadata"]["uid"]
        found = await probes.look()
        left = there(server)
    assert [(each.check, each.verdict) for each in found] == [
        ("type turin-gp", Health.OK),
        ("type gd-8xh100ib-i128", Health.WRONG),
        ("type no-such-type", Health.WRONG),
        ("type gb200-4x", Health.OK),
    ]
    assert "Quota Under" in found[0].found
    assert found[1].found == "quota NotSet: quota limit is 0 for instance type gd-8xh100ib-i128"
    assert "used by group g1" in found[1].advice
    assert found[2].found.startswith("not accepted: ")
    assert {name: each["metadata"]["uid"] for name, each in left.items()} == {"mine": before}
    assert probes.left == []


@attrs.frozen
class Watching(StoreApi):
    """Calls ``on_created`` when a pool was made."""

    on_created: list = attrs.field(factory=list)

    async def request(self, request):
        """See the port."""
        answer = await super().request(request)
        if request.method == "POST" and request.path == NODE_POOLS:
            for each in self.on_created:
                each(request.body)
        return answer


def watching(server, *functions, **more):
    """Return objects whose API tells of pools that are made."""
    return Objects(caller_of(Watching(server, on_created=[*functions], **more)))


async def test_a_probing_pool_is_empty_and_marked(server, monkeypatch):
    """With our labels and those of this run; not ``iris-managed``, by which a controller would take it for a slice."""
    monkeypatch.setattr(pools, "CONDITIONS_S", 0.02)
    made = []
    await Probes(watching(server, made.append), configured("turin-gp", "gb200-4x"), "the-uid").look()
    first, second = made
    labels = first["metadata"]["labels"]
    assert (labels[LABEL_CLUSTER], LABEL_MANAGED in labels) == ("the-uid", False)
    assert labels[pools.LABEL_DOCTOR] == second["metadata"]["labels"][pools.LABEL_DOCTOR]
    assert (first["spec"]["targetNodes"], second["spec"]["targetRacks"]) == (0, 0)
    assert "targetNodes" not in second["spec"]
    assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_conditions_that_do_not_come_are_not_waited_for_for_ever(server, monkeypatch):
    """It is a warning, and the pool is deleted."""
    monkeypatch.setattr(pools, "CONDITIONS_S", 0.05)
    (found,) = await Probes(objects_of(server), ONE, "u").look()
    assert found.verdict is Health.WARNING
    assert "no word of validation" in found.found
    assert there(server) == {}


@pytest.mark.parametrize(
    ("answer", "verdict", "says"),
    [
        (REFUSED, Health.WARNING, "not probed: "),
        (ApiResponse(422, {"reason": "Invalid", "message": "no such type"}), Health.WRONG, "not accepted: "),
    ],
)
async def test_a_pool_that_is_refused_is_not_left(server, answer, verdict, says):
    """Nothing is to be deleted then, and nothing is asked to be."""
    objects = objects_of(server, refusals={("POST", "/nodepools"): answer})
    probes = Probes(objects, ONE, "u")
    (found,) = await probes.look()
    assert (found.verdict, found.found.startswith(says)) == (verdict, True)
    assert probes.left == []
    assert not [path for method, path in objects.caller.api.seen if method == "DELETE"]


class Lossy(StoreApi):
    """Carries out the creation of pools, and loses the answers."""

    async def request(self, request):
        """See the port."""
        answer = await super().request(request)
        if request.method == "POST" and request.path == NODE_POOLS:
            raise ApiUnreachable("the answer was lost")
        return answer


async def test_a_pool_whose_answer_was_lost_is_deleted(server):
    """It is ours by our mark."""
    foreign(server)
    probes = Probes(Objects(caller_of(Lossy(server))), ONE, "u")
    (found,) = await probes.look()
    assert found.verdict is Health.WRONG
    assert ([*there(server)], probes.left) == (["somebodys"], [])


async def test_a_pool_that_may_appear_later_is_named(server):
    """Nobody answered, and none is there yet."""
    objects = objects_of(server, refusals={("POST", "/nodepools"): ApiUnreachable("no answer")})
    probes = Probes(objects, ONE, "u")
    _, left = await probes.look()
    (name,) = probes.left
    assert (left.verdict, left.advice) == (Health.WRONG, f"kubectl delete nodepool {name}")
    assert "may appear yet" in left.found


async def test_somebody_elses_pool_of_the_same_name_is_not_touched(server, monkeypatch):
    """However it came by it."""
    monkeypatch.setattr(pools.secrets, "token_hex", lambda _size: "0" * 8)
    made = foreign(server, "iris-doctor-00000000-0", **{pools.LABEL_DOCTOR: "another"})
    found = await Probes(objects_of(server), ONE, "u").look()
    assert there(server)["iris-doctor-00000000-0"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert "somebody else's" in found[-1].found


async def test_a_pool_that_cannot_be_deleted_is_named_with_the_command(server, monkeypatch):
    """It stays, and a later run finds it."""
    monkeypatch.setattr(pools, "CONDITIONS_S", 0.02)

    class NoDeletes(StoreApi):
        async def request(self, request):
            return REFUSED if request.method == "DELETE" else await super().request(request)

    probes = Probes(Objects(caller_of(NoDeletes(server))), ONE, "u")
    _, left = await probes.look()
    (name,) = there(server)
    assert (left.verdict, left.advice, probes.left) == (Health.WRONG, f"kubectl delete nodepool {name}", [name])
    earlier, _ = await Probes(objects_of(server), ONE, "u").look()
    assert (earlier.verdict, name in earlier.found) == (Health.WARNING, True)
    assert f"kubectl delete nodepool {name}" in earlier.advice
    assert [*there(server)] == [name]


async def test_a_deletion_that_takes_too_long_is_given_up(server, monkeypatch):
    """And named."""
    monkeypatch.setattr(pools, "CONDITIONS_S", 0.02)
    monkeypatch.setattr(pools, "DELETE_S", 0.02)

    class Silent(StoreApi):
        async def request(self, request):
            if request.method == "DELETE":
                await anyio.sleep_forever()
            return await super().request(request)

    _, left = await Probes(Objects(caller_of(Silent(server))), ONE, "u").look()
    assert "was not deleted in time" in left.found


async def test_a_server_that_goes_silent_is_no_word(server, monkeypatch):
    """The pool is not called deleted because nobody can read it."""
    monkeypatch.setattr(pools, "CONDITIONS_S", 0.05)
    objects = objects_of(server, refusals={("GET", "-0"): ApiUnreachable("away")})
    (found,) = await Probes(objects, ONE, "u").look()
    assert (found.verdict, "no word of validation" in found.found) == (Health.WARNING, True)
    assert there(server) == {}


async def test_a_pool_that_somebody_deletes_is_told(server):
    """There is nothing to read then."""

    def delete(body):
        path = f"{NODE_POOLS}/{body['metadata']['name']}"
        server.store.handle(Request("DELETE", path), server.timeline.now)

    (found,) = await Probes(watching(server, delete), ONE, "u").look()
    assert (found.verdict, "deleted by somebody" in found.found) == (Health.WARNING, True)


@pytest.mark.parametrize("times", [1, 2])
async def test_interrupted_it_deletes_its_pool(server, times):
    """Ctrl-C cancels the task itself, whatever shields it has; once more while the pool is being deleted."""
    begun, deleting, go_on = anyio.Event(), anyio.Event(), anyio.Event()

    class Slow(Watching):
        async def request(self, request):
            if request.method == "DELETE":
                deleting.set()
                await go_on.wait()
            return await super().request(request)

    api = Slow(server, on_created=[lambda _body: begun.set()])
    probes = Probes(Objects(caller_of(api)), configured("turin-gp", "b200-8x"), "u")
    task = asyncio.get_running_loop().create_task(probes.look())
    await begun.wait()
    task.cancel()
    await deleting.wait()
    for _ in range(times - 1):
        task.cancel()
        await anyio.lowlevel.checkpoint()
    go_on.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert (there(server), probes.left) == ({}, [])


async def test_interrupted_it_knows_what_is_left(server):
    """What cannot be deleted is to be named by whoever ends."""
    begun = anyio.Event()
    refusals = {("DELETE", "-0"): REFUSED}
    probes = Probes(watching(server, lambda _body: begun.set(), refusals=refusals), ONE, "u")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probes.look)
        await begun.wait()
        tasks.cancel_scope.cancel()
    assert probes.left == [*there(server)]
    assert len(probes.left) == 1


def condition(kind, status, reason, message=""):
    """Return a condition."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


VALID, UNDER = condition("Validated", "True", "Valid"), condition("Quota", "True", "Under")


@pytest.mark.parametrize(
    ("conditions", "verdict", "says"),
    [
        ([VALID, UNDER, condition("Capacity", "True", "Sufficient")], Health.OK, "Quota Under, Capacity Sufficient"),
        ([VALID, UNDER], Health.OK, "Validated Valid, Quota Under"),
        ([condition("Valid", "True", "Valid"), UNDER], Health.OK, "Quota Under"),
        ([VALID, condition("Quota", "False", "Over", "too many")], Health.WRONG, "quota Over: too many"),
        ([VALID, condition("Quota", "False", "NotSet")], Health.WRONG, "quota NotSet: NotSet"),
        ([VALID, condition("Quota", "False", "Odd", "x")], Health.WARNING, "quota Odd: x"),
        ([condition("Validated", "False", "Invalid", "not here")], Health.WRONG, "not accepted: not here"),
        ([VALID, UNDER, condition("Capacity", "False", "QueuedAwaitingCapacity")], Health.WARNING, "Queued"),
        ([VALID, UNDER, condition("Capacity", "False", "NoneAvailable")], Health.WARNING, "NoneAvailable"),
        ([VALID], Health.WARNING, "no word of quota"),
        ([UNDER], Health.WARNING, "no word of validation"),
        ([VALID, condition("Quota", "Unknown", "")], Health.WARNING, "no word of quota"),
        ([], Health.WARNING, "told: nothing"),
    ],
)
def test_what_a_pool_was_told_is_judged(conditions, verdict, says):
    """Under, Over and NotSet; capacity is at most a warning, for it comes and goes."""
    found = pools.judge_pool(KIND, pools.conditions_of({"status": {"conditions": conditions}}))
    assert (found.verdict, says in found.found) == (verdict, True)
    assert bool(found.advice) == (verdict is not Health.OK)


@pytest.mark.parametrize(
    ("conditions", "is_told", "is_open"),
    [
        ([], False, False),
        ([VALID], False, True),
        ([VALID, UNDER], True, True),
        ([VALID, condition("Quota", "False", "NotSet")], True, False),
        ([condition("Validated", "False", "Invalid")], True, False),
    ],
)
def test_what_is_waited_for(conditions, is_told, is_open):
    """Validation and quota; capacity only where it could matter."""
    pool = {"status": {"conditions": conditions}}
    assert (pools.is_told(pool), pools.is_open(pool)) == (is_told, is_open)
    assert not pools.is_told(None)


@pytest.mark.parametrize("status", [None, {}, {"conditions": None}, {"conditions": [None, "x", {}]}])
def test_a_status_of_any_form_is_read(status):
    """A server may answer whatever it likes."""
    assert pools.conditions_of({"status": status}) == {}


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (QuotaExceeded("q"), Health.WRONG),
        (InvalidSpec("i"), Health.WRONG),
        (Forbidden("f"), Health.WARNING),
        (Unavailable("u"), Health.WRONG),
        (Throttled("t", 0), Health.WRONG),
    ],
)
def test_refusals_are_told(error, verdict):
    """Each with what to do."""
    found = pools.judge_refusal(KIND, error)
    assert (found.verdict, str(error) in found.found, bool(found.advice)) == (verdict, True, True)
