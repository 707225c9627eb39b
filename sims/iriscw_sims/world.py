"""The simulated world: one controller, a cloud, workers, users, and everything that can go wrong between them.

Theory of operation. :class:`World` runs a :class:`~iriscw_sims.swarm.Plan` in two phases. In the first faults happen,
and only safety is asked for: after every step no invariant may be broken. Then everything is healed, and the world
must come to rest within a bound (:func:`iriscw_sims.pace.rest_bound`): all jobs ended, the fleet at its smallest,
nothing left over or committed.

The checks read the world's truth and the disk; actors are believed only where an invariant is about them. They are
fed by what happens instead of searching, so that they cost little after a step in which nothing of theirs happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_GROUP,
    LABEL_MANAGED,
    LABEL_ROLE,
    LABEL_SLICE,
    ROLE_CONTROLLER,
)
from iriscw.fleet.groups.experience import CHURN_WINDOW
from iriscw.fleet.model import GroupConfig
from iriscw.fleet.policy import Policy, RoutingPolicy
from iriscw.runtime.behavior import Behavior, Strategy, Supervision
from iriscw.runtime.cell import Cell
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw.testing import checks
from iriscw.testing.checks import InvariantBroken
from iriscw.testing.features import SimulatedFeature
from iriscw.testing.simulation import Livelock, SimOperation, SimSystem, Simulation
from iriscw_sims import fleet_checks, job_checks
from iriscw_sims.band_checks import BandChecks
from iriscw_sims.builtin import SimulatedFleet, SimulatedJobs
from iriscw_sims.cloud import Cloud
from iriscw_sims.copy_checks import CopyChecks
from iriscw_sims.disks import WatchedDisk
from iriscw_sims.faults import strike
from iriscw_sims.fleet_checks import FleetChecks
from iriscw_sims.freezing import Freezing
from iriscw_sims.job_checks import JobChecks
from iriscw_sims.move_checks import MoveChecks
from iriscw_sims.moving import Moving
from iriscw_sims.network import Network
from iriscw_sims.pace import CLUSTER, QUICK, Pace, rest_bound
from iriscw_sims.plans import check_plan
from iriscw_sims.policies import Asked, AskedWhere
from iriscw_sims.restarts import Poison, Restarts
from iriscw_sims.stage import Stage
from iriscw_sims.swarm import Plan, draw_plan
from iriscw_sims.told_checks import ToldChecks
from iriscw_sims.users import Users
from iriscw_sims.workers import Workers

HEARD = fleet_checks.HEARD | job_checks.HEARD
"""The messages that a check has something to say about."""

KERNEL_CHECKS_EVERY = 64
"""Steps between two full checks of the runtime's books, at least; in a tree of many actors it is two steps for each,
because a check takes time in proportion to them: so a step costs the same in a fleet of any size. A book that is wrong
stays wrong, and is found all the same."""

SCHEDULER_CHECKS_EVERY = 8
"""The same for the scheduler's books, which are as long as it has workers."""

DISK_BOUND_BYTES = 64 * 1024
"""Uncommitted bytes at which the simulated journal takes no more: small, so that a stalled disk is felt."""

LARGEST_DECISION_BYTES = 64 * 1024
"""How far one decision may go beyond that bound."""

HISTORY = 2 * 3600 * SECOND
"""How far back the API server remembers at least: etcd keeps five minutes. Without an end a long run would grow; and
only a long run is to notice, since a client that comes back later than that has to list again."""

REST = 5 * SECOND
"""Between two looks whether the world has come to rest."""

CLOSING = 20 * SECOND
"""How long a controller that closes has for it; a disk that stalls may take longer, and then it is killed."""

LOOKS = 12
"""Looks in a row that have to find it at rest: what is on its way to happen has happened by then."""


@attrs.frozen
class Run:
    """What came of one run. Nothing is broken if ``violations`` is empty."""

    seed: int
    trace: str
    """The hash of everything that happened: equal for equal runs."""
    simulated_s: float
    steps: int
    violations: tuple[str, ...]
    fired: tuple[tuple[str, int], ...]
    """How often each fault and chance came true."""
    report: str = ""
    """For people: the plan that fired and the end of the trace; empty if nothing is broken."""


class World(Stage):
    """One world of one seed.

    Args:
        seed: of everything.
        plan: what to run. Default: what the seed draws.
        pace: how long everything takes.
        policy: says how many slices each group should have. Default: the one that is built in.
        routing: says which groups demand may go to. Default: the one that is built in.
        features: what else runs on the controller.

    Raises:
        PlanInvalid: a value in the plan cannot be.
    """

    def __init__(
        self,
        seed: int,
        plan: Plan | None = None,
        pace: Pace = QUICK,
        *,
        policy: Policy | None = None,
        routing: RoutingPolicy | None = None,
        features: Sequence[SimulatedFeature] = (),
    ) -> None:
        self.pace = pace
        self.policy = Asked(policy) if policy is not None else None
        self.routing = AskedWhere(routing) if routing is not None else None
        self.ends_with_policy = False
        """Whether a policy that fails ends the run; else its groups live by the default one, as a controller's do."""
        if plan is not None:
            check_plan(plan)
        self.plan = plan if plan is not None else draw_plan(seed)
        rest = pace.converge or rest_bound(pace.driver, [group.timing for group in self.plan.groups])
        self.converge = rest + self.plan.work_bound
        """How long the healed world may take to come to rest, ns."""
        super().__init__(seed, self.plan.rates)
        self._groups = {group.name: group for group in self.plan.groups}
        self.healed_at = 0
        self.booted_at = 0
        """When the controller, or ``/fleet``, last began anew."""
        self.disturbed_until = 0
        """When the last fault so far was over, as far as it has an end of its own."""
        self.crash_at_step = -1
        self.stall_next = 0
        self.stalled = 0
        self.simulation = Simulation(seed)
        self.simulation.seen = self._delivered
        self._failures = 0
        self._scheduler_check = self._kernel_check = 0
        """At which step the books are checked next."""
        disk = WatchedDisk()
        disk.written = self._written
        self.fleet_checks = FleetChecks(self)
        self.job_checks = JobChecks(self)
        self.move_checks = MoveChecks(self)
        self.band_checks = BandChecks(self)
        self.copy_checks = CopyChecks(self)
        self.told_checks = ToldChecks(self)
        self.cloud = Cloud(self)
        self.workers = Workers(self)
        self.network = Network(self)
        self.freezing = Freezing(self)
        self.moving = Moving(self)
        self.restarts = Restarts(self)
        self.features = (SimulatedFleet(self), SimulatedJobs(self), *features)
        self.system = SimSystem(
            self._root(),
            simulation=self.simulation,
            name="controller",
            perform=self.perform,
            disk=disk,
            bound_bytes=DISK_BOUND_BYTES,
        )
        self.users = Users(self)
        self._quiet = checks.quiet_watch(self.system)
        self.simulation.checkers.append(self.check)
        for feature in features:
            self.simulation.checkers.append(feature.check)
            feature.begin(self.system, self.stream(f"feature {type(feature).__name__}"))
        self._furnish()
        for fault in self.plan.faults:
            self.simulation.call_after(fault.at, strike, self, fault)
        self.simulation.call_after(HISTORY, self._forget, 0)

    def _root(self) -> Behavior:
        return Behavior(
            children=tuple(child for feature in self.features for child in feature.children()),
            supervision=Supervision(strategy=Strategy.REST_FOR_ONE, restarts=50),
            name="root",
        )

    def _furnish(self) -> None:
        """Put into the cloud what is there already: things of others, the controller's own pool, and an orphan."""
        ours = {LABEL_MANAGED: "true", LABEL_CLUSTER: CLUSTER, LABEL_GROUP: self.plan.groups[0].name}
        for name, labels in (
            ("somebody-elses", {**ours, LABEL_CLUSTER: "another", LABEL_SLICE: "somebody-elses"}),
            ("controller-pool", {**ours, LABEL_ROLE: ROLE_CONTROLLER, LABEL_SLICE: "controller-pool"}),
            ("orphan", {**ours, LABEL_SLICE: "orphan"}),
            ("orphan-of-a-removed-group", {**ours, LABEL_GROUP: "removed", LABEL_SLICE: "orphan-of-a-removed-group"}),
        ):
            self.cloud.furnish(name, labels)

    # What everybody uses

    def disturbed(self, span: int = 0) -> None:
        """Note that something is wrong, for ``span`` ns from now."""
        self.disturbed_until = max(self.disturbed_until, self.simulation.now + span)

    def group(self, name: str) -> GroupConfig:
        """Return a group's configuration."""
        return self._groups[name]

    @property
    def attentive(self) -> int:
        """The time for which the controller was able to listen, ns."""
        return self.simulation.now - self.stalled

    @property
    def quiet(self) -> bool:
        """Whether nothing went wrong for a while."""
        return self.healed and self.simulation.now - self.healed_at > 90 * SECOND

    # The edge of the controller

    def perform(self, operation: SimOperation) -> None:
        """Carry out what actors ask of the outside."""
        if not any(feature.perform(operation) for feature in self.features):
            raise AssertionError(f"nobody carries out {operation.effect!r}")

    def crash(self, down_s: int, *, keep: int | None = None) -> bool:
        """Kill the controller, and have it start again after ``down_s`` seconds; False if it is down.

        ``keep`` records that are not durable reach the disk anyway; by default a random number.
        """
        if self.healed or self.system.crashed:
            return False
        self.fired("controller down")
        self._goes_down(keep)
        self.simulation.call_after(down_s * SECOND, self.restart)
        return True

    def close(self, down_s: int, then: Callable[[], None] | None = None) -> bool:
        """Stop the controller in order, do something else, and start it again; False if it is down or closing."""
        if self.healed or self.system.crashed or self.system.tree.closing:
            return False
        self.system.stop()
        self._closes(self.system.boot, self.simulation.now + CLOSING, down_s, then)
        return True

    def _closes(self, boot: int, deadline: int, down_s: int, then: Callable[[], None] | None) -> None:
        system, journal = self.system, self.system.journal
        if system.boot != boot:
            return
        if not system.crashed:
            self.disturbed()
            whole = system.tree.stopped and journal.durable == journal.appended
            if not whole and self.simulation.now < deadline:
                self.simulation.call_after(100 * MILLISECOND, self._closes, boot, deadline, down_s, then)
                return
            self.crash(down_s)
        if then is not None:
            then()

    def _goes_down(self, keep: int | None) -> None:
        self.system.crash(keep)
        self.cloud.controller_down()
        self.network.controller_down()

    def restart(self) -> None:
        """Start the controller again, unless it runs."""
        if self.system.crashed:
            self.booted_at = self.simulation.now
            self.disturbed()
            self.fleet_checks.closed_until.clear()
            self.system.restart()

    def heal(self) -> None:
        """End all faults."""
        self.healed, self.healed_at = True, self.simulation.now
        self.simulation.note("healed")
        self.disturbed_until = self.simulation.now
        self.crash_at_step = -1
        if self.system.tree.closing and not self.system.crashed:
            self._goes_down(None)
        self.restart()
        self.system.journal.resume()
        self.system.journal.free()
        self.cloud.heal()
        self.moving.heal()
        for worker in self.workers.live:
            worker.hung_until = worker.cut_off_until = 0
            if worker.connection is not None and (worker.connection.up.held or worker.connection.down.held):
                worker.connection.close()
        # Once what flew is down, and once more for what was on its way to be refused.
        for delay in (5, 60, 180):
            self.simulation.call_after(delay * SECOND, self.users.reopen)

    # Watching

    def _forget(self, revision: int) -> None:
        """Have the API server forget what was before ``revision``, and later what was before now."""
        store = self.cloud.store
        store.compact(revision)
        self.simulation.call_after(HISTORY, self._forget, store.revision)

    def _delivered(self, cell: Cell, message: Any) -> None:
        if cell.tree is not self.system.tree:
            return
        kind = type(message)
        if kind in HEARD:
            if kind in fleet_checks.HEARD:
                self.fleet_checks.delivered(cell, message)
            if kind in job_checks.HEARD:
                self.job_checks.delivered(cell, message)
        if self.restarts.stops or self.restarts.poisons:
            self.restarts.delivered(cell, message)

    def _written(self, path: str, record: Any) -> None:
        self.fleet_checks.durable(path, record)
        self.band_checks.durable(path, record)
        self.copy_checks.durable(path, record)
        self.move_checks.durable(path, record)
        self.job_checks.durable(path, record)

    def check(self) -> None:
        """Check what must hold after every step.

        Raises:
            InvariantBroken: something does not.
        """
        if self.violations:
            raise InvariantBroken(self.violations[0])
        for asked in (self.policy, self.routing) if self.ends_with_policy else ():
            if asked is not None and asked.failure:
                self.violations.append(f"policy failed: {asked.failure}")  # what comes after says nothing of it
                raise InvariantBroken(self.violations[0])
        steps, system = self.simulation.steps, self.system
        if len(system.events) != self.job_checks.events_seen:
            self.job_checks.events()
        if len(system.failures) != self._failures:
            self._actors_only_fail_when_poisoned()
        if self.move_checks.wrote:
            self.move_checks.replays()
        if steps >= self._scheduler_check:
            self._scheduler_check = steps + max(SCHEDULER_CHECKS_EVERY, 4 * self.job_checks.scheduler())
        if steps >= self._kernel_check and not system.crashed:
            checks.books(system)
            self._kernel_check = steps + max(KERNEL_CHECKS_EVERY, 2 * len(system.tree.cells))
        if self._quiet() and system.journal.uncommitted_bytes > DISK_BOUND_BYTES + LARGEST_DECISION_BYTES:
            self.violate("R10", f"{system.journal.uncommitted_bytes} bytes wait for the disk")
        if steps == self.crash_at_step:
            self.crash(1 + steps % 20)
        if self.fleet_checks.answered is not None:
            self.fleet_checks.check()
        if self.restarts.ending is not None:
            self.restarts.check()

    def _actors_only_fail_when_poisoned(self) -> None:
        """An actor that fails on anything else has a bug: the assertions of the pure rooms are checks, too."""
        failures = self.system.failures
        while self._failures < len(failures):
            failure = failures[self._failures]
            self._failures += 1
            if not isinstance(failure.cause, Poison):
                what = f"{type(failure.error).__name__}: {failure.error}"
                self.violate("R4", f"{failure.path} fails on {type(failure.cause).__name__}: {what}")

    def unsettled(self) -> str:
        """Say what keeps the world from being at rest; empty if nothing does."""
        if self.cloud.in_flight:
            return f"{self.cloud.in_flight} requests are on their way"
        left = self.job_checks.unfinished() or self.job_checks.committed() or self.fleet_checks.left_over()
        left = left or self.freezing.left_over() or self.cloud.driver.behind()
        return left or next(filter(None, (feature.unsettled() for feature in self.features)), "")

    # Running

    def run(self) -> Run:
        """Run the plan to its end, or to the first broken invariant."""
        try:
            self._run()
        except (InvariantBroken, Livelock, AssertionError) as error:
            if not self.violations:
                self.violations.append(f"{type(error).__name__}: {error}")
        except Exception as error:
            error.add_note(f"in the simulation of seed {self.seed}")
            raise
        simulation = self.simulation
        return Run(
            seed=self.seed,
            trace=simulation.trace_hash,
            simulated_s=simulation.now_s,
            steps=simulation.steps,
            violations=tuple(self.violations),
            fired=tuple(sorted(self.counts.items())),
            report=self.report() if self.violations else "",
        )

    def _run(self) -> None:
        simulation = self.simulation
        self.go_on(self.plan.safety)
        self.heal()
        end = simulation.now + self.converge
        latest = end + CHURN_WINDOW
        looks = 0
        while looks < LOOKS:
            left = self.unsettled()
            looks = 0 if left else looks + 1
            if left and self.fleet_checks.churns():
                # A group whose slices died young acts only when it has forgotten them.
                end = min(simulation.now + self.converge, latest)
            if simulation.now >= end:
                waited = (simulation.now - self.healed_at) // SECOND
                self.violate("liveness", f"not at rest {waited} s after all was healed: {left}")
                return
            simulation.advance(REST / SECOND)
            self._look()
        # A policy of somebody else's may act in the very last instant: what it decided has to reach the disk.
        simulation.run_until(lambda: not self.system.tree.held, 1.0)
        checks.settled(self.system)

    def go_on(self, until: int) -> None:
        """Let virtual time pass, with faults, in whole seconds until it is ``until`` ns or later.

        Raises:
            InvariantBroken: something does not hold.
            Livelock: the world never gets to the next instant.
        """
        while self.simulation.now < until:
            self.simulation.advance(1.0)
            self._look()
            if self.stall_next:
                self._stall()

    def _look(self) -> None:
        """Look at what must have happened by now."""
        self.job_checks.gone()
        self.told_checks.look()
        self.copy_checks.look()

    def _stall(self) -> None:
        """Let the controller's process stand still."""
        lasts, self.stall_next = self.stall_next, 0
        if not self.system.crashed:
            # Of a stall the attentive clock counts a second, and so do the checks.
            self.stalled += lasts - SECOND
            self.simulation.stall(lasts / SECOND)
            self.disturbed()

    def report(self) -> str:
        """Return everything that is needed to understand a failure, and the command that repeats it."""
        fired = "\n".join(f"{at / SECOND:10.3f} s  {name}" for at, name in self.log)
        broken = "\n".join(self.violations)
        failures = "\n".join(repr(each) for each in self.system.failures[-5:])
        return (
            f"seed {self.seed}: {broken}\n\nfaults that fired:\n{fired}\n\nfailures of actors:\n{failures}\n\n"
            f"{self.simulation.report()}\n\nrepeat it: iriscw sim replay {self.seed}\n"
        )
