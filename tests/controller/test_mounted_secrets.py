"""Secrets that somebody else made: taken as they are, or named if they are missing."""

from pathlib import Path

import attrs
import pytest
import trustme
from controller_world import CLIENTS, CONFIG, Drivers, submission

from iriscw.cloud.drivers.fake import FakeCloud
from iriscw.cloud.model import Capacity
from iriscw.cluster import Cluster
from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.controller.errors import SecretsMissing
from iriscw.controller.mounted_secrets import (
    ADMIN_TOKEN,
    AUTHORITY,
    CERTIFICATE,
    CLUSTER_SECRET,
    METRICS_TOKEN,
    PRIVATE_KEY,
    read_secrets,
)
from iriscw.files import StateUnusable
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import InsecureDoor, InvalidTls
from iriscw.rpc.tls import client_tls
from raised import that


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A mounted Secret with both tokens."""
    made = tmp_path / "secrets"
    made.mkdir()
    (made / CLUSTER_SECRET).write_text("the-cluster-secret\n")
    (made / ADMIN_TOKEN).write_text("the-admin-token\n")
    return made


def certify(folder: Path) -> trustme.CA:
    """Add a certificate for the loopback."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(folder / CERTIFICATE)
    issued.private_key_pem.write_to_path(folder / PRIVATE_KEY)
    return authority


def test_tokens_are_taken(folder: Path) -> None:
    """Both of them, shown nowhere; without a certificate there is no TLS."""
    found = read_secrets(folder)
    assert found is not None
    assert (found.cluster_secret.reveal(), found.admin_token.reveal()) == ("the-cluster-secret", "the-admin-token")
    assert found.tls is None
    assert "the-" not in repr(found)


def test_a_token_for_metrics_may_be_there(folder: Path) -> None:
    """Earlier releases made none: without it nobody but clients reads figures."""
    assert read_secrets(folder).metrics_token is None  # type: ignore[union-attr]
    (folder / METRICS_TOKEN).write_text("the-metrics-token\n")
    found = read_secrets(folder)
    assert found is not None
    assert found.metrics_token is not None
    assert found.metrics_token.reveal() == "the-metrics-token"
    assert "the-" not in repr(found)
    (folder / METRICS_TOKEN).write_text("two words")
    with pytest.raises(StateUnusable, check=that(names=METRICS_TOKEN)):
        read_secrets(folder)


def test_no_folder(tmp_path: Path) -> None:
    """Then the controller makes tokens of its own."""
    assert read_secrets(tmp_path / "secrets") is None


@pytest.mark.parametrize("name", [CLUSTER_SECRET, ADMIN_TOKEN])
def test_a_token_that_is_missing(folder: Path, name: str) -> None:
    """It is named: one that the controller made up would lock out every worker that lives."""
    (folder / name).unlink()
    with pytest.raises(SecretsMissing, check=that(names=name)):
        read_secrets(folder)
    (folder / name).write_text("two words")
    with pytest.raises(StateUnusable, check=that(names=name)):
        read_secrets(folder)


@pytest.mark.parametrize("name", [CERTIFICATE, PRIVATE_KEY])
def test_half_a_certificate(folder: Path, name: str) -> None:
    """The other half is named."""
    certify(folder)
    (folder / name).unlink()
    with pytest.raises(SecretsMissing, check=that(names=name)):
        read_secrets(folder)
    (folder / name).write_text("nonsense")
    with pytest.raises(InvalidTls):
        read_secrets(folder)


def controller(folder: Path, tmp_path: Path, host: str = "127.0.0.1") -> Controller:
    """A controller whose secrets lie in the folder."""
    config = build_config(CONFIG)
    config = attrs.evolve(config, controller=attrs.evolve(config.controller, secrets_dir=str(folder)))
    cloud = FakeCloud(budget=Capacity(100_000, 100 << 30), cluster="test")
    return Controller(config, state_dir=tmp_path / "state", drivers=Drivers(cloud), host=host)


async def test_a_controller_with_given_secrets(folder: Path, tmp_path: Path) -> None:
    """Its door speaks TLS with the given certificate, and knows the given token; it minted none."""
    authority = certify(folder)
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    async with controller(folder, tmp_path) as running:
        assert str(running.address).startswith("https://127.0.0.1:")
        assert running.admin_token.reveal() == "the-admin-token"
        assert running.secrets_dir == folder
        tls = client_tls(authority=tmp_path / "ca.crt")
        async with RpcChannel(running.address, running.admin_token, tls=tls) as channel:
            job = await channel.unary(CLIENTS + "SubmitJob", submission("k1"), v1.SubmitJobResponse)
            assert job.job_id
    assert not [path for path in (tmp_path / "state" / "secrets").iterdir() if path.is_file()]


@pytest.mark.parametrize("beside", [True, False])
async def test_a_cluster_trusts_its_own_door(folder: Path, tmp_path: Path, beside: bool) -> None:
    """The client of an embedded controller knows its certificate: by its authority if that lies there, or by itself."""
    authority = certify(folder)
    if beside:
        authority.cert_pem.write_to_path(folder / AUTHORITY)
    config = build_config(CONFIG)
    config = attrs.evolve(config, controller=attrs.evolve(config.controller, secrets_dir=str(folder)))
    drivers = Drivers(FakeCloud(budget=Capacity(100_000, 100 << 30), cluster="test"))
    async with Cluster.open(config, drivers=drivers, workdir=tmp_path / "state") as cluster:
        assert cluster.address.startswith("https://")
        assert (await cluster.client.status()).name == config.name


async def test_without_a_certificate_no_door_off_loopback(folder: Path, tmp_path: Path) -> None:
    """Tokens do not cross a network in plain text, unless somebody says that it is trusted."""
    with pytest.raises(InsecureDoor, check=that(names="certificates")):
        async with controller(folder, tmp_path, "0.0.0.0"):
            pass
