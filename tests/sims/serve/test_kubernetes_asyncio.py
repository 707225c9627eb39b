"""The Python client that iriscw's own driver is made of works with nothing but the kubeconfig."""

import asyncio

import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client import ApiException
from kubernetes_asyncio.stream import WsApiClient
from serve_caller import a_map, a_pod

from raised import that


@pytest.fixture
async def core(server, monkeypatch):
    """The client's core API, with the server's kubeconfig."""
    monkeypatch.setattr("iriscw_sims.serve.scripted.TUNNEL_TIME", 0)
    settings = client.Configuration()
    await config.load_kube_config(str(server.settings.kubeconfig), client_configuration=settings)
    async with client.ApiClient(settings) as api:
        yield client.CoreV1Api(api)


async def test_objects_come_and_go(core):
    """Create, get, list in pages, patch, conflict, delete."""
    for number in range(5):
        await core.create_namespaced_config_map("default", a_map(f"c{number}", x="1"))
    page = await core.list_namespaced_config_map("default", limit=2)
    assert [each.metadata.name for each in page.items] == ["c0", "c1"]
    rest = await core.list_namespaced_config_map("default", _continue=page.metadata._continue)
    assert len(rest.items) == 3
    changed = await core.patch_namespaced_config_map("c0", "default", {"data": {"y": "2"}})
    assert changed.data == {"x": "1", "y": "2"}
    with pytest.raises(ApiException) as refused:
        await core.create_namespaced_config_map("default", a_map("c0"))
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    await core.delete_namespaced_config_map("c0", "default")
    with pytest.raises(ApiException, check=that(status=404)):
        await core.read_namespaced_config_map("c0", "default")


async def test_a_watch_tells(core):
    """Until it is left."""
    async with watch.Watch().stream(core.list_namespaced_config_map, "default", timeout_seconds=100) as stream:
        await core.create_namespaced_config_map("default", a_map("c"))
        async with asyncio.timeout(5):
            async for event in stream:
                assert (event["type"], event["object"].metadata.name) == ("ADDED", "c")
                break


async def test_logs_and_commands(server, core, caller):
    """Text, and a websocket with the status of the command."""
    await caller.run("p")
    assert (await core.read_namespaced_pod_log("p", "default")).startswith("iriscw: this container is simulated")
    settings = core.api_client.configuration
    async with WsApiClient(settings) as api:
        said = await client.CoreV1Api(api).connect_get_namespaced_pod_exec(
            "p", "default", command=["echo", "hi"], stdout=True, stderr=True, stdin=False, tty=False
        )
    assert said == "hi\n"


async def test_custom_resources(core):
    """As dictionaries; unknown ones are 404."""
    custom = client.CustomObjectsApi(core.api_client)
    with pytest.raises(ApiException, check=that(status=404)):
        await custom.list_cluster_custom_object("compute.coreweave.com", "v1alpha1", "nodepools")
    assert (await core.create_namespaced_pod("default", a_pod())).status.phase == "Pending"
