"""OpenAPI of what is served: whole, without a loose end, and what kubectl looks for in it."""

import json

import pytest

from iriscw_sims.serve.cluster import crd
from iriscw_sims.serve.openapi import ROOT, document

WIDGETS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def index(caller):
    """Return where the documents are."""
    return {name: each["serverRelativeURL"] for name, each in (await caller.done("GET", ROOT))["paths"].items()}


def references(value):
    """Yield all that is referred to."""
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


async def test_every_version_has_a_document(caller):
    """At the address that the index names; all that it refers to is there, and all kinds are named."""
    addresses = await index(caller)
    assert {"api/v1", "apis/apps/v1", "apis/coordination.k8s.io/v1"} <= {*addresses}
    for address in addresses.values():
        found = await caller.done("GET", address)
        schemas = found["components"]["schemas"]
        assert {*references(found)} <= {f"#/components/schemas/{name}" for name in schemas}
        kinds = [gvk for each in schemas.values() for gvk in each.get("x-kubernetes-group-version-kind", ())]
        operations = [each["get"]["x-kubernetes-group-version-kind"] for each in found["paths"].values()]
        assert all(gvk in kinds for gvk in operations)


async def test_a_patch_declares_what_it_validates(caller):
    """By this kubectl sees that the server validates fields, and leaves it to it."""
    found = await caller.done("GET", (await index(caller))["api/v1"])
    patch = found["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert patch["x-kubernetes-action"] == "patch"
    assert "fieldValidation" in [each["name"] for each in patch["parameters"]]


async def test_lists_say_how_they_are_merged(caller):
    """As a client-side apply needs it."""
    found = await caller.done("GET", (await index(caller))["api/v1"])
    containers = found["components"]["schemas"]["PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    volumes = found["components"]["schemas"]["PodSpec"]["properties"]["volumes"]
    assert volumes["x-kubernetes-patch-strategy"] == "merge,retainKeys"


async def test_definitions_are_documented_as_they_were_given(caller):
    """From the moment they are served; a change is another address."""
    before = await index(caller)
    await caller.done("POST", WIDGETS, crd.DEFINITION)
    address = (await index(caller))["apis/compute.coreweave.com/v1alpha1"]
    assert "apis/compute.coreweave.com/v1alpha1" not in before
    found = await caller.done("GET", address)
    (pool,) = [each for name, each in found["components"]["schemas"].items() if name.endswith(".NodePool")]
    assert pool["properties"]["spec"]["properties"]["instanceType"]["type"] == "string"
    changed = json.loads(json.dumps(crd.DEFINITION))
    properties = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"]["properties"]["more"] = {"type": "string"}
    name = crd.DEFINITION["metadata"]["name"]
    merge = {"spec": {"versions": changed["spec"]["versions"]}}
    await caller.done("PATCH", f"{WIDGETS}/{name}", merge, content_type="application/merge-patch+json")
    assert (await index(caller))["apis/compute.coreweave.com/v1alpha1"] != address


@pytest.mark.parametrize("path", [f"{ROOT}/api", f"{ROOT}/api/v2", f"{ROOT}api/v1", "/openapi/v2", f"{ROOT}/"])
async def test_other_documents_are_none(server, caller, path):
    """404; with a slash at its end the index is the index."""
    if path == f"{ROOT}/":
        assert (await caller.done("GET", path)) == document(ROOT, server.store.kinds)
    else:
        assert (await caller.refused("GET", path))[0] == 404
