"""Batch inference: a model that is loaded once in each of some actors, and batches that are shared out among them.

`python batch_inference.py` runs it on a cluster on this machine. Whoever is ready gets the next batch, so a slow actor
holds nobody up; one that is lost with its machine is made anew, and gets its batch again.
"""

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from iriscw import Resources, blocking
from iriscw.errors import CallLost

ACTORS = 2
BATCH = 16


class Model:
    """Stands for one that takes minutes to load."""

    def __init__(self, scale):
        self.scale = scale  # load the weights here: they stay while the actor lives
        self.batches = 0

    def predict(self, batch):
        """Return a prediction for each item."""
        self.batches += 1
        return [self.scale * item for item in batch]


def main(client):
    items = list(range(200))
    batches = [items[at : at + BATCH] for at in range(0, len(items), BATCH)]
    small = Resources(cpu=0.25, memory="128MiB")  # gpu=1, in earnest
    models = client.create_actor_group(Model, 2, name="model", count=ACTORS, resources=small, max_restarts=3)
    idle = SimpleQueue()
    for model in models.wait_ready():
        idle.put(model)

    def predict(batch):
        model = idle.get()
        try:
            return model.predict(batch)
        except CallLost:
            return model.predict(batch)  # it may have run before, which does no harm here; this waits for the new one
        finally:
            idle.put(model)

    with ThreadPoolExecutor(ACTORS) as threads:
        predictions = [each for part in threads.map(predict, batches) for each in part]
    print(f"{len(batches)} batches, {len(predictions)} predictions, the last is {predictions[-1]}")
    for number in range(ACTORS):
        client.job(f"model-{number}").terminate("the batches are done")


if __name__ == "__main__":
    with blocking.Cluster.local(nodes=2) as cluster:
        main(cluster.client)
