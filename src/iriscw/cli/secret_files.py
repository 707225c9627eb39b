"""The files with an installation's tokens, keys and certificates: made where they are missing, and read.

Certificates are made by the ``openssl`` program, which is where people have ``kubectl``, too: no library of ours can
make them. Its configuration is written for each call, so that nothing of the machine's own gets into them.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from iriscw.deploy.errors import NoSecretMaterial
from iriscw.deploy.names import AUTHORITY_KEY, METRICS_TOKEN_KEY
from iriscw.deploy.secrets import AUTHORITY_PRIVATE_KEY, FILE_BYTES, PAIR, SENT, TOKENS
from iriscw.files import make_private_folder, read_bounded, write_atomic
from iriscw.rpc.tokens import mint_token, write_token_file

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 397
"""What browsers take at most; a controller's certificate is made anew by deleting two files."""

OPENSSL_S: Final = 60.0
"""Seconds for one key and certificate: they take hundredths of one."""

_AUTHORITY_CONFIG: Final = """\
[req]
distinguished_name = name
prompt = no
x509_extensions = extensions
[name]
CN = {name}
[extensions]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""

_SERVER_CONFIG: Final = """\
[req]
distinguished_name = name
prompt = no
x509_extensions = extensions
[name]
CN = {name}
[extensions]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


def make_missing(folder: Path, cluster: str, host_names: Sequence[str]) -> tuple[str, ...]:
    """Make the files that are missing in a folder (0700, each 0600), and give their names. Blocks.

    Args:
        folder: Where to.
        cluster: Whose authority it is, for people.
        host_names: Names and addresses that the controller's certificate holds.

    Raises:
        NoSecretMaterial: they cannot be made or written.
    """
    try:
        make_private_folder(folder)
        made = [name for name in (*TOKENS, METRICS_TOKEN_KEY) if not (folder / name).exists()]
        for name in made:
            write_token_file(folder / name, mint_token())
        made += _certificates(folder, cluster, host_names)
    except OSError as error:
        raise NoSecretMaterial(f"{folder}: {error.strerror or error}") from error
    return tuple(made)


def _certificates(folder: Path, cluster: str, host_names: Sequence[str]) -> list[str]:
    """Make the controller's certificate, and the authority that signs it, as far as they are missing.

    Certificates of somebody else's authority are as good: ``ca.crt`` has to be there, its key has not.
    """
    authority = (AUTHORITY_KEY, AUTHORITY_PRIVATE_KEY)
    there = {name for name in (*authority, *PAIR) if (folder / name).exists()}
    if there >= {*PAIR, AUTHORITY_KEY}:
        return []
    if there & {*PAIR} or len(there) == 1:
        text = "either all three of tls.crt, tls.key and ca.crt are brought, or none"
        raise NoSecretMaterial(f"{folder} has {', '.join(sorted(there))} only: {text}")
    made: list[str] = []
    if not there:
        config = _AUTHORITY_CONFIG.format(name=f"iriscw {cluster}")
        _issue(folder, authority, config, ["-days", str(AUTHORITY_DAYS)])
        made += authority
    config = _SERVER_CONFIG.format(name=host_names[0][:64], names=", ".join(_held(name) for name in host_names))
    signed = ["-CA", str(folder / AUTHORITY_KEY), "-CAkey", str(folder / AUTHORITY_PRIVATE_KEY)]
    _issue(folder, PAIR, config, [*signed, "-days", str(CERTIFICATE_DAYS)])
    return [*made, *PAIR]


def _held(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _issue(folder: Path, names: tuple[str, str], config: str, arguments: Sequence[str]) -> None:
    """Have a key and its certificate made beside their place, and put them there whole, the key first."""
    program = shutil.which("openssl")
    if program is None:
        raise NoSecretMaterial("there is no openssl on this machine: install it, or bring tls.crt, tls.key and ca.crt")
    with tempfile.TemporaryDirectory(prefix=".iriscw-", dir=folder) as made:
        certificate, key, written = (Path(made) / name for name in ("certificate", "key", "config"))
        write_atomic(written, config.encode(), durable=False)
        command = [program, "req", "-x509", "-config", str(written), "-nodes", "-sha256"]
        command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", str(key)]
        command += ["-out", str(certificate), *arguments]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": made}  # no OPENSSL_CONF of the machine's
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program; nothing in it is a stranger's
                command, capture_output=True, text=True, check=False, timeout=OPENSSL_S, env=environment
            )
        except subprocess.TimeoutExpired:
            raise NoSecretMaterial(f"openssl has not ended after {OPENSSL_S:g} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["it said nothing"]
            raise NoSecretMaterial(f"openssl failed (version 3 or later is needed): {said[-1]}")
        for name, path in zip(reversed(names), (key, certificate), strict=True):
            write_atomic(folder / name, path.read_bytes())


def read_files(folder: Path) -> Mapping[str, bytes]:
    """Read the files that are sent, as far as they are there. Blocks.

    Raises:
        NoSecretMaterial: there is no such folder; or one cannot be read, or is too large.
    """
    if not folder.is_dir():
        raise NoSecretMaterial(f"there is no folder {folder}: --secrets-to makes it, with what belongs there")
    try:
        return {name: read_bounded(folder / name, FILE_BYTES) for name in SENT if (folder / name).exists()}
    except (OSError, ValueError) as error:
        raise NoSecretMaterial(f"{folder}: {error}") from error
