"""Which proxy the environment names: by Go's rules, of which these are its own tests and what clusters write."""

import pytest

from iriscw.rpc.proxies import proxy_of

GO = (
    "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, 10.0.0.0/30, "
    "2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64"
)


@pytest.mark.parametrize(
    ("host", "proxied"),
    [
        ("localhost", False),
        ("127.0.0.1", False),
        ("127.0.0.2", False),
        ("[::1]", False),
        ("[::2]", True),
        ("192.168.1.1", False),
        ("192.168.1.2", True),
        ("192.168.1.2:81", False),
        ("192.168.1.3", False),
        ("192.168.1.4", True),
        ("10.0.0.2", False),
        ("10.0.0.4", True),
        ("[2001:db8::52:0:1]", False),
        ("[2001:db8::52:0:2]", True),
        ("[2001:db8::52:0:2]:443", False),
        ("[2001:db8::52:0:3]", False),
        ("[2002:db8:a::123]", False),
        ("[fe80::424b:c8be:1643:a1b6]", True),
        ("barbaz.net", True),
        ("www.barbaz.net", False),
        ("foobar.com", False),
        ("www.foobar.com", False),
        ("foofoobar.com", True),
        ("baz.com", True),
        ("localhost.net", True),
        ("local.localhost", True),
        ("barbarbaz.net", True),
        ("wildcard.io", True),
        ("nested.wildcard.io", False),
        ("awildcard.io", True),
        ("FooBar.COM", False),
        ("[::ffff:192.168.1.1]", False),
    ],
)
def test_gos_table(host, proxied):
    """Port 80 unless the URL says another."""
    environ = {"HTTP_PROXY": "http://proxy", "NO_PROXY": GO}
    assert proxy_of(f"http://{host}/", environ) == ("http://proxy" if proxied else None)


@pytest.mark.parametrize(
    ("exceptions", "url", "proxied"),
    [
        ("10.0.0.0/8,.svc", "https://10.96.0.1:443", False),
        ("10.0.0.0/8,.svc", "https://11.96.0.1:443", True),
        ("10.0.0.0/8,.svc", "https://kubernetes.default.svc", False),
        ("10.0.0.0/8,.svc", "https://svc", True),
        ("10.96.0.1", "https://10.96.0.1:6443", False),
        ("10.96.0.1:443", "https://10.96.0.1:6443", True),
        ("*", "https://anything.example", False),
        ("*", "https://10.1.1.1", False),
        ("*.example", "https://a.b.example", False),
        ("fd00::/8", "https://[fd12::1]", False),
        ("fd00::/8", "https://10.0.0.1", True),
        ("10.1.2.3/8", "https://10.9.9.9", False),
        ("96.0.1", "https://10.96.0.1", True),
        ("0.0.1", "https://10.0.0.1", True),
        (" , ,:443, /8,x/y", "https://a.example", True),
        ("", "https://a.example", True),
        ("a.example b.example", "https://a.example", True),
        ("a.example:x", "https://a.example", True),
    ],
)
def test_what_clusters_write(exceptions, url, proxied):
    """Networks, names below a name, ports, and what cannot be understood."""
    environ = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": exceptions}
    assert proxy_of(url, environ) == ("http://proxy:3128" if proxied else None)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"HTTPS_PROXY": "a", "https_proxy": "b"}, "a"),
        ({"https_proxy": "b"}, "b"),
        ({"HTTPS_PROXY": "", "https_proxy": "b"}, "b"),
        ({"HTTP_PROXY": "a"}, None),
        ({"ALL_PROXY": "a"}, None),
        ({"HTTPS_PROXY": "a", "no_proxy": "x.example"}, None),
        ({"HTTPS_PROXY": "a", "NO_PROXY": "y.example", "no_proxy": "x.example"}, "a"),
        ({}, None),
    ],
)
def test_which_variable(environ, found):
    """Capitals first, and the one of the scheme only."""
    assert proxy_of("https://x.example", environ) == found
    assert proxy_of("file:///x", environ) is None
    assert proxy_of("https://", environ) is None
