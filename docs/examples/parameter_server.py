"""A line is fitted by trainers that share the parameters of one server, which they find by its name.

`python parameter_server.py` runs it on a cluster on this machine: a job whose task creates the server and the trainers.
They are in the namespace of that job, so several such jobs may run side by side; and they end with it.
"""

from iriscw import Resources, blocking, context

SMALL = Resources(cpu=0.2, memory="128MiB")
SLOPE, OFFSET = 3.0, 2.0


class ParameterServer:
    def __init__(self, rate):
        self.weights, self.rate = [0.0, 0.0], rate

    def pull(self):
        return self.weights

    def push(self, gradients):
        self.weights = [weight - self.rate * each for weight, each in zip(self.weights, gradients, strict=True)]


class Trainer:
    def __init__(self):
        resolver = blocking.BlockingResolver(context().resolver)
        self.server = resolver.resolve("parameters", ParameterServer, wait=True)

    def step(self, shard):
        """Take one step with some points, and return how far off they were."""
        slope, offset = self.server.pull()
        errors = [(x, slope * x + offset - y) for x, y in shard]
        gradients = [sum(x * error for x, error in errors), sum(error for _, error in errors)]
        self.server.push([each / len(shard) for each in gradients])
        return sum(abs(error) for _, error in errors) / len(shard)


def train(steps=120):
    points = [(x / 10, SLOPE * x / 10 + OFFSET) for x in range(-20, 20)]
    shards = [points[at::4] for at in range(4)]
    with blocking.connect() as client:
        trainers = client.create_actor_group(Trainer, name="trainer", count=2, resources=SMALL)
        server = client.create_actor(ParameterServer, 0.1, name="parameters", resources=SMALL)
        pool = blocking.BlockingActorPool(trainers)
        for error in pool.map(Trainer.step, (shards[step % 4] for step in range(steps))):
            last = error
        return [round(each, 1) for each in server.pull()], last < 0.1


def main():
    with blocking.Cluster.local() as cluster:
        (((slope, offset), good),) = cluster.client.submit(train, name="training", resources=SMALL).result()
        print(f"{slope} * x + {offset}", "good" if good else "bad")


if __name__ == "__main__":
    main()
