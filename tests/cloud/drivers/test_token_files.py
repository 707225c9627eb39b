"""Tokens of workers on this machine, in files."""

import pytest

from iriscw.cloud.drivers.local.drivers import local
from iriscw.cloud.drivers.local.platform import LocalOptions
from iriscw.cloud.drivers.local.token_files import TokenFiles
from iriscw.cloud.model import LABEL_INCARNATION, Capacity, NodePoolSpec, PodSpec, Unavailable
from iriscw.rpc.tokens import Secret
from waiting import until

ROOM = Capacity(cpu_milli=1000, memory_bytes=1 << 20)
TOKEN = "t" * 43


@pytest.fixture
def files(tmp_path):
    """The files of a platform."""
    return TokenFiles(tmp_path / "tokens", lambda spec: Secret(TOKEN))


@pytest.fixture
def options(tmp_path, files):
    """A platform whose pods tell their token."""
    script = 'cat "$IRISCW_TOKEN_FILE"; exec sleep 600'
    return LocalOptions(tmp_path / "p", ROOM, argv=("sh", "-c", script), boot_delay_s=0, tokens=files)


async def test_a_token_lives_as_long_as_its_pod(options, files):
    """It is there before the pod, for its owner alone, and goes with it; a record of the pod does not have it."""
    async with local(options) as drivers:
        await drivers.node_pools.create(NodePoolSpec("pool", "local", 1, {}, per_node=ROOM))
        spec = PodSpec("one", "pool", {LABEL_INCARNATION: "a"}, Capacity())
        pod = await drivers.pods.create(spec)
        path = files.folder / "one"
        assert (path.read_text().strip(), path.stat().st_mode & 0o777) == (TOKEN, 0o600)
        await until(lambda: any(TOKEN in log.read_text() for log in options.root.rglob("pod.log")))
        saved = [each for each in options.root.rglob("*") if each.is_file() and each.name != "pod.log"]
        assert saved
        assert not [each for each in saved if TOKEN.encode() in each.read_bytes()]
        await drivers.pods.delete("one", pod.uid, 1)
        await drivers.platform.until(lambda: not drivers.platform.pods)
        assert not path.exists()
        await drivers.platform.destroy()


async def test_what_a_killed_controller_left_goes(options, files):
    """Files of pods that are gone; a pod that is there keeps its own."""
    async with local(options) as drivers:
        await drivers.node_pools.create(NodePoolSpec("pool", "local", 1, {}, per_node=ROOM))
        await drivers.pods.create(PodSpec("one", "pool", {LABEL_INCARNATION: "a"}, Capacity()))
    await files.write(PodSpec("gone", "pool", {}, Capacity()))
    async with local(options) as drivers:
        assert [path.name for path in files.folder.iterdir()] == ["one"]
        await drivers.platform.destroy()
    assert not [*files.folder.iterdir()]


async def test_a_disk_that_takes_no_token(options, files):
    """No pod is promised without it."""
    files.folder.write_text("a file")
    async with local(options) as drivers:
        await drivers.node_pools.create(NodePoolSpec("pool", "local", 1, {}, per_node=ROOM))
        with pytest.raises(Unavailable):
            await drivers.pods.create(PodSpec("one", "pool", {LABEL_INCARNATION: "a"}, Capacity()))
        assert await drivers.pods.list({}) == ()
        await drivers.platform.destroy()
