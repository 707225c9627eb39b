"""Values that these tests share."""

import contextlib
from pathlib import Path

from iriscw.cloud.kube.settings import KubeSettings
from iriscw.config.load import build_config, load_config
from iriscw.deploy.installation import installation_of
from iriscw.deploy.rendering import render
from iriscw.runtime.vocabulary import MILLISECOND
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS
from iriscw_sims.kube.messages import Request
from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import ServeSettings

HURRY = KubeSettings(
    cluster="",
    qps=1000,
    burst=1000,
    pause_least=5 * MILLISECOND,
    pause_most=20 * MILLISECOND,
    watch_pause_least=10 * MILLISECOND,
    watch_pause_most=50 * MILLISECOND,
)
"""Requests as fast as they go."""

DATA = Path(__file__).parents[1] / "config" / "data"
SEEDS = tuple(sorted(DATA.glob("seed-*.yaml")))


def values(controller=None, platform=None, **more):
    """Return a configuration as YAML would, with a node pool for the controller."""
    return {
        "name": "research",
        "platform": {"coreweave": {"region": "LGA1", **(platform or {})}},
        "controller": {"coreweave": {"instance_type": "cd-gp-i64-erapids", **(controller or {})}, **more},
        "scale_groups": {
            "cpu": {
                "resources": {"cpu": 16, "ram": "64GiB"},
                "slice_template": {"coreweave": {"instance_type": "cd-gp-a192-genoa"}},
            }
        },
    }


def installed(controller=None, platform=None, **more):
    """Return an installation."""
    return installation_of(build_config(values(controller, platform, **more)))


def with_task_pods():
    """Return an installation with a group whose tasks have pods of their own."""
    said = values()
    said["scale_groups"]["pods"] = {**said["scale_groups"]["cpu"], "task_runtime": "pod"}
    return installation_of(build_config(said))


def with_agent(controller=None, platform=None, **said):
    """Return an installation with node agents; of what is said of them."""
    return installation_of(build_config({**values(controller, platform), "agent": {"enabled": True, **said}}))


STORED = {
    "repository": "s3://checkpoints/team",
    "storage_secret": "bucket",
    "repository_keys": {
        "secret": "keys",
        "sign_with": "sign.pem",
        "trust": "trusted.pem",
        "encrypt_with": "a",
        "decrypt_with": "a",
    },
}
"""Of ``agent``: a repository with keys, and credentials of its own."""


def installed_from(path):
    """Return the installation of a configuration's file."""
    return installation_of(load_config(path))


def bodies(installation):
    """Return the objects of an installation by ``Kind/name``."""
    return {each.name: each.body for each in render(installation)}


EVERYTHING = {"service_monitor": True}
"""Of ``controller.coreweave``: what is made only if it is asked for."""


def loose(group, kind, plural, scope, version="v1"):
    """Return the definition of a kind that is served as whatever it is: the simulation has no such kind built in."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes"},
        },
        "spec": {"group": group, "scope": scope, "names": names, "versions": [version]},
    }


MONITORS = loose("monitoring.coreos.com", "ServiceMonitor", "servicemonitors", "Namespaced")
"""As the Prometheus operator brings it."""


@contextlib.asynccontextmanager
async def simulated(kubeconfig, *, controllers=False, **more):
    """Serve a simulation, with a kubeconfig for it; with ``controllers`` CoreWeave's own act in it."""
    async with SimServer(ServeSettings(kubeconfig=kubeconfig, controllers=controllers, **more)) as server:
        for definition in (MONITORS,) if controllers else (DEFINITION, MONITORS):
            put(server, "POST", DEFINITIONS, definition)
        yield server


def put(server, method, path, body):
    """Write to the simulation's store, and expect that it takes it."""
    response = server.store.handle(Request(method, path, body=body), server.timeline.now)
    assert response.code in (200, 201), response.body
    return response.body
