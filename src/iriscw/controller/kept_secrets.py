"""The controller's secrets: those of a mounted folder, else its own, which it makes once and keeps."""

from __future__ import annotations

import ssl
from pathlib import Path

import anyio.to_thread
import attrs

from iriscw.config.model import ClusterConfig
from iriscw.controller.mounted_secrets import METRICS_TOKEN, GivenSecrets, read_secrets
from iriscw.controller.tokens import ControllerTokens, keep_token
from iriscw.files import StateUnusable, make_private_folder
from iriscw.rpc.tokens import Secret


@attrs.frozen
class KeptSecrets:
    """What the controller knows others by, and what its own door shows."""

    tokens: ControllerTokens
    admin_token: Secret
    given: GivenSecrets | None = None
    """What the mounted folder holds; None: there is none."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The door's TLS, if it has any."""
        return None if self.given is None else self.given.tls


async def open_secrets(config: ClusterConfig, state_dir: Path) -> KeptSecrets:
    """Read the secrets, or make them.

    Raises:
        StateUnusable: the folder for them cannot be made.
        SecretsMissing, InvalidTls: see :func:`~iriscw.controller.mounted_secrets.read_secrets`.
    """
    folder = state_dir / "secrets"
    try:
        await anyio.to_thread.run_sync(make_private_folder, folder)
    except OSError as error:
        raise StateUnusable(f"{folder}: {error.strerror or error}") from error
    given = None
    if config.controller.secrets_dir:
        given = await anyio.to_thread.run_sync(read_secrets, Path(config.controller.secrets_dir))
    if given is not None:
        tokens = ControllerTokens(given.cluster_secret, [given.admin_token], given.metrics_token)
        return KeptSecrets(tokens, given.admin_token, given)
    secret = await anyio.to_thread.run_sync(keep_token, folder / "cluster-secret")
    admin_token = await anyio.to_thread.run_sync(keep_token, folder / "admin-token")
    metrics = await anyio.to_thread.run_sync(keep_token, folder / METRICS_TOKEN)
    return KeptSecrets(ControllerTokens(secret, [admin_token], metrics), admin_token)
