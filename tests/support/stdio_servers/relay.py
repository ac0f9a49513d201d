"""A stdio server whose wits are elsewhere: carries bytes between its standard streams and a TCP port, its argument."""

import os
import socket
import sys
import threading


def speak(sock):
    while data := sock.recv(65536):
        while data:
            data = data[os.write(1, data) :]
    os._exit(0)


def main():
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=speak, args=(sock,), daemon=True).start()
    while data := os.read(0, 65536):
        sock.sendall(data)
    os._exit(0)


main()
