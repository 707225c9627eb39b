"""Work shared out to a pool of hosted actors: each has one call at a time, and whoever is idle gets the next.

`python actor_pool.py` counts primes on a cluster on this machine. A worker is killed on the way: the range that it had
is counted by another one (`retries`, since counting twice does no harm), and a new process takes its place.
"""

import asyncio
import os
import signal

from iriscw import ActorPool, Cluster, Resources

SIZE, COUNT = 5_000, 20


class PrimeCounter:
    """Counts primes, and remembers the small ones between calls."""

    def __init__(self, limit):
        self.small = []
        for number in range(2, int(limit**0.5) + 1):
            if self.is_prime(number):
                self.small.append(number)

    def is_prime(self, number):
        return number > 1 and all(number % each for each in self.small if each * each <= number)

    def count(self, start):
        return sum(self.is_prime(number) for number in range(start, start + SIZE))

    def kill(self):
        os.kill(os.getpid(), signal.SIGKILL)


async def main():
    async with Cluster.local() as cluster:
        workers = await cluster.client.create_actor_group(
            PrimeCounter,
            SIZE * COUNT,
            name="primes",
            count=3,
            max_restarts=1,
            resources=Resources(cpu=0.3, memory="128MiB"),
        )
        pool, total, done = ActorPool(workers, retries=1), 0, 0
        async for found in pool.map_unordered(PrimeCounter.count, range(0, SIZE * COUNT, SIZE)):
            total, done = total + found, done + 1
            if done == 5:
                await workers[0].kill.tell()
        print(f"primes below {SIZE * COUNT}: {total}")


if __name__ == "__main__":
    asyncio.run(main())
