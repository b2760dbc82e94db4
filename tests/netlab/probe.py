"""Measures a network with plain sockets; run inside hosts of a lab. Prints one line of JSON at the end.

``receive PORT`` and ``send ADDRESS PORT RATE SECONDS SIZE`` measure one direction: share lost, goodput,
delays of one way. All hosts of a lab read the same monotonic clock, so that these are true.
``echo PORT`` and ``ping ADDRESS PORT COUNT INTERVAL`` measure round trips.
"""

import contextlib
import itertools
import json
import os
import select
import socket
import statistics
import struct
import sys

from swarm.clock import elapsed

HEADER = struct.Struct("!Qd")
END = 2**64 - 1
HEADERS_ON_THE_WIRE = 14 + 20 + 8
"""Of Ethernet, IPv4 and UDP."""


def until(moment: float) -> None:
    left = moment - elapsed()
    if left > 0:
        select.select([], [], [], left)


def send(address: str, port: str, rate: str, seconds: str, size: str) -> dict[str, float]:
    """``rate`` is in bits a second on the wire, ``size`` in bytes of UDP payload."""
    interval = (int(size) + HEADERS_ON_THE_WIRE) * 8 / float(rate)
    count = int(float(seconds) / interval)
    padding = bytes(int(size) - HEADER.size)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((address, int(port)))
        start = elapsed() + 0.05
        for number in range(count):
            until(start + number * interval)
            sender.send(HEADER.pack(number, elapsed()) + padding)
        for repeat in range(20):
            until(start + count * interval + 0.3 + repeat * 0.01)
            with contextlib.suppress(ConnectionRefusedError):  # the receiver has heard it
                sender.send(HEADER.pack(END, float(count)))
    return {"sent": count}


def receive(port: str) -> dict[str, float]:
    delays, numbers, moments, octets, sent = [], [], [], 0, 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        receiver.bind(("0.0.0.0", int(port)))
        receiver.settimeout(60)
        say_ready()
        while True:
            packet = receiver.recv(65536)
            now = elapsed()
            number, moment = HEADER.unpack_from(packet)
            if number == END:
                sent = int(moment)
                break
            delays.append(now - moment)
            numbers.append(number)
            moments.append(now)
            octets += len(packet) + HEADERS_ON_THE_WIRE
    return {
        "lost": 1 - len(set(numbers)) / sent,
        "rate": octets * 8 / (moments[-1] - moments[0]),
        "delay": statistics.fmean(delays),
        "jitter": statistics.pstdev(delays),
        "least": min(delays),
        "most": max(delays),
        "overtaken": sum(later < earlier for earlier, later in itertools.pairwise(numbers)),
        "received": len(numbers),
    }


def echo(port: str) -> dict[str, float]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("0.0.0.0", int(port)))
        say_ready()
        while True:
            packet, address = server.recvfrom(65536)
            server.sendto(packet, address)


def ping(address: str, port: str, count: str, interval: str) -> dict[str, float]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect((address, int(port)))
        client.settimeout(2)
        start = elapsed()
        for number in range(int(count)):
            until(start + number * float(interval))
            client.send(HEADER.pack(number, elapsed()))
            with contextlib.suppress(TimeoutError):
                answered = False
                while not answered:
                    back, moment = HEADER.unpack(client.recv(64))
                    answered = back == number
                found.append(elapsed() - moment)
    return {
        "answered": len(found),
        "median": statistics.median(found),
        "mean": statistics.fmean(found),
        "deviation": statistics.pstdev(found),
    }


def say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main() -> None:
    with contextlib.suppress(OSError):  # a measurement does not wait for what it measures
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    does = {"send": send, "receive": receive, "echo": echo, "ping": ping}[sys.argv[1]]
    sys.stdout.write(json.dumps(does(*sys.argv[2:])) + "\n")


if __name__ == "__main__":
    main()
