"""Reads the keys of a machine from files: what is secret stands in no argument and in no variable.

A file may be a link, as those of a mounted Secret are. One with a secret may be read by its owner alone, and one that
says whom to trust may be changed by its owner alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from iriscw._errors import UsageError
from iriscw.checkpoint.drivers.repository.primitives import (
    AesGcmKey,
    InvalidKey,
    secret_keys_of,
    signer_of,
    verifiers_of,
)
from iriscw.checkpoint.drivers.repository.protection import Protection
from iriscw.checkpoint.repository.hiding import RepositoryKey
from iriscw.checkpoint.repository.signatures import Holds

MAX_KEY_FILE_BYTES: Final = 64 << 10
SECRET_MODE: Final = 0o077
"""What nobody else may do with a secret."""
TRUST_MODE: Final = 0o022


class KeyFileUnusable(UsageError):
    """A key file is not there, cannot be read, or is open to others. The text says which, and never what is in it."""


class SignerNotTrusted(UsageError):
    """This machine would sign with a key that it does not trust itself."""


@attrs.frozen
class KeyFiles:
    """Where the keys of a machine are.

    Attributes:
        sign_with: the private key that signs what is stored.
        trust: files of public keys, and folders of such files. One of the keys must have signed what is fetched.
        encrypt_with: the key that encrypts what is stored.
        decrypt_with: files of further keys that others, or this machine earlier, have encrypted with, and folders of
            such files.
        unprotected_too: whether what nobody has signed, or encrypted, is fetched all the same.
    """

    sign_with: Path | None = None
    trust: tuple[Path, ...] = ()
    encrypt_with: Path | None = None
    decrypt_with: tuple[Path, ...] = ()
    unprotected_too: bool = False


def opened_keys(files: KeyFiles) -> Protection:
    """Read all keys.

    Raises:
        KeyFileUnusable: a file cannot be used.
        InvalidKey: one has not what it should have.
        SignerNotTrusted: a machine would refuse what it signs itself.
        ProtectionExtraMissing: the package ``cryptography`` is not installed.
    """
    signer = None
    if files.sign_with is not None:
        signer = signer_of(_read(files.sign_with, SECRET_MODE), str(files.sign_with))
    trusted: dict[str, Holds] = {}
    for path in _files(files.trust):
        trusted.update(verifiers_of(_read(path, TRUST_MODE), str(path)))
    if files.trust and not trusted:
        raise KeyFileUnusable(f"there is no key file in {', '.join(map(str, files.trust))}")
    if signer is not None and trusted and signer.key not in trusted:
        raise SignerNotTrusted(f"{files.sign_with} signs with the key {signer.key}, which this machine does not trust")
    own, keys = _secret_keys(files)
    return Protection(signer, trusted, own, keys, files.unprotected_too)


def _secret_keys(files: KeyFiles) -> tuple[AesGcmKey | None, dict[str, RepositoryKey]]:
    own: AesGcmKey | None = None
    keys: dict[str, RepositoryKey] = {}
    for path in _files(files.decrypt_with):
        keys.update((each.key, each) for each in secret_keys_of(_read(path, SECRET_MODE), str(path)))
    if files.decrypt_with and not keys:
        raise KeyFileUnusable(f"there is no key file in {', '.join(map(str, files.decrypt_with))}")
    if files.encrypt_with is not None:
        own, *others = secret_keys_of(_read(files.encrypt_with, SECRET_MODE), str(files.encrypt_with))
        if others:
            raise InvalidKey(f"{files.encrypt_with} has {len(others) + 1} keys, and one is meant")
        keys[own.key] = own
    return own, keys


def _files(places: Sequence[Path]) -> Iterator[Path]:
    """Yield files, and those of folders: not what is hidden, as that which Kubernetes has in a mounted Secret is."""
    for place in places:
        try:
            found = sorted(place.iterdir()) if place.is_dir() else [place]
        except OSError as error:
            raise KeyFileUnusable(f"{place} cannot be read: {error.strerror}") from error
        yield from (each for each in found if each == place or not each.name.startswith("."))


def _read(path: Path, forbidden: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise KeyFileUnusable(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_KEY_FILE_BYTES:
            raise KeyFileUnusable(f"{path} is not a plain file of at most {MAX_KEY_FILE_BYTES} bytes")
        if about.st_mode & forbidden:
            mode = 0o600 if forbidden == SECRET_MODE else 0o644
            raise KeyFileUnusable(f"{path} is open to others (mode {about.st_mode & 0o777:04o}): chmod {mode:04o}")
        return file.read(MAX_KEY_FILE_BYTES)
