"""The kubelet stub itself: who may ask it, what it answers, and that it ends."""

import errno
import http.client
import ssl

import pytest
from kube_kubelet import find_kubelet, running_kubelet
from kube_server import NoBinariesError

from raised import that

pytestmark = pytest.mark.slow


@pytest.fixture
def kubelet(real_server, tmp_path):
    """One without pods."""
    try:
        program = find_kubelet()
    except NoBinariesError as error:
        pytest.skip(f"no kubelet: {error}")
    with running_kubelet(program, real_server, tmp_path) as running:
        yield running


def get(kubelet, context, path):
    """Ask it as the API server would."""
    connection = http.client.HTTPSConnection("127.0.0.1", kubelet.port, context=context, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_only_the_api_server_is_answered(real_server, kubelet):
    """It runs commands: nobody else on this machine may ask for any."""
    stranger = ssl.create_default_context(cafile=str(real_server.files.authority))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        get(kubelet, stranger, "/containerLogs/iris/p/c")


def test_logs_of_pods(real_server, kubelet):
    """Folders are pods, files are logs; a name leads nowhere else."""
    folder = kubelet.pod("iris", "p")
    (folder / "c.log").write_bytes(b"one\ntwo\nthree")
    (folder / "c.ended").touch()
    ask = real_server.context

    def log(query):
        return get(kubelet, ask, f"/containerLogs/iris/p/c?{query}")

    assert log("") == (200, b"one\ntwo\nthree")
    for lines, text in ((0, b""), (1, b"three"), (2, b"two\nthree"), (3, b"one\ntwo\nthree"), (9, b"one\ntwo\nthree")):
        assert log(f"tailLines={lines}") == (200, text)
    (folder / "c.log").write_bytes(b"one\n\ntwo\n")
    for lines, text in ((0, b""), (1, b"two\n"), (2, b"\ntwo\n"), (3, b"one\n\ntwo\n")):
        assert log(f"tailLines={lines}") == (200, text)
    assert log("limitBytes=2") == (200, b"on")
    assert log("follow=true") == (200, b"one\n\ntwo\n")
    assert log("previous=true")[0] == 400
    assert get(kubelet, ask, "/containerLogs/iris/none/c")[0] == 404
    for path in ("iris/..%2Firis%2Fp/c", "iris/p/..%2Fp%2Fc", "iris/%2e%2e/c", "%2e/p/c"):
        assert get(kubelet, ask, f"/containerLogs/{path}")[0] != 200


def test_it_ends(real_server, tmp_path):
    """With its block."""
    with running_kubelet(find_kubelet(), real_server, tmp_path / "k") as running:
        assert get(running, real_server.context, "/containerLogs/iris/p/c")[0] == 404
    with pytest.raises(OSError, check=that(errno=errno.ECONNREFUSED)):
        get(running, real_server.context, "/containerLogs/iris/p/c")
