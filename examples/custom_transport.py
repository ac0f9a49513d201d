"""A transport of your own: JSON lines over a TCP socket, one connection for each request.

Run it with `python examples/custom_transport.py`.
"""

import json
import socket
import socketserver
import threading
from types import SimpleNamespace

from snodo_client import Client, Link, Traits, local_error
from snodo_client.testing.demo import demo_server


class LineSocketTransport:
    # The modern era alone (the older one needs a connection that lasts); ending the exchange is what cancels.
    traits = Traits(eras=("modern",), cancel="drop")

    def __init__(self, address):
        self.address = address

    def open(self, inbound, deadline):
        return Link("{}:{}".format(*self.address))

    def exchange(self, call):
        call.delivery = "unknown"
        try:
            with socket.create_connection(self.address, timeout=call.deadline.left()) as connection:
                connection.sendall(call.body + b"\n")
                call.delivery = "accepted"
                for line in connection.makefile("rb"):
                    connection.settimeout(max(call.deadline.left(), 0.001))
                    yield json.loads(line)
        except ValueError as error:
            raise local_error("malformed", f"{self.address} sent no JSON: {error}") from None
        except OSError as error:
            call.check()  # raises when it was the deadline
            raise local_error("unreachable", f"no answer from {self.address}: {error}") from None

    def send(self, message, link, deadline):
        with socket.create_connection(self.address, timeout=deadline.left()) as connection:
            connection.sendall(json.dumps(message).encode() + b"\n")

    def close(self, deadline):
        pass


# -- a server to try it with


class Handler(socketserver.StreamRequestHandler):
    demo = demo_server()

    def handle(self):
        def send(message):
            self.wfile.write(json.dumps(message).encode() + b"\n")

        context = SimpleNamespace(auth=None, cancelled=False, send=send)
        answer = self.demo(json.loads(self.rfile.readline()), context)
        if answer is not None:
            send(answer)


def main() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Client.connect(LineSocketTransport(server.server_address)) as client:
            print(client.call_tool("add", {"a": 19, "b": 23}).unwrap()["structuredContent"])
            client.call_tool("count", {"steps": 2}, progress=lambda step: print(step.message)).unwrap()
        server.shutdown()


if __name__ == "__main__":
    main()
