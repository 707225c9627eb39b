"""The file by which clients find a served simulation and are let in."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from iriscw.files import make_private_folder, write_atomic
from iriscw.rpc.tokens import Secret
from iriscw_sims.serve.door import TOKEN_PREFIX

NAME = "iriscw-sim"
"""Of the cluster, the context and the user in a kubeconfig."""


def kubeconfig(url: str, token: Secret, certificate: bytes = b"") -> dict[str, Any]:
    """Return a kubeconfig; it holds the token, for want of TLS also in the server's address (see ``door``)."""
    secure = url.startswith("https:")
    cluster = {"server": url if secure else f"{url}{TOKEN_PREFIX}{token.reveal()}"}
    if certificate:
        cluster["certificate-authority-data"] = base64.b64encode(certificate).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token.reveal()}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }


def write_kubeconfig(path: Path, url: str, token: Secret, certificate: bytes = b"") -> None:
    """Write a kubeconfig that nobody else reads; JSON is YAML, too.

    Raises:
        OSError: as the file system says it.
    """
    make_private_folder(path.parent)
    write_atomic(path, json.dumps(kubeconfig(url, token, certificate), indent=2).encode() + b"\n")
