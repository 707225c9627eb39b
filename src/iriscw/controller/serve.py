"""The controller as a process: reads its configuration, serves until it is told to stop, stops in order.

SIGTERM, SIGINT and a closed terminal (SIGHUP) stop it: doors first, then the tree, the journal last. A second signal
does not hurry it; the stop is bounded, and the journal makes a harder end safe.
"""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Callable
from pathlib import Path

import anyio

from iriscw.config.load import load_config
from iriscw.config.model import ClusterConfig
from iriscw.controller.assembly import Controller
from iriscw.processes.stopping import stopping_signals

log = logging.getLogger(__name__)


def _collect_only_what_comes() -> None:
    """Have collections of garbage look at what is made from here on.

    Modules, the configuration and what was read from the journal stay for as long as the process does: 75,000 objects
    before the first worker dials, at which each full collection looked for some 45 ms, with nobody served meanwhile.
    Only for a process of one's own: whoever embeds a controller has a collector that is tuned for the host.
    """
    gc.collect()
    gc.freeze()


async def serve(
    config: ClusterConfig | str | Path,
    *,
    host: str | None = None,
    port: int | None = None,
    bundle_prefix: str | None = None,
    state_dir: Path | None = None,
    insecure_plaintext: bool = False,
    ready: Callable[[Controller], None] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP.

    Args:
        config: the configuration, or its file.
        host: see :class:`Controller`, also for the next four.
        port: see there.
        bundle_prefix: see there.
        state_dir: see there.
        insecure_plaintext: see there.
        ready: called once the controller serves; for whoever writes the address down.

    Raises:
        ConfigError: the configuration cannot be used; see :func:`load_config` for its kinds.
        IriscwError: the controller could not be opened, or ended from the inside; see :class:`Controller`.
    """
    loaded = config if isinstance(config, ClusterConfig) else load_config(config)
    with anyio.open_signal_receiver(*stopping_signals()) as signals:
        controller = Controller(
            loaded,
            state_dir=state_dir,
            host=host,
            port=port,
            bundle_prefix=bundle_prefix,
            insecure_plaintext=insecure_plaintext,
        )
        async with controller:
            _collect_only_what_comes()
            log.info("cluster %s: serving on %s", loaded.name, controller.address)
            if ready is not None:
                ready(controller)
            async for received in signals:
                log.info("stopping on %s", signal.Signals(received).name)
                break
