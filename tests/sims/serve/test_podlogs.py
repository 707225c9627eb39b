"""Logs over HTTP: all, the end, since when, and what is said while one listens."""

import asyncio

import pytest
from serve_caller import MERGE, PODS, a_pod

LOG = f"{PODS}/p/log"
FIRST = "iriscw: this container is simulated: image x, command of the image"


@pytest.fixture
async def running(server, caller, monkeypatch):
    """A pod that runs on a node that has long been there."""
    monkeypatch.setattr("iriscw_sims.serve.scripted.TUNNEL_TIME", 0)
    return await caller.run()


async def text(caller, **query):
    """Return the lines of the log."""
    status, headers, body = await caller.ask("GET", LOG, **query)
    assert (status, headers["Content-Type"]) == (200, "text/plain"), body
    return body.decode().splitlines()


async def test_a_log_is_text(running, caller):
    """Line by line, the oldest first; nothing that does not exist yet."""
    assert (await text(caller))[0] == FIRST
    assert await text(caller, tailLines="0") == []
    assert (await text(caller, limitBytes="6")) == ["iriscw"]
    assert await text(caller, sinceTime="2100-01-01T00:00:00Z") == []
    stamped = (await text(caller, timestamps="true"))[0]
    assert stamped.endswith(f"Z {FIRST}")
    assert stamped[:4].isdecimal()


async def test_a_log_is_followed_to_its_end(running, caller):
    """Each line once, when it comes; the end of the container is the end of the answer."""
    async with caller.session.get(LOG, params={"follow": "true", "tailLines": "1"}) as answer:
        lines = [(await answer.content.readline()).decode().rstrip()]
        while len(lines) < 3:
            async with asyncio.timeout(5):
                lines.append((await answer.content.readline()).decode().rstrip())
        times = [int(line.split()[-2]) if line != FIRST else 0 for line in lines]
        assert times == [times[0], times[0] + 10, times[0] + 20]
        begun = running["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        over = {"terminated": {"exitCode": 3, "startedAt": begun, "finishedAt": "2100-01-01T00:00:00Z"}}
        over["terminated"]["finishedAt"] = begun
        status = running["status"]["containerStatuses"][0] | {"state": over}
        await caller.done("PATCH", f"{PODS}/p/status", {"status": {"containerStatuses": [status]}}, content_type=MERGE)
        async with asyncio.timeout(5):
            assert b"running for" not in await answer.content.read()


async def test_a_pod_that_goes_ends_its_log(running, caller):
    """Whoever follows sees the end."""
    async with caller.session.get(LOG, params={"follow": "true"}) as answer:
        await answer.content.readline()
        await caller.done("DELETE", f"{PODS}/p", gracePeriodSeconds="0")
        async with asyncio.timeout(5):
            await answer.content.read()


async def test_the_instance_before_has_a_log_too(running, caller):
    """When it is asked for, or when the next one has not begun yet; a follower of the old one is at its end."""
    async with caller.session.get(LOG, params={"follow": "true"}) as answer:
        await answer.content.readline()
        begun = running["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        over = {"terminated": {"exitCode": 3, "startedAt": begun, "finishedAt": begun}}
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        status = running["status"]["containerStatuses"][0] | {"lastState": over, "state": waiting, "restartCount": 1}
        change = {"status": {"containerStatuses": [status]}}
        await caller.done("PATCH", f"{PODS}/p/status", change, content_type=MERGE)
        async with asyncio.timeout(5):
            await answer.content.read()
    assert await text(caller) == await text(caller, previous="true")
    assert (await text(caller))[-1] == "iriscw: ended with exit code 3"
    status["state"] = {"running": {"startedAt": begun}}
    await caller.done("PATCH", f"{PODS}/p/status", change, content_type=MERGE)
    assert (await text(caller, previous="true"))[-1] == "iriscw: ended with exit code 3"
    assert (await text(caller))[-1] != "iriscw: ended with exit code 3"


@pytest.mark.parametrize(
    ("query", "code", "reason"),
    [
        ({"container": "other"}, 400, "BadRequest"),
        ({"tailLines": "-1"}, 422, "Invalid"),
        ({"tailLines": "x"}, 400, "BadRequest"),
        ({"limitBytes": "0"}, 422, "Invalid"),
        ({"sinceSeconds": "0"}, 422, "Invalid"),
        ({"sinceSeconds": "9" * 30}, 400, "BadRequest"),
        ({"sinceTime": "yesterday"}, 400, "BadRequest"),
        ({"previous": "true"}, 400, "BadRequest"),
    ],
)
async def test_options_that_make_no_sense(running, caller, query, code, reason):
    """Are refused as the real server refuses them."""
    assert await caller.refused("GET", LOG, **query) == (code, reason)


async def test_a_log_needs_a_container_that_began(caller, monkeypatch):
    """No pod, no node, not started, two containers and none named, a node that cannot be reached: each is told."""
    assert await caller.refused("GET", LOG) == (404, "NotFound")
    await caller.done("POST", PODS, a_pod())
    assert await caller.refused("GET", LOG) == (400, "BadRequest")
    await caller.run("q")
    assert await caller.refused("GET", f"{PODS}/q/log") == (500, "InternalError")
    monkeypatch.setattr("iriscw_sims.serve.scripted.TUNNEL_TIME", 0)
    assert (await caller.ask("GET", f"{PODS}/q/log"))[0] == 200
    waiting = await caller.run("w", waiting={"reason": "ImagePullBackOff"})
    assert waiting["status"]["containerStatuses"][0]["state"]["waiting"]
    _, _, answer = await caller.ask("GET", f"{PODS}/w/log")
    assert answer["message"] == 'container "main" in pod "w" is waiting to start: ImagePullBackOff'
    both = a_pod("two", nodeName="n")
    both["spec"]["containers"].append({"name": "side", "image": "x"})
    await caller.done("POST", PODS, both)
    _, _, answer = await caller.ask("GET", f"{PODS}/two/log")
    assert answer["message"] == "a container name must be specified for pod two, choose one of: [main side]"
    assert (await caller.refused("POST", f"{PODS}/q/log"))[0] == 405


async def test_a_log_is_not_everybodys(running, caller):
    """Who may not read it is told what is missing."""
    _, _, answer = await caller.ask("GET", LOG, headers={"Impersonate-User": "bob"})
    assert answer["code"] == 403
    assert 'User "bob" cannot get resource "pods/log"' in answer["message"]
