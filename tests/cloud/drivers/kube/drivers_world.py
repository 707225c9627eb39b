"""Values that these tests share."""

from iriscw.cloud.drivers.kube.limits import TransportLimits
from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.runtime.vocabulary import MILLISECOND, SECOND

SETTINGS = KubeSettings(
    cluster="test",
    image="registry.test/worker:1",
    qps=1000,
    burst=1000,
    pause_least=10 * MILLISECOND,
    pause_most=50 * MILLISECOND,
    watch_interval=20 * MILLISECOND,
    watch_pause_least=10 * MILLISECOND,
    watch_pause_most=100 * MILLISECOND,
    watch_timeout=20 * SECOND,
    patience=10 * SECOND,
)
"""A driver in a hurry."""

LIMITS = TransportLimits(connect_s=5, request_s=5, open_s=5, silence_s=20)

PODS = "/api/v1/namespaces/iris/pods"
LIST = ApiRequest("GET", PODS)
WATCH = ApiRequest("GET", PODS, (("watch", "1"), ("resourceVersion", "1")))


def pod(number, version, **more):
    """Return a pod as the API has it, about as large as a small one."""
    labels = {"iris-managed": "true", "iris-cluster": "test"}
    metadata = {"name": f"p{number}", "namespace": "iris", "uid": f"u{number}", "resourceVersion": str(version)}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {**metadata, "labels": labels},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
        **more,
    }


def pods(*items, version=10):
    """Return a list of pods."""
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}, "items": [*items]}
