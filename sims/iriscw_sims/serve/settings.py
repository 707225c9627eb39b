"""How a simulated API server is served: where, as what, how fast, and what it may cost."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path

import attrs

from iriscw._errors import InvalidArgument
from iriscw_sims.coreweave.fault_points import NAMES

SLOWEST, FASTEST = 0.01, 100_000.0
"""The factors between real and simulated time: below, nothing ever happens; above, a day is over within a second."""

POOLS_LIMIT = 1000
"""Node pools to begin with: the scale groups that one configuration of iriscw may have."""


class Timing(enum.Enum):
    """How long things take before the server's speed is counted in."""

    FAITHFUL = "faithful"
    """As measured and documented: boots of 14 to 30 minutes."""

    QUICK = "quick"
    """Seconds where a cloud has minutes."""


@attrs.frozen
class PoolToBegin:
    """A node pool that is there from the beginning.

    Attributes:
        name: Of the NodePool.
        instance_type: CoreWeave's name for the machine, such as ``gd-8xh100ib-i128``.
        nodes: How many nodes it wants.
    """

    name: str
    instance_type: str = "gd-8xh100ib-i128"
    nodes: int = 1


@attrs.frozen
class Limits:
    """What one server lends to its clients. Where a figure is the real server's own, its flag is named.

    Attributes:
        body_bytes: Of one request's body; more is 413. The real server's ``MaxRequestBodyBytes``.
        yaml_bytes: Of a body in YAML, whose parser is a hundred times slower than JSON's.
        body_s: Until a body has to be there; the real server's ``--request-timeout``.
        headers_s: Until the headers of a request have to be there, on a new connection or on one that was idle. The
            real server closes idle connections after 90 s (``IdleTimeout``).
        write_s: How long one piece of an answer may wait for its reader. Who does not read that long is cut off.
        requests: At the same time, watches and streams aside; more is 429. ``--max-requests-inflight``.
        watches: At the same time; more is 429.
        streams: Logs that are followed and commands that run, at the same time; more is 429.
        connections: At the same time; a further one is closed at once. Fewer if the process may not open as many files.
    """

    body_bytes: int = 3 * 2**20
    yaml_bytes: int = 2**18
    body_s: float = 60.0
    headers_s: float = 90.0
    write_s: float = 30.0
    requests: int = 400
    watches: int = 10_000
    streams: int = 1000
    connections: int = 12_000


def _checked_pools(_settings: object, _field: object, pools: tuple[PoolToBegin, ...]) -> None:
    if len(pools) > POOLS_LIMIT:
        raise InvalidArgument(f"{len(pools)} node pools to begin with; the limit is {POOLS_LIMIT}")


@attrs.frozen
class ServeSettings:
    """How to serve a simulated cluster.

    Attributes:
        host: The address to listen on: loopback, unless somebody decided otherwise.
        port: The port; 0 takes a free one.
        seed: What is drawn at random in the simulation follows from it.
        speed: Simulated seconds per real second.
        kubeconfig: Where to write a kubeconfig with the token (mode 0600); None writes none.
        tls_cert: A certificate chain in PEM; with it the server speaks TLS. The kubeconfig trusts what is in it.
        tls_key: The certificate's private key.
        insecure_plaintext: Whether to listen without TLS off loopback: the network is trusted.
        pools: Node pools that are there from the beginning.
        timing: Whether machines take minutes, as CoreWeave's do, or seconds.
        quotas: Nodes that may be had at once, by instance type; what is not named has no limit.
        faults: How often things go wrong, 0 to 1, by the names of ``iriscw_sims.coreweave.fault_points``.
        version: Which Kubernetes it says it is.
        controllers: Whether CoreWeave's simulated controllers act; without them there is an API server alone.
        limits: What clients may cost.

    Raises:
        InvalidArgument: a value that cannot be: a speed out of range, a certificate without its key, an unknown fault.
    """

    host: str = "127.0.0.1"
    port: int = attrs.field(default=0)
    seed: int = 0
    speed: float = attrs.field(default=1.0)
    kubeconfig: Path | None = None
    tls_cert: Path | None = attrs.field(default=None)
    tls_key: Path | None = None
    insecure_plaintext: bool = False
    pools: tuple[PoolToBegin, ...] = attrs.field(default=(), validator=_checked_pools)
    timing: Timing = Timing.FAITHFUL
    quotas: Mapping[str, int] = attrs.field(factory=dict)
    faults: Mapping[str, float] = attrs.field(factory=dict)
    version: str = "v1.36.3"
    controllers: bool = True
    limits: Limits = attrs.field(factory=Limits)

    @port.validator
    def _check_port(self, _field: object, port: int) -> None:
        if not 0 <= port <= 65_535:
            raise InvalidArgument(f"port {port} does not exist")

    @speed.validator
    def _check_speed(self, _field: object, speed: float) -> None:
        if not SLOWEST <= speed <= FASTEST:
            raise InvalidArgument(f"a speed of {speed} is out of range: it lies between {SLOWEST} and {FASTEST:g}")

    @faults.validator
    def _check_faults(self, _field: object, faults: Mapping[str, float]) -> None:
        for name, rate in faults.items():
            if name not in NAMES:
                raise InvalidArgument(f"there is no fault {name!r}; there are: {', '.join(NAMES)}")
            if not 0 <= rate <= 1:
                raise InvalidArgument(f"the fault {name!r} cannot happen with a rate of {rate}")

    @tls_cert.validator
    def _check_tls(self, _field: object, _cert: Path | None) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidArgument("TLS takes both, a certificate and its key")
