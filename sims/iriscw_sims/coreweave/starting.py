"""How a pod comes to run: its node takes it on, mounts, pulls, and starts, unless something stands in its way.

Theory of operation. What may stand in the way is a table. Each obstacle is tried against a number of times, with the
status and the events that a kubelet writes then; most are overcome, one in three stays until the cloud is repaired.
"""

from __future__ import annotations

import attrs

from iriscw_sims.coreweave.guests import Guest, Stage
from iriscw_sims.coreweave.kubelet import Kubelets
from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.site import Site

MOST_ATTEMPTS = 5
ENDLESS_SHARE = 1 / 3
"""How many obstacles only a repair removes."""


@attrs.frozen
class Obstacle:
    """Something that keeps a container from being created.

    Attributes:
        name: The fault point.
        waits: Why the container waits, attempt by attempt; the last reason stays.
        reason: The reason of the event that tells it; ``""`` for none.
        message: What status and event say of it, with the image for ``{image}``.
        pulling: Whether only a pod whose image must be asked for meets it.
    """

    name: str
    waits: tuple[str, ...]
    reason: str = ""
    message: str = ""
    pulling: bool = False


CREATING = ("ContainerCreating",)
PULL = ("ErrImagePull", "ImagePullBackOff")
OBSTACLES: tuple[Obstacle, ...] = (
    Obstacle("pod never starts", CREATING),
    Obstacle("mount fails", CREATING, "FailedMount", 'MountVolume.SetUp failed for volume "scratch": timed out'),
    Obstacle(
        "image pull limited", PULL, "Failed", 'Failed to pull image "{image}": 429 Too Many Requests', pulling=True
    ),
    Obstacle("image pull fails", PULL, "Failed", 'Failed to pull image "{image}": not found', pulling=True),
    Obstacle("container config missing", ("CreateContainerConfigError",), "Failed", 'Error: secret "env" not found'),
)
"""In the order in which a pod meets them."""

NEVER = "pod never starts"

OVERCOME = -1
"""Stands for a number of repairs of an obstacle that needs none."""


class Starting:
    """Takes pods on, on the machines to which they are bound."""

    def __init__(self, site: Site, kubelets: Kubelets) -> None:
        self._site = site
        self._kubelets = kubelets
        self._rng = site.stream("starting")

    def take_on(self, guest: Guest, machine: Machine) -> None:
        """Take a pod that was bound to a machine."""
        if self._kubelets.admit(guest, machine):
            self.soon(guest)

    def soon(self, guest: Guest) -> None:
        """Have the kubelet begin with a pod, soon."""
        self._site.after(self._site.settings.sync, self._rng, self._begin, guest, guest.turn())

    def _begin(self, guest: Guest, step: int) -> None:
        machine = guest.machine
        if guest.step != step or machine is None or not machine.up:
            return  # a machine that is cut off does not know of the pod; it begins when it is back
        guest.begun = self._site.stamp_of(machine)
        self._kubelets.publish(guest)
        self._meet(guest, step, 0)

    def _image(self, guest: Guest) -> str:
        image: str = guest.item["spec"]["containers"][0]["image"]
        return image

    def _meet(self, guest: Guest, step: int, index: int) -> None:
        """Meet the obstacles from the one at ``index`` on."""
        machine = guest.machine
        if guest.step != step or machine is None or not machine.powered:
            return
        always = guest.item["spec"]["containers"][0].get("imagePullPolicy") == "Always"
        pulls = always or self._image(guest) not in machine.images
        for number in range(index, len(OBSTACLES)):
            obstacle = OBSTACLES[number]
            if (pulls or not obstacle.pulling) and self._site.chance(obstacle.name, f"pod/{guest.name}"):
                endless = obstacle.name == NEVER or self._rng.random() < ENDLESS_SHARE
                attempts = 0 if obstacle.name == NEVER else self._rng.randrange(1, MOST_ATTEMPTS + 1)
                self._site.note(obstacle.name, guest.name, attempts, endless)
                self._struggle(guest, step, number, attempts, self._site.healed if endless else OVERCOME)
                return
        self._pull(guest, step, machine)

    def _struggle(self, guest: Guest, step: int, number: int, left: int, healed: int) -> None:
        """Try once more against an obstacle, of which only the repair after the ``healed``-th rids us."""
        if guest.step != step:
            return
        obstacle = OBSTACLES[number]
        if left == 0 and healed != self._site.healed:
            guest.waiting, guest.message = CREATING[0], ""
            self._meet(guest, step, number + 1)
            return
        text = obstacle.message.format(image=self._image(guest))
        waits = obstacle.waits
        guest.waiting = waits[-1] if left == 0 or guest.waiting == waits[0] else waits[0]
        guest.message = "" if guest.waiting == CREATING[0] else text
        self._kubelets.publish(guest)
        if obstacle.reason:
            self._kubelets.events.warning(guest.item, obstacle.reason, text, "kubelet")
        if left == 0:
            key = ("pod starts", guest.uid)
            self._site.hold(key, self._struggle, guest, step, number, 0, OVERCOME)
        else:
            self._site.after(
                self._site.settings.retry, self._rng, self._struggle, guest, step, number, left - 1, healed
            )

    def _pull(self, guest: Guest, step: int, machine: Machine) -> None:
        image, settings = self._image(guest), self._site.settings
        if image in machine.images:
            self._created(guest, step)
            return
        slow = self._site.chance("image pull slow", f"pod/{guest.name}")
        span = settings.pull_slow if slow else settings.pull
        self._kubelets.events.normal(guest.item, "Pulling", f'Pulling image "{image}"', "kubelet")
        delay = self._site.after(span, self._rng, self._pulled, guest, step, image)
        self._site.note("image pulled", guest.name, delay)

    def _pulled(self, guest: Guest, step: int, image: str) -> None:
        machine = guest.machine
        if machine is not None and machine.powered:
            machine.images[image] = None
        self._created(guest, step)

    def _created(self, guest: Guest, step: int) -> None:
        if guest.step == step and guest.stage is Stage.CREATING:
            self._kubelets.start(guest, step)
