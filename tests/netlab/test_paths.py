"""Rates, delays, losses and shares are those of the description, by iperf3 and plain sockets."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from swarm.testing.netlab.counters import since
from swarm.testing.netlab.plugin import StartLab
from swarm.testing.netlab.punctuality import Bounds, Machine

TWO = """
name = "two"
[[site]]
name = "x"
{site}
[[site]]
name = "y"
{site}
[[host]]
name = "a"
site = "x"
{host}
[[host]]
name = "b"
site = "y"
{host}
[[path]]
between = ["x", "y"]
{path}
"""
Start = Callable[..., Any]
AtBest = Callable[[Callable[[], None]], None]
Settled = Callable[[Callable[[], float], Callable[[], Bounds]], float]


def two(*, site: str = "", host: str = "", path: str = "") -> str:
    return TWO.format(site=site, host=host, path=path)


def both(rate: str) -> str:
    return f'uplink = "{rate}"\ndownlink = "{rate}"'


def carried(lab: Any, probe: Start, *pairs: tuple[str, str], sent: float) -> list[float]:
    """What arrives, in bits a second on the wire, where each pair's first sends its second so much at once.

    Datagrams fill links whatever else crosses them. TCP may not: acks wait, and count, beside what is sent
    the other way, and a sender that lost packets of its first burst may be idle for a while.
    """
    ends = [(4000 + number, *pair) for number, pair in enumerate(pairs)]
    receivers = [probe(lab, receiver, "receive", port, ready=True) for port, _, receiver in ends]
    send_at_once(
        probe(lab, sender, "send", lab.address(receiver), port, sent, 3, 1400, 1, ready=True)
        for port, sender, receiver in ends
    )
    return [receiver.result()["throughput"] for receiver in receivers]


def send_at_once(senders: Iterable[Any]) -> None:
    waiting = list(senders)
    for sender in waiting:
        sender.go()
    for sender in waiting:
        sender.result()


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        (two(site=both("8Mbit")), 8e6),
        (two(host=both("100Mbit")), 100e6),
        (two(path='rate = "300Mbit"\nrtt = "10ms"'), 300e6),
        (two(host=both("1Gbit")), 1e9),
    ],
    ids=["site 8 Mbit", "host 100 Mbit", "path 300 Mbit by the forwarder", "host 1 Gbit"],
)
def test_tcp_is_within_a_tenth_of_the_rate_in_both_directions(
    netlab: StartLab, iperf: Start, settled: Settled, machine: Machine, text: str, rate: float
) -> None:
    lab = netlab(text)
    for sender, receiver in (("a", "b"), ("b", "a")):
        found = settled(
            lambda ends=(sender, receiver): iperf(lab, *ends).rate_on_the_wire(), lambda: machine.rate(rate)
        )
        assert found in machine.rate(rate)


def test_directions_have_rates_of_their_own(
    netlab: StartLab, probe: Start, at_best: AtBest, machine: Machine
) -> None:
    lab = netlab("asymmetric")

    def scenario() -> None:
        there, back = carried(lab, probe, ("h1", "h2"), ("h2", "h1"), sent=26e6)
        assert there in machine.rate(20e6)
        assert back in machine.rate(20e6)
        down = carried(lab, probe, ("h2", "h1"), ("h3", "h1"), ("h4", "h1"), sent=26e6)
        assert sum(down) in machine.rate(60e6)

    at_best(scenario)


def test_rate_delay_jitter_and_loss_hold_together_both_ways_at_once(
    netlab: StartLab, probe: Start, at_best: AtBest, machine: Machine
) -> None:
    lab = netlab(two(path='rate = "20Mbit"\nrtt = "40ms"\njitter = "3ms"\nloss = "2%"'))

    def scenario() -> None:
        receivers = [probe(lab, host, "receive", 4000, ready=True) for host in ("b", "a")]
        send_at_once(
            probe(lab, sender, "send", lab.address(receiver), 4000, 13e6, 9, 500, 40, ready=True)
            for sender, receiver in (("a", "b"), ("b", "a"))
        )
        for found in [receiver.result() for receiver in receivers]:
            assert found["received"] > 20_000
            assert found["rate"] in machine.rate(20e6)
            assert found["delay"] in machine.delay(0.020, tolerance=0.002)
            assert found["jitter"] in machine.delay(0.003, tolerance=0.00075)
            assert found["lost"] == pytest.approx(0.02, rel=0.2)
            assert found["overtaken"] == 0

    at_best(scenario)


@pytest.mark.parametrize(("rtt", "wanted"), [("5ms", 0.005), ("30ms", 0.030), ("265ms", 0.265)])
def test_a_round_trip_takes_what_it_should(
    netlab: StartLab, probe: Start, settled: Settled, machine: Machine, rtt: str, wanted: float
) -> None:
    lab = netlab(two(path=f'rtt = "{rtt}"'))
    probe(lab, "b", "echo", 4000, ready=True)

    def bounds() -> Bounds:
        return machine.delay(wanted, tolerance=max(0.002, wanted / 10))

    def once() -> float:
        found: float = probe(lab, "a", "ping", lab.address("b"), 4000, 15, 0.02).result()["median"]
        return found

    assert settled(once, bounds) in bounds()


def test_the_world_is_as_wide_as_its_table_says(
    netlab: StartLab, probe: Start, at_best: AtBest, machine: Machine
) -> None:
    lab = netlab("world")
    hosts = [host.name for host in lab.lab.hosts]
    for host in hosts[1:]:
        probe(lab, host, "echo", 4000, ready=True)
    wanted = {host: lab.lab.rtt(hosts[0], host) for host in hosts[1:]}

    def scenario() -> None:
        pings = {host: probe(lab, hosts[0], "ping", lab.address(host), 4000, 15, 0.02) for host in wanted}
        found = {host: ping.result()["median"] for host, ping in pings.items()}
        for host, rtt in wanted.items():
            bounds = machine.delay(rtt, tolerance=max(0.002, rtt / 10))
            assert found[host] in bounds, (host, bounds, found, wanted)

    at_best(scenario)


def test_what_crosses_between_clusters_shares_one_path_and_the_inside_is_fast(
    netlab: StartLab, iperf: Start, probe: Start, at_best: AtBest, settled: Settled, machine: Machine
) -> None:
    lab = netlab("two-clusters")
    crossing = [("left1", "right1"), ("left2", "right2"), ("right1", "left2"), ("right2", "left1")]

    def scenario() -> None:
        before = lab.carried()
        there, also_there, back, also_back = carried(lab, probe, *crossing, sent=6e6)
        assert there + also_there in machine.rate(8e6)
        assert back + also_back in machine.rate(8e6)
        assert min(there, also_there, back, also_back) > 1e6
        [left] = [link for link in since(lab.carried(), before) if (link.kind, link.name) == ("site", "left")]
        assert left.sent in machine.rate(12e6 / 8 * 3)  # more than the path beyond took
        assert left.received in machine.rate(8e6 / 8 * 3.1)  # and its buffer of 0.1 s

    at_best(scenario)
    inside = settled(lambda: iperf(lab, "right1", "right2").rate_on_the_wire(), lambda: machine.rate(1e9))
    assert inside in machine.rate(1e9)


def test_hosts_share_the_access_link_of_their_home(
    netlab: StartLab, probe: Start, at_best: AtBest, machine: Machine
) -> None:
    lab = netlab(two(site=both("40Mbit")) + '[[host]]\nname = "a2"\nsite = "x"\n')

    def scenario() -> None:
        rates = carried(lab, probe, ("a", "b"), ("a2", "b"), sent=26e6)
        assert sum(rates) in machine.rate(40e6)
        assert min(rates) > 2e6

    at_best(scenario)


def test_cpu_shares_are_kept(netlab: StartLab, probe: Start, at_best: AtBest, machine: Machine) -> None:
    text = two().replace('name = "a"', 'name = "a"\ncpu = 0.5').replace('name = "b"', 'name = "b"\ncpu = 0.2')
    lab = netlab(text)

    def scenario() -> None:
        burning = [probe(lab, host, "burn", 4) for host in ("a", "b", "b")]
        alone, one, other = (process.result()["cores"] for process in burning)
        assert alone in machine.rate(0.5)
        assert one + other in machine.rate(0.2)

    at_best(scenario)


def test_memory_is_limited(netlab: StartLab, probe: Start) -> None:
    lab = netlab(two().replace('name = "a"', 'name = "a"\nmemory = "64MiB"'))
    greedy = probe(lab, "a", "hold", 200 * 2**20)
    assert greedy.process.wait(30) == -9
    assert probe(lab, "b", "hold", 200 * 2**20).result() == {"held": 200 * 2**20}


def test_programs_choose_their_congestion_control(netlab: StartLab) -> None:
    lab = netlab("lan")
    known = lab.run("h1", ["cat", "/proc/sys/net/ipv4/tcp_available_congestion_control"]).stdout.split()
    script = (
        "import socket, sys\n"
        "for name in sys.argv[1:]:\n"
        "    with socket.socket() as one:\n"
        "        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())\n"
        "        chosen = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)\n"
        "    print(chosen.rstrip(b'\\0').decode())\n"
    )
    assert "cubic" in known
    assert lab.run("h1", ["python3", "-c", script, *known]).stdout.split() == known
