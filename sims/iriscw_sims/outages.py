"""What keeps the controller from being served by the API server for a while, as a whole and not request by request.

Theory of operation. Four things, each until a moment; those of one kind do not add up, the later end counts:

*Out of reach.* Nothing gets through. Either it hangs (a load balancer swallows packets: requests are answered by their
timeout, watches go silent), or it is refused at once (nobody listens: requests fail at once, watches break). What was
under way lands all the same.

*No writes.* Reads and watches go on; whatever would change something is answered that there is no leader.

*Unknown.* The credentials have run out: whatever is asked is answered with 401, until they are renewed. A watch that
was let in before is not asked again.

*Rights.* Some are revoked: the store's own authorizer says 403, because the controller's role has other rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from iriscw.cloud.kube.messages import ApiRequest
from iriscw_sims.kube.messages import Response
from iriscw_sims.kube.refusals import status_failure

if TYPE_CHECKING:
    from iriscw_sims.apiserver import ApiServer
    from iriscw_sims.world import World

Rule = tuple[str, str, tuple[str, ...]]
"""What a role allows: API group, resource, verbs."""

READS, WRITES = ("get", "list", "watch"), ("create", "delete")
REVOKED: Final = (READS, WRITES, (*READS, *WRITES))
"""The verbs of a resource that may be revoked together."""


@attrs.define(eq=False)
class Revocation:
    """A right that the controller does not have at present."""

    resource: str
    verbs: tuple[str, ...]


class Outages:
    """What is wrong with the API server as a whole, and until when. Times are ns of virtual time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._away_until = self._no_writes_until = self._unknown_until = 0
        self.hangs = False
        """Whether who is out of reach is not even refused."""
        self._revoked: list[Revocation] = []

    @property
    def _now(self) -> int:
        return self._world.simulation.now

    @property
    def away(self) -> bool:
        """Whether nothing gets through."""
        return self._now < self._away_until

    @property
    def hampers(self) -> bool:
        """Whether anything of this goes on."""
        return self._now < max(self._away_until, self._no_writes_until, self._unknown_until) or bool(self._revoked)

    def go_away(self, server: ApiServer, span: int, *, hangs: bool) -> None:
        """Let nothing through for ``span`` ns."""
        self._away_until, self.hangs = max(self._away_until, self._now + span), hangs
        for connection in list(server.connections):
            if hangs:
                connection.goes_silent()
            else:
                connection.breaks()

    def take_no_writes(self, span: int) -> None:
        """Refuse what would change something for ``span`` ns."""
        self._no_writes_until = max(self._no_writes_until, self._now + span)

    def expire(self, span: int) -> None:
        """Let the credentials be renewed only after ``span`` ns."""
        self._unknown_until = max(self._unknown_until, self._now + span)

    def revoke(self, resource: str, verbs: tuple[str, ...], span: int) -> None:
        """Take rights away for ``span`` ns."""
        revocation = Revocation(resource, verbs)
        self._revoked.append(revocation)
        self._world.cloud.grant()
        self._world.simulation.call_after(span, self._restore, revocation)

    def _restore(self, revocation: Revocation) -> None:
        if revocation in self._revoked:
            self._revoked.remove(revocation)
            self._world.cloud.grant()

    def left_of(self, rules: tuple[Rule, ...]) -> list[Rule]:
        """Return what is left of the controller's rights."""
        gone = [(each.resource, verb) for each in self._revoked for verb in each.verbs]
        left = [
            (group, resource, tuple(verb for verb in verbs if (resource, verb) not in gone))
            for group, resource, verbs in rules
        ]
        return [rule for rule in left if rule[2]]

    def refuses(self, request: ApiRequest) -> Response | None:
        """Answer a request that has landed and is not served; None if it is."""
        if self._now < self._unknown_until:
            return Response(401, status_failure(401, "Unauthorized", "Unauthorized"))
        if self._now < self._no_writes_until and request.method != "GET":
            return Response(503, status_failure(503, "ServiceUnavailable", "etcdserver: no leader"))
        return None

    def heal(self) -> None:
        """Serve everything again."""
        self._away_until = self._no_writes_until = self._unknown_until = 0
        if self._revoked:
            self._revoked.clear()
            self._world.cloud.grant()
