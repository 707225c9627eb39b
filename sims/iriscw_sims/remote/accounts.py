"""Tokens of service accounts for pods that are processes: a kubeconfig of its own for each start of a container.

Theory of operation. In a cluster a pod finds its account's token in a folder that is the same in all pods; a process of
this machine has no such folder, so it is told of a kubeconfig. The token is bound to its pod, as a mounted one is: when
the pod is gone, the API server refuses it. Each start of a container gets another one, by whose id the server's audit
log tells processes apart.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping
from pathlib import Path

from iriscw._errors import OperationError
from iriscw.files import make_private_folder, write_atomic
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.messages import Request
from iriscw_sims.remote.store import RemoteStore

LIFETIME_S = 3600
"""Of a token, in seconds."""


class NoToken(OperationError):
    """The API server gives no token for a pod: its account, or the pod, is not there any more."""


def _has_token(spec: Json) -> bool:
    """Tell whether a pod mounts its account's token: as Kubernetes does it, or by a volume of its own."""
    volumes = [each.get("projected") or {} for each in spec.get("volumes") or ()]
    parts = [part for each in volumes for part in each.get("sources") or ()]
    return bool(spec.get("automountServiceAccountToken")) or any("serviceAccountToken" in part for part in parts)


class Accounts:
    """Hands out tokens.

    Args:
        store: The API server, with a connection that nobody else uses: it is asked from other threads.
        url: Where it is.
        authority: The file with the certificate to trust.
        folder: Where kubeconfigs are written (mode 0600).
    """

    def __init__(self, store: RemoteStore, url: str, authority: Path, folder: Path) -> None:
        self._store, self._url, self._authority, self._folder = store, url, authority, folder
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def environment(self, pod: Json) -> Mapping[str, str]:
        """Return the variables by which a pod's program finds the API; none for a pod that has no token.

        Raises:
            NoToken: there is none to be had.
        """
        spec, metadata = pod["spec"], pod["metadata"]
        if not _has_token(spec):
            return {}
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFETIME_S, "boundObjectRef": bound},
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{spec['serviceAccountName']}/token"
        with self._lock:  # the store has one connection, and pods start at the same time
            answer = self._store.handle(Request("POST", path, body=asked), 0)
        if answer.code != 201:
            raise NoToken(f"no token for {metadata['name']}: {answer.body.get('message')}")
        return {"KUBECONFIG": str(self._written(str(answer.body["status"]["token"]), metadata["name"]))}

    def _written(self, token: str, name: str) -> Path:
        make_private_folder(self._folder)
        path = self._folder / f"{name}-{next(self._numbers)}.kubeconfig"
        cluster = {"server": self._url, "certificate-authority": str(self._authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "pod",
            "contexts": [{"name": "pod", "context": {"cluster": "cluster", "user": "account"}}],
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "account", "user": {"token": token}}],
        }
        write_atomic(path, json.dumps(config).encode())
        return path
