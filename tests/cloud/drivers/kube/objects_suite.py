"""What :class:`~iriscw.cloud.drivers.kube.objects.Objects` does, as tests: against a simulated and a real API server.

Subclass it and give an ``objects`` fixture: of an administrator, in a cluster with a namespace ``iris``.
"""

import contextlib

import anyio
import pytest

from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.drivers.kube.objects import (
    FIELD_MANAGER,
    JSON_PATCH,
    STRATEGIC_PATCH,
    ApplyConflict,
    ImmutableField,
    NotInTime,
)
from iriscw.cloud.kube.messages import APPLY_PATCH, MERGE_PATCH
from iriscw.cloud.model import Conflict, Gone, InvalidSpec, Unavailable
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, NAMESPACES, POOLS
from raised import that

CONFIG_MAPS = "/api/v1/namespaces/iris/configmaps"
POOL = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "system"},
    "spec": {"computeClass": "default", "instanceType": "turin-gp", "targetNodes": 0, "autoscaling": False},
}


def config_map(name="settings", **data):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "iris"},
        "data": data,
    }


PATH = path_of(config_map())


async def furnish(objects):
    """Make the namespace, and the definition of pools."""
    for path, body in ((NAMESPACES, {"metadata": {"name": "iris"}}), (DEFINITIONS, DEFINITION)):
        with contextlib.suppress(Conflict):
            await objects.create(path, body)
    with anyio.fail_after(30):
        while await defined(objects) is None:  # noqa: ASYNC110 - a definition is served some time after it was made
            await anyio.sleep(0.02)


async def defined(objects):
    try:
        return await objects.list(POOLS)
    except Unavailable:  # not found
        return None


@pytest.fixture
async def settings(objects):
    """A config map that was applied."""
    return await objects.apply(PATH, config_map(a="1", b="2"))


async def as_others(objects, body):
    """Apply as somebody else."""
    from iriscw.cloud.kube.messages import ApiRequest

    query = (("fieldManager", "kubectl"), ("force", "true"))
    answer = await objects.caller.request(ApiRequest("PATCH", PATH, query, body, APPLY_PATCH))
    assert answer.code == 200, answer


class ObjectsSuite:
    """One object at a time, and its collection."""

    async def test_what_is_not_there_is_none(self, objects):
        """Reading says so, and deleting."""
        assert await objects.get(PATH) is None
        assert await objects.delete(PATH) is False

    async def test_what_is_applied_is_there(self, objects, settings):
        """Under our name; applying it again changes nothing; what is left out goes."""
        assert settings["metadata"]["managedFields"][0]["manager"] == FIELD_MANAGER
        assert (await objects.get(PATH))["data"] == {"a": "1", "b": "2"}
        again = await objects.apply(PATH, config_map(a="1", b="2"))
        assert again["metadata"]["resourceVersion"] == settings["metadata"]["resourceVersion"]
        assert (await objects.apply(PATH, config_map(a="1")))["data"] == {"a": "1"}

    async def test_a_dry_run_changes_nothing(self, objects, settings):
        """And says what would be."""
        assert (await objects.apply(PATH, config_map(a="x"), dry_run=True))["data"] == {"a": "x"}
        assert await objects.get(PATH) == settings
        other = path_of(config_map("other"))
        assert (await objects.apply(other, config_map("other"), dry_run=True))["metadata"]["name"] == "other"
        assert await objects.get(other) is None

    async def test_fields_of_others_are_theirs(self, objects, settings):
        """Unless they are taken by force; the error names each."""
        await as_others(objects, config_map(a="theirs"))
        with pytest.raises(ApplyConflict, check=that(names="kubectl")) as refused:
            await objects.apply(PATH, config_map(a="ours", b="2"))
        (field,) = refused.value.fields
        assert "kubectl" in field
        assert ".data.a" in field
        taken = await objects.apply(PATH, config_map(a="ours", b="2"), force=True)
        assert taken["data"] == {"a": "ours", "b": "2"}

    @pytest.mark.parametrize(
        ("content_type", "body"),
        [
            (MERGE_PATCH, {"data": {"a": None}}),
            (STRATEGIC_PATCH, {"data": {"a": None}}),
            (JSON_PATCH, [{"op": "remove", "path": "/data/a"}]),
        ],
    )
    async def test_patches_say_what_they_are(self, objects, settings, content_type, body):
        """Each kind does what it is for."""
        dry = await objects.patch(PATH, body, content_type, dry_run=True)
        assert dry["data"] == {"b": "2"}
        assert await objects.get(PATH) == settings
        assert (await objects.patch(PATH, body, content_type))["data"] == {"b": "2"}

    async def test_a_patch_of_another_form_is_refused_here(self, objects):
        """So that a list is never taken for a merge."""
        for body, kind in (([], MERGE_PATCH), ({}, JSON_PATCH), ({}, "application/json")):
            with pytest.raises(InvalidSpec):
                await objects.patch(PATH, body, kind)

    async def test_a_strategic_patch_is_for_kubernetes_own_kinds(self, objects):
        """A custom resource refuses it by name."""
        path = path_of(POOL)
        await objects.apply(path, POOL)
        with pytest.raises(InvalidSpec):
            await objects.patch(path, {"spec": {"targetNodes": 1}}, STRATEGIC_PATCH)

    async def test_what_is_not_there_cannot_be_patched(self, objects):
        """It is gone."""
        with pytest.raises(Gone):
            await objects.patch(PATH, {}, MERGE_PATCH)

    async def test_a_name_is_taken_once(self, objects):
        """The second to create it is told so."""
        made = await objects.create(CONFIG_MAPS, config_map())
        with pytest.raises(Conflict):
            await objects.create(CONFIG_MAPS, config_map())
        assert made["metadata"]["uid"]

    async def test_a_version_that_is_not_current_is_a_conflict(self, objects, settings):
        """Somebody else was faster."""
        version = {"metadata": {"resourceVersion": settings["metadata"]["resourceVersion"]}}
        await objects.patch(PATH, {"data": {"c": "3"}}, MERGE_PATCH)
        with pytest.raises(Conflict):
            await objects.patch(PATH, {**version, "data": {"c": "4"}}, MERGE_PATCH)

    async def test_a_namespace_that_is_not_there_is_gone(self, objects):
        """As is a kind that the server does not know."""
        other = {**config_map(), "metadata": {"name": "a", "namespace": "nowhere"}}
        with pytest.raises(Gone):
            await objects.apply(path_of(other), other)
        monitor = {"apiVersion": "no.such.group/v1", "kind": "ServiceMonitor", "metadata": {"name": "a"}}
        with pytest.raises(Gone):
            await objects.apply(path_of(monitor, "iris"), monitor)

    async def test_what_is_invalid_is_told(self, objects):
        """A wrong type, and a field that does not exist."""
        with pytest.raises(InvalidSpec):
            await objects.apply(PATH, {**config_map(), "data": {"a": 1}})
        with pytest.raises(InvalidSpec, check=that(names="spex")):
            await objects.apply(path_of(POOL), {**POOL, "spex": {}})

    async def test_an_instance_type_is_for_ever(self, objects):
        """A pool must be made anew to change it."""
        path = path_of(POOL)
        await objects.apply(path, POOL)
        changed = {**POOL, "spec": {**POOL["spec"], "instanceType": "gd-8xh100ib-i128"}}
        with pytest.raises(ImmutableField):
            await objects.apply(path, changed)
        with pytest.raises(ImmutableField):
            await objects.patch(path, {"spec": {"instanceType": "b200-8x"}}, MERGE_PATCH)

    async def test_only_the_one_with_the_uid_is_deleted(self, objects, settings):
        """Another one of the name stays."""
        with pytest.raises(Conflict):
            await objects.delete(PATH, uid="another")
        assert await objects.delete(PATH, uid=settings["metadata"]["uid"]) is True
        assert await objects.wait(PATH, lambda thing: thing is None, 20) is None

    async def test_a_collection(self, objects):
        """Filtered by its labels."""
        for number in range(3):
            made = config_map(f"m{number}")
            made["metadata"]["labels"] = {"odd": str(number % 2)}
            await objects.apply(path_of(made), made)
        found = await objects.list(CONFIG_MAPS, "odd=0")
        assert [each["metadata"]["name"] for each in found] == ["m0", "m2"]

    async def test_a_change_is_waited_for(self, objects, settings):
        """Each is looked at; what came before is seen at once, also when it is not there yet."""
        seen = []
        async with anyio.create_task_group() as tasks:

            async def change():
                for value in "345":
                    await objects.patch(PATH, {"data": {"c": value}}, MERGE_PATCH)

            tasks.start_soon(change)

            def is_there(thing):
                seen.append(thing and thing["data"].get("c"))
                return thing is not None and thing["data"].get("c") == "5"

            assert (await objects.wait(PATH, is_there, 20))["data"]["c"] == "5"
        assert seen[-1] == "5"
        other = path_of(config_map("other"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(objects.apply, other, config_map("other"))
            assert (await objects.wait(other, bool, 20))["metadata"]["name"] == "other"

    async def test_waiting_has_an_end(self, objects, settings):
        """And tells how things were then."""
        with pytest.raises(NotInTime) as late:
            await objects.wait(PATH, lambda thing: thing is None, 0.3)
        assert late.value.last["data"] == settings["data"]
        assert isinstance(late.value, TimeoutError)
