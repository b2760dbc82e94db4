"""Measures a network with plain sockets; run inside hosts of a lab. Prints one line of JSON at the end.

``receive PORT`` and ``send ADDRESS PORT RATE SECONDS SIZE TRAIN`` measure one direction, everything at
once; the sender begins when it is given a line. Packets leave in trains, back to back, ``RATE`` on the
average. The rate of the path is how far apart it pulls the second halves of trains (0 for trains of one);
losses are counted over all packets; delay and jitter are those of the first of each train, which has no
queue before it; the latest hundredth of those is left out, since that is what a machine does that stops for
a moment. All hosts of a lab read the same clock, so that these are true.

``echo PORT`` and ``ping ADDRESS PORT COUNT INTERVAL`` measure round trips. ``burn SECONDS`` computes, and
measures the share of a core that it got; ``hold BYTES`` takes memory.
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
from collections import defaultdict

from swarm.clock import elapsed

HEADER = struct.Struct("!QdQ")
END = 2**64 - 1
HEADERS_ON_THE_WIRE = 14 + 20 + 8
"""Of Ethernet, IPv4 and UDP."""


def until(moment: float) -> None:
    left = moment - elapsed()
    if left > 0:
        select.select([], [], [], left)


def send(address: str, port: str, rate: str, seconds: str, size: str, train: str) -> dict[str, float]:
    """``rate`` is in bits a second on the wire, ``size`` in bytes of UDP payload."""
    length = int(train)
    interval = (int(size) + HEADERS_ON_THE_WIRE) * 8 / float(rate)
    count = int(float(seconds) / interval) // length * length
    padding = bytes(int(size) - HEADER.size)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((address, int(port)))
        say_ready()
        sys.stdin.readline()
        start = elapsed() + 0.05
        for number in range(count):
            if number % length == 0:
                until(start + number * interval)
            sender.send(HEADER.pack(number, elapsed(), length) + padding)
        for repeat in range(20):
            until(start + count * interval + 0.5 + repeat * 0.01)
            with contextlib.suppress(ConnectionRefusedError):  # the receiver has heard it
                sender.send(HEADER.pack(END, float(count), length) + padding)
    return {"sent": count}


def receive(port: str) -> dict[str, float]:
    arrivals: list[tuple[int, float, float]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        receiver.bind(("0.0.0.0", int(port)))
        receiver.settimeout(60)
        say_ready()
        while True:
            packet = receiver.recv(65536)
            now = elapsed()
            number, moment, length = HEADER.unpack_from(packet)
            if number == END:
                break
            arrivals.append((number, moment, now))
    delays = sorted(now - moment for number, moment, now in arrivals if number % length == 0)
    del delays[len(delays) * 99 // 100 + 1 :]
    numbers = [number for number, _, _ in arrivals]
    bits = (len(packet) + HEADERS_ON_THE_WIRE) * 8
    return {
        "lost": 1 - len(set(numbers)) / moment,
        "rate": pulled_apart(arrivals, length) * bits,
        "throughput": len(numbers) * bits / (arrivals[-1][2] - arrivals[0][2]),
        "delay": statistics.fmean(delays),
        "jitter": statistics.pstdev(delays),
        "overtaken": sum(later < earlier for earlier, later in itertools.pairwise(numbers)),
        "received": len(numbers),
    }


def pulled_apart(arrivals: list[tuple[int, float, float]], length: int) -> float:
    """Packets a second in the second halves of trains; what was lost inside one does not matter."""
    trains: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for number, _, now in arrivals:
        if number % length >= length // 2:
            trains[number // length].append((number, now))
    packets = sum(train[-1][0] - train[0][0] for train in trains.values())
    seconds = sum(train[-1][1] - train[0][1] for train in trains.values())
    return packets / seconds if seconds else 0.0


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
            client.send(HEADER.pack(number, elapsed(), 1))
            with contextlib.suppress(TimeoutError):
                back = -1
                while back != number:
                    back, moment, _ = HEADER.unpack(client.recv(64))
                found.append(elapsed() - moment)
    return {"answered": len(found), "median": statistics.median(found)}


def burn(seconds: str) -> dict[str, float]:
    began, used = elapsed(), sum(os.times()[:2])
    while elapsed() < began + float(seconds):
        pass
    return {"cores": (sum(os.times()[:2]) - used) / (elapsed() - began)}


def hold(octets: str) -> dict[str, float]:
    held = bytearray(os.urandom(2**20)) * (int(octets) // 2**20)
    return {"held": len(held)}


def say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main() -> None:
    command, *words = sys.argv[1:]
    if command not in {"burn", "hold"}:
        with contextlib.suppress(OSError):  # a measurement does not wait for what it measures
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    does = {"send": send, "receive": receive, "echo": echo, "ping": ping, "burn": burn, "hold": hold}
    sys.stdout.write(json.dumps(does[command](*words)) + "\n")


if __name__ == "__main__":
    main()
