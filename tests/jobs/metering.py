"""A meter for decisions: what each of them records, tells and names, and how many there are."""

import attrs

from iriscw.bench import plane
from iriscw.bench.plane import ControlPlane, ScriptedWorker
from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.messages import SchedulerStarted, SliceGone, WorkerReady
from iriscw.fleet.model import WorkerInfo
from iriscw.jobs.job.decisions import JobDecisions
from iriscw.jobs.links.link import LinkDecisions
from iriscw.jobs.model import AttemptEnd, Observation, Observed, TaskState
from iriscw.jobs.scheduling.scheduler import SchedulerDecisions
from iriscw.journal.records import REGISTRY
from iriscw.runtime.vocabulary import ActorPath, Continue, Decision, Tell

OFFERED = ("uids", "places", "due")
"""Fields of messages to oneself that hold what there was to do when the work began: made once, and passed on."""


@attrs.define
class Largest:
    """The most that any decision did, and which decision that was."""

    bytes_journaled: int = 0
    records: int = 0
    commands: int = 0
    items: int = 0
    """Of one tuple in one message."""
    where: dict = attrs.field(factory=dict)

    def see(self, name, value, where):
        """Keep the most."""
        if value > getattr(self, name):
            setattr(self, name, value)
            self.where[name] = where


class Meter:
    """Looks at all decisions on jobs, links and the scheduler from now on."""

    def __init__(self, monkeypatch):
        self.largest = Largest()
        self.decisions = 0
        for decisions in (JobDecisions, LinkDecisions, SchedulerDecisions):
            rules, resume = decisions.rules, decisions.resume
            monkeypatch.setattr(decisions, "rules", self._metered(rules))
            monkeypatch.setattr(decisions, "resume", self._metered_resume(resume))

    def _metered(self, rules):
        def metered(decisions):
            return {kind: self._rule(kind.__name__, rule) for kind, rule in rules(decisions).items()}

        return metered

    def _rule(self, name, rule):
        def decide(state, message, ctx):
            outcome = rule(state, message, ctx)
            self.look(name, outcome)
            return outcome

        return decide

    def _metered_resume(self, resume):
        def metered(decisions, state, ctx):
            commands = tuple(resume(decisions, state, ctx))
            self.look("resume", commands)
            return commands

        return metered

    def look(self, name, outcome):
        """Take a decision in."""
        self.decisions += 1
        decided = outcome if isinstance(outcome, Decision) else Decision(commands=outcome or ())
        largest = self.largest
        largest.see("bytes_journaled", sum(len(REGISTRY.encode(record)) for record in decided.records), name)
        largest.see("records", len(decided.records), name)
        largest.see("commands", len(decided.commands), name)
        for command in decided.commands:
            said = getattr(command, "message", None) or getattr(command, "item", None)
            if said is None or not attrs.has(type(said)):
                continue
            for field in attrs.fields(type(said)):
                value = getattr(said, field.name)
                passed_on = isinstance(command, Continue) and field.name in OFFERED
                if isinstance(value, tuple) and not passed_on:
                    largest.see("items", len(value), f"{name}: {type(said).__name__}.{field.name}")


class ObedientWorker(ScriptedWorker):
    """A scripted worker that stops what it is told to, and says so at once."""

    def _obey(self, orders):
        for order in orders.run:
            if order.uid not in self.attempts:
                self._start(order)
        ended = []
        for stop in orders.stop:
            known = self.attempts.get(stop.uid)
            if known is not None and known.ending is None:
                ran = known.state is TaskState.RUNNING
                ended.append(Observation(stop.uid, known.state, AttemptEnd(stop.ending), ran))
        self.say(ended)
        for uid in orders.release:
            self.attempts.pop(uid, None)

    def say(self, observations):
        """Tell all of it in one item."""
        self.attempts.update((seen.uid, seen) for seen in observations)
        if observations:
            self._send(Observed(tuple(observations)))

    def all_run(self):
        """Say that everything runs."""
        self.say([Observation(uid, TaskState.RUNNING, None, True) for uid in self.attempts])


class OneSlice(ControlPlane):
    """A control plane whose workers are all of one slice, which may be lost."""

    def __init__(self, monkeypatch, **options):
        monkeypatch.setattr(plane, "ScriptedWorker", ObedientWorker)
        self.slices = 0
        super().__init__(**options)

    def _hear(self, state, message, ctx):
        super()._hear(state, message, ctx)
        if isinstance(message, SchedulerStarted):
            return tuple(Tell(ActorPath("/jobs/scheduler"), WorkerReady(each.info)) for each in self.workers.values())
        return None

    def _perform(self, operation):
        if getattr(operation.effect, "worker_id", "") in self.workers:
            super()._perform(operation)

    def add(self, number, slots):
        """Have a slice of ``number`` workers register, each with room for ``slots`` tasks."""
        slice_id = f"slice-{self.slices}"
        self.slices += 1
        for index in range(number):
            worker_id = f"{slice_id}-{index}"
            pairs = {"worker-id": worker_id, "slice-id": slice_id, "python": "3.11"}
            capacity = Capacity(slots * plane.TASK.cpu_milli, slots * plane.TASK.memory_bytes)
            info = WorkerInfo(worker_id, "1", slice_id, "cpu", capacity, Attributes(pairs), "10.0.0.1:10001")
            self.workers[worker_id] = ObedientWorker(self, info)
        for worker in self.workers.values():
            self.system.tell("/jobs/scheduler", WorkerReady(worker.info))
        self.system.advance(1)

    def all_run(self):
        """Have everything run that was ordered."""
        for worker in self.workers.values():
            worker.all_run()
        self.system.advance(1)

    def lose_slice(self):
        """Lose all workers at once."""
        for worker in self.workers.values():
            worker.hang_up()
        self.workers.clear()
        self.system.tell("/jobs/scheduler", SliceGone(f"slice-{self.slices - 1}"))
        self.system.advance(1)

    def crash(self):
        """Let the controller die and start again; all workers come back with what they have."""
        self.system.crash()
        for worker in self.workers.values():
            worker.handle = None
        self.system.restart()
        self.system.advance(1)
