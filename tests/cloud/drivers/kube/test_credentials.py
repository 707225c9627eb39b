"""Tokens are renewed in time, kept when they cannot be, and shown to nobody but the server."""

import errno
import logging
import os

import anyio
import pytest
from drivers_world import LIMITS, LIST
from raw_server import serving

from iriscw.cloud.drivers.kube.access import ClusterAccess
from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.credentials import (
    REFUSED_S,
    RENEW_S,
    TOKEN_BYTES,
    Fixed,
    Header,
    InvalidAccess,
    Renewed,
    read_small,
    read_token,
    token_file,
)
from iriscw.cloud.kube.messages import ApiUnreachable
from raised import that

TOKEN = "CW-SECRET-abc.def_ghi="


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def mount(folder, name, token):
    """Do what the kubelet does: a new folder, then one link is turned."""
    (folder / name).mkdir()
    (folder / name / "token").write_text(token)
    link = folder / "..next"
    link.symlink_to(name)
    link.rename(folder / "..data")
    if not (folder / "token").exists():
        (folder / "token").symlink_to("..data/token")
    return folder / "token"


async def test_a_rotated_token_is_read_again(tmp_path):
    """When it is a minute old, not before; through the kubelet's links."""
    path, clock = mount(tmp_path, "first", "one\n"), Clock()

    async def again(_refused):
        return await read_token(path)

    credentials = Renewed(again, await read_token(path), clock)
    mount(tmp_path, "second", "two\n")
    clock.now += RENEW_S - 1
    assert (await credentials.header()).reveal() == "Bearer one"
    clock.now += 1
    assert (await credentials.header()).reveal() == "Bearer two"


async def test_a_refused_token_is_renewed_sooner():
    """But not with every refusal: most are about rights."""
    clock, said = Clock(), []

    async def again(refused):
        said.append(refused)
        return Header.of("Bearer", f"t{len(said)}")

    credentials = Renewed(again, Header.of("Bearer", "t0"), clock)
    for _ in range(5):
        credentials.refused()
        assert (await credentials.header()).reveal() == "Bearer t0"
    clock.now += REFUSED_S
    assert (await credentials.header()).reveal() == "Bearer t1"
    clock.now += RENEW_S
    assert (await credentials.header()).reveal() == "Bearer t2"
    assert said == [True, False]


async def test_a_token_that_cannot_be_renewed(caplog):
    """Is used on, and said in the log; one that was refused is not."""
    clock = Clock()

    async def fails(_refused):
        raise InvalidAccess("the file is gone")

    credentials = Renewed(fails, Header.of("Bearer", TOKEN), clock)
    clock.now += RENEW_S
    with caplog.at_level(logging.WARNING):
        assert (await credentials.header()).reveal() == f"Bearer {TOKEN}"
    assert "the file is gone" in caplog.text
    assert TOKEN not in caplog.text
    credentials.refused()
    clock.now += REFUSED_S
    with pytest.raises(ApiUnreachable, check=that(names="file")):
        await credentials.header()
    assert (await credentials.header()).reveal() == f"Bearer {TOKEN}"


async def test_a_renewal_that_is_cut_short():
    """The next request tries again at once; and only one at a time does."""
    clock, tries = Clock(), []

    async def again(_refused):
        tries.append(None)
        if len(tries) == 1:
            await anyio.sleep_forever()
        await anyio.sleep(0.01)
        return Header.of("Bearer", "new")

    credentials = Renewed(again, Header.of("Bearer", "old"), clock)
    clock.now += RENEW_S
    with anyio.move_on_after(0.02):
        await credentials.header()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(credentials.header)
    assert (await credentials.header()).reveal() == "Bearer new"
    assert len(tries) == 2


async def test_a_file(tmp_path):
    """The credentials of a service account are its file."""
    path = mount(tmp_path, "first", TOKEN)
    credentials = await token_file(path)
    assert (await credentials.header()).reveal() == f"Bearer {TOKEN}"
    assert TOKEN not in f"{credentials!r} {await credentials.header()!r}"


@pytest.mark.parametrize("text", ["", "\n", "a b", "a\r\nX: y", "é", "\x00", "a" * (TOKEN_BYTES + 1)])
async def test_what_is_no_token(tmp_path, text):
    """Is refused, and not quoted."""
    path = tmp_path / "token"
    path.write_bytes(text.encode())
    with pytest.raises(InvalidAccess) as refused:
        await read_token(path)
    assert not text.strip() or text.strip() not in str(refused.value)


def test_files_that_cannot_be_read(tmp_path):
    """Say why."""
    with pytest.raises(InvalidAccess, check=that(names=os.strerror(errno.ENOENT))):
        read_small(tmp_path / "none", 10)
    with pytest.raises(InvalidAccess, check=that(names=os.strerror(errno.EISDIR))):
        read_small(tmp_path, 10)


def test_headers_are_not_shown():
    """Only their scheme is."""
    header = Header.of("Bearer", TOKEN)
    assert "Bearer" in repr(header)
    assert TOKEN not in f"{header!r} {header} {Fixed(header)!r}"


async def test_what_the_server_is_told(tmp_path):
    """Each request carries the token of the moment, and a refusal is heard."""
    path, clock = mount(tmp_path, "first", "one"), Clock()

    async def again(_refused):
        return await read_token(path)

    async def script(peer):
        await peer.answer(200 if peer.asked.headers["authorization"] == "bearer two" else 403, {})

    credentials = Renewed(again, await read_token(path), clock)
    async with serving(script) as server, open_api(ClusterAccess(server.access.url, credentials), LIMITS) as api:
        assert (await api.request(LIST)).code == 403
        mount(tmp_path, "second", "two")
        clock.now += REFUSED_S
        assert (await api.request(LIST)).code == 200


async def test_nobody_needs_a_token():
    """A certificate may say who we are."""

    async def script(peer):
        assert "authorization" not in peer.asked.headers
        await peer.answer(200, {})

    async with serving(script) as server, open_api(ClusterAccess(server.access.url, Fixed()), LIMITS) as api:
        assert (await api.request(LIST)).code == 200
