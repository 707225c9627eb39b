"""Tiny wheels, made without anything that builds: a folder of them is all of an index that a test needs."""

import base64
import hashlib
import io
import tarfile
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


def never_built(folder: Path, name: str = "iriscw_slow") -> None:
    """Write a source package of which the build never ends."""
    backend = "import time\ndef build_wheel(*args, **kwargs): time.sleep(1000)\n"
    backend += "get_requires_for_build_wheel = prepare_metadata_for_build_wheel = build_wheel\n"
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "slow"\nbackend-path = ["."]\n',
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "slow.py": backend,
    }
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        for each, text in files.items():
            entry = tarfile.TarInfo(f"{name}-1.0/{each}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def only(folder: Path) -> Mapping[str, str]:
    """Return the variables by which uv and pip find nothing but the wheels of a folder."""
    found = str(folder)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": found, "UV_NO_INDEX": "1", "UV_FIND_LINKS": found, "UV_OFFLINE": "1"}
