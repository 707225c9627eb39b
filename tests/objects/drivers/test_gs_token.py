"""Whose requests are Google's: files with credentials, the tokens that they are worth, and what is refused of them."""

import asyncio
import json
import logging

import anyio
import pytest
from gs_stage import ACCOUNT, KEY, Stage, private_key, service_account, staged

from iriscw.objects.drivers.checking import check_store
from iriscw.objects.drivers.failure import AttemptFailed, NoStoreCredentials
from iriscw.objects.drivers.gs_connection import GsConnection
from iriscw.objects.drivers.gs_token import GsTokens, credentials_file
from iriscw.objects.ports import StoreAccessDenied, StoreUnreachable
from raised import that


@pytest.fixture
async def stage():
    async with staged(anonymous="") as stage:
        yield stage


@pytest.fixture
def authorized_user(stage, monkeypatch):
    """Return what gcloud's login writes; where it is exchanged, Google's library says, and here the stage."""
    place = f"http://127.0.0.1:{stage.server.port}/token"
    monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", place)
    return {
        "type": "authorized_user",
        "client_id": "id",
        "client_secret": "a-client-secret",
        "refresh_token": "a-refresh-token",
    }


def workload(port, file):
    return {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"http://127.0.0.1:{port}/sts/v1/token",
        "credential_source": {"file": str(file)},
    }


async def test_a_service_account(stage: Stage, tmp_path) -> None:
    """Signs an assertion, and one token does for many requests."""
    store = stage.signed(tmp_path / "key.json")
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(store.put, f"{number}", b"x")
    assert (len(stage.bodies()), stage.office.given) == (5, 1)


@pytest.mark.parametrize("about", ["/token", "/storage/"])
async def test_a_look_up_that_another_one_gave_up(stage: Stage, tmp_path, about, monkeypatch) -> None:
    """A cancellation that nobody asked of a request is a failure of it, which is tried again: of a token's, too."""
    send, given_up = GsConnection._send, []

    async def shared(connection, session, method, url, body, headers):
        if about in url and not given_up:
            given_up.append(url)
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        return await send(connection, session, method, url, body, headers)

    monkeypatch.setattr(GsConnection, "_send", shared)
    assert (await stage.signed(tmp_path / "key.json").list()).objects == ()
    assert len(given_up) == 1


async def test_a_user(stage: Stage, tmp_path, authorized_user) -> None:
    """What gcloud's login writes, named or where gcloud puts it."""
    stage.office.identities["a-refresh-token"] = KEY
    await stage.signed(tmp_path / "application_default_credentials.json", authorized_user).list()
    del stage.environment["GOOGLE_APPLICATION_CREDENTIALS"]
    stage.environment["CLOUDSDK_CONFIG"] = str(tmp_path)
    await stage.store(anonymous=False).list()
    assert stage.office.given == 2


async def test_a_workload(stage: Stage, tmp_path) -> None:
    """A pod's token is exchanged for Google's; the file is read again each time."""
    (tmp_path / "token").write_text("first")
    stage.office.identities["second"] = KEY
    store = stage.signed(tmp_path / "workload.json", workload(stage.server.port, tmp_path / "token"))
    with pytest.raises(StoreAccessDenied):
        await store.list()
    (tmp_path / "token").write_text("second")
    await stage.store(anonymous=False).list()


async def test_a_token_that_is_refused(stage: Stage, tmp_path) -> None:
    """Is replaced, and the request tried again; all requests of that moment go on with the new one."""
    store = stage.signed(tmp_path / "key.json")
    await store.put("k", b"x")
    stage.office.forget()
    store._connection._tokens._asked_at = -1000.0  # ten seconds pass
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(store.put, f"{number}", b"x")
    assert (len(stage.bodies()), stage.office.given) == (5, 2)


async def test_a_token_that_stays_refused(stage: Stage, tmp_path) -> None:
    """Is not asked for again with each request."""
    store = stage.signed(tmp_path / "key.json")
    await store.list()
    stage.storage.remove_key(KEY)
    for _ in range(3):
        with pytest.raises(StoreAccessDenied):
            await store.list()
    assert stage.office.given <= 2


async def test_a_key_that_is_replaced(stage: Stage, tmp_path) -> None:
    """In its file, while the store is open."""
    store = stage.signed(tmp_path / "key.json")
    await store.list()
    stage.office.forget()
    del stage.office.identities[ACCOUNT]
    stage.office.identities["new@project.iam.gserviceaccount.com"] = KEY
    (tmp_path / "key.json").write_text(
        json.dumps(service_account(stage.server.port, "new@project.iam.gserviceaccount.com"))
    )
    store._connection._tokens._asked_at = -1000.0  # ten seconds pass
    await store.list()


async def test_an_account_that_is_not_known(stage: Stage, tmp_path) -> None:
    """Is denied: a new key is good after some seconds, so it may be waited for."""
    stage.office.identities.clear()
    with pytest.raises(StoreAccessDenied, check=that(comes_from="gs_credentials.fetch_token")) as raised:
        await stage.signed(tmp_path / "key.json").list()
    assert not isinstance(raised.value, NoStoreCredentials)


async def test_nobody_gives_a_token(stage: Stage, tmp_path) -> None:
    """Is silence, not a refusal."""
    content = {**service_account(stage.server.port), "token_uri": "http://127.0.0.1:9/token"}
    with pytest.raises(StoreUnreachable):
        await stage.signed(tmp_path / "key.json", content).list()


async def test_an_early_renewal_that_fails(stage: Stage, tmp_path) -> None:
    """Does no harm while the old token is good."""
    stage.office.lasts_s = 200  # less than the time before the end at which one is replaced
    store = stage.signed(tmp_path / "key.json")
    await store.list()
    stage.office.identities.clear()
    store._connection._tokens._asked_at = -1000.0
    await store.list()
    await store.list()
    assert stage.office.given == 1


async def test_a_patience_of_its_own(tmp_path) -> None:
    """A server of tokens that says nothing does not hold a request for ever."""

    async def never(*_):
        await anyio.sleep_forever()

    file = tmp_path / "key.json"
    file.write_text(json.dumps(service_account(9)))
    tokens = GsTokens({"GOOGLE_APPLICATION_CREDENTIALS": str(file)}, never, 0.2)
    with anyio.fail_after(60), pytest.raises(AttemptFailed, check=that(comes_from="gs_token.GsTokens._fetch")):
        await tokens.token()


# What is refused


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", that(comes_from="gs.GsObjectStore._page", names="JSONDecodeError")),
        ("[]", that(comes_from="gs_credentials._credentials")),
        ("{}", that(comes_from="gs_credentials._credentials")),
        ('{"type": "gdch_service_account"}', that(comes_from="gs.GsObjectStore._page", names="gdch_service_account")),
        (
            '{"type": "service_account", "token_uri": "http://example.com/token"}',
            that(comes_from="gs_credentials._check_address"),
        ),
        (
            '{"type": "external_account", "credential_source": {"url": "http://169.254.169.254"}}',
            that(comes_from="gs_credentials._credentials"),
        ),
        (
            '{"type": "external_account", "credential_source": {"executable": {"command": "x"}}}',
            that(comes_from="gs_credentials._credentials"),
        ),
        ('{"type": "authorized_user"}', that(comes_from="gs.GsObjectStore._page", names="missing")),
    ],
)
async def test_files_that_cannot_be_used(stage: Stage, tmp_path, content, said) -> None:
    """Are named, with what is wrong; nothing is sent, run or guessed."""
    store = stage.signed(tmp_path / "key.json", {})
    (tmp_path / "key.json").write_text(content)
    with pytest.raises(NoStoreCredentials, check=said) as raised:
        await store.list()
    assert "key.json" in str(raised.value)
    assert stage.server.served == []


async def test_no_file(stage: Stage, tmp_path) -> None:
    """Has an error of its own, which is not waited for and says where credentials were looked for."""
    stage.environment["HOME"] = str(tmp_path)
    with pytest.raises(NoStoreCredentials, check=that(comes_from="gs.GsObjectStore._page", names="gcloud")):
        await check_store(stage.store(anonymous=False), patience_s=60)
    stage.environment["GOOGLE_APPLICATION_CREDENTIALS"] = str(tmp_path / "none.json")
    with pytest.raises(NoStoreCredentials, check=that(comes_from="gs.GsObjectStore._page", names="none.json")):
        await check_store(stage.store(anonymous=False), patience_s=60)
    assert stage.server.served == []


async def test_no_secret_is_told(stage: Stage, tmp_path, caplog, authorized_user) -> None:
    """Neither in errors, nor in the log, whatever goes wrong."""
    caplog.set_level(logging.DEBUG)
    store = stage.signed(tmp_path / "user.json", authorized_user)
    with pytest.raises(StoreAccessDenied) as raised:
        await store.list()
    stage.office.identities["a-refresh-token"] = KEY
    other = stage.store(anonymous=False)
    await other.put("k", b"x")
    texts = [caplog.text, str(raised.value), repr(other), repr(other._connection._tokens)]
    for secret in ("a-refresh-token", "a-client-secret", "ya29.", "PRIVATE KEY"):
        assert not any(secret in text for text in texts)
    assert private_key().startswith("-----BEGIN")


def test_which_file(tmp_path) -> None:
    """The one that is named, then gcloud's, if it is there."""
    assert str(credentials_file({"GOOGLE_APPLICATION_CREDENTIALS": "/x"})) == "/x"
    gcloud = tmp_path / ".config" / "gcloud"
    gcloud.mkdir(parents=True)
    with pytest.raises(AttemptFailed, check=that(comes_from="gs_token.credentials_file")):
        credentials_file({"HOME": str(tmp_path)})
    (gcloud / "application_default_credentials.json").write_text("{}")
    assert credentials_file({"HOME": str(tmp_path)}) == gcloud / "application_default_credentials.json"
    with pytest.raises(AttemptFailed, check=that(comes_from="gs_token.credentials_file")):
        credentials_file({})
