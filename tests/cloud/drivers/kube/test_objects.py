"""Objects of any kind, against a served simulation; and what a server does that is none."""

import pytest
from drivers_world import LIMITS, SETTINGS
from objects_suite import CONFIG_MAPS, PATH, ObjectsSuite, furnish, settings  # noqa: F401 - the last is a fixture
from raw_server import serving

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.objects import JSON_PATCH, open_objects
from iriscw.cloud.kube.calls import MalformedAnswer
from iriscw.cloud.kube.messages import MERGE_PATCH
from iriscw.cloud.model import Forbidden, Throttled, Unavailable
from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import ServeSettings


@pytest.fixture
async def objects(tmp_path):
    """The objects of a simulated cluster without controllers."""
    async with SimServer(ServeSettings(kubeconfig=tmp_path / "kubeconfig", controllers=False)) as server:
        access = await find_access(server.settings.kubeconfig)
        async with open_objects(access, limits=LIMITS, settings=SETTINGS) as opened:
            await furnish(opened)
            yield opened


class TestSuite(ObjectsSuite):
    """What objects do."""


def answering(code, body, **headers):
    async def script(peer):
        await peer.answer(code, body, **headers)

    return script


@pytest.mark.parametrize(
    ("code", "body", "error"),
    [
        (200, [], MalformedAnswer),
        (200, {"kind": "Status"}, MalformedAnswer),
        (401, {}, Forbidden),
        (403, b"<html>no</html>", Forbidden),
        (429, {}, Throttled),
        (503, {}, Unavailable),
        (302, {}, Unavailable),
    ],
)
async def test_answers_of_others(code, body, error):
    """Proxies and balancers answer, too."""
    async with (
        serving(answering(code, body)) as server,
        open_objects(server.access, limits=LIMITS, settings=SETTINGS) as objects,
    ):
        for attempt in (objects.get(PATH), objects.apply(PATH, {})):
            with pytest.raises(error):
                await attempt


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (lambda objects: objects.get(PATH), 5),
        (lambda objects: objects.apply(PATH, {}), 5),
        (lambda objects: objects.patch(PATH, {}, MERGE_PATCH), 5),
        (lambda objects: objects.delete(PATH), 5),
        (lambda objects: objects.patch(PATH, [], JSON_PATCH), 1),
        (lambda objects: objects.create(CONFIG_MAPS, {}), 1),
    ],
)
@pytest.mark.parametrize("how", ["trouble", "silence"])
async def test_what_means_something_else_the_second_time_is_asked_once(call, asked, how):
    """All else is repeated, a bounded number of times."""

    async def script(peer):
        if how == "silence":
            peer.cut()
        else:
            await peer.answer(503, {})

    async with (
        serving(script) as server,
        open_objects(server.access, limits=LIMITS, settings=SETTINGS) as objects,
    ):
        with pytest.raises(Unavailable):
            await call(objects)
        assert len(server.asked) == asked


async def test_retry_after_is_told():
    """In ns, where the server asks for more patience than a caller has."""
    async with (
        serving(answering(429, {}, Retry_After=3000)) as server,
        open_objects(server.access, limits=LIMITS, settings=SETTINGS) as objects,
    ):
        with pytest.raises(Throttled) as slow:
            await objects.get(PATH)
        assert slow.value.retry_after == 3000 * 10**9
        assert len(server.asked) == 1


async def test_waiting_outlasts_a_servers_trouble():
    """Whatever it answers, and whatever its watches bring: the object is read anew."""
    answers = [(503, {}), (200, {"metadata": {"resourceVersion": "1"}}), (200, {"metadata": {"done": True}})]

    async def script(peer):
        if peer.asked.watches:
            await peer.begin()
            await peer.event("ERROR", {"kind": "Status", "code": 410})
            peer.cut()
        else:
            await peer.answer(*(answers.pop(0) if len(answers) > 1 else answers[0]))

    async with (
        serving(script) as server,
        open_objects(server.access, limits=LIMITS, settings=SETTINGS) as objects,
    ):
        done = await objects.wait(PATH, lambda thing: thing is not None and "done" in thing["metadata"], 20)
        assert done == {"metadata": {"done": True}}
        (watch,) = (each for each in server.asked if each.watches)
        assert watch.query["fieldSelector"] == ["metadata.name=settings"]
        assert watch.query["resourceVersion"] == ["1"]


async def test_what_is_sent():
    """Under which name, how strictly, and as what."""

    async def script(peer):
        await peer.answer(200, {"metadata": {}})

    async with (
        serving(script) as server,
        open_objects(server.access, limits=LIMITS, settings=SETTINGS) as objects,
    ):
        await objects.apply(PATH, {"a": 1}, dry_run=True, force=True)
        (asked,) = server.asked
        assert (asked.method, asked.path, asked.body) == ("PATCH", PATH, b'{"a":1}')
        assert asked.headers["content-type"] == "application/apply-patch+yaml"
        assert asked.query == {
            "fieldManager": ["iriscw"],
            "force": ["true"],
            "fieldValidation": ["Strict"],
            "dryRun": ["All"],
        }
