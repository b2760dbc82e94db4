"""Sockets of a host that a test works by hand: one command a line on standard input, one answer a line.

``udp NAME PORT``, ``send NAME ADDRESS PORT TEXT``, ``receive NAME SECONDS``: datagrams.
``listen NAME PORT``, ``accept NAME SECONDS``, ``connect ADDRESS PORT LOCAL-PORT SECONDS``: connections.
``wall``: the wall clock.
"""

import socket
import sys

from swarm.clock import wall


class Agent:
    def __init__(self) -> None:
        self.sockets: dict[str, socket.socket] = {}

    def udp(self, name: str, port: str) -> str:
        self.sockets[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sockets[name].bind(("0.0.0.0", int(port)))
        return "ok"

    def send(self, name: str, address: str, port: str, text: str) -> str:
        self.sockets[name].sendto(text.encode(), (address, int(port)))
        return "ok"

    def receive(self, name: str, seconds: str) -> str:
        self.sockets[name].settimeout(float(seconds))
        text, (address, port) = self.sockets[name].recvfrom(2048)
        return f"{address} {port} {text.decode()}"

    def listen(self, name: str, port: str) -> str:
        self.sockets[name] = socket.create_server(("0.0.0.0", int(port)))
        return "ok"

    def accept(self, name: str, seconds: str) -> str:
        self.sockets[name].settimeout(float(seconds))
        connection, (address, port) = self.sockets[name].accept()
        self.sockets[f"{name}:{port}"] = connection
        return f"{address} {port}"

    def connect(self, address: str, port: str, local: str, seconds: str) -> str:
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sockets[f"client {address} {port}"] = client
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind(("0.0.0.0", int(local)))
        client.settimeout(float(seconds))
        client.connect((address, int(port)))
        return "ok"

    def wall(self) -> str:
        return f"{wall()!r}"


def main() -> None:
    agent = Agent()
    for line in sys.stdin:
        command, *words = line.split()
        try:
            answer = getattr(agent, command)(*words)
        except TimeoutError:
            answer = "nothing"
        except OSError as error:
            answer = f"error {error.strerror}"
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
