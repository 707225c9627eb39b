"""Whatever is asked, in whatever words: an answer that is a Status or an object, and a server that goes on."""

from random import Random

import pytest
from serve_caller import Caller

from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import PoolToBegin, ServeSettings, Timing

REQUESTS = 400
WORDS = [
    *("a", "", "..", "\u00e9", "a/b", "0", "-1", "9" * 20, "true", "x" * 300, "metadata.name=x", "a=b,c!=d"),
    *("a in (b)", "((", ",", "\\", "null", "1.5", "spec.nodeName=", "2026-01-01T00:00:00Z"),
]
FIELDS = [
    *("apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "finalizers", "ownerReferences"),
    *("uid", "resourceVersion", "managedFields", "spec", "containers", "image", "data", "status", "conditions", "type"),
    *("generateName", "deletionTimestamp", "preconditions", "op", "path", "value", "$patch", "replicas", "versions"),
]
QUERIES = [
    *("limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "dryRun"),
    *("fieldManager", "force", "fieldValidation", "gracePeriodSeconds", "propagationPolicy", "container", "tailLines"),
    *("command", "stdout", "includeObject", "sendInitialEvents"),
]
TYPES = [
    *("application/json", "application/merge-patch+json", "application/json-patch+json", "text/x"),
    *("application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/yaml"),
]
GROUPS = {
    "nodepools": "apis/compute.coreweave.com/v1alpha1",
    "leases": "apis/coordination.k8s.io/v1",
    "roles": "apis/rbac.authorization.k8s.io/v1",
    "deployments": "apis/apps/v1",
    "customresourcedefinitions": "apis/apiextensions.k8s.io/v1",
}
PLURALS = ["pods", "configmaps", "nodes", "namespaces", "events", "services", "secrets", *GROUPS]
ACCEPTS = ["application/json", "*/*", *(f"application/json;as={kind};v=v1;g=meta.k8s.io" for kind in ("Table", "X"))]


def drawn(rng, depth=0):
    """Draw any JSON."""
    kind = rng.randrange(8)
    if depth > 4 or kind < 3:
        return rng.choice([None, True, 0, -1, 1.5, 10**18, *WORDS])
    if kind < 5:
        return [drawn(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(FIELDS + WORDS): drawn(rng, depth + 1) for _ in range(rng.randrange(5))}


def body_of(rng, content_type):
    """Draw a body that looks like one."""
    if content_type == "application/json-patch+json":
        operations = ["add", "remove", "replace", "move", "copy", "test"]
        paths = ["/metadata/labels/x", "/spec", "/spec/containers/0", "", "/metadata", "/-"]
        return [{"op": rng.choice(operations), "path": rng.choice(paths), "value": drawn(rng, 2), "from": "/spec"}]
    if rng.random() < 0.3:
        return drawn(rng)
    names = {"name": rng.choice(["a", "b"]), "labels": drawn(rng, 2), rng.choice(FIELDS): drawn(rng, 2)}
    spec = {"containers": [{"name": "m", "image": "x"}]} if rng.random() < 0.5 else drawn(rng, 1)
    return {"metadata": names, "spec": spec, "data": drawn(rng, 2)}


def path_of(rng):
    """Draw a path, mostly of something that can be there."""
    plural = rng.choice(PLURALS)
    where = rng.choice(["", "/namespaces/default", "/namespaces/iris"])
    name = rng.choice(["", "/a", "/b", f"/{rng.choice(WORDS)}"])
    subresource = rng.choice(["", "", "/status", "/scale", "/log", "/exec", "/binding", "/eviction"]) if name else ""
    return f"/{GROUPS.get(plural, 'api/v1')}{where}/{plural}{name}{subresource}"


@pytest.mark.parametrize("seed", range(3))
async def test_every_request_has_an_answer(seed, caplog):
    """No error but those that the server means, and no controller that stumbles over what was written."""
    rng = Random(seed)
    settings = ServeSettings(timing=Timing.QUICK, speed=100, pools=(PoolToBegin("a", nodes=2),))
    async with SimServer(settings) as server, Caller(server) as caller:
        for _ in range(REQUESTS):
            method = rng.choice(["GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "OPTIONS"])
            content_type = rng.choice(TYPES)
            body = None if method == "GET" else body_of(rng, content_type)
            query = {rng.choice(QUERIES): rng.choice(WORDS) for _ in range(rng.randrange(3))}
            words = {"headers": {"Accept": rng.choice(ACCEPTS)}, "content_type": content_type, **query}
            path = path_of(rng)
            status, _, answer = await caller.ask(method, path, body, **words)
            if status >= 300:
                assert (answer["kind"], answer["code"]) == ("Status", status), (method, path, query, body)
        assert "a bug" not in caplog.text
        assert server.statistics().failures == 0
        assert (await caller.done("GET", "/version"))["gitVersion"]
