"""Who ought to be alive: supervision as the docs say it in one paragraph, and the reports that it owes."""

from kernel_words import FAMILY, Planned

from iriscw._errors import InvalidDecision, RestartsExhausted
from iriscw.runtime import vocabulary as v
from iriscw.runtime.behavior import Restart, Strategy
from iriscw.runtime.cell import DRAINING


class Family:
    """The part of the oracle that knows what becomes of an actor that fails or ends, and of those around it."""

    def failed(self, node, *, raised=True):
        """Say who is alive after ``node`` failed or ended."""
        if node.status != "alive":
            return
        parent, kind = node.parent, node.kind
        if parent is None:
            self.lost = True
            return
        if kind.restart is Restart.TEMPORARY or (kind.restart is Restart.TRANSIENT and not raised):
            self.gone(node)
            return
        rules = parent.kind
        group = rules.strategy is not Strategy.ONE_FOR_ONE
        times = parent.group_times if group else node.times
        now = self.simulation.dispatcher.now
        budget = FAMILY if parent.parent is None else rules.restarts
        if sum(at > now - rules.period_s * v.SECOND for at in times) >= budget:
            if kind.entity:
                self.empty(node)
                node.status = "quarantined"
            else:
                if not raised:
                    self.exhaustions_due.append(node.path)
                self.failed(parent)
            return
        times.append(now)
        siblings = [child for child in parent.children.values() if child.status == "alive"]
        if rules.strategy is Strategy.ONE_FOR_ONE:
            siblings = [node]
        elif rules.strategy is Strategy.REST_FOR_ONE:
            siblings = siblings[siblings.index(node) :]
        for each in siblings:
            if each is not node and each.kind.restart is Restart.TEMPORARY:
                self.gone(each)
            else:
                self.empty(each)

    def empty(self, node):
        """End all below a node, which itself starts anew: a supervisor comes back with a fresh budget."""
        for child in list(node.children.values()):
            self.gone(child)
        node.group_times.clear()

    def gone(self, node):
        """End a node and all below it."""
        self.empty(node)
        node.status = "gone"
        if node.parent is not None and node.parent.children.get(node.path.name) is node:
            del node.parent.children[node.path.name]

    def reported(self, report):
        """R4: each exception of a decision reaches the listeners, in order."""
        error = report.error
        while type(error) is not Planned and error.__cause__ is not None:
            error = error.__cause__
        if type(error) is not Planned:
            if type(error) is RestartsExhausted and error is report.error:
                self._exhausted(report)
            elif type(error) not in (InvalidDecision, ValueError, RestartsExhausted):
                self.wrong(f"nobody planned {report.error!r} of {report.path}")
            return
        if type(report.error) is Planned:
            if error not in self.failures_due:
                self.wrong(f"{report.path} was reported twice for {error!r}")
            else:
                self.failures_due.remove(error)
                if error.starting is not None:
                    self.failed(error.starting)

    def _exhausted(self, report):
        """An actor that ended itself once too often fails its parent, though nothing raised."""
        ended = next((path for path in self.exhaustions_due if str(report.error) == f"{path} ended too often"), None)
        if ended is None and self.tree.cells[report.path].status == DRAINING:
            return  # whether it is gone already or still counts is the kernel's to say
        if ended is None or ended.parent != report.path:
            self.wrong(f"nobody planned {report.error!r} of {report.path}")
        else:
            self.exhaustions_due.remove(ended)
