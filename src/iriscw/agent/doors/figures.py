"""The HTTP side of the agent's socket: ``/health`` for probes and ``/metrics`` for Prometheus.

``curl --unix-socket SOCKET http://agent/metrics`` reads them. Both answer from memory; how full tiers are is as of
the last time it was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from iriscw.agent.caller_folders import PREFIX
from iriscw.agent.operation_views import RunningOperation
from iriscw.checkpoint.model import TierUse
from iriscw.checkpoint.tiering.model import MoveReason, MoveRefusal
from iriscw.freeze.model import Outcome
from iriscw.rpc.http1 import HttpResponse, Route
from iriscw.runtime.vocabulary import SECOND

BUCKETS_S = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
"""From a small process to a model of a terabyte."""


class AgentFigures:
    """What the metrics count, kept by the changes of views."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._running = 0
        self._phases = Histogram(
            "iriscw_agent_phase_seconds",
            "How long the phases of operations took.",
            ["operation", "phase", "tier"],
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self._lasted = Histogram(
            "iriscw_agent_operation_seconds",
            "How long operations took that came to their end.",
            ["operation", "tier"],
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self._ended = Counter(
            "iriscw_agent_operations_ended",
            "Operations that ended, by outcome.",
            ["operation", "tier", "outcome"],
            registry=self.registry,
        )
        self._bytes = Counter(
            "iriscw_agent_bytes",
            "Bytes of the checkpoints that were written, thawed or moved.",
            ["operation", "tier"],
            registry=self.registry,
        )
        self._now = Gauge("iriscw_agent_operations", "Operations that run.", ["operation"], registry=self.registry)
        self._owed = Gauge(
            "iriscw_agent_operations_owed", "Operations of an earlier agent that are not over.", registry=self.registry
        )
        self._aside = Gauge(
            "iriscw_agent_operations_aside", "Operations whose actor is put aside.", registry=self.registry
        )
        self._connected = Gauge(
            "iriscw_agent_controller_connected", "1 while a stream to the controller is up.", registry=self.registry
        )
        self._streams = Counter("iriscw_agent_streams", "Streams that the controller took.", registry=self.registry)
        self._balanced = Counter(
            "iriscw_agent_tiering_moves", "Moves by policy.", ["reason", "outcome"], registry=self.registry
        )
        self._balanced_bytes = Counter(
            "iriscw_agent_tiering_bytes", "Bytes that moves by policy copied.", ["reason"], registry=self.registry
        )
        self._refused = Counter(
            "iriscw_agent_tiering_refused",
            "Proposals of the policy that were refused.",
            ["why"],
            registry=self.registry,
        )
        self._failures = Counter(
            "iriscw_agent_tiering_failures", "Questions that the policy failed at.", registry=self.registry
        )
        self._hits = Counter(
            "iriscw_agent_tiering_hits", "Thaws, by the tier that had the checkpoint.", ["tier"], registry=self.registry
        )
        self._expired = Counter(
            "iriscw_agent_checkpoints_expired", "Checkpoints removed for their retention.", registry=self.registry
        )
        self._tiers = {
            name: Gauge(f"iriscw_agent_tier_{name}_bytes", text, ["tier"], registry=self.registry)
            for name, text in (
                ("budget", "What a tier may hold."),
                ("used", "What checkpoints take of a tier."),
                ("reserved", "What running freezes and moves may still write to a tier."),
                ("free", "What is free on the file system of a tier."),
            )
        }

    def seen(self, before: RunningOperation, now: RunningOperation) -> None:
        """Count a change."""
        kind = now.asked.kind.value
        if before is now:
            self._running += 1
            self._now.labels(kind).inc()
            self._owed.inc(int(now.owed))
            return
        if now.end is not before.end or len(now.steps) > len(before.steps):
            self._phase_over(before, now)
        if now.aside and not before.aside:
            self._aside.inc()
        if now.over and not before.over:
            self._over(now)

    def _phase_over(self, before: RunningOperation, now: RunningOperation) -> None:
        if before.steps:
            step = before.steps[-1]
            until = now.lasted_ns if len(now.steps) == len(before.steps) else now.steps[-1].at_ns
            labels = (now.asked.kind.value, step.phase, tier_label(now))
            self._phases.labels(*labels).observe((until - step.at_ns) / SECOND)

    def _over(self, now: RunningOperation) -> None:
        kind, tier = now.asked.kind.value, tier_label(now)
        self._running -= 1
        self._now.labels(kind).dec()
        self._owed.dec(int(now.owed))
        if now.end is None:
            return  # it was refused before it began
        self._ended.labels(kind, tier, now.end.outcome.value).inc()
        self._lasted.labels(kind, tier).observe(now.lasted_ns / SECOND)
        if now.made is not None:
            self._bytes.labels(kind, tier).inc(now.made.size_bytes)

    def streamed(self, what: str) -> None:
        """Count a stream to the controller: it is ``connected``, or is not."""
        self._connected.set(int(what == "connected"))
        self._streams.inc(int(what == "connected"))

    def balanced(self, reason: MoveReason, outcome: Outcome, copied_bytes: int) -> None:
        """Count a move by policy."""
        self._balanced.labels(reason.value, outcome.value).inc()
        self._balanced_bytes.labels(reason.value).inc(copied_bytes)

    def refused_proposal(self, refusal: MoveRefusal) -> None:
        """Count what the policy proposed and must not."""
        self._refused.labels(refusal.value).inc()

    def policy_failed(self) -> None:
        """Count a question that the policy raised at, or gave no answer to."""
        self._failures.inc()

    def expired(self) -> None:
        """Count a checkpoint that was removed for its retention."""
        self._expired.inc()

    def hit(self, tier: str) -> None:
        """Count a thaw."""
        self._hits.labels("path" if tier.startswith(PREFIX) else tier).inc()

    def measured(self, uses: Sequence[TierUse]) -> None:
        """Note how full the tiers are."""
        for use in uses:
            for name, value in (
                ("budget", use.budget_bytes),
                ("used", use.artifacts_bytes),
                ("reserved", use.reserved_bytes),
                ("free", use.free_bytes),
            ):
                self._tiers[name].labels(use.tier).set(value)

    def routes(self) -> Mapping[str, Route]:
        """Return the door's routes."""
        return {"/health": Route(self._health, public=True), "/metrics": Route(self._metrics, figures=True)}

    def _health(self) -> HttpResponse:
        body = {"status": "ok", "operations": self._running}
        return HttpResponse(200, "application/json", json.dumps(body).encode() + b"\n")

    def _metrics(self) -> HttpResponse:
        return HttpResponse(200, CONTENT_TYPE_LATEST, generate_latest(self.registry))


def tier_label(view: RunningOperation) -> str:
    """Return the tier as metrics name it: all folders of callers are one, or there would be no end of names."""
    name = view.tier or (view.made.tier if view.made is not None else "")
    return "path" if name.startswith(PREFIX) else name
