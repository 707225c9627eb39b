"""Packages of others that plug into iriscw, as wheels: written as any build tool would, and installed by pip."""

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path


def wheel(folder: Path, source: Path, group: str, entry: str) -> Path:
    """Write the wheel of a package of one module; ``entry`` is what it offers in the group of entry points."""
    name = source.stem
    about = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    files = {
        source.name: source.read_bytes(),
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[{group}]\n{entry}\n".encode(),
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        for name, data in files.items()
    }
    record = "".join(f"{name},sha256={digests[name]},{len(data)}\n" for name, data in files.items())
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{about}/RECORD", f"{record}{about}/RECORD,,\n")
    return path


def install(folder: Path, built: Path) -> Path:
    """Install a wheel into a folder of its own, and return that: it belongs into ``PYTHONPATH``."""
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*command, "--quiet", "--target", str(folder / "site"), str(built)], check=True, timeout=120)
    return folder / "site"
