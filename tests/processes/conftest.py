"""What the tests of processes share."""

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def small_disk(tmp_path: Path):
    """A disk of 1 MiB, if this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a disk of its own")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
