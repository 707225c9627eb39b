"""An object store in memory that is away until it is told to come back."""

import anyio

from iriscw.objects.drivers.fake import FakeObjectStore
from iriscw.objects.ports import StoreUnreachable


class AwayStore(FakeObjectStore):
    """Fails whatever is asked of it while it is away, which it is at first."""

    def __init__(self, *, error=None):
        super().__init__()
        self.error = error or StoreUnreachable("the store is away")
        self.asked = anyio.Event()
        """Set when something was asked of it while it was away."""
        self._back = False

    def come_back(self):
        """Answer from now on."""
        self._back = True

    def go(self):
        """Answer no more."""
        self._back, self.asked = False, anyio.Event()

    async def _enter(self, method):
        late = await super()._enter(method)
        if not self._back and method != "aclose":
            self.asked.set()
            raise self.error
        return late
