"""All checks of one cluster, in the order in which they make sense, and each in spite of the others.

A check that the cluster does not let us make is a finding, too, and the next one is made. Only what cannot be asked is
left out: nothing of a cluster that does not answer, nothing inside a namespace that is not there.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from iriscw.cloud.drivers.kube.access import KUBECONFIG, ClusterAccess, find_access
from iriscw.cloud.drivers.kube.credentials import INSTALL, InvalidAccess, LibraryMissing
from iriscw.cloud.drivers.kube.objects import Objects, open_objects
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import CloudError
from iriscw.deploy.installation import Installation
from iriscw.doctor.cluster import look_at_clock, look_at_namespace, look_at_pools, reach
from iriscw.doctor.findings import Finding, Health, ok, unseen, wrong
from iriscw.doctor.installed import look_at_configuration, look_at_durability
from iriscw.doctor.instance_types import look_at_types
from iriscw.doctor.pools import Probes
from iriscw.doctor.rights import look_at_rights
from iriscw.doctor.secrets import look_at_secrets
from iriscw.doctor.storage import Opener, look_at_stores
from iriscw.objects.drivers.opening import opener as opener_below

Check = Callable[[Objects, Installation], Awaitable[list[Finding]]]

IN_THE_NAMESPACE: tuple[tuple[str, Check], ...] = (
    ("rights", look_at_rights),
    ("secrets", look_at_secrets),
    ("configuration", look_at_configuration),
    ("durability", look_at_durability),
)
"""The checks of what is in the namespace, in their order."""


class Examination:
    """The checks of one cluster. They are made once, by :meth:`run`.

    Args:
        installation: What is, or is to be, installed.
        kubeconfig: The kubeconfig that somebody names here; None for what the configuration names.
        configured: The one that the configuration names; None for what the environment names.
        context: Which of its contexts.
        probe: Whether to make empty node pools.
        environ: Where ``KUBECONFIG`` and the pod's service are looked for.
        opener: Opens object stores; default: as the controller does.
        settings: Rates and pauses of requests.
    """

    def __init__(
        self,
        installation: Installation,
        *,
        kubeconfig: Path | None = None,
        configured: Path | None = None,
        context: str | None = None,
        probe: bool = False,
        environ: Mapping[str, str] = os.environ,
        opener: Opener | None = None,
        settings: KubeSettings | None = None,
    ) -> None:
        self.findings: list[Finding] = []
        """What was found so far."""
        self._installation = installation
        self._kubeconfig, self._configured, self._context = kubeconfig, configured, context
        self._probe, self._environ, self._settings = probe, environ, settings
        self._opener = opener or opener_below(installation.store_variables)
        self._probes: Probes | None = None

    @property
    def left(self) -> tuple[str, ...]:
        """The node pools that may have been left, if :meth:`run` was interrupted."""
        return tuple(self._probes.left) if self._probes is not None else ()

    async def run(self) -> list[Finding]:
        """Make all checks, and give what was found. Whatever interrupts it, probing pools are deleted first."""
        access = await self._find_way()
        if access is None:
            await self._look_beside()
            return self.findings
        async with open_objects(access, settings=self._settings) as objects:
            answers, cluster = await self._look_at_cluster(objects)
            await self._look_beside()
            if self._probe and answers:
                self._probes = Probes(objects, self._installation, cluster or self._installation.cluster)
                self.findings += await self._probes.look()
        return self.findings

    async def _find_way(self) -> ClusterAccess | None:
        named = self._kubeconfig or self._configured
        text = way(self._kubeconfig, self._configured, self._environ)
        try:
            access = await find_access(named, self._context, self._environ)
        except LibraryMissing as error:
            self.findings.append(wrong("way", f"by {text}: {error}", INSTALL))
            return None
        except (InvalidAccess, OSError) as error:
            advice = "say --kubeconfig FILE, set platform.coreweave.kubeconfig_path or KUBECONFIG, or ask inside a pod"
            self.findings.append(wrong("way", f"by {text}: {error}", advice))
            return None
        self.findings.append(ok("way", f"by {text} to {access.server}"))
        return access

    async def _look_at_cluster(self, objects: Objects) -> tuple[bool, str]:
        """Look at the cluster; give whether it answers, and the namespace's uid as far as it is known."""
        reached = await reach(objects)
        self.findings.append(reached)
        if reached.verdict is Health.WRONG:
            return False, ""
        await self._make("clock", lambda objects, _: look_at_clock(objects), objects)
        await self._make("node pools", lambda objects, _: look_at_pools(objects), objects)
        try:
            found, uid = await look_at_namespace(objects, self._installation)
        except CloudError as error:
            found, uid = [unseen("namespace", error)], ""
        self.findings += found
        if not any(each.check == "namespace" and each.verdict is Health.WRONG for each in found):
            for name, check in IN_THE_NAMESPACE:
                await self._make(name, check, objects)
        return True, uid

    async def _make(self, name: str, check: Check, objects: Objects) -> None:
        try:
            self.findings += await check(objects, self._installation)
        except CloudError as error:
            self.findings.append(unseen(name, error))

    async def _look_beside(self) -> None:
        """Look at what does not need the cluster."""
        config = self._installation.config
        repository = config.agent.repository if config.agent.enabled else ""
        self.findings += await look_at_stores(config.controller, self._opener, repository=repository)
        self.findings += look_at_types(self._installation.config)


def way(kubeconfig: Path | None, configured: Path | None, environ: Mapping[str, str]) -> str:
    """Say which way to the cluster is taken: the first that is named."""
    if kubeconfig is not None:
        return f"--kubeconfig {kubeconfig}"
    if configured is not None:
        return f"platform.coreweave.kubeconfig_path {configured}"
    if environ.get(KUBECONFIG):
        return f"{KUBECONFIG} {environ[KUBECONFIG]}"
    return "the pod's own service account"
