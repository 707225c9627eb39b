"""A pipeline over a list: a coordinator shares the work out to workers, all of them hosted actors.

`python zephyr.py` runs it on a cluster on this machine. A worker may be killed at any time: the call that is lost with
it raises CallLost, the coordinator gives its part of the work to another one, and a new one takes its place.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import groupby
from queue import SimpleQueue

from iriscw import Resources, blocking
from iriscw.errors import ActorOver, CallLost
from iriscw.fray import FrayIrisClient


class Dataset:
    """Items, and the steps to take with them. Each makes a list of a list: of a part of the items, or of the whole."""

    def __init__(self, items, steps=()):
        self.items, self.steps = items, steps

    @classmethod
    def from_list(cls, items):
        return cls(list(items))

    def _then(self, step, whole=False):
        return Dataset(self.items, (*self.steps, (whole, step)))

    def map(self, function):
        return self._then(lambda items: [function(each) for each in items])

    def filter(self, function):
        return self._then(lambda items: [each for each in items if function(each)])

    def batch(self, size):
        return self._then(lambda items: [items[at : at + size] for at in range(0, len(items), size)], whole=True)

    def reduce(self, function, combine=None):
        """Make one value of all items, as `sum` does: of each part at first, and then of what became of the parts."""
        parts = self._then(lambda items: [function(items)] if items else [])
        return parts._then(lambda values: [(combine or function)(values)], whole=True)


class ZephyrWorker:
    def work(self, steps, items):
        for step in steps:
            items = step(items)
        return items


class ZephyrCoordinator:
    done = total = 0

    def progress(self):
        return self.done, self.total

    def run(self, dataset, workers):
        items, self.free = dataset.items, SimpleQueue()
        with ThreadPoolExecutor(len(workers)) as threads:
            threads.map(self.rejoin, workers)
            for whole, group in groupby(dataset.steps, key=lambda step: step[0]):
                steps = [step for _, step in group]
                size = len(items) // (1 if whole else 4 * len(workers)) or 1
                parts = [items[at : at + size] for at in range(0, len(items), size)]
                self.total, items = self.total + len(parts), []
                for result in threads.map(self.give, [steps] * len(parts), parts):
                    items += result
                    self.done += 1
        return items

    def give(self, steps, part):
        """Have a part worked on by whoever is free, and by another one if it is lost."""
        while True:
            worker = self.free.get()
            try:
                return worker.work(steps, part)
            except CallLost:
                continue
            finally:
                threading.Thread(target=self.rejoin, args=(worker,), daemon=True).start()

    def rejoin(self, worker):
        with suppress(ActorOver):  # it was killed once too often, as its next call will say
            worker.wait_ready()
        self.free.put(worker)


class ZephyrContext:
    def __init__(self, client, num_workers=2):
        self.client, self.count = client, num_workers
        self.each = {"resources": Resources(cpu=0.3, memory="128MiB"), "max_restarts": 3}

    def execute(self, dataset):
        with ExitStack() as ends:
            coordinator = self.client.create_actor(ZephyrCoordinator, name="zephyr-controller", **self.each)
            ends.callback(self.client.terminate, coordinator)
            group = self.client.create_actor_group(ZephyrWorker, name="zephyr-worker", count=self.count, **self.each)
            ends.callback(group.shutdown)
            running = coordinator.run.remote(dataset, group.wait_ready())
            ended = False
            while not ended:
                ended, (done, total) = running.done(), coordinator.progress()
                print(
                    f"\r[{'#' * (20 * done // (total or 1)):20}] {done} of {total}", end="\n" * ended, file=sys.stderr
                )
                time.sleep(0.1)
            return running.result()


def main():
    with blocking.Cluster.local() as cluster:
        context = ZephyrContext(FrayIrisClient(controller_address=cluster.address), num_workers=3)
        squares = Dataset.from_list(range(1000)).map(lambda x: x * x).filter(lambda x: x % 3 == 1)
        print("sum:", *context.execute(squares.batch(10).map(sum).reduce(sum)))


if __name__ == "__main__":
    main()
