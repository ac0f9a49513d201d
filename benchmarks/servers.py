"""The two servers every contender calls: one over stdio, one over HTTP, both revision 2026-07-28.

They exist to cost next to nothing, so that a figure is the client's own: no JSON parser, no dispatch, prebuilt bytes
around the request id and the echoed token. They understand the messages of this benchmark and no others.

    python servers.py stdio      answers on stdout; stops at the end of stdin
    python servers.py http       prints its port, then one JSON line of counters for each line it reads on stdin
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in typing, whose import would cost more than this whole process
if TYPE_CHECKING:
    import socket

_DISCOVERED = (
    b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete",'
    b'"ttlMs":0,"cacheScope":"public"}'
)
_LISTED = (
    b'{"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"token":{"type":"string"}}}}],'
    b'"resultType":"complete","ttlMs":0,"cacheScope":"public"}'
)


def answer(message: bytes) -> bytes | None:
    """Give the reply to one encoded request, or None for a notification.

    The token and the id are found by searching: a token is plain ASCII without quotes or backslashes, and no other
    member of the messages of this benchmark is called "id" or "token".
    """
    if (at := message.find(b'"id"')) < 0:
        return None
    value = message[message.index(b":", at) + 1 :]
    request_id = value[: min(end for end in (value.find(b","), value.find(b"}")) if end >= 0)].strip()
    if b'"tools/call"' in message:
        start = message.index(b'"', message.index(b":", message.index(b'"token"'))) + 1
        token = message[start : message.index(b'"', start)]
        result = b'{"resultType":"complete","content":[{"type":"text","text":"%b"}]}' % token
    elif b'"server/discover"' in message:
        result = _DISCOVERED
    elif b'"tools/list"' in message:
        result = _LISTED
    else:
        return b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"not in this benchmark"}}' % request_id
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result)


def serve_stdio() -> None:
    """Answer each line of stdin until it ends."""
    write, flush = sys.stdout.buffer.write, sys.stdout.buffer.flush
    for line in sys.stdin.buffer:
        if (reply := answer(line)) is not None:
            write(reply + b"\n")
            flush()


def serve_http() -> None:
    """Serve on a free loopback port, one thread a connection, until stdin ends.

    The path decides how a request is answered: `/json` in one JSON body, `/sse` as one event with the end of the stream
    in the same packet, `/late` as one event whose stream ends 1 ms later.
    """
    import json
    import socket
    import threading

    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    requests = [0]
    connections = [0]
    lock = threading.Lock()

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            connections[0] += 1
            threading.Thread(target=converse, args=(connection,), daemon=True).start()

    def converse(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with connection:
                while (request := _read_request(connection)) is not None:
                    with lock:
                        requests[0] += 1
                    _respond(connection, *request)
        except ConnectionError:
            pass  # a client that leaves in mid-answer is its own affair; the counters show it

    threading.Thread(target=accept, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    for _ in sys.stdin:
        print(json.dumps({"requests": requests[0], "connections": connections[0]}), flush=True)


def _read_request(connection: socket.socket) -> tuple[bytes, bytes] | None:
    """Read one request; give its first line and its body, or None when the client closed."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        if not (chunk := connection.recv(65536)):
            return None
        data += chunk
    head, body = data[:end], data[end + 4 :]
    _, found, length = head.lower().partition(b"\r\ncontent-length:")
    size = int(length.partition(b"\r\n")[0]) if found else 0
    while len(body) < size:
        if not (chunk := connection.recv(65536)):
            return None
        body += chunk
    return head.partition(b"\r\n")[0], body


def _respond(connection: socket.socket, line: bytes, body: bytes) -> None:
    import time

    if not line.startswith(b"POST "):
        connection.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
        return
    if (reply := answer(body)) is None:
        connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        return
    status = b"404 Not Found" if b'"error"' in reply else b"200 OK"
    if line.startswith(b"POST /json "):
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(reply))
        connection.sendall(head + reply)
        return
    event = b"event: message\r\ndata: %b\r\n\r\n" % reply
    head = b"HTTP/1.1 %b\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" % status
    stream = b"%b%x\r\n%b\r\n" % (head, len(event), event)
    if line.startswith(b"POST /sse "):
        connection.sendall(stream + b"0\r\n\r\n")
        return
    connection.sendall(stream)
    time.sleep(0.001)
    connection.sendall(b"0\r\n\r\n")


if __name__ == "__main__":
    serve_stdio() if sys.argv[1] == "stdio" else serve_http()
