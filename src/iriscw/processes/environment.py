"""Which variables a program is given from ours: what a login shell would have, and nothing else.

A program that iriscw starts inherits nothing; it gets this, then what was asked for, then what iriscw says.
So no token of the one who started it leaks into it.
"""

from __future__ import annotations

from collections.abc import Mapping

CARRIED = (
    "CUDA_DEVICE_ORDER",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "NVIDIA_DRIVER_CAPABILITIES",
    "PATH",
    "PYTHONPATH",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
)

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def basic_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return what of the environment ``ours`` goes to every program; there is always a ``PATH``."""
    return {"PATH": DEFAULT_PATH, **{name: ours[name] for name in CARRIED if name in ours}}
