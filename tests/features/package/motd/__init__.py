"""A message of the day for a cluster: an actor, a service of two methods, a metric, a command, a simulation."""

from dataclasses import dataclass

import betterproto2

from iriscw.controller.doors.figures import counter
from iriscw.controller.feature import Feature, Parts
from iriscw.rpc.rules import Bounds, MethodRule
from iriscw.rpc.tokens import Role
from iriscw.rpc.unary import UnaryMethod, UnaryService
from motd.actor import GetText, SetText, TextSet, motd_child
from motd.simulated import SimulatedMotd

WRITERS = MethodRule(roles=(Role.ADMIN, Role.LOCAL), request=Bounds(max_bytes=500))
READERS = MethodRule(roles=(Role.ADMIN, Role.LOCAL, Role.JOB))


@dataclass(eq=False, repr=False)
class Text(betterproto2.Message):  # as compiled from ``message Text { string text = 1; }``
    text: str = betterproto2.field(1, betterproto2.TYPE_STRING)


class MotdParts(Parts):
    def __init__(self, context):
        self.access, self.seen = context.access, TextSet()

    def children(self):
        return (motd_child(),)

    def services(self):
        methods = {"Set": UnaryMethod(self.set, Text, Text, WRITERS), "Get": UnaryMethod(self.get, Text, Text, READERS)}
        return (UnaryService("motd.Motd", methods),)

    async def set(self, message):
        return Text(text=(await self.access.ask("/motd", SetText(message.text))).text)

    async def get(self, message):
        return Text(text=(await self.access.ask("/motd", GetText())).text)

    async def sample(self):
        self.seen = await self.access.ask("/motd", GetText())

    def figures(self):
        yield counter("iriscw_motd_changes", "How often the message of the day was set.", self.seen.count)


feature = Feature(name="motd", open=MotdParts, commands={"motd": "motd.command:motd"}, simulated=SimulatedMotd)
