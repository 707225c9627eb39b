"""The keys of the agents' repository, as their Secret has them: whether an agent could use them.

They are read as an agent reads its files, and nothing of them is told but ids, which tell nothing of a secret key.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from iriscw.checkpoint.drivers.repository.key_files import (
    MAX_KEY_FILE_BYTES,
    KeyText,
    SignerNotTrusted,
    protection_of,
)
from iriscw.checkpoint.drivers.repository.primitives import InvalidKey, ProtectionExtraMissing
from iriscw.checkpoint.drivers.repository.protection import Protection
from iriscw.doctor.findings import Finding, ok, warning, wrong

HOW: Final = "docs/repository-keys.md has the commands that make keys; agents read them when they start"


def judge_texts(check: str, uses: Mapping[str, str], data: Mapping[str, Any]) -> Finding:
    """Judge the values of a Secret by what they are used for.

    Args:
        check: The check's name.
        uses: Which key of the Secret is used for what.
        data: What the Secret has, encoded.
    """
    try:
        texts = {use: _text(name, data.get(name)) for use, name in uses.items()}
        found = protection_of(
            sign_with=texts.get("sign_with"),
            trust=[texts["trust"]] if "trust" in texts else [],
            encrypt_with=texts.get("encrypt_with"),
            decrypt_with=[texts["decrypt_with"]] if "decrypt_with" in texts else [],
        )
    except (InvalidKey, SignerNotTrusted) as error:
        return wrong(check, str(error), HOW)
    except ProtectionExtraMissing as error:
        return warning(check, "whether its keys are such keys is not looked at", str(error))
    for wants, has, use in ((found.trusted, found.signer, "sign"), (found.keys, found.own, "encrypt")):
        if wants and has is None:  # a machine stores nothing that it would refuse to fetch
            text = f"{_said(found)}; agents have no key to {use} with, and so store nothing"
            return warning(check, text, f"name one of its keys as agent.repository_keys.{use}_with")
    return ok(check, _said(found))


def _text(name: str, encoded: Any) -> KeyText:
    try:
        text = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError, TypeError):
        text = b""
    if len(text) > MAX_KEY_FILE_BYTES:
        raise InvalidKey(f"{name} has more than {MAX_KEY_FILE_BYTES} bytes")
    return KeyText(text, name)


def _said(keys: Protection) -> str:
    parts = [f"signs with {keys.signer.key}"] if keys.signer is not None else []
    parts += [f"trusts {', '.join(keys.trusted)}"] if keys.trusted else []
    parts += [f"encrypts with {keys.own.key}"] if keys.own is not None else []
    others = [each for each in keys.keys if keys.own is None or each != keys.own.key]
    return "; ".join([*parts, *([f"decrypts with {', '.join(others)}"] if others else [])])
