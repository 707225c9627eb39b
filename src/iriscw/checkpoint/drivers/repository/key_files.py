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


@attrs.frozen
class KeyText:
    """What a file of keys has, and where that is, for people."""

    text: bytes = attrs.field(repr=False)
    where: str


def opened_keys(files: KeyFiles) -> Protection:
    """Read all keys.

    Raises:
        KeyFileUnusable: a file cannot be used.
        InvalidKey: one has not what it should have.
        SignerNotTrusted: a machine would refuse what it signs itself.
        ProtectionExtraMissing: the package ``cryptography`` is not installed.
    """
    return protection_of(
        sign_with=_one(files.sign_with),
        trust=_all(files.trust, TRUST_MODE),
        encrypt_with=_one(files.encrypt_with),
        decrypt_with=_all(files.decrypt_with, SECRET_MODE),
        unprotected_too=files.unprotected_too,
    )


def protection_of(
    *,
    sign_with: KeyText | None = None,
    trust: Sequence[KeyText] = (),
    encrypt_with: KeyText | None = None,
    decrypt_with: Sequence[KeyText] = (),
    unprotected_too: bool = False,
) -> Protection:
    """Return what keys are, wherever they were read.

    Raises:
        InvalidKey: a text has not what it should have.
        SignerNotTrusted: a machine would refuse what it signs itself.
        ProtectionExtraMissing: the package ``cryptography`` is not installed.
    """
    signer = signer_of(sign_with.text, sign_with.where) if sign_with is not None else None
    trusted: dict[str, Holds] = {}
    for each in trust:
        trusted.update(verifiers_of(each.text, each.where))
    if signer is not None and sign_with is not None and trusted and signer.key not in trusted:
        raise SignerNotTrusted(f"{sign_with.where} signs with the key {signer.key}, which this machine does not trust")
    own: AesGcmKey | None = None
    keys: dict[str, RepositoryKey] = {}
    for each in decrypt_with:
        keys.update((key.key, key) for key in secret_keys_of(each.text, each.where))
    if encrypt_with is not None:
        own, *others = secret_keys_of(encrypt_with.text, encrypt_with.where)
        if others:
            raise InvalidKey(f"{encrypt_with.where} has {len(others) + 1} keys, and one is meant")
        keys[own.key] = own
    return Protection(signer, trusted, own, keys, unprotected_too)


def _one(path: Path | None) -> KeyText | None:
    return KeyText(_read(path, SECRET_MODE), str(path)) if path is not None else None


def _all(places: Sequence[Path], forbidden: int) -> list[KeyText]:
    found = [KeyText(_read(path, forbidden), str(path)) for path in _files(places)]
    if places and not found:
        raise KeyFileUnusable(f"there is no key file in {', '.join(map(str, places))}")
    return found


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
