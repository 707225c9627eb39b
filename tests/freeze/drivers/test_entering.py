"""What is started on behalf of others has none of our keys."""

import ctypes
import os
import subprocess
import sys

import pytest

from iriscw.freeze.drivers.namespace.entering import KEYCTL, without_keys

libc = ctypes.CDLL(None, use_errno=True)
SEARCH = """
import ctypes, sys
libc = ctypes.CDLL(None)
print(libc.syscall(int(sys.argv[1]), 10, -3, b"user", sys.argv[2].encode(), 0) > 0)
"""


@pytest.mark.skipif(os.uname().machine not in KEYCTL, reason="keys have another number on this architecture")
def test_who_is_started_without_keys_has_none_and_we_keep_ours():
    """The session's keyring goes to whatever is started, and with it the right to use what is in there."""
    name = f"iriscw-test-{os.getpid()}"
    number = KEYCTL[os.uname().machine]
    add = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
    if libc.syscall(add, b"user", name.encode(), b"x", ctypes.c_size_t(1), -3) < 0:
        pytest.skip(f"no key can be made here: {os.strerror(ctypes.get_errno())}")

    def finds() -> str:
        words = [sys.executable, "-I", "-S", "-c", SEARCH, str(number), name]
        return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    try:
        assert finds() == "True"
        assert without_keys(finds) == "False"
        assert finds() == "True"
    finally:
        key = libc.syscall(number, 10, -3, b"user", name.encode(), 0)
        libc.syscall(number, 9, key, -3)  # KEYCTL_UNLINK


def test_what_fails_without_keys_fails_as_it_is():
    """The error is that of the work."""

    def fails():
        raise LookupError("this is it")

    with pytest.raises(LookupError):
        without_keys(fails)
