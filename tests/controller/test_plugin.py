"""What a platform of a package is given by the controller, and what becomes of its errors."""

import stat
from contextlib import asynccontextmanager

import pytest

from iriscw.cloud.drivers.loading import BrokenPlatform, InvalidSettings, Platform
from iriscw.cloud.model import Capacity, PodSpec
from iriscw.config.load import build_config
from iriscw.controller.platforms import plugin
from iriscw.controller.tokens import ControllerTokens
from iriscw.files import StateUnusable
from iriscw.rpc.tokens import mint_token
from raised import that

CONFIG = {
    "name": "c",
    "platform": {"plugin": {"name": "mine", "settings": {"zone": "a"}}},
    "defaults": {"bootstrap": {"env_vars": {"KEY": "value"}}},
    "scale_groups": {
        "g": {
            "resources": {"cpu": 1, "ram": "1GiB"},
            "slice_template": {"plugin": {"region": "r", "instance_type": "t", "settings": {"disk": "fast"}}},
        }
    },
}


@pytest.fixture
def anyio_backend():
    return "asyncio"


def platform(monkeypatch, check=lambda settings, groups: None, seen=None):
    """Have the package offer this one, which keeps what it is opened with."""

    @asynccontextmanager
    async def opening(context):
        seen.append(context)
        yield "drivers"

    monkeypatch.setattr(plugin, "load_platform", lambda name: Platform(open=opening, check=check))


@pytest.mark.anyio
async def test_what_it_is_given(monkeypatch, tmp_path):
    """Its settings, those of each group, a folder of its own, and what workers know of tokens."""
    seen = []
    platform(monkeypatch, seen=seen)
    tokens = ControllerTokens(mint_token(), [mint_token()], metrics=mint_token())
    async with plugin.open_plugin(build_config(CONFIG), tokens, tmp_path / "platform", "host:1") as drivers:
        assert drivers == "drivers"
    (context,) = seen
    assert (context.cluster, context.settings, context.controller_address) == ("c", {"zone": "a"}, "host:1")
    assert (context.groups["g"].region, context.groups["g"].settings) == ("r", {"disk": "fast"})
    assert context.worker_environment == {**tokens.told, "KEY": "value", "IRISCW_WORKER_PORT": "10001"}
    assert tokens.told
    assert stat.S_IMODE(context.folder.stat().st_mode) == 0o700
    spec = PodSpec("p", "pool", {}, Capacity(), environment={"IRIS_WORKER_ID": "w", "IRIS_INCARNATION": "i"})
    token = context.worker_token(spec)
    assert token == tokens.worker_token("w", "i")
    assert token.reveal() not in repr(context)


@pytest.mark.anyio
async def test_a_folder_that_cannot_be_made(monkeypatch, tmp_path):
    """By name, before the platform is opened."""
    seen = []
    platform(monkeypatch, seen=seen)
    (tmp_path / "file").write_text("")
    tokens = ControllerTokens(mint_token(), [mint_token()])
    with pytest.raises(StateUnusable):
        async with plugin.open_plugin(build_config(CONFIG), tokens, tmp_path / "file" / "platform", "host:1"):
            pass
    assert seen == []


@pytest.mark.parametrize(
    ("error", "expected"), [(InvalidSettings("zone"), InvalidSettings), (KeyError("zone"), BrokenPlatform)]
)
def test_what_its_check_raises(monkeypatch, error, expected):
    """Its own refusals go on; what is no error of ours is the package's fault, and named."""

    def check(settings, groups):
        raise error

    platform(monkeypatch, check)
    with pytest.raises(expected, check=that(names="zone")):
        plugin.checked_platform(build_config(CONFIG))
