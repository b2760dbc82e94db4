"""Delays have the mean and deviation asked for, losses their share, and nobody overtakes."""

import random
import statistics

import pytest

from swarm.testing.netlab.delays import DelayLines, Wander, Way


def packet(sender: int, receiver: int, number: int = 0) -> bytes:
    """As much of an IPv4 packet as delay lines look at."""
    return bytes([69, *bytes(11), 26, sender, 1, 10, 26, receiver, 1, 10]) + number.to_bytes(4, "big")


@pytest.mark.parametrize("interval", [0.0001, 0.02, 5.0])
def test_a_delay_wanders_with_the_deviation_asked_for(interval: float) -> None:
    wander = Wander(0.003, random.Random(1))
    found = [wander.at(step * interval) for step in range(200_000)]
    assert statistics.pstdev(found) == pytest.approx(0.003, rel=0.1)
    assert statistics.fmean(found) == pytest.approx(0.0, abs=0.0005)
    assert max(map(abs, found)) <= 0.003 * 5**0.5


def test_packets_come_out_in_order_when_they_are_due() -> None:
    lines = DelayLines({(1, 2): Way(delay=0.02, jitter=0.004, loss=0.0)}, random.Random(2))
    sent, received = {}, []
    for step in range(5000):
        now = step * 0.001
        sent[step] = now
        assert lines.take(packet(1, 2, step), now)
        received += [(int.from_bytes(out[20:], "big"), due, now) for due, out in lines.release(now)]
    received += [(int.from_bytes(out[20:], "big"), due, due) for due, out in lines.release(100.0)]
    assert [number for number, _, _ in received] == list(range(5000))
    delays = [due - sent[number] for number, due, _ in received]
    assert statistics.fmean(delays) == pytest.approx(0.02, rel=0.1)
    assert statistics.pstdev(delays) == pytest.approx(0.004, rel=0.15)
    assert all(0 <= now - due < 0.0011 for _, due, now in received)
    assert lines.due is None


def test_losses_have_their_share_and_are_counted() -> None:
    lines = DelayLines({(1, 2): Way(delay=0.0, jitter=0.0, loss=0.05)}, random.Random(3))
    for step in range(20_000):
        lines.take(packet(1, 2), float(step))
    arrived = len(lines.release(1e9))
    assert lines.lost == 20_000 - arrived
    assert lines.lost / 20_000 == pytest.approx(0.05, rel=0.1)


def test_lines_go_their_own_ways() -> None:
    ways = {(1, 2): Way(delay=0.1, jitter=0.0, loss=0.0), (2, 1): Way(delay=0.01, jitter=0.0, loss=0.0)}
    lines = DelayLines(ways, random.Random(4))
    assert not lines.take(packet(1, 3), 0.0)
    assert lines.take(packet(1, 2), 0.0)
    assert lines.take(packet(2, 1), 0.0)
    assert lines.due == pytest.approx(0.01)
    assert lines.release(0.05) == [(0.01, packet(2, 1))]
    assert lines.release(0.05) == []
    assert lines.release(0.1) == [(0.1, packet(1, 2))]
