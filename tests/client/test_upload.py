"""Folders on their way to the controller."""

import hashlib
import io
import logging
import zipfile

import pytest
from controller_double import TOKEN, ControllerDouble, TokensOfDouble

from iriscw._errors import InvalidArgument
from iriscw.bundles.pack import InvalidBundleFolder
from iriscw.client import upload as module
from iriscw.client.client import connect
from iriscw.client.submission import Command
from iriscw.proto.iriscw.v1 import PutBundleResponse
from iriscw.rpc.errors import RpcUnavailable
from iriscw.rpc.server import RpcServer
from raised import that


class Store(ControllerDouble):
    """Keeps bundles; the first ``breaks`` sends find a controller that goes away midway."""

    def __init__(self, breaks=0):
        super().__init__()
        self.breaks = breaks
        self.kept = {}

    async def put_bundle(self, messages):
        header = (await anext(messages)).header
        data = b""
        async for message in messages:
            assert len(message.data) <= 256 << 10
            data += message.data
            if self.breaks:
                self.breaks -= 1
                raise RpcUnavailable("the controller restarts")
        assert (len(data), hashlib.sha256(data).hexdigest()) == (header.size_bytes, header.bundle_id)
        self.kept[header.bundle_id] = data
        return PutBundleResponse(bundle_id=header.bundle_id)


@pytest.fixture
def folder(tmp_path):
    """A folder with a program and data below it."""
    made = tmp_path / "mine"
    (made / "data").mkdir(parents=True)
    (made / "train.py").write_text("print(1)\n")
    (made / "data" / "x").write_bytes(bytes(range(256)) * 20)
    return made


@pytest.mark.parametrize("breaks", [0, 2])
async def test_a_folder_travels_before_its_job(folder, breaks, monkeypatch, caplog):
    """The files are stored under their hash, also where the controller restarts midway, and the job names them."""
    caplog.set_level(logging.ERROR, "iriscw.client")
    monkeypatch.setattr(module, "CHUNK_BYTES", 100)
    store = Store(breaks)
    async with RpcServer([store], authenticate=TokensOfDouble) as server:
        await server.listen_tcp("127.0.0.1", 0)
        async with connect(str(server.address), TOKEN) as client:
            await client.submit(Command(["true"]), name="n", bundle=folder)
            await client.submit(Command(["true"]), name="m")
            await client.submit(Command(["true"]), name="l", bundle=folder, bundle_exclude=["data"])
    (bundle_id, data), (less_id, less) = store.kept.items()
    assert [each.bundle_id for each in store.submitted] == [bundle_id, "", less_id]
    assert zipfile.ZipFile(io.BytesIO(less)).namelist() == ["train.py"]
    assert zipfile.ZipFile(io.BytesIO(data)).namelist() == ["data/x", "train.py"]


async def test_what_fits_nothing_is_told_once(folder, caplog):
    """All such patterns in one line: one is mistyped, or out of date. What is left out anyhow fits."""
    (folder / ".git").mkdir()
    store = Store()
    async with RpcServer([store], authenticate=TokensOfDouble) as server:
        await server.listen_tcp("127.0.0.1", 0)
        async with connect(str(server.address), TOKEN) as client:
            left_out = ["data/", "*.ckpt", ".git", "models"]
            await client.submit(Command(["true"]), name="n", bundle=folder, bundle_exclude=left_out)
    (told,) = (each for each in caplog.records if each.name == "iriscw.client")
    assert told.levelno == logging.WARNING
    assert "'*.ckpt', 'models'" in told.getMessage()
    assert "data" not in told.getMessage().partition("leave out:")[2]


async def test_what_cannot_travel_is_named(folder, client, controller):
    """A link, or no folder at all, is refused before anything is submitted."""
    with pytest.raises(InvalidBundleFolder, check=that(names="nosuch")):
        await client.submit(Command(["true"]), name="n", bundle=folder / "nosuch")
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(InvalidBundleFolder, check=that(names="link")):
        await client.submit(Command(["true"]), name="n", bundle=str(folder))
    (folder / "link").unlink()
    with pytest.raises(InvalidArgument, check=that(names="bundle_exclude")):
        await client.submit(Command(["true"]), name="n", bundle_exclude=["data"])
    with pytest.raises(InvalidArgument, check=that(names="!data")):
        await client.submit(Command(["true"]), name="n", bundle=folder, bundle_exclude=["!data"])
    assert controller.submitted == []
