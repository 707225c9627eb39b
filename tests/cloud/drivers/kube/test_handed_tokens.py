"""Secrets of workers' tokens: who has one, and when it goes."""

import anyio
from drivers_world import SETTINGS

from iriscw.cloud.drivers.kube.handed_tokens import HandedTokens
from iriscw.cloud.drivers.kube.leading import LeadershipLost
from iriscw.cloud.model import LABEL_WORKER, Capacity, Pod, PodPhase, PodSpec, Removed, Unavailable, Upserted
from iriscw.rpc.tokens import Secret


class Api:
    """Takes the calls that remove Secrets, and refuses the first of them."""

    settings, rng = SETTINGS, None

    def __init__(self, refusal=None):
        self.asked, self.refusal, self.changed = [], refusal, anyio.Event()

    async def carry_out(self, call):
        """Note which Secret goes."""
        self.asked.append(next(call).path.rpartition("/")[2])
        call.close()
        self.changed.set()
        if self.refusal is not None:
            error, self.refusal = self.refusal, None
            raise error


def pod_of(name, worker="w"):
    """Return the specification of a worker's pod."""
    return PodSpec(name, "iris-h100-a", {LABEL_WORKER: worker}, Capacity())


async def removed(api, tokens, count):
    """Let the Secrets be removed; give those that were, once they are so many."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tokens.run)
        with anyio.fail_after(60):
            while len(api.asked) < count:
                api.changed = anyio.Event()
                await api.changed.wait()
        tasks.cancel_scope.cancel()
    return api.asked


async def test_tokens_of_pods_that_were_given_up_go():
    """A worker's next pod is asked for when the one before is given up: then its Secret goes, pod or no pod."""
    api = Api()
    tokens = HandedTokens(api, lambda spec: Secret(spec.name))
    for name in ("one", "one", "two", "three"):
        assert tokens.hand(pod_of(name)) == name
    tokens.hand(pod_of("another", "v"))
    assert await removed(api, tokens, 2) == ["one", "two"]


async def test_tokens_of_pods_that_are_gone_go():
    """Once each, and a pod that comes later is not taken for the next of one that is gone."""
    api = Api()
    tokens = HandedTokens(api, lambda spec: Secret(spec.name))
    tokens.hand(pod_of("one"))
    seen = Pod("one", "u", "p", {LABEL_WORKER: "w"}, PodPhase.SUCCEEDED)

    async def events():
        yield Upserted(seen)
        yield Removed(seen)

    assert [event async for event in tokens.watched(events())] == [Upserted(seen), Removed(seen)]
    tokens.hand(pod_of("two"))
    tokens.drop("last")
    assert await removed(api, tokens, 2) == ["one", "last"]


async def test_a_refusal_ends_nothing():
    """The next one is tried as well: a controller that may not act any more ends by itself, and not by this."""
    for refusal in (Unavailable("no answer"), LeadershipLost("another one leads")):
        api = Api(refusal)
        tokens = HandedTokens(api, lambda spec: Secret(spec.name))
        tokens.drop("one")
        tokens.drop("two")
        assert await removed(api, tokens, 2) == ["one", "two"]
