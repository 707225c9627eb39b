"""A sweep over hyperparameters: one job with a task for each setting, and the best of them at the end.

`python sweep.py` runs it on a cluster on this machine. A setting whose training fails costs its own result and no
other: half of them may.
"""

from itertools import product

import iriscw
from iriscw import Resources, blocking

SETTINGS = [{"rate": rate, "steps": steps} for rate, steps in product((0.01, 0.1, 0.4, 1.5), (10, 20))]


def train(setting):
    """Go down the slope of x * x, in the place of a training; give the loss."""
    position = 10.0
    for step in range(setting["steps"]):
        position -= setting["rate"] * 2 * position
        iriscw.progress(step + 1, setting["steps"], f"loss {position * position:.2g}")  # for `iriscw jobs`
    if position > 10.0:
        raise ArithmeticError(f"the loss is {position * position:.2g}: it diverges")
    return position * position


def main(client):
    each = Resources(cpu=0.25, memory="64MiB")  # gpu=1, in earnest
    job = client.map(train, SETTINGS, resources=each, max_task_failures=len(SETTINGS) // 2)
    losses = {}
    for index, loss in job.results():  # as they come
        if isinstance(loss, iriscw.TaskFailed):
            print(f"{SETTINGS[index]} failed: {str(loss).splitlines()[-1]}")
        else:
            losses[index] = loss
    best = min(losses, key=losses.get)
    print(f"best of {len(losses)}: {SETTINGS[best]} with loss {losses[best]:.2g}")


if __name__ == "__main__":
    with blocking.Cluster.local(nodes=2) as cluster:
        main(cluster.client)
