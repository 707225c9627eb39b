"""A worker's token is a Secret of its own, made before its pod, and gone with it."""

import base64
from random import Random

import attrs
import pytest
from kube_shell import LOST, OK, PODS, POOLS, SETTINGS, SILENT, pod_spec, pool_spec, refusal

from iriscw.cloud.kube.handing import drop_token
from iriscw.cloud.kube.pods import create_pod
from iriscw.cloud.kube.pools import create_pool
from iriscw.cloud.model import Forbidden, Gone, QuotaExceeded, Unavailable

SECRETS = "/api/v1/namespaces/iris/secrets"
WITH_TOKENS = attrs.evolve(SETTINGS, tokens=True, attempts=2)
TOKEN = "the-token"


def create(spec=None):
    """Ask for a pod with a token."""
    return create_pod(WITH_TOKENS, spec or pod_spec(), Random(1), token=TOKEN)


@pytest.fixture
def pool(server):
    """A pool that is there; requests are counted from now on."""
    found = server.run(create_pool(SETTINGS, pool_spec(), Random(1)))
    server.requests.clear()
    return found


def test_the_secret_comes_first_and_belongs_to_the_pool(server, pool):
    """It has the pod's name and labels and nothing but the token, which stands nowhere in the pod."""
    server.run(create())
    assert server.said() == [("GET", f"{POOLS}/slice-1"), ("POST", SECRETS), ("POST", PODS)]
    (secret,) = server.objects(SECRETS)
    (pod,) = server.objects(PODS)
    assert base64.b64decode(secret["data"]["token"]).decode() == TOKEN
    assert secret["metadata"]["name"] == pod["metadata"]["name"]
    assert secret["metadata"]["labels"] == pod["metadata"]["labels"]
    assert secret["metadata"]["ownerReferences"] == pod["metadata"]["ownerReferences"]
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pool.uid
    assert TOKEN not in str(pod)


def test_nothing_shows_the_token(server, pool):
    """Not the requests' repr, which may end in a log."""
    server.run(create())
    shown = repr(server.requests)
    assert TOKEN not in shown
    assert base64.b64encode(TOKEN.encode()).decode() not in shown


def test_it_may_be_asked_for_again(server, pool):
    """An answer that was lost, or a Secret that is there already: the pod follows, and there is one Secret."""
    server.run(create(), [OK, SILENT])
    server.run(create())
    assert len(server.objects(SECRETS)) == len(server.objects(PODS)) == 1


@pytest.mark.parametrize(
    ("fates", "error"),
    [
        ([OK, LOST, LOST], Unavailable),
        ([OK, refusal(403, "Forbidden", "exceeded quota: q, requested: secrets=1")], QuotaExceeded),
        ([OK, refusal(403, "Forbidden", 'cannot create resource "secrets"')], Forbidden),
        ([OK, refusal(404, "NotFound", 'namespaces "iris" not found')], Unavailable),
    ],
)
def test_without_its_secret_no_pod_is_made(server, pool, fates, error):
    """The pod could not start."""
    with pytest.raises(error):
        server.run(create(), fates)
    assert ("POST", PODS) not in server.said()


def test_without_a_pool_nothing_is_made(server):
    """A Secret that nothing owns would stay for ever."""
    with pytest.raises(Gone):
        server.run(create())
    assert server.objects(SECRETS) == []


def test_it_goes_with_its_pod(server, pool):
    """Once or twice; what is no name is not asked for."""
    server.run(create())
    for _ in range(2):
        server.run(drop_token(WITH_TOKENS, "slice-1-0", Random(1)))
    assert server.objects(SECRETS) == []
    assert list(drop_token(WITH_TOKENS, "../pods/x", Random(1))) == [], "nothing is asked"
    with pytest.raises(Forbidden):
        server.run(drop_token(WITH_TOKENS, "slice-1-0", Random(1)), [refusal(403, "Forbidden", "no")])
