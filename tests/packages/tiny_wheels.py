"""Tiny wheels, made without anything that builds: a folder of them is all of an index that a test needs."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def wheel(folder: Path, name: str = "iriscw_tiny", version: str = "1.0", *, needs: str = "", code: str = "") -> Path:
    """Write a wheel of one module that knows its version."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": f"VERSION = {version!r}\n{code}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: iriscw\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{each},sha256={_digest(text)},{len(text)}\n" for each, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in files.items():
            archive.writestr(each, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def only(folder: Path) -> Mapping[str, str]:
    """Return the variables by which uv and pip find nothing but the wheels of a folder."""
    found = str(folder)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": found, "UV_NO_INDEX": "1", "UV_FIND_LINKS": found, "UV_OFFLINE": "1"}
