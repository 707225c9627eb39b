"""Four replicas that talk to each other over a port: each adds up what all of them have, in a ring.

`python replicas.py` runs it on a cluster on this machine. It is an all-reduce without any library; PyTorch, JAX
and NCCL find what they need in the variables of a gang's tasks (`coscheduling=`).
"""

import socket
import time

import iriscw
from iriscw import Resources, blocking

REPLICAS = 4


def dial(address):
    """Connect to a peer. One that runs may not listen yet."""
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            time.sleep(0.02)


def exactly(connection, size):
    """Read so many bytes."""
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data)) or exit("the peer has gone")
    return data


def sum_of_all(numbers):
    """Give this replica's number to the next one, and so on, until each has had all of them."""
    task = iriscw.context()
    total = passed = numbers[task.index]
    with socket.create_server((task.bind_host, task.port("ring"))) as door:
        peers = task.peers("ring")  # waits until all run
        with dial(peers[(task.index + 1) % len(peers)]) as following:
            preceding, _ = door.accept()
            with preceding:
                for _ in range(task.num_tasks - 1):
                    following.sendall(passed.to_bytes(8, "big"))
                    passed = int.from_bytes(exactly(preceding, 8), "big")
                    total += passed
    return total


def main(client):
    quarter = Resources(cpu=0.25, memory="64MiB")
    numbers = [3, 1, 4, 1]
    job = client.submit(sum_of_all, numbers, name="ring", replicas=REPLICAS, ports=["ring"], resources=quarter)
    print(f"each of {REPLICAS} replicas has: {job.result()}")


if __name__ == "__main__":
    with blocking.Cluster.local(nodes=2) as cluster:
        main(cluster.client)
