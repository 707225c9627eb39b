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

INSTALLER_PREFIXES = ("PIP_", "UV_")
INSTALLER_SETTINGS = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("CURL_CA_BUNDLE", "NETRC", "REQUESTS_CA_BUNDLE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
)
"""By which uv and pip know where packages come from, and how to get there."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def basic_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return what of the environment ``ours`` goes to every program; there is always a ``PATH``."""
    return {"PATH": DEFAULT_PATH, **{name: ours[name] for name in CARRIED if name in ours}}


def installer_settings(ours: Mapping[str, str]) -> dict[str, str]:
    """Return what of the environment ``ours`` workers get as well, for what they install: it may hold credentials."""
    return {
        name: value for name, value in ours.items() if name.startswith(INSTALLER_PREFIXES) or name in INSTALLER_SETTINGS
    }
