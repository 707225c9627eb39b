"""The command ``iriscw`` as controllers' pods run it in tests: the same program, with pauses of seconds.

What a configuration says is said in the configuration. This shortens what it does not name: pauses after refusals, the
patience with what does not start or does not go, and the Lease. Nothing else is changed.
"""

from __future__ import annotations

import attrs

from iriscw.cloud.kube import leadership
from iriscw.config.model import ClusterConfig
from iriscw.controller import settings
from iriscw.controller.platforms import coreweave
from iriscw.runtime.vocabulary import MILLISECOND, SECOND

LEASE = leadership.Terms(duration=5 * SECOND, renewal=SECOND // 2, margin=SECOND)
PAUSES = {
    "start_patience": 4 * SECOND,
    "cordon_timeout": 2 * SECOND,
    "failure_backoff": SECOND // 2,
    "failure_backoff_max": 2 * SECOND,
    "quota_backoff": SECOND,
    "quota_backoff_max": 2 * SECOND,
    "retry_backoff": SECOND // 5,
    "retry_backoff_max": SECOND,
    "pod_grace": 4 * SECOND,
    "deletion_patience": 8 * SECOND,
    "deletion_retry": SECOND,
    "boot_estimate": 2 * SECOND,
}


def hurry() -> None:
    """Shorten the pauses of this process."""
    timing, kube_settings = settings._timing, coreweave.kube_settings
    leadership.Terms = lambda: LEASE  # type: ignore[assignment, misc]
    settings._timing = lambda group: attrs.evolve(timing(group), **PAUSES)

    def hasty(config: ClusterConfig, cluster: str, **more: bool) -> coreweave.KubeSettings:
        found = kube_settings(config, cluster, **more)
        return attrs.evolve(found, watch_pause_most=SECOND, pause_most=SECOND, watch_interval=200 * MILLISECOND)

    coreweave.kube_settings = hasty


def main() -> None:
    """Be the command."""
    from iriscw.cli import main as iriscw

    hurry()
    iriscw()


if __name__ == "__main__":
    main()
