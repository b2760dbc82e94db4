"""Links on shaped networks: what they carry, what they keep, and what becomes of them when paths are cut."""

import statistics
from collections.abc import Callable

import pytest

from benchmarks.links import lab_ends, shaped
from swarm.testing.netlab.plugin import StartLab

AtBest = Callable[[Callable[[], None]], None]


@pytest.mark.parametrize(("rate", "control"), [("8Mbit", "cubic"), ("8Mbit", "bbr"), ("100Mbit", "cubic")])
def test_a_link_carries_what_iperf_does_and_control_is_not_stuck_behind_bulk(
    netlab: StartLab, at_best: AtBest, rate: str, control: str
) -> None:
    lab = netlab(shaped.make_lab(rate, queue="1s"))
    known = lab_ends.congestion_controls(lab)
    lab_ends.use_congestion_control(lab, control if control in known else known[0])
    with lab_ends.pools(lab, ["b", "a"]) as (receiver, sender):

        def scenario() -> None:
            other = shaped.iperf_goodput(lab, "a", "b", seconds=2)
            link = shaped.link_goodput(sender, receiver, seconds=2)
            assert link > 0.93 * other
            found = shaped.round_trips(sender, receiver, times=20)
            assert statistics.quantiles(found.beside, n=10)[-1] < found.bound

        at_best(scenario)


def test_neither_way_starves_where_bulk_fills_both(netlab: StartLab, at_best: AtBest) -> None:
    lab = netlab(shaped.make_lab("8Mbit"))
    with lab_ends.pools(lab, shaped.HOSTS[:2]) as ends:

        def scenario() -> None:
            assert shaped.link_both_ways(ends, seconds=3) > 0.25 * shaped.iperf_both_ways(lab, seconds=2)

        at_best(scenario)


def test_a_cap_is_kept_and_shared_while_two_peers_pull_at_once(netlab: StartLab, at_best: AtBest) -> None:
    lab, cap = netlab(shaped.make_lab("100Mbit")), 2_000_000
    with lab_ends.pools(lab, shaped.HOSTS, up=cap) as ends:

        def scenario() -> None:
            found = shaped.sent_by_first(lab, ends, seconds=3)
            assert found.on_the_link == pytest.approx(cap, rel=0.05)
            one, other = found.to_each
            assert one == pytest.approx(other, rel=0.2)

        at_best(scenario)


def test_a_cut_link_is_noticed_within_three_heartbeats_and_a_healed_one_used_again(
    netlab: StartLab, at_best: AtBest
) -> None:
    lab = netlab(shaped.make_lab("8Mbit"))
    with lab_ends.nodes(lab, ["a", "b"]) as ends:

        def scenario() -> None:
            found = shaped.outage(lab, ends, seconds=3.0)
            assert found.noticed < shaped.NOTICED_SECONDS + 1.0
            assert found.healed < 5.0

        at_best(scenario)
