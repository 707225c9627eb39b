"""Addresses as people write them."""

import pytest
from hypothesis import given, strategies as st

from iriscw.rpc.address import Address
from iriscw.rpc.errors import InvalidAddress


@pytest.mark.parametrize(
    ("text", "host", "port", "tls"),
    [
        ("controller:10000", "controller", 10000, False),
        ("http://controller:123", "controller", 123, False),
        ("http://controller:123/", "controller", 123, False),
        ("https://c.example", "c.example", 10000, True),
        ("10.0.0.1", "10.0.0.1", 10000, False),
        ("[::1]:5", "::1", 5, False),
        ("http://[fe80::1]:5", "fe80::1", 5, False),
    ],
)
def test_tcp(text: str, host: str, port: int, tls: bool) -> None:
    """With or without a scheme, with or without a port; what is printed reads back."""
    address = Address.parse(text)
    assert (address.host, address.port, address.tls) == (host, port, tls)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["unix:/run/x.sock", "unix:///run/x.sock"])
def test_unix(text: str) -> None:
    """A unix socket, in both spellings."""
    assert Address.parse(text) == Address(path="/run/x.sock")
    assert str(Address.parse(text)) == "unix:/run/x.sock"


@pytest.mark.parametrize(
    "text",
    [
        "", ":1", "a:0", "a:70000", "a:b", "ftp://a:1", "http://a:1/path", "http://u:p@a:1", "a b:1", "unix:x",
        "unix:", "unix:/" + "x" * 107, "http://[::1", "a:1?q", "a\n:1",
    ],
)  # fmt: skip
def test_no_address(text: str) -> None:
    """What cannot be dialled is refused by name."""
    with pytest.raises(InvalidAddress):
        Address.parse(text)


@given(st.text(max_size=40))
def test_any_text(text: str) -> None:
    """Any text is an address that prints as it reads, or a named error."""
    try:
        address = Address.parse(text)
    except InvalidAddress:
        return
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    ("text", "local"),
    [("127.0.0.5:1", True), ("localhost:1", True), ("[::1]:1", True), ("unix:/x", True), ("controller:1", False)],
)
def test_loopback(text: str, local: bool) -> None:
    """Only what surely stays on this machine counts as loopback."""
    assert Address.parse(text).is_loopback is local
