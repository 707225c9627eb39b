"""Callers of a served simulator: one that speaks HTTP well, and one that sends what it is told to."""

import asyncio
import io
import json
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


def a_pod(name="p", **spec):
    """Give a pod to create."""
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "x"}], **spec}}


def a_map(name="c", **data):
    """Return a ConfigMap to create."""
    return {"metadata": {"name": name}, "data": data}


class Caller:
    """Sends requests to one server, with its token unless another one is given."""

    def __init__(self, server, token=None):
        self.server = server
        self._token = server.token.reveal() if token is None else token

    async def __aenter__(self):
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        self.session = aiohttp.ClientSession(self.server.url, headers=headers)
        return self

    async def __aexit__(self, *error):
        await self.session.close()

    async def ask(self, method, path, body=None, *, headers=None, data=None, content_type="application/json", **query):
        """Return status, headers and body of the answer; JSON is read."""
        if body is not None:
            data = json.dumps(body).encode()
        if isinstance(data, bytes):
            data = io.BytesIO(data)
        sent = {**({"Content-Type": content_type} if data is not None else {}), **(headers or {})}
        async with self.session.request(method, path, data=data, headers=sent, params=query) as answer:
            text = await answer.read()
            is_json = answer.content_type == "application/json"
            return answer.status, answer.headers, json.loads(text) if is_json and text else text

    async def done(self, method, path, body=None, **more):
        """Return the body of the answer to a request that must succeed."""
        status, _, answer = await self.ask(method, path, body, **more)
        assert status in (200, 201), answer
        return answer

    async def refused(self, method, path, body=None, **more):
        """Return code and reason of the answer to a request that must be refused, which is a Status."""
        status, _, answer = await self.ask(method, path, body, **more)
        assert answer["kind"] == "Status", answer
        assert answer["status"] == "Failure", answer
        assert answer["code"] == status
        return status, answer.get("reason", "")

    @asynccontextmanager
    async def watch(self, path, **query):
        """Open a watch; gives a function that waits for the next event, ``None`` at the end."""
        async with self.session.get(path, params={"watch": "1", **query}) as answer:
            assert answer.status == 200, await answer.text()

            async def event():
                async with asyncio.timeout(10):
                    line = await answer.content.readline()
                return json.loads(line) if line else None

            yield event

    async def run(self, name="p", **state):
        """Create a pod on a node that has long been there, and have its container run."""
        if (await self.ask("GET", "/api/v1/nodes/n"))[0] == 404:
            await self.done("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        pod = await self.done("POST", PODS, a_pod(name, nodeName="n"))
        started = pod["metadata"]["creationTimestamp"]
        status = {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "x",
                    "imageID": "",
                    "ready": True,
                    "restartCount": 0,
                    "state": state or {"running": {"startedAt": started}},
                }
            ],
        }
        return await self.done("PATCH", f"{PODS}/{name}/status", {"status": status}, content_type=MERGE)


@asynccontextmanager
async def raw(server):
    """Open a connection and give its reader and writer."""
    address = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def say(server, text):
    """Send bytes as they are and give the first line of what comes back."""
    async with raw(server) as (reader, writer):
        writer.write(text)
        async with asyncio.timeout(10):
            try:
                return await reader.readline()
            except ConnectionResetError:
                return b""  # closed is closed, however
