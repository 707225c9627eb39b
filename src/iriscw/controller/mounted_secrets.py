"""The controller's secrets as somebody else made them: a folder with files, such as a mounted Secret.

Where the folder is there, nothing is minted: a controller that made up a cluster secret of its own would know none of
the workers that live, and would be found out only then. So what is missing is told by name. TLS is taken if its two
files are there; whether the controller may do without is for its door to say. All is read once, at the start.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import attrs

from iriscw.controller.errors import SecretsMissing
from iriscw.files import StateUnusable
from iriscw.rpc.errors import InvalidTokenFile
from iriscw.rpc.tls import server_tls
from iriscw.rpc.tokens import Secret, read_token_file

CLUSTER_SECRET = "cluster-secret"  # noqa: S105 - the names of files, as all of these
ADMIN_TOKEN = "admin-token"  # noqa: S105
METRICS_TOKEN = "metrics-token"  # noqa: S105
CERTIFICATE = "tls.crt"
PRIVATE_KEY = "tls.key"
AUTHORITY = "ca.crt"


@attrs.frozen
class GivenSecrets:
    """What the folder holds."""

    cluster_secret: Secret
    admin_token: Secret
    metrics_token: Secret | None = None
    """Opens ``/metrics`` and nothing else; None: the folder has none."""
    tls: ssl.SSLContext | None = attrs.field(default=None, repr=False)
    trusted: Path | None = None
    """Whom a client has to trust to know the controller by its certificate: its authority, if that lies there too, else
    the certificate itself."""


def read_secrets(folder: Path) -> GivenSecrets | None:
    """Read the folder; None if there is none. Blocks on the disk.

    Raises:
        SecretsMissing: the folder is there, and lacks a token, or one half of a certificate and its key.
        StateUnusable: a file in it cannot be read, or holds no token.
        InvalidTls: certificate and key are none, or do not belong together.
    """
    if not folder.is_dir():
        return None
    missing = [name for name in (CLUSTER_SECRET, ADMIN_TOKEN) if not (folder / name).exists()]
    halves = [name for name in (CERTIFICATE, PRIVATE_KEY) if (folder / name).exists()]
    missing += [name for name in (CERTIFICATE, PRIVATE_KEY) if len(halves) == 1 and name not in halves]
    if missing:
        raise SecretsMissing(
            f"{folder} has no {' and no '.join(missing)}: make the Secret that is mounted there, or say another"
            " folder in controller.secrets_dir"
        )
    tls = server_tls(folder / CERTIFICATE, folder / PRIVATE_KEY) if halves else None
    trusted = next(folder / name for name in (AUTHORITY, CERTIFICATE) if (folder / name).exists()) if halves else None
    metrics = _token(folder / METRICS_TOKEN) if (folder / METRICS_TOKEN).exists() else None
    return GivenSecrets(_token(folder / CLUSTER_SECRET), _token(folder / ADMIN_TOKEN), metrics, tls, trusted)


def _token(path: Path) -> Secret:
    try:
        return read_token_file(path)
    except InvalidTokenFile as error:
        raise StateUnusable(str(error)) from error
