"""Values that these tests share."""

from collections.abc import Mapping
from random import Random
from typing import Any

import attrs
from deploy_world import HURRY, put, values

from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.drivers.kube.objects import Objects
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse
from iriscw.config.load import build_config
from iriscw.deploy.installation import installation_of
from iriscw.deploy.rendering import render
from iriscw.doctor.findings import Finding, Health
from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.messages import Request


@attrs.frozen
class StoreApi:
    """A simulation's store as somebody has it, without HTTP in between. It counts requests.

    ``refusals`` are answers that come instead of the store's, by method and the end of the path.
    """

    server: Any
    user: str = "admin"
    refusals: Mapping[tuple[str, str], Any] = attrs.field(factory=dict)
    seen: list[tuple[str, str]] = attrs.field(factory=list)

    async def request(self, request: ApiRequest) -> ApiResponse:
        """See the port."""
        self.seen.append((request.method, request.path))
        for (method, end), answer in self.refusals.items():
            if request.method == method and request.path.endswith(end):
                if isinstance(answer, Exception):
                    raise answer
                return answer
        asked = Request(request.method, request.path, request.query, request.body, request.content_type, user=self.user)
        response = self.server.store.handle(asked, self.server.timeline.now)
        return ApiResponse(response.code, thaw(response.body))

    async def watch(self, request: ApiRequest):
        """Bring nothing: what is waited for is read again."""
        for event in ():
            yield event


def objects_of(server, user="admin", **refusals):
    """Return the objects of a simulation as somebody has them."""
    return Objects(caller_of(StoreApi(server, user, **refusals)))


def caller_of(api):
    """Return what carries calls out, in a hurry."""
    return Caller(api, HURRY, rng=Random(0))


def install(server, installation):
    """Put all objects of an installation into a simulation."""
    for manifest in render(installation):
        path, _, name = path_of(manifest.body).rpartition("/")
        answer = server.store.handle(Request("GET", f"{path}/{name}"), server.timeline.now)
        if answer.code == 404:
            put(server, "POST", path, manifest.body)


def lines(findings, verdict=None):
    """Return findings as ``check: found``; only those of a verdict, if one is named."""
    return [f"{each.check}: {each.found}" for each in findings if verdict in (None, each.verdict)]


def of(findings, check):
    """Return the one finding of a check."""
    (found,) = [each for each in findings if each.check == check]
    assert isinstance(found, Finding)
    return found


def is_useful(finding):
    """Whether a finding that is not well says what to do."""
    return bool(finding.advice) == (finding.verdict is not Health.OK)


def configured(*types, controller="", preemptible=()):
    """Return an installation with a group of each type."""
    whole = values({"instance_type": controller})
    whole["scale_groups"] = {
        f"g{number}": {
            "resources": {"cpu": 16, "ram": "64GiB"},
            "num_vms": 18 if each.startswith("gb") else 1,
            "slice_template": {"coreweave": {"instance_type": each}, "preemptible": number in preemptible},
        }
        for number, each in enumerate(types)
    }
    return installation_of(build_config(whole))
