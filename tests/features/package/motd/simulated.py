"""Somebody sets texts while the controller crashes and its disk stalls: none that was acknowledged is lost."""

from iriscw.testing.checks import InvariantBroken
from iriscw.testing.features import SimulatedFeature
from motd.actor import Motd, SetText, motd_child


class SimulatedMotd(SimulatedFeature):
    def children(self):
        return (motd_child(),)

    def begin(self, system, rng):
        self.system, self.asked = system, []
        for number in range(20):
            system.simulation.call_after(rng.randrange(10**11), self.set, f"text {number}")

    def set(self, text):
        if self.system.state("/motd") is not None:  # else the controller is down
            self.asked.append(self.system.question("/motd", SetText(text)))

    def check(self):
        promised = max((slot.value.count for slot in self.asked if slot.done and slot.error is None), default=0)
        motd = self.system.state("/motd")
        if isinstance(motd, Motd) and motd.now.count < promised:
            raise InvariantBroken(f"{promised} texts were acknowledged, and {motd.now.count} are known")
