"""The file that lets clients in: private, and with the token where each client looks for it."""

import base64
import json
import stat

from iriscw.rpc.tokens import Secret
from iriscw_sims.serve.kubeconfig import kubeconfig, write_kubeconfig

TOKEN = Secret("abc")


def test_the_token_is_in_the_address_for_want_of_tls():
    """client-go sends none over plain HTTP; others take the header's."""
    made = kubeconfig("http://127.0.0.1:1", TOKEN)
    assert made["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:1/t/abc"}
    assert made["users"][0]["user"] == {"token": "abc"}


def test_with_tls_the_address_is_clean():
    """The header carries the token, and the certificate is trusted."""
    cluster = kubeconfig("https://127.0.0.1:1", TOKEN, b"PEM")["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:1"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"PEM"


def test_nobody_else_reads_it(tmp_path):
    """Mode 0600, in a folder of 0700, and all its names fit together."""
    path = tmp_path / "new" / "config"
    write_kubeconfig(path, "http://127.0.0.1:1", TOKEN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    read = json.loads(path.read_text())
    context = next(each["context"] for each in read["contexts"] if each["name"] == read["current-context"])
    assert context["cluster"] in [each["name"] for each in read["clusters"]]
    assert context["user"] in [each["name"] for each in read["users"]]
