"""Bundles by way of the controller: whole, in order, and taken up where a download broke off."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iriscw._errors import InvalidArgument
from iriscw.bundles.cache import BundleCache
from iriscw.bundles.pack import pack
from iriscw.bundles.unpack import BundleCorrupt
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import RpcUnavailable
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Principal, Role, Secret
from iriscw.worker.drivers import bundles
from iriscw.worker.drivers.bundles import ControllerBundles


class Store(v1.WorkerServiceBase):
    """Gives ``content`` in pieces of 100 bytes; the first ``breaks`` downloads break off after one."""

    def __init__(self, content: bytes, breaks: int = 0, skew: int = 0) -> None:
        self.content, self.breaks, self.skew = content, breaks, skew
        self.offsets: list[int] = []

    async def get_bundle(self, message: v1.GetBundleRequest) -> AsyncIterator[v1.BundleChunk]:
        self.offsets.append(message.offset)
        for offset in range(message.offset, len(self.content), 100):
            data = self.content[offset : offset + 100]
            yield v1.BundleChunk(offset=offset + self.skew, data=data, total_bytes=len(self.content))
            if self.breaks:
                self.breaks -= 1
                raise RpcUnavailable("the connection broke")


async def fetch(store: Store, root: Path, bundle_id: str) -> Path:
    async with RpcServer([store], authenticate=lambda _: Principal(Role.ADMIN)) as server:
        await server.listen_tcp("127.0.0.1", 0)
        async with RpcChannel(server.address, Secret("x")) as channel:
            return await BundleCache(root, ControllerBundles(channel)).fetch(bundle_id)


def packed(tmp_path: Path) -> bytes:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(bytes(range(256)) * 4)
    with (tmp_path / "zip").open("w+b") as file:
        pack(tmp_path / "source", file)
    return (tmp_path / "zip").read_bytes()


async def test_a_download_that_breaks_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further call asks for what is missing only."""
    monkeypatch.setattr(bundles, "PAUSE_S", 0.001)
    store = Store(packed(tmp_path), breaks=2)
    folder = await fetch(store, tmp_path / "bundles", hashlib.sha256(store.content).hexdigest())
    assert (folder / "file").read_bytes() == bytes(range(256)) * 4
    assert store.offsets == [0, 100, 200]


async def test_what_is_not_the_bundle_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """A wrong hash, pieces in a wrong order, and a name that is none."""
    root = tmp_path / "bundles"
    for store in (Store(b"something else"), Store(packed(tmp_path), skew=5)):
        with pytest.raises(BundleCorrupt):
            await fetch(store, root, "ab" * 32)
    with pytest.raises(InvalidArgument):
        await fetch(Store(b""), root, "../../etc")
    assert list(root.iterdir()) == []
