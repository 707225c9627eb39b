"""A job that submits jobs: a parent that splits its work, waits for its children, and puts together what they return.

`python parent_children.py` runs it on a cluster on this machine. Within a task `connect()` needs neither an address nor
a token. Children end with their parent, however that ends; a child that is `detached=True` goes on.
"""

from iriscw import Resources, blocking, context

SMALL = Resources(cpu=0.25, memory="128MiB")


def primes_between(bounds):
    """Return the primes in a part."""
    return [number for number in range(*bounds) if number > 1 and all(number % each for each in range(2, number))]


def largest(primes):
    """Return the largest ones. They are the last step's input, so this child begins when the others have ended."""
    return primes[-3:]


def find_primes(limit, parts):
    """Be the parent: it waits, and so it takes little."""
    step = limit // parts
    bounds = [(first, first + step) for first in range(0, limit, step)]
    with blocking.connect() as client:
        # A parent that is tried again finds the children of its attempt before by their name, if they still run.
        name = f"parts-of-{context().job_id}"
        children = client.map(primes_between, bounds, name=name, resources=SMALL, existing="keep")
        primes = [prime for part in children.result() for prime in part]
        last = client.submit(largest, primes, name=f"last-of-{context().job_id}", resources=SMALL, existing="keep")
        return len(primes), last.result()[0]


def main(client):
    job = client.submit(find_primes, 400, 4, name="primes", resources=SMALL, max_retries_failure=1)
    ((found, last),) = job.result()
    print(f"{found} primes, the last of them {last}")
    children = [each for each in client.jobs() if each.seen.parent_job_id == job.id]
    print("children:", sorted(each.seen.num_tasks for each in children), "tasks")


if __name__ == "__main__":
    with blocking.Cluster.local(nodes=2) as cluster:
        main(cluster.client)
