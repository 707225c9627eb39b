"""A service that runs until it is ended: an HTTP server on a port of its task, called from outside of the cluster.

`python service.py` runs it on a cluster on this machine. Whoever calls it asks the job where it listens: a replica
that is tried again is at another address. On CoreWeave that address is of the cluster's network.
"""

import json
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import iriscw
from iriscw import Resources, blocking


def serve():
    """Answer with the length of the path, until the job is ended: a stop is SIGTERM to this process."""
    task = iriscw.context()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"replica": task.index, "length": len(self.path)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer((task.bind_host, task.port("http")), Answers) as server:
        print(f"listening on port {task.port('http')}")
        server.serve_forever()


def call(job, replica, path):
    """Ask a replica. One that runs may not listen yet, and its successor has another address."""
    while True:
        host, port = job.peers("http")[replica]
        try:
            with urllib.request.urlopen(f"http://{host}:{port}/{path}", timeout=10) as answer:
                return json.load(answer)
        except urllib.error.URLError:
            time.sleep(0.05)


def main(client):
    small = Resources(cpu=0.25, memory="64MiB")
    job = client.submit(serve, name="service", replicas=2, ports=["http"], resources=small, max_retries_failure=100)
    print(call(job, 0, "hello"), call(job, 1, "hello-again"))
    job.terminate("nobody calls any more")
    print(job.wait().state)


if __name__ == "__main__":
    with blocking.Cluster.local(nodes=2) as cluster:
        main(cluster.client)
